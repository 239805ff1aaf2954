//! Crash analysis as pure functions of a [`target::Target`]: bug checks, user-mode exceptions,
//! failure buckets and their hashes.
//!
//! No debugger command is issued and no selection is moved. Every step is best-effort: a failed read
//! loses one field, never the call.

mod bucket;
mod buried_throw;
mod crash_verdict;
mod device;
mod exception;
mod exception_verdict;
mod ext_output;
mod fault;
mod fault_context;
mod frames;
mod heap_record;
mod hresult_carrier;
mod kernel;
mod kernel_bucket;
mod kinds;
mod layout;
mod leads;
mod owner;
mod process;
mod recursion;
mod render;
mod result;
mod stowed;
mod summary;
mod teb;
mod thrown;
mod user_bucket;
mod what;
mod whea;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use bucket::{BucketSpace, failure_hash};
pub use exception::exception_triage;
pub use ext_output::parse as parse_ext_output;
pub use kernel::crash_triage;
pub use owner::Owners;
pub use render::{access_words, render_crash, render_exception};
pub use result::*;

/// Frames a triage may be asked for at most.
pub const MAX_FRAMES: usize = 128;

/// Which analysis of a bug check to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Analyzer {
    /// The native one, and `ext` where the engine has it and there is time.
    #[default]
    Auto,
    /// This crate's, on either engine.
    Native,
    /// Microsoft's `!analyze -v` (DbgEng only).
    Ext,
    Both,
}

/// How to triage a bug check.
#[derive(Clone, Debug)]
pub struct CrashParams {
    /// Physical frames to walk, 1..=128.
    pub frames: usize,
    /// Whether to run the analysis (tag, bucket, leads).
    pub analyze: bool,
    /// Which analysis. Refused together with `analyze: false`.
    pub analyzer: Option<Analyzer>,
    pub owners: Owners,
}

impl Default for CrashParams {
    fn default() -> Self {
        Self { frames: 16, analyze: true, analyzer: None, owners: Owners::default() }
    }
}

/// How to triage an exception.
#[derive(Clone, Debug)]
pub struct ExceptionParams {
    /// Physical frames to walk, 1..=128.
    pub frames: usize,
    /// Whether the stack may be searched for a buried throw.
    pub scan_stack: bool,
    pub owners: Owners,
}

impl Default for ExceptionParams {
    fn default() -> Self {
        Self { frames: 32, scan_stack: true, owners: Owners::default() }
    }
}
