//! The command line for people: `triage`, `call`, `tools`, `doctor`, `transcript`. Everything goes through the
//! supervisor and the tools an MCP client uses; nothing here opens a dump itself.

mod arguments;
mod call;
mod doctor;
mod driver;
mod dumps;
mod image_file;
mod list;
mod next;
mod output;
mod progress;
mod report;
mod stack;
mod style;
mod summary;
mod transcript;
mod triage;
mod when;

use std::sync::Arc;

use supervisor::Supervisor;

pub use arguments::Arguments;
use arguments::Command;

/// Everything worked.
const OK: i32 = 0;
/// Something failed; what, is on standard error.
const FAILED: i32 = 1;
/// The command line was wrong.
const USAGE: i32 = 2;

/// Engines a build knows by name, and whether it has them.
pub type Engines = &'static [(&'static str, bool)];

/// Runs a subcommand and answers the exit code: 0 all well, 1 something failed, 2 wrong usage.
pub async fn run(arguments: Arguments, supervisor: &Arc<Supervisor>, engines: Engines) -> i32 {
    let build = arguments.build;
    output::through(supervisor.redactor());
    let code = match arguments.command {
        Some(Command::Triage(asked)) => triage::run(&asked, supervisor).await,
        Some(Command::Driver(asked)) => driver::run(&asked, supervisor).await,
        Some(Command::Call(asked)) => call::run(&asked, supervisor).await,
        Some(Command::Tools(asked)) => list::run(&asked),
        Some(Command::Doctor { json }) => doctor::run(supervisor, engines, build, json).await,
        Some(Command::InstallEngine(asked)) => install_engine(&asked.from, supervisor),
        Some(Command::Transcript(asked)) => transcript::run(&asked, supervisor.redactor()),
        None => USAGE,
    };
    supervisor.shutdown().await;
    code
}

fn install_engine(from: &std::path::Path, supervisor: &Arc<Supervisor>) -> i32 {
    match supervisor.install_engine(from) {
        Ok(done) => {
            let version = done.version.map(|version| format!(" {version}")).unwrap_or_default();
            output::said(&format!(
                "DbgEng{version} is in {} ({} files copied)",
                done.to.display(),
                done.files
            ));
            for missing in done.missing {
                output::line(&format!("missing  {missing}"));
            }
            OK
        }
        Err(error) => {
            output::problem(&error.to_string());
            FAILED
        }
    }
}
