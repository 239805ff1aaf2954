//! Opening the scripted target. The binary decides when: tests set `WINDBG_MCP_TEST_SCRIPTED=1`.

use serde_json::{Value, json};
use target::scripted::{Script, ScriptedTarget, play};
use target::{Halt, Target};
use tools::{Category, Job, OpenReport, Summary, ToolError};

use crate::Opener;

/// The name of [`run_line`] as a worker operation.
pub const OPERATION: &str = "scripted";

/// Whether this process may open scripts.
#[must_use]
pub fn enabled() -> bool {
    std::env::var_os("WINDBG_MCP_TEST_SCRIPTED").is_some_and(|value| value == "1")
}

/// Opens `script`, the JSON of a [`Script`], unless this process may not.
///
/// # Errors
/// `unsupported` unless [`enabled`]; `invalid_argument` for text that is no script; what its steps
/// say.
pub fn open(
    script: &str,
    opener: &dyn Opener,
    halt: &Halt,
) -> Result<(Box<dyn Target>, OpenReport), ToolError> {
    if !enabled() {
        return Err(ToolError::new(Category::Unsupported, "scripted targets are for tests"));
    }
    let script: Script = serde_json::from_str(script)
        .map_err(|error| ToolError::invalid(format!("the script does not parse: {error}")))?;
    play(&script.open, &[], halt).and_then(whole)?;
    opener.committed();
    let report = play(&script.load, &[], halt).and_then(whole)?;
    let target = ScriptedTarget::from_script(&script);
    let live = target.facts().kind.is_live();
    let can = target.abilities();
    let report = OpenReport {
        kind: if live { "launch" } else { "dump" }.to_owned(),
        engine: "scripted".to_owned(),
        engine_reason: "a script was asked for".to_owned(),
        report,
        summary: Summary { arch: Some("x64".to_owned()), pointer_size: Some(8), can, ..Summary::default() },
    };
    Ok((Box::new(target), report))
}

fn whole(played: target::scripted::Played) -> target::Result<String> {
    if played.cut_short { Err(target::TargetError::Interrupted) } else { Ok(played.text) }
}

/// Runs one line of the target's script; `{line}` to `{text, cut_short}`.
///
/// # Errors
/// What the line's steps say; `unsupported` on a target without a command interpreter.
pub fn run_line(job: &mut Job<'_>, args: Value) -> Result<Value, ToolError> {
    let line = args.get("line").and_then(Value::as_str).unwrap_or_default();
    let interpreter = job.target.command().ok_or_else(|| {
        ToolError::new(Category::Unsupported, "this target has no command interpreter of its own")
    })?;
    let output = interpreter.execute(line, job.halt)?;
    Ok(json!({ "text": output.text, "cut_short": output.cut_short }))
}
