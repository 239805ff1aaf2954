//! The test drivers of `fixtures/drivers`: built, swept, loaded under Wine, compared with the tools.

mod build;
mod imports;
mod source;

use anyhow::Result;
use clap::Subcommand;

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
}

pub(crate) fn run(chore: Drivers) -> Result<()> {
    match chore {
        Drivers::Build { check, drivers } => build::run(check, &drivers),
    }
}
