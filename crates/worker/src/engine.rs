//! The engine thread: runs one job at a time in queue order, each inside a panic guard. Only it
//! touches the target.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use channel::Message;
use serde_json::{Value, json};
use target::{Ending, Halt, Progress, Target, Transaction};
use tools::tool::Run;
use tools::{Category, Job, OpenReport, OpenRequest, ToolError};

use crate::emit::Emitter;
use crate::jobs::{Jobs, Queued, Taken, Work};
use crate::{Factories, Opener, panics};

/// Parsers recurse a bounded number of times; this is far more than they need.
pub(crate) const STACK: usize = 64 << 20;
/// A job with less time than this is not begun.
const LEAST_BUDGET: Duration = Duration::from_millis(250);
/// Kept back from the caller's patience so that the answer arrives in time.
const MOST_HEADROOM: Duration = Duration::from_secs(15);
/// A dump that is not loaded by then is not going to be.
const LOAD: Duration = Duration::from_secs(60);

/// Exit code when there is no engine.
const NO_ENGINE: i32 = 3;

pub(crate) fn start(factories: Factories, jobs: Arc<Jobs>, emitter: Arc<Emitter>) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("engine".to_owned()).stack_size(STACK);
    thread.spawn(move || begin(factories, &jobs, emitter)).map(drop)
}

fn begin(mut factories: Factories, jobs: &Arc<Jobs>, emitter: Arc<Emitter>) {
    let prepared = factories.prepare.take().map_or(Ok(()), |prepare| {
        panics::guard(prepare)
            .unwrap_or_else(|panic| Err(format!("looking for the engine panicked: {panic}")))
    });
    match prepared {
        Ok(()) => Engine::new(factories, emitter).serve(jobs),
        Err(text) => {
            emitter.emit(&Message::Fatal { text });
            // Nothing was claimed, and the reader waits for requests that never come.
            std::process::exit(NO_ENGINE);
        }
    }
}

struct Engine {
    factories: Factories,
    emitter: Arc<Emitter>,
    target: Option<Box<dyn Target>>,
    commands: command::Session,
    runs: control::Runs,
    kept: tools::Kept,
}

/// The progress and milestones of one job.
struct Reporting<'a> {
    id: u64,
    emitter: &'a Emitter,
    jobs: &'a Arc<Jobs>,
    committed: Cell<bool>,
    /// It opens a kernel whose controller must not just end.
    kernel: bool,
    said: Cell<Option<Instant>>,
}

/// Steps closer together than this are not news.
const STEP_INTERVAL: Duration = Duration::from_millis(100);

impl Progress for Reporting<'_> {
    fn step(&self, text: &str) {
        if self.said.get().is_some_and(|at| at.elapsed() < STEP_INTERVAL) {
            return;
        }
        self.said.set(Some(Instant::now()));
        self.emitter.emit(&Message::Progress { id: self.id, text: text.to_owned() });
    }
    fn moving(&self) {
        self.jobs.moving();
        self.emitter.emit(&Message::Resumed { id: self.id });
    }
    fn transaction(&self) -> Option<&dyn Transaction> {
        Some(self)
    }
}

impl Transaction for Reporting<'_> {
    fn begin(&self, within: Duration) -> bool {
        self.jobs.begin_batch(within)
    }
    fn abandoned(&self) -> bool {
        self.jobs.is_abandoned()
    }
    fn interrupted(&self) -> bool {
        self.jobs.is_raised()
    }
    fn seal(&self) -> bool {
        self.jobs.seal()
    }
    fn end(&self) {
        if let Some(id) = self.jobs.end_batch() {
            self.emitter.emit(&Message::RollingBack { id, within_ms: 0 });
        }
    }
}

impl Opener for Reporting<'_> {
    fn committed(&self) {
        if !self.committed.replace(true) {
            if self.kernel {
                self.jobs.claim_kernel();
            }
            self.emitter.emit(&Message::Committed { id: self.id });
        }
    }
    fn when_connected(&self) -> Arc<dyn Fn() + Send + Sync> {
        let (jobs, id) = (Arc::clone(self.jobs), self.id);
        Arc::new(move || jobs.reach_kernel(id))
    }
}

/// What a job may use, or the refusal to begin it.
fn budget(queued: &Queued) -> Result<Option<Duration>, ToolError> {
    let Some(patience) = queued.patience else { return Ok(None) };
    let headroom = MOST_HEADROOM.min(patience / 4);
    let left = patience.saturating_sub(queued.arrived.elapsed()).saturating_sub(headroom);
    if left < LEAST_BUDGET {
        return Err(ToolError::new(
            Category::NotRun,
            format!(
                "not begun: {} ms of the call's time were left after waiting for the calls before it. \
                 Nothing was done; call again when the session is idle",
                left.as_millis()
            ),
        ));
    }
    Ok(Some(left))
}

/// A run nobody waits for: with the session ending, nobody would stop it.
fn is_run(work: &Work) -> bool {
    matches!(work, Work::Run { operation, .. } if operation == tools::operations::RUN)
}

fn opens_kernel(work: &Work) -> bool {
    matches!(work, Work::Open(request) if request.get("open").and_then(Value::as_str) == Some("kernel"))
}

fn no_target() -> ToolError {
    ToolError::new(Category::StaleSession, "this session holds no target any more; end it and open again")
        .then(&["end_session"])
}

impl Engine {
    fn new(factories: Factories, emitter: Arc<Emitter>) -> Self {
        Self {
            factories,
            emitter,
            target: None,
            commands: command::Session::default(),
            runs: control::Runs::default(),
            kept: tools::Kept::default(),
        }
    }

    fn serve(mut self, jobs: &Arc<Jobs>) {
        self.emitter.emit(&Message::Ready {
            build: channel::build(),
            engine: self.factories.engine.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
        });
        loop {
            let Taken { queued, flag, barred } = jobs.take();
            let id = queued.id;
            if queued.work == Work::End {
                let result = self.release(jobs.holds_kernel());
                let holds = jobs.holds_kernel() || self.target.is_some();
                let kept = holds && result.get("failed").is_some();
                jobs.finish();
                self.emitter.done(id, Ok(result), false);
                if kept {
                    continue;
                }
                jobs.released();
                return;
            }
            let result = if jobs.tearing_down() || (jobs.is_ending() && is_run(&queued.work)) {
                Err(no_target())
            } else if barred {
                Err(ToolError::new(Category::Interrupted, "interrupted before it began; nothing was done"))
            } else {
                let begun = budget(&queued);
                // A kernel is waited for until somebody ends that: a call's time does not.
                let unbounded = opens_kernel(&queued.work);
                let begun = begun.map(|budget| budget.filter(|_| !unbounded));
                begun.and_then(|budget| self.guarded(queued, jobs, &Halt::with_flag(flag, budget)))
            };
            let raised = jobs.finish();
            self.emitter.done(id, result.map_err(|error| cut(error, raised)), raised);
        }
    }

    fn guarded(&mut self, queued: Queued, jobs: &Arc<Jobs>, halt: &Halt) -> Result<Value, ToolError> {
        let name = match &queued.work {
            Work::Run { operation, .. } => operation.clone(),
            _ => "opening the target".to_owned(),
        };
        panics::guard(|| self.run(queued, jobs, halt)).unwrap_or_else(|panic| {
            Err(ToolError::new(
                Category::Internal,
                format!("{name} panicked: {panic}. The session goes on; please report this"),
            ))
        })
    }

    fn run(&mut self, queued: Queued, jobs: &Arc<Jobs>, halt: &Halt) -> Result<Value, ToolError> {
        let emitter = Arc::clone(&self.emitter);
        let (committed, said) = (Cell::new(false), Cell::new(None));
        let kernel = self.controls_kernel(&queued.work);
        let reporting = Reporting { id: queued.id, emitter: &emitter, jobs, committed, kernel, said };
        match queued.work {
            Work::Open(request) => self.open(request, &reporting, halt),
            Work::Run { operation, args } => self.operate(&operation, args, &reporting, halt),
            Work::End => Ok(Value::Null),
        }
    }

    fn open(&mut self, request: Value, reporting: &Reporting<'_>, halt: &Halt) -> Result<Value, ToolError> {
        let request: OpenRequest = serde_json::from_value(request).map_err(|error| {
            ToolError::new(Category::Internal, format!("the worker does not know this request: {error}"))
        })?;
        let kernel = matches!(request, OpenRequest::Kernel(_));
        let halt = if kernel { halt.clone() } else { halt.at_most(LOAD) };
        let (target, report) = (self.factories.open)(&request, reporting, &halt)?;
        reporting.committed();
        reporting.emitter.emit(&Message::Opened { id: reporting.id });
        self.target = Some(target);
        self.commands = command::Session::default();
        self.runs = control::Runs::default();
        self.kept = tools::Kept::default();
        serde_json::to_value::<OpenReport>(report).map_err(|error| {
            ToolError::new(Category::Internal, format!("the report of the target did not serialise: {error}"))
        })
    }

    fn operate(
        &mut self,
        operation: &str,
        args: Value,
        progress: &dyn Progress,
        halt: &Halt,
    ) -> Result<Value, ToolError> {
        let run = self.operation(operation)?;
        let target = self.target.as_deref().ok_or_else(no_target)?;
        let mut job = Job {
            target,
            halt,
            progress,
            commands: &mut self.commands,
            runs: &mut self.runs,
            kept: &mut self.kept,
        };
        run(&mut job, args)
    }

    fn operation(&self, name: &str) -> Result<crate::Operation, ToolError> {
        let own = self.factories.operations.iter().find(|(known, _)| *known == name);
        if let Some((_, operation)) = own {
            return Ok(*operation);
        }
        if let Some(operation) = tools::operations::find(name) {
            return Ok(operation);
        }
        match tools::find(name).map(|entry| entry.run) {
            Some(Run::Worker(run)) => Ok(run),
            _ => Err(ToolError::new(Category::Internal, format!("no worker operation is called {name:?}"))),
        }
    }

    /// Whether `work` takes control of a remote kernel that nothing but its release lets go of. The
    /// native engine's waits end when they are told to.
    fn controls_kernel(&self, work: &Work) -> bool {
        opens_kernel(work) && self.factories.engine != "native"
    }

    /// Lets go of the target. What goes wrong is said and never stops the teardown; of a kernel it
    /// does, and the target stays.
    fn release(&mut self, kernel: bool) -> Value {
        let Some(target) = self.target.take() else {
            return match kernel {
                // Its engine still holds on to it.
                true => json!({ "ending": "closed", "failed": "the attach never came to a stop" }),
                false => json!({ "ending": "closed" }),
            };
        };
        let failed = match panics::guard(|| target.release()) {
            Ok(Ok(ending)) => Ok(ending),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => Err(panic),
        };
        let ending = match failed {
            Ok(ending) => ending,
            Err(failed) => {
                let kernel = kernel || target.facts().kind == target::TargetKind::Kernel;
                self.target = Some(target).filter(|_| kernel);
                return json!({ "ending": "closed", "failed": failed });
            }
        };
        match ending {
            Ending::Closed => json!({ "ending": "closed" }),
            Ending::Detached => json!({ "ending": "detached", "target_left_running": true }),
            Ending::Terminated => json!({ "ending": "terminated", "target_left_running": false }),
            Ending::ResumedAndDetached => {
                json!({ "ending": "resumed_and_detached", "target_left_running": true })
            }
        }
    }
}

/// A failure of a job a break was raised for is that break's, unless the job broke by itself.
fn cut(error: ToolError, raised: bool) -> ToolError {
    if !raised || matches!(error.category, Category::Internal | Category::Interrupted) {
        return error;
    }
    let message = format!("interrupted on request: {}", error.message);
    ToolError { category: Category::Interrupted, message, ..error }
}
