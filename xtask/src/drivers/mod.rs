//! The test drivers of `fixtures/drivers`: built, swept, loaded under Wine, compared with the tools.

mod build;
mod hazards;
mod imports;
mod mapped;
mod objects;
mod source;
mod speed;
mod sweep;
mod table;
mod wine;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::process::root;

#[derive(Subcommand)]
pub(crate) enum Drivers {
    /// Builds the committed drivers from their sources (clang, lld, mingw gcc).
    Build {
        /// Build into `target/drivers` and compare with what is committed, byte for byte.
        #[arg(long)]
        check: bool,
        /// Only these drivers: `d01 d24`.
        drivers: Vec<String>,
    },
    /// Generates the large images that benches read into `target/drivers/speed`.
    Speed,
    /// Prints what every build of every driver accepts, by the oracles and by `ioctl_map`.
    Table(Table),
}

#[derive(Args)]
pub(crate) struct Table {
    /// Sweep again what was swept before.
    #[arg(long)]
    fresh: bool,
    /// Without the sweeps: the specification's rows alone.
    #[arg(long)]
    no_sweep: bool,
    /// Without Wine.
    #[arg(long)]
    no_wine: bool,
    /// Every build under Wine, not one of each driver.
    #[arg(long, conflicts_with = "no_wine")]
    every_build: bool,
    /// The oracles alone, without `ioctl_map`.
    #[arg(long)]
    no_tool: bool,
    /// The windbg-mcp to ask [default: the release build, else the debug one].
    #[arg(long)]
    program: Option<PathBuf>,
    /// Only these drivers.
    drivers: Vec<String>,
}

pub(crate) fn run(chore: Drivers) -> Result<()> {
    match chore {
        Drivers::Build { check, drivers } => build::run(check, &drivers),
        Drivers::Speed => speed::generate().map(drop),
        Drivers::Table(asked) => {
            let program = match (asked.no_tool, asked.program) {
                (true, _) => None,
                (false, Some(program)) => Some(program),
                (false, None) => Some(table::program(&root())?),
            };
            table::print(&table::Asked {
                fresh: asked.fresh,
                sweep: !asked.no_sweep,
                wine: !asked.no_wine,
                every_build: asked.every_build,
                program,
                drivers: asked.drivers,
            })
        }
    }
}

/// The images that benches read.
pub(crate) fn for_benches() -> Result<()> {
    speed::generate().map(drop)
}

/// The step of the full test command.
pub(crate) fn check() -> Result<()> {
    build::run(true, &[])?;
    table::print(&table::Asked {
        fresh: false,
        sweep: true,
        wine: true,
        every_build: false,
        program: Some(table::program(&root())?),
        drivers: Vec::new(),
    })
}
