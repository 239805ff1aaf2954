//! The engines of this build, as factories for the worker role.

#[cfg(windows)]
mod dbgeng;
mod native;

use target::{Target, TargetKind};
use tools::opening::version_block;
use tools::{Category, OpenReport, ToolError, summary_of};
use worker::Factories;

/// What `doctor` says of the engines: name, and whether this build has it.
pub(crate) const AVAILABLE: &[(&str, bool)] = &[("native", true), ("dbgeng", cfg!(windows))];

/// The worker's factories for the engine its command line names.
pub(crate) fn factories(arguments: impl Iterator<Item = String>) -> Factories {
    let asked: Vec<String> =
        arguments.filter_map(|a| a.strip_prefix("--engine=").map(str::to_owned)).collect();
    match asked.first().map(String::as_str) {
        #[cfg(windows)]
        Some("dbgeng") => dbgeng::factories(),
        Some("native") | None => native::factories(),
        Some(other) => {
            let text = format!("this build has no engine {other:?} to work with");
            Factories { prepare: Some(Box::new(move || Err(text))), ..native::factories() }
        }
    }
}

/// Lets go of what a worker leaves on disk.
pub(crate) fn clean() {
    #[cfg(windows)]
    dbgeng::clean();
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The report of an opened target; `more` says of the engine what only its worker knows.
fn report(target: &dyn Target, engine: &str, more: String) -> OpenReport {
    OpenReport {
        kind: kind(target.facts().kind).to_owned(),
        engine: engine.to_owned(),
        engine_reason: more,
        report: version_block(target),
        summary: summary_of(target),
    }
}

fn kind(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::UserDump | TargetKind::KernelDump => "dump",
        TargetKind::Image => "image",
        TargetKind::Trace => "trace",
        TargetKind::Process => "process",
        TargetKind::Kernel => "kernel",
        TargetKind::LocalKernel => "kernel_local",
    }
}

/// The refusal, which names the file whatever the engine said.
fn refused(path: &str, category: &str, reason: Option<&str>, message: String) -> ToolError {
    let category = match category {
        "unsupported" => Category::Unsupported,
        "interrupted" => Category::Interrupted,
        "timeout" => Category::Timeout,
        "invalid_argument" => Category::InvalidArgument,
        _ => Category::Debugger,
    };
    let message = if message.contains(path) { message } else { format!("{path}: {message}") };
    let mut out = ToolError::new(category, message);
    out.reason = reason.map(ToOwned::to_owned);
    out
}
