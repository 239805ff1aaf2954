//! What a tool is, and its type-erased row.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use target::{Halt, Progress, Target};

use crate::error::{Category, ToolError};
use crate::prose::Fragment;
use crate::sessions::Sessions;
use crate::surface::Surface;

/// A group is an activity, not a subsystem (spec 20 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    Session,
    Inspect,
    Exec,
    Ttd,
    Ioctl,
    Allocator,
    Crash,
    Batch,
    SecureKernel,
}

impl Group {
    /// In `tools/list` order.
    pub const ALL: [Self; 9] = [
        Self::Session,
        Self::Inspect,
        Self::Exec,
        Self::Ttd,
        Self::Ioctl,
        Self::Allocator,
        Self::Crash,
        Self::Batch,
        Self::SecureKernel,
    ];

    /// Whether its tools are served when nobody chose.
    #[must_use]
    pub fn is_ordinary(self) -> bool {
        self != Self::SecureKernel
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Inspect => "inspect",
            Self::Exec => "exec",
            Self::Ttd => "ttd",
            Self::Ioctl => "ioctl",
            Self::Allocator => "allocator",
            Self::Crash => "crash",
            Self::Batch => "batch",
            Self::SecureKernel => "securekernel",
        }
    }
}

/// MCP annotations; spec 20 section 7 has the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

impl Hints {
    /// A pure answer that never reaches an engine.
    pub const PURE: Self = Self { read_only: true, destructive: false, idempotent: true, open_world: false };
    /// Reads the target; may fetch symbols.
    pub const READ: Self = Self { read_only: true, destructive: false, idempotent: true, open_world: true };
    /// Changes session state only.
    pub const STATE: Self =
        Self { read_only: false, destructive: false, idempotent: false, open_world: true };
    pub const END: Self = Self { read_only: false, destructive: true, idempotent: true, open_world: true };
    /// Changes session state, and a repeat changes nothing more.
    pub const AGAIN: Self = Self { read_only: false, destructive: false, idempotent: true, open_world: true };
    /// Opens, or lets a live target move, which cannot be undone.
    pub const OPEN: Self = Self { read_only: false, destructive: true, idempotent: false, open_world: true };
}

/// What every tool declares, wherever it runs.
pub trait Tool: 'static {
    const NAME: &'static str;
    /// At most 40 characters, unique.
    const TITLE: &'static str;
    const HINTS: Hints;
    /// Description: what it answers, when to use it, the one trap that makes a call wrong.
    const PROSE: &'static [Fragment];
    /// A raw hatch answers text only and has no output schema.
    const RAW: bool = false;
    /// May be called while the target moves.
    const WHILE_RUNNING: bool = false;
    type Params: Serialize + DeserializeOwned + JsonSchema + Send;
    type Output: Serialize + DeserializeOwned + JsonSchema;

    /// Rewrites arguments that are accepted in another form than the one advertised.
    fn loosen(_args: &mut Map<String, Value>) {}
    /// Rules the schema can't say: exclusive pairs, operand guards. All problems at once.
    fn check(_params: &Self::Params) -> Result<(), Vec<String>> {
        Ok(())
    }
    /// Whether running this can replace the target, so that the handle must not be reused.
    fn retires_handle(_params: &Self::Params) -> bool {
        false
    }
    /// Sensible next calls after this answer; both halves name those that are served.
    fn next(_output: &Self::Output) -> &'static [&'static str] {
        &[]
    }
    /// Whether this answer, which is one, is marked as an error all the same (spec 20 section 2.7).
    fn is_error(_output: &Value) -> bool {
        false
    }
    /// The text half, a pure function of the typed value.
    fn render(output: &Self::Output, surface: &Surface) -> String;
    /// What a transcript tells of the answer beside itself: stops, changes of the target.
    fn derived(_output: &Self::Output) -> Vec<transcript::Derived> {
        Vec::new()
    }
}

/// A tool that runs in the supervisor and needs no session.
pub trait PureTool: Tool {
    fn run(params: Self::Params) -> Result<Self::Output, ToolError>;
}

/// What a worker gives a running tool.
pub struct Job<'a> {
    pub target: &'a dyn Target,
    /// The bound and the break flag of this job.
    pub halt: &'a Halt,
    pub progress: &'a dyn Progress,
    /// State of raw commands (`.cxr`, `.frame`, the last `d` address), kept between calls.
    pub commands: &'a mut command::Session,
    /// What one run leaves for the next.
    pub runs: &'a mut control::Runs,
    /// What analyses keep for the next call.
    pub kept: &'a mut crate::kept::Kept,
}

/// A tool that runs on the engine thread of the session's worker.
pub trait WorkerTool: Tool {
    fn run(job: &mut Job<'_>, params: Self::Params) -> Result<Self::Output, ToolError>;
}

/// A tool that runs in the supervisor over its sessions.
#[async_trait]
pub trait SessionsTool: Tool {
    async fn run(sessions: Arc<dyn Sessions>, params: Self::Params) -> Result<Self::Output, ToolError>;
}

type SessionsRun =
    fn(Arc<dyn Sessions>, Value) -> std::pin::Pin<Box<dyn Future<Output = Result<Value, ToolError>> + Send>>;

/// Where and how a tool runs.
#[derive(Clone, Copy)]
pub enum Run {
    Pure(fn(Value) -> Result<Value, ToolError>),
    Worker(for<'a, 'b> fn(&'a mut Job<'b>, Value) -> Result<Value, ToolError>),
    Sessions(SessionsRun),
}

/// A tool with its types erased: the row of the one table.
pub struct ToolEntry {
    pub name: &'static str,
    pub title: &'static str,
    pub group: Group,
    pub hints: Hints,
    pub prose: &'static [Fragment],
    pub raw: bool,
    pub while_running: bool,
    pub run: Run,
    /// Made once: every call is checked against it.
    pub(crate) input: LazyLock<Value>,
    pub(crate) output: LazyLock<Value>,
    pub(crate) typed: LazyLock<Value>,
    pub(crate) loosen: fn(&mut Map<String, Value>),
    pub(crate) check: fn(&Value) -> Result<(), Vec<String>>,
    pub(crate) retires: fn(&Value) -> bool,
    pub(crate) next: fn(&Value) -> &'static [&'static str],
    pub(crate) render: fn(&Value, &Surface) -> Result<String, String>,
    pub(crate) is_error: fn(&Value) -> bool,
    pub(crate) derived: fn(&Value) -> Vec<transcript::Derived>,
}

fn parse<T: Tool>(args: Value) -> Result<T::Params, ToolError> {
    serde_json::from_value(args)
        .map_err(|error| ToolError::invalid(format!("arguments of {}: {error}", T::NAME)))
}

fn finish<T: Tool>(output: &T::Output) -> Result<Value, ToolError> {
    serde_json::to_value(output).map_err(|error| {
        ToolError::new(Category::Internal, format!("the result of {} did not serialise: {error}", T::NAME))
    })
}

impl ToolEntry {
    fn new<T: Tool>(group: Group, run: Run) -> Self {
        Self {
            name: T::NAME,
            title: T::TITLE,
            group,
            hints: T::HINTS,
            prose: T::PROSE,
            raw: T::RAW,
            while_running: T::WHILE_RUNNING,
            run,
            input: LazyLock::new(crate::schema::input::<T::Params>),
            output: LazyLock::new(crate::schema::output::<T::Output>),
            typed: LazyLock::new(crate::schema::typed::<T::Output>),
            loosen: T::loosen,
            check: |args| match serde_json::from_value::<T::Params>(args.clone()) {
                Ok(params) => T::check(&params),
                Err(error) => Err(vec![error.to_string()]),
            },
            retires: |args| {
                serde_json::from_value::<T::Params>(args.clone())
                    .is_ok_and(|params| T::retires_handle(&params))
            },
            next: |data| {
                serde_json::from_value::<T::Output>(data.clone()).map_or(&[], |output| T::next(&output))
            },
            is_error: T::is_error,
            render: |data, surface| {
                serde_json::from_value::<T::Output>(data.clone())
                    .map(|output| T::render(&output, surface))
                    .map_err(|error| format!("result of {}: {error}", T::NAME))
            },
            derived: |data| {
                serde_json::from_value::<T::Output>(data.clone())
                    .map(|output| T::derived(&output))
                    .unwrap_or_default()
            },
        }
    }

    /// The row of a tool that runs without a session.
    #[must_use]
    pub fn pure<T: PureTool>(group: Group) -> Self {
        Self::new::<T>(group, Run::Pure(|args| finish::<T>(&T::run(parse::<T>(args)?)?)))
    }

    /// The row of a tool that runs in a worker.
    #[must_use]
    pub fn worker<T: WorkerTool>(group: Group) -> Self {
        Self::new::<T>(group, Run::Worker(|job, args| finish::<T>(&T::run(job, parse::<T>(args)?)?)))
    }

    /// The row of a tool that runs over the supervisor's sessions.
    #[must_use]
    pub fn sessions<T: SessionsTool>(group: Group) -> Self {
        Self::new::<T>(
            group,
            Run::Sessions(|sessions, args| {
                Box::pin(async move { finish::<T>(&T::run(sessions, parse::<T>(args)?).await?) })
            }),
        )
    }

    /// The JSON schema of the arguments.
    #[must_use]
    pub fn input_schema(&self) -> &Value {
        &self.input
    }

    /// The JSON schema of both result branches; `None` for the raw hatches.
    #[must_use]
    pub fn output_schema(&self) -> Option<&Value> {
        (!self.raw).then(|| &*self.output)
    }

    /// The schema of the result's type with what only this product reads: which strings are
    /// vocabulary (`x-verbatim`). Never served.
    #[must_use]
    pub fn typed_schema(&self) -> &Value {
        &self.typed
    }

    /// What a transcript tells of `data`, a result of this tool, beside itself.
    #[must_use]
    pub fn derived(&self, data: &Value) -> Vec<transcript::Derived> {
        (self.derived)(data)
    }

    #[must_use]
    pub fn description(&self, surface: &Surface) -> String {
        crate::prose::render(self.prose, surface)
    }

    /// The JSON schema of the arguments, its prose narrowed to `surface`.
    #[must_use]
    pub fn input_schema_for(&self, surface: &Surface) -> Value {
        let mut schema = Value::clone(&self.input);
        crate::schema::narrow(&mut schema, surface);
        schema
    }

    /// The served tools that are a sensible next call after this answer.
    #[must_use]
    pub fn next(&self, data: &Value, surface: &Surface) -> Vec<&'static str> {
        (self.next)(data).iter().copied().filter(|name| surface.serves(name)).collect()
    }

    /// Whether an answer of this tool is marked as an error.
    #[must_use]
    pub fn is_error(&self, data: &Value) -> bool {
        (self.is_error)(data)
    }

    /// The text of a result.
    ///
    /// # Errors
    /// When `data` is not this tool's output: a broken invariant, said in words.
    pub fn render(&self, data: &Value, surface: &Surface) -> Result<String, String> {
        (self.render)(data, surface)
    }
}
