//! The engines of this build, as factories for the worker role.

use std::path::Path;

use engine_native::{OpenError, OpenOptions};
use target::{Halt, Target, TargetKind};
use tools::opening::version_block;
use tools::{Category, EngineChoice, OpenReport, OpenRequest, ToolError, summary_of};
use worker::{Factories, Opener};

/// What `doctor` says of the engines: name, and whether this build has it.
pub(crate) const AVAILABLE: &[(&str, bool)] = &[("native", true), ("dbgeng", false)];

pub(crate) fn factories() -> Factories {
    Factories { engine: "native", prepare: None, open: Box::new(open), operations: Vec::new() }
}

fn open(
    request: &OpenRequest,
    opener: &dyn Opener,
    _: &Halt,
) -> Result<(Box<dyn Target>, OpenReport), ToolError> {
    let OpenRequest::Dump { path, engine, symbol_path, image_path, image_base, network } = request else {
        return Err(ToolError::new(Category::Unsupported, "this build opens dumps and images only"));
    };
    if *engine == EngineChoice::Dbgeng {
        return Err(ToolError::new(
            Category::Unsupported,
            "engine dbgeng is not in this build, which has the native engine only; leave engine out or say native",
        )
        .because("no_dbgeng"));
    }
    opener.step("opening the dump");
    let options = OpenOptions {
        symbol_path: symbol_path.clone().or_else(|| variable("_NT_SYMBOL_PATH")),
        image_path: image_path.clone().or_else(|| variable("_NT_EXECUTABLE_IMAGE_PATH")),
        image_base: *image_base,
        network: *network,
    };
    let target = engine_native::open(Path::new(path), &options).map_err(|error| refused(path, error))?;
    opener.committed();
    opener.step("reading what it says of itself");
    let report = report(&*target, *engine);
    Ok((target, report))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn report(target: &dyn Target, engine: EngineChoice) -> OpenReport {
    let reason = match engine {
        EngineChoice::Native => "it was asked for",
        _ => "it is the only engine of this build",
    };
    OpenReport {
        kind: kind(target.facts().kind).to_owned(),
        engine: "native".to_owned(),
        engine_reason: reason.to_owned(),
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
fn refused(path: &str, error: OpenError) -> ToolError {
    let category = match error.category {
        "unsupported" => Category::Unsupported,
        "invalid_argument" => Category::InvalidArgument,
        _ => Category::Debugger,
    };
    let message =
        if error.message.contains(path) { error.message } else { format!("{path}: {}", error.message) };
    let mut out = ToolError::new(category, message);
    out.reason = error.reason.map(ToOwned::to_owned);
    out
}
