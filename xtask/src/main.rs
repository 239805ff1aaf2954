//! Every chore of this repository: `cargo xtask --help`.

mod compare;
mod dist;
mod drivers;
mod fixtures;
mod fuzz;
mod kernel_fixture;
mod lab;
mod live;
mod object_fixture;
mod prerequisite;
mod process;
mod pydivert;
mod suite;
mod tables;
mod windows;
mod wine;
mod wine_run;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Every chore of this repository")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// All checks and all tests; installs what they need. What CI runs.
    Test {
        /// Run only these steps (see the list it prints).
        steps: Vec<String>,
    },
    /// Rebuilds the committed fixtures from their sources (clang and lld; Wine for the user crash).
    Fixtures {
        /// Rebuild into a temporary folder and compare with what is committed.
        #[arg(long)]
        check: bool,
        /// Also make the user crash dump anew, with Microsoft's DbgEng from this folder under Wine.
        #[arg(long)]
        engine: Option<std::path::PathBuf>,
    },
    /// The test drivers: build them, print what each accepts and the oracle that says so.
    #[command(subcommand)]
    Drivers(drivers::Drivers),
    /// Regenerates the name tables of `analysis-status` from the sources of the crate `windows`.
    Tables {
        /// The unpacked crate, `.../windows-0.62.2`.
        windows: std::path::PathBuf,
    },
    /// Installs and checks Microsoft's DbgEng under Wine, compilers and Rust targets, in `.lab`.
    Lab,
    /// Runs a Windows program under Wine with Microsoft's DLLs: cargo's runner for Windows tests.
    WineRun {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<String>,
    },
    /// Builds the Windows worker that Wine runs into `target/share/wine`, where the programs find it.
    WineWorker {
        #[arg(long)]
        release: bool,
        /// The 32-bit one too.
        #[arg(long)]
        x86: bool,
    },
    /// Records the surface: the figures in the docs and the golden of bytes, from a running server.
    Surface,
    /// Builds the release archives for this system and for Windows into `target/dist`.
    Dist,
    /// Asks both engines the same about a dump and prints where they differ (needs the lab).
    Compare {
        dump: std::path::PathBuf,
        /// More folders with symbols, `;` between; the dump's own is always searched.
        #[arg(long)]
        symbols: Option<String>,
        /// Folders with the dump's images, `;` between.
        #[arg(long)]
        images: Option<String>,
        /// Every accepted difference too, not only how many there are for each reason.
        #[arg(long)]
        all: bool,
    },
    /// Side-by-side speed and memory figures: release build, triage, reads (spec 80 section 13).
    Bench,
    /// Mutates copies of small dumps and PDBs and opens each in a worker: no death, no hang.
    Mutate {
        /// How many mutated copies.
        #[arg(long, default_value_t = 2000)]
        count: u32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Runs libFuzzer on the targets of `fuzz/`, one after another.
    Fuzz {
        /// Only these targets.
        targets: Vec<String>,
        /// How long each.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// Only write what they start from into `fuzz/corpus`.
        #[arg(long)]
        seeds: bool,
    },
}

fn main() {
    let result = match Arguments::parse().chore {
        Chore::Test { steps } => suite::run_steps(&steps),
        Chore::Fixtures { check, engine } => fixtures::rebuild(check, engine.as_deref()),
        Chore::Drivers(chore) => drivers::run(chore),
        Chore::Tables { windows } => {
            tables::generate(&windows, &process::root().join("crates/analysis-status/data"))
        }
        Chore::Lab => lab::set_up(),
        Chore::WineWorker { release, x86 } => windows::wine_worker(release, x86),
        Chore::Surface => suite::surface(),
        Chore::Dist => dist::build(),
        Chore::WineRun { words } => wine_run::run(&words).map(|code| {
            if code != 0 {
                std::process::exit(code);
            }
        }),
        Chore::Compare { dump, symbols, images, all } => {
            compare::print(&dump, symbols.as_deref(), images.as_deref(), all)
        }
        Chore::Bench => suite::bench(),
        Chore::Mutate { count, seed } => suite::mutate(count, seed),
        Chore::Fuzz { targets, seconds, seeds } => fuzz::run_targets(&targets, seconds, seeds),
    };
    if let Err(error) = result {
        eprintln!("xtask: {error:#}");
        std::process::exit(error.downcast_ref::<prerequisite::NeedsRoot>().map_or(1, |_| 3));
    }
}
