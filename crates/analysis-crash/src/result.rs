//! What both triages answer: the fields of spec 60 sections 1 and 3, as the tools return them.

use analysis_status::StatusInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Code, FrameInfo, Rva};

fn is_false(value: &bool) -> bool {
    !*value
}

/// A kernel bug check as fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrashTriage {
    pub verdict: Verdict,
    pub bug_check: BugCheckInfo,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<CrashThread>,
    pub context_source: ContextOrigin,
    /// The first frame that is neither the kernel's nor a pass-through layer's; a positional heuristic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faulting_frame: Option<FrameInfo>,
    /// Why there is no faulting frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faulting_frame_note: Option<String>,
    /// Innermost first. Rows with `found: scan` are guesses, not a walk.
    pub frames: Vec<FrameInfo>,
    /// The stack went on past `frames`.
    pub frames_truncated: bool,
    pub analysis: Analysis,
    /// What Microsoft's `!analyze` said, where it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ext_analysis: Option<Analysis>,
    /// What a reader of the stack must know: images missing, memory absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limitations: Vec<String>,
}

/// The bug check itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct BugCheckInfo {
    pub code: Code,
    /// `code` without modifier bits, when that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_code: Option<Code>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub parameters: [Address; 4],
    /// What each parameter means; `""` where there is nothing to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_notes: Option<[String; 4]>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub live_dump: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// The thread that crashed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CrashThread {
    pub ethread: Address,
    /// Of the process it was attached to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irql: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
}

/// Where the context the stack was walked from came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ContextOrigin {
    CrashContext,
    Selected,
    ContextRecord,
    TrapFrame,
    TrapFrameOnStack,
}

/// The analysis proper: what is blamed, and under which bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analysis {
    pub ran: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<AnalysisSource>,
    /// The command that worked (`ext` only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Cut by a deadline or an interrupt: a missing field means "not reached".
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug_check_name: Option<String>,
    /// The bucket without its symbol part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem_class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_bucket_id: Option<String>,
    /// GUID, lower case, no braces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_id_hash: Option<String>,
    /// `module!function+0xoff` or `module+0xoff` of the follow-up frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_name: Option<String>,
    /// PE TimeDateStamp as 8 hex digits, the debugger's spelling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_timestamp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_name: Option<String>,
    /// Four characters, non-printable ones as `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_notes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followup: Option<String>,
    /// A command that reproduces the stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_command: Option<String>,
    /// What the arguments point at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leads: Vec<Lead>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_form: Option<BucketForm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum AnalysisSource {
    Native,
    Ext,
}

/// Whether the bucket's form is one seen in public analyses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum BucketForm {
    Documented,
    Approximate,
}

/// Something an argument points at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Lead {
    /// `address_class`, `blocked_irp_driver`, `parameter_1`, ...
    pub kind: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

/// One plain sentence and how sure it is. That the cause can't be told with high confidence means that
/// nothing failed: somebody asked for the dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Verdict {
    pub cause: Cause,
    pub confidence: Confidence,
    pub sentence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Cause {
    Application,
    Driver,
    Memory,
    Disk,
    Power,
    Hang,
    CantTell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Confidence {
    Low,
    Medium,
    High,
}

/// A user-mode fault as fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExceptionTriage {
    pub verdict: Verdict,
    pub exception: ExceptionInfo,
    pub kind: ExceptionKind,
    /// One sentence, never more than the record supports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<FailFast>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<WilFailure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thrown: Option<Thrown>,
    pub thrown_search: ThrownSearch,
    /// The stack of the dispatched throw, when it was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throw_frames: Vec<FrameInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clr: Option<Clr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stowed: Vec<Stowed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<HeapFailure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recursion: Option<Recursion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<StatusInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<StatusInfo>,
    pub frames: Vec<FrameInfo>,
    pub frames_truncated: bool,
    /// The target had a context stored with its exception.
    pub stored_crash_context: bool,
    /// The walk used it successfully.
    pub frames_from_stored_context: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_name: Option<String>,
    /// System id of the thread that raised it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<u32>,
    pub analysis: Analysis,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limitations: Vec<String>,
}

/// The exception record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ExceptionInfo {
    pub code: Code,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub decoded: StatusInfo,
    pub address: Address,
    /// `module!function+0xoff` or `module+0xoff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_symbol: Option<String>,
    pub flags: Code,
    pub noncontinuable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_chance: Option<bool>,
    pub parameters: Vec<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested_record: Option<Address>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ExceptionKind {
    FailFast,
    CppThrow,
    AccessViolation,
    InPageError,
    StackOverflow,
    HeapCorruption,
    ClrException,
    Stowed,
    Breakpoint,
    SingleStep,
    IllegalInstruction,
    Arithmetic,
    GuardPage,
    InvalidHandle,
    Assertion,
    VerifierStop,
    DelayLoad,
    WinrtOriginate,
    DebugString,
    ThreadName,
    RustPanic,
    GccThrow,
    Hang,
    Other,
}

/// What was accessed, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct AccessInfo {
    pub operation: Operation,
    /// As recorded. Of a non-canonical access the processor records all ones.
    pub address: Address,
    pub class: AddressClass,
    /// The operand's address, computed from the instruction, when the record cannot hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_address: Option<Address>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub non_canonical: bool,
    /// The instruction that faulted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// What lies at the address, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// NTSTATUS of the failed page-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_status: Option<StatusInfo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Operation {
    Read,
    Write,
    Execute,
    Unknown,
}

impl Operation {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
            Self::Unknown => "access",
        }
    }
}

/// What kind of address it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum AddressClass {
    /// Below 0x10000: a null pointer and a small offset.
    NullPage,
    NonCanonical,
    /// User space of which nothing more is known.
    User,
    /// Kernel space of which nothing more is known.
    Kernel,
    Pool,
    SpecialPool,
    ModuleImage,
    UnloadedModule,
    Stack,
    PageTables,
    /// Known not to be committed.
    Unmapped,
    /// Committed memory of no named kind.
    Committed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct FailFast {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subcode: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subcode_name: Option<String>,
    /// A /GS cookie check failed: stack corruption is the finding.
    pub gs_cookie: bool,
}

/// WIL's fail-fast parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct WilFailure {
    pub hresult: StatusInfo,
    pub line: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Always `convention`: no header states it.
    pub confidence: HresultConfidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum HresultConfidence {
    /// The type says so and the object agrees.
    Corroborated,
    /// Pattern only.
    Convention,
}

/// A thrown C++ object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Thrown {
    pub object: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mangled_name: Option<String>,
    /// Every type a `catch` can take it as, most derived first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub catchable_as: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hresult: Option<StatusInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hresult_confidence: Option<HresultConfidence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hresult_source: Option<HresultSource>,
    /// WIL's message, file, function and line, where the object is a `wil::ResultException`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<ThrowOrigin>,
    pub provenance: Provenance,
    #[serde(default, skip_serializing_if = "is_false")]
    pub rethrow: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_note: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ThrowOrigin {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum HresultSource {
    Winrt,
    ComError,
    Wil,
    Atl,
    SystemError,
    Platform,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Provenance {
    /// The event is the throw.
    Reported,
    /// The record sits exactly where a dispatcher frame on this stack puts it.
    Dispatched,
    /// Found by pattern; may predate this fault.
    Scanned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ThrownSearch {
    /// The fault is of another kind, or is itself the throw.
    NotNeeded,
    /// `scan_stack: false`.
    Declined,
    /// No stack pointer to search from.
    NoAnchor,
    SearchedNone,
    Found,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Clr {
    pub hresult: StatusInfo,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_base: Option<Address>,
}

/// One stowed exception.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Stowed {
    pub hresult: StatusInfo,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<FrameInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested_type: Option<String>,
}

/// `HEAP_FAILURE_INFORMATION`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct HeapFailure {
    pub failure_type: Rva,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_name: Option<String>,
    pub heap: Address,
    pub address: Address,
    pub param1: Address,
    pub param2: Address,
    pub param3: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_block: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_block: Option<Address>,
    pub layout: HeapLayout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum HeapLayout {
    Pdb,
    Assumed,
}

/// A cycle of return addresses on the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Recursion {
    /// Frames in one turn.
    pub period: usize,
    /// Whole turns seen.
    pub repeats: usize,
    /// The frames of one turn, by name.
    pub frames: Vec<String>,
    /// The frame the first turn was called from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_from: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema<T: JsonSchema>() -> serde_json::Value {
        schemars::schema_for!(T).to_value()
    }

    /// Result types go out with every tool list: they stay small and one level of `$defs` deep.
    #[test]
    fn schemas_are_small_and_flat() {
        for (name, schema) in [("crash", schema::<CrashTriage>()), ("exception", schema::<ExceptionTriage>())]
        {
            let text = schema.to_string();
            assert!(text.len() < 20_000, "{name}: {} bytes", text.len());
            assert!(schema["required"].as_array().is_some_and(|r| r.iter().any(|f| f == "verdict")));
            let defs: Vec<&String> = schema["$defs"].as_object().into_iter().flat_map(|d| d.keys()).collect();
            assert!(defs.len() <= 4, "{name}: {defs:?}");
        }
    }
}
