//! Whose registers and stack: the `thread` and `view` arguments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Context, ContextOf, Target, TargetKind, View};

use crate::error::{Category, ToolError};

/// Which side of a WoW64 process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum ViewChoice {
    Native,
    Wow64,
}

/// A context and whose it is.
pub(crate) struct Owned {
    pub(crate) context: Option<Context>,
    /// How it was asked for.
    pub(crate) of: ContextOf,
    pub(crate) view: View,
    /// System thread id; absent on kernel targets.
    pub(crate) thread: Option<u32>,
    /// Only on kernel targets.
    pub(crate) processor: Option<u32>,
}

/// Refuses on an image file, which has no thread to ask about.
pub(crate) fn has_threads(target: &dyn Target) -> Result<(), ToolError> {
    if target.facts().kind != TargetKind::Image {
        return Ok(());
    }
    Err(ToolError::new(
        Category::Unsupported,
        "this session is on an image file, which has no threads, registers or stacks; a dump or a live process has",
    )
    .because("wrong_target_kind")
    .then(&["disassemble", "modules"]))
}

/// The context of `thread` (a processor number on a kernel target), the selected one when `None`.
/// Nothing is selected, so nothing needs restoring.
pub(crate) fn context(
    target: &dyn Target,
    thread: Option<u32>,
    view: Option<ViewChoice>,
) -> Result<Owned, ToolError> {
    let view = match view {
        None => View::Default,
        Some(ViewChoice::Native) => View::Native,
        Some(ViewChoice::Wow64) => View::Wow64,
    };
    let kernel = target.facts().kind.is_kernel();
    let of = match thread {
        None => ContextOf::Selected,
        Some(number) => {
            known(target, number, kernel)?;
            if kernel { ContextOf::Processor(number) } else { ContextOf::Thread(number) }
        }
    };
    let context = target.context(of, view)?;
    let selected = target.selection();
    Ok(Owned {
        context,
        of,
        view,
        thread: if kernel { None } else { thread.or(selected.thread) },
        processor: if kernel { thread.or(selected.processor) } else { None },
    })
}

/// Refuses a thread the target does not have, naming those it has.
fn known(target: &dyn Target, number: u32, kernel: bool) -> Result<(), ToolError> {
    let threads = target.threads()?;
    if threads.iter().any(|thread| thread.system_id == number) {
        return Ok(());
    }
    let kind = if kernel { "processor" } else { "thread" };
    let mut ids: Vec<String> = threads.iter().take(16).map(|thread| thread.system_id.to_string()).collect();
    if threads.len() > ids.len() {
        ids.push(format!("... {} in all", threads.len()));
    }
    let have = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
    Err(ToolError::new(Category::Debugger, format!("there is no {kind} {number}; the target has {have}"))
        .because("no_such_thread")
        .then(&["threads"]))
}
