//! A batch's subject over a worker's job: the same on every engine.

use std::time::{Duration, Instant};

use batch::{Done, Failure, Identity, Probe, Subject, Unidentified};
use control::{Control, Verdict};
use target::capability::RunStop;
use target::{ContextOf, Driven, Halt, Space, TargetError, TargetKind, View};

use crate::tool::Job;

/// Bytes read between two looks at the clock.
const PIECE: usize = 64 * 1024;

pub(super) struct OverJob<'a, 'b> {
    job: &'a mut Job<'b>,
    began: Instant,
    /// The job's flag without its deadline: the batch keeps its own time.
    halt: Halt,
}

impl<'a, 'b> OverJob<'a, 'b> {
    pub(super) fn new(job: &'a mut Job<'b>) -> Self {
        let halt = Halt::with_flag(job.halt.flag(), None);
        Self { job, began: Instant::now(), halt }
    }

    fn raised(&self) -> bool {
        self.halt.stop().is_some()
    }

    /// Runs a line; what the engine said of it, and where the target stopped if it moved.
    fn drive(&mut self, text: &str, within: Duration) -> Result<Driven, TargetError> {
        let job = &mut *self.job;
        let progress = job.progress;
        let moving = || progress.moving();
        let driven = match job.target.command() {
            Some(command) => command.drive(text, within, &moving, &self.halt),
            None => {
                let live = command::Live { runs: job.runs, wait: within, moving: &moving };
                job.commands.drive(job.target, text, live, &self.halt)
            }
        };
        // The scope of raw commands belongs to the stop before.
        if driven.as_ref().map_or(true, |driven| driven.stop.is_some()) {
            job.commands.reset_scope();
        }
        driven
    }

    fn done(&self, driven: Driven) -> Result<Done, Failure> {
        let Driven { output, failed, stop } = driven;
        let mut done = Done { output: output.text, cut_short: output.cut_short, ..Done::default() };
        if let Some(stop) = &stop {
            done.stopped_at = self.ip(stop);
            done.timed_out = stop.timed_out;
            done.cut_short |= stop.interrupted;
        }
        match failed {
            None => Ok(done),
            Some(why) => Err(Failure { done, ..Failure::new("debugger", why) }),
        }
    }

    fn ip(&self, stop: &RunStop) -> Option<u64> {
        let context = self.job.target.context(ContextOf::Selected, View::Default);
        (!stop.target_gone).then(|| context.ok().flatten()).flatten().map(|context| context.ip())
    }
}

fn failure(error: TargetError) -> Failure {
    let cut_short = matches!(error, TargetError::Interrupted);
    let done = Done { cut_short, ..Done::default() };
    Failure { done, ..Failure::new(error.category().0, error.to_string()) }
}

fn unwritable(kind: TargetKind) -> Failure {
    let what = match kind {
        TargetKind::UserDump | TargetKind::KernelDump => "a dump",
        TargetKind::Image => "an image",
        TargetKind::Trace => "a recording",
        TargetKind::LocalKernel => "the kernel the debugger itself runs on",
        TargetKind::Process | TargetKind::Kernel => "this target",
    };
    let message = format!("{what} takes no writes; a live process does, through the dbgeng engine");
    Failure { untouched: true, ..Failure::new("unsupported", message) }
}

impl Subject for OverJob<'_, '_> {
    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn abandoned(&self) -> bool {
        self.job.progress.transaction().is_some_and(|t| t.abandoned())
    }

    fn interrupted(&self) -> bool {
        self.job.progress.transaction().map_or_else(|| self.raised(), |t| t.interrupted())
    }

    fn rolling_back(&mut self) -> bool {
        match self.job.progress.transaction() {
            Some(transaction) => transaction.seal(),
            None => self.halt.flag().swap(false, std::sync::atomic::Ordering::Relaxed),
        }
    }

    fn identity(&mut self) -> Result<Identity, Unidentified> {
        self.job.target.identify().map_err(|error| match error {
            TargetError::Gone(why) => Unidentified::Gone(why),
            other => Unidentified::Unreadable(other.to_string()),
        })
    }

    fn aim_at(&mut self, aim: &str) -> Result<(), String> {
        self.job.target.aim_at(aim).map_err(|error| error.to_string())
    }

    fn command(&mut self, text: &str, within: Duration) -> Result<Done, Failure> {
        let driven = self.drive(text, within).map_err(failure)?;
        self.done(driven)
    }

    fn resume(&mut self, text: &str, wait: Duration) -> Result<Done, Failure> {
        control::run_of(self.job.target).map_err(|error| Failure { untouched: true, ..failure(error) })?;
        let driven = self.drive(text, wait).map_err(failure)?;
        let moved = driven.stop.is_some();
        let done = self.done(driven)?;
        // A target that ended while it ran is told by its identity.
        if moved || self.identity().is_err() || done.cut_short {
            return Ok(done);
        }
        Err(Failure { done, ..Failure::new("debugger", "the command did not let the target move") })
    }

    fn run_to(&mut self, address: &str, wait: Duration) -> Result<Done, Failure> {
        control::run_of(self.job.target).map_err(|error| Failure { untouched: true, ..failure(error) })?;
        let began = Instant::now();
        let at = self.eval(address, wait)?;
        let job = &mut *self.job;
        let progress = job.progress;
        let moving = || progress.moving();
        let mut control = Control { target: job.target, runs: job.runs, halt: &self.halt, moving: &moving };
        let ran = control::run_to(&mut control, at, wait.saturating_sub(began.elapsed()));
        job.commands.reset_scope();
        let ran = ran.map_err(failure)?;
        Ok(Done {
            output: ran.output,
            verdict: Some(ran.verdict),
            stopped_at: ran.stopped_at.map(|at| at.0),
            timed_out: ran.verdict == Verdict::Timeout,
            cut_short: ran.interrupted,
        })
    }

    fn eval(&mut self, expression: &str, within: Duration) -> Result<u64, Failure> {
        let halt = self.halt.at_most(within);
        let target = self.job.target;
        match target.command() {
            Some(_) => target.evaluate(expression, &halt),
            // Where the interpreter is ours, so are `$t0` and the context set by `.cxr`.
            None => self.job.commands.evaluate(target, expression, &halt),
        }
        .map_err(failure)
    }

    fn read(&mut self, address: u64, size: usize, within: Duration) -> Result<Vec<u8>, Failure> {
        let halt = self.halt.at_most(within);
        let mut bytes = vec![0; size];
        let mut done = 0;
        while done < size {
            halt.check("reading memory").map_err(failure)?;
            let end = size.min(done + PIECE);
            let outcome = self.job.target.read(
                Space::Virtual,
                address.wrapping_add(done as u64),
                &mut bytes[done..end],
            );
            done += outcome.read;
            let Some(why) = outcome.stopped else { continue };
            if done == 0 {
                return Err(failure(TargetError::Unreadable(target::ReadError { address, why })));
            }
            break;
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn write(&mut self, address: u64, bytes: &[u8], _: Duration) -> Result<(), Failure> {
        let target = self.job.target;
        let write = target.write().ok_or_else(|| unwritable(target.facts().kind))?;
        let holding = write.write(Space::Virtual, address, bytes).map_err(failure)?;
        if holding == bytes.len() {
            return Ok(());
        }
        let text = format!("only {holding} of {} bytes at {address:#018x} hold the new value", bytes.len());
        Err(Failure::new("debugger", text))
    }

    fn probe(&mut self) -> Probe {
        match self.job.target.context(ContextOf::Selected, View::Default) {
            Ok(Some(context)) => Probe::Stopped { ip: context.ip() },
            Ok(None) => Probe::Unknown("there is no register context".to_owned()),
            Err(TargetError::Running) => Probe::Running,
            Err(error) => Probe::Unknown(error.to_string()),
        }
    }

    fn progress(&mut self, text: &str) {
        self.job.progress.step(text);
    }
}
