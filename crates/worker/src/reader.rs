//! The reader: never blocks on the engine, touches it only through a job's break flag.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use channel::{LineBuffer, Op, Request};
use serde_json::json;
use tools::{Category, ToolError};

use crate::emit::Emitter;
use crate::jobs::{Jobs, Queued, Work};

/// How long the release may take once the supervisor is gone.
const GRACE: Duration = Duration::from_secs(5);

/// Reads until the supervisor closes the channel, then lets go of the target; answers the process's
/// exit code. Does not join the engine thread: it may be parked for ever.
pub(crate) fn read(mut input: File, jobs: &Jobs, emitter: &Emitter) -> i32 {
    let mut buffer = LineBuffer::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => buffer.extend(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                tracing::warn!(%error, "the request channel broke");
                break;
            }
        }
        loop {
            match buffer.next_message::<Request>() {
                Ok(None) => break,
                Ok(Some(request)) => act(request, jobs, emitter),
                Err(error) => {
                    // A supervisor of another build; nothing it says can be relied on.
                    emitter.emit(&channel::Message::Fatal { text: error.to_string() });
                    leave(jobs);
                    return 1;
                }
            }
        }
    }
    leave(jobs);
    0
}

/// Lets go of the target. Ending the process that controls a kernel neither resumes nor releases it:
/// one that could not be let go of is kept, for whoever looks at the target (spec 10 section 1.9).
fn leave(jobs: &Jobs) {
    if !jobs.preserved() {
        jobs.abandon(GRACE);
    }
    while jobs.keeps() {
        std::thread::park();
    }
}

fn act(request: Request, jobs: &Jobs, emitter: &Emitter) {
    let Request { id, op, patience_ms } = request;
    let work = match op {
        Op::Interrupt { job } => {
            let (outcome, about) = jobs.interrupt(job);
            let (job, tool) = about.map_or((None, None), |(id, name)| (Some(id), Some(name)));
            emitter.done(id, Ok(json!({ "outcome": outcome, "job": job, "tool": tool })), false);
            return;
        }
        Op::Cancel { job } => {
            let cancelled = jobs.cancel(job);
            if cancelled {
                let error = ToolError::new(
                    Category::NotRun,
                    "the call's time ran out while it waited for the call before it; nothing was done. \
                     Call again when the session is idle",
                );
                emitter.done(job, Err(error), false);
            }
            emitter.done(id, Ok(json!({ "cancelled": cancelled })), false);
            return;
        }
        Op::Abandon => {
            let within = jobs.announce(id);
            let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            emitter.done(id, Ok(json!({ "within_ms": within_ms })), false);
            return;
        }
        Op::PreserveKernel => {
            jobs.preserve();
            emitter.done(id, Ok(json!({ "preserved": true })), false);
            return;
        }
        Op::Open { request } => Work::Open(request),
        Op::Run { operation, args } => Work::Run { operation, args },
        Op::End => {
            jobs.ending();
            Work::End
        }
    };
    let patience = patience_ms.map(Duration::from_millis);
    jobs.push(Queued { id, work, patience, arrived: Instant::now() });
}
