//! The cases and what they share.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::{breakpoints, commands, faults, identity, races, release, running};
use engine_dbgeng::{DbgEng, LaunchOptions, OpenError, OpenOptions};
use target::capability::{Breakpoint, Resume, RunStop};
use target::{Context, ContextOf, Halt, SymbolPaths, Target, View};

pub(crate) type Case = (&'static str, fn());

/// What `thrower print` prints: no program under the debugger may write to this one's output.
const PRINTED: &str = "must not reach the debugger";

/// Set for the process that runs one case.
const CASE: &str = "ENGINE_DBGENG_CASE";

pub(crate) fn main() {
    let cases: Vec<Case> = [
        running::CASES,
        breakpoints::CASES,
        commands::CASES,
        release::CASES,
        faults::CASES,
        races::CASES,
        identity::CASES,
    ]
    .concat();
    if let Ok(wanted) = std::env::var(CASE) {
        let case = cases.iter().find(|(name, _)| *name == wanted).expect("the case exists");
        case.1();
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--list") {
        cases.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let filter: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let mut failed = Vec::new();
    for (name, _) in cases.iter().filter(|(n, _)| filter.is_empty() || filter.iter().any(|f| n.contains(*f)))
    {
        let output = Command::new(std::env::current_exe().unwrap()).env(CASE, name).output().unwrap();
        let leaked = String::from_utf8_lossy(&output.stdout).contains(PRINTED);
        if output.status.success() && !leaked {
            println!("test {name} ... ok");
        } else {
            println!("test {name} ... FAILED ({})", output.status);
            println!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            failed.push(*name);
        }
    }
    println!("{} failed of {}: {failed:?}", failed.len(), cases.len());
    std::process::exit(i32::from(!failed.is_empty()));
}

/// The folder with the engine: where the runner put this program.
pub(crate) fn engine_folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Programs of `fixtures/src/live`, built by the runner.
pub(crate) fn program(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/live").join(name)
}

pub(crate) fn options() -> OpenOptions {
    let folder = windows_path(&program(""));
    let paths = SymbolPaths { symbols: folder.clone(), images: folder, network: false };
    OpenOptions { engine: engine_folder(), paths }
}

/// A Unix path as Wine sees it.
pub(crate) fn windows_path(path: &std::path::Path) -> String {
    let absolute = std::path::absolute(path).unwrap().display().to_string();
    let text = absolute.replace('/', "\\");
    if text.starts_with('\\') { format!("Z:{text}") } else { text }
}

pub(crate) fn command_line(name: &str, arguments: &str) -> String {
    format!("\"{}\" {arguments}", windows_path(&program(name)))
}

pub(crate) fn try_launch(launch: &LaunchOptions) -> Result<DbgEng, OpenError> {
    engine_dbgeng::launch(launch, &options(), &|_| {}, &Halt::within(Duration::from_secs(60)))
}

pub(crate) fn launched(name: &str, arguments: &str) -> DbgEng {
    try_launch(&LaunchOptions { command_line: command_line(name, arguments), ..Default::default() })
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Plenty: a case that runs into it fails by `timed_out`.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

pub(crate) fn resume(engine: &DbgEng, how: Resume) -> RunStop {
    resume_within(engine, how, BOUND)
}

pub(crate) fn resume_within(engine: &DbgEng, how: Resume, bound: Duration) -> RunStop {
    let run = engine.run().expect("a live target runs");
    run.resume(how, bound, &|| {}, &Halt::unbounded()).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn context(engine: &DbgEng) -> Context {
    engine.context(ContextOf::Selected, View::Default).unwrap().expect("a stopped thread has a context")
}

pub(crate) fn at(expression: &str) -> Breakpoint {
    Breakpoint {
        expression: Some(expression.to_owned()),
        enabled: true,
        pass_count: 1,
        ..Breakpoint::default()
    }
}

pub(crate) fn set(engine: &DbgEng, breakpoint: &Breakpoint) -> Breakpoint {
    engine.breakpoints().unwrap().add(breakpoint).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn inventory(engine: &DbgEng) -> Vec<Breakpoint> {
    engine.breakpoints().unwrap().list().unwrap()
}

pub(crate) fn execute(engine: &DbgEng, line: &str) -> target::capability::CommandOutput {
    engine.command().unwrap().execute(line, &Halt::within(BOUND)).unwrap_or_else(|error| panic!("{error}"))
}
