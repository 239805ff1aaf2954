//! The tools: one file each, a folder a group. A tool is a type with a name, parameters, a result,
//! a place to run, `run` and `render`; everything else (schemas, admission, the command line, docs)
//! follows from it. A new tool is one new file and one line in its group's list.

pub mod admit;
mod allocator;
mod batch;
pub mod catalogue;
pub mod crash;
pub mod error;
pub mod exec;
pub mod inspect;
pub mod instructions;
mod ioctl;
mod kept;
pub mod live_opening;
mod location;
pub mod lookup;
pub mod opening;
pub mod operations;
pub mod prompts;
pub mod prose;
pub mod routing;
pub mod schema;
pub mod session;
pub mod sessions;
pub mod stack;
pub mod surface;
mod symbol_hint;
pub mod table;
pub mod tool;
mod whose;
pub mod wildcard;

pub use admit::{Admission, admit};
pub use error::{Category, Hint, ToolError};
pub use kept::Kept;
pub use live_opening::{AttachRequest, InitialBreak, LaunchRequest};
pub use opening::{EngineChoice, OpenReport, OpenRequest, Summary, summary_of};
pub use prose::Fragment;
pub use sessions::Sessions;
pub use surface::{SpecError, Surface};
pub use tool::{Group, Hints, Job, PureTool, SessionsTool, Tool, ToolEntry, WorkerTool};

/// Every tool, in `tools/list` order.
#[must_use]
pub fn all() -> &'static [ToolEntry] {
    static ALL: std::sync::OnceLock<Vec<ToolEntry>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        [
            session::tools(),
            inspect::tools(),
            exec::tools(),
            ioctl::tools(),
            allocator::tools(),
            crash::tools(),
            batch::tools(),
        ]
        .into_iter()
        .flatten()
        .collect()
    })
}

/// The tool of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static ToolEntry> {
    all().iter().find(|entry| entry.name == name)
}
