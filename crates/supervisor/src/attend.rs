//! The two tasks beside a worker: one writes its requests, one reads its messages and notices its
//! end at once.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use channel::{Message, Op, Request};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;
use tools::{Category, ToolError};

use crate::process::Lines;
use crate::session::{Outgoing, Phase, Session};
use crate::stderr::Cause;

/// After its exit a worker's last messages are read for so long.
const DRAIN: Duration = Duration::from_millis(500);
/// A worker that closed its channel has so long to exit.
const EXIT: Duration = Duration::from_secs(6);

/// Starts both tasks.
pub(crate) fn attend(
    session: &Arc<Session>,
    child: Child,
    input: ChildStdin,
    output: Lines,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
) {
    tokio::spawn(write(Arc::clone(session), input, outgoing));
    tokio::spawn(watch(Arc::clone(session), child, output));
}

async fn write(session: Arc<Session>, mut input: ChildStdin, mut outgoing: mpsc::UnboundedReceiver<Outgoing>) {
    let hang_up = session.hang_up.clone();
    let writing = async {
        while let Some(next) = outgoing.recv().await {
            let Some(line) = at_the_front(&session, next) else { continue };
            if input.write_all(&line).await.is_err() {
                // The worker is gone or going; the watcher says so.
                break;
            }
        }
    };
    tokio::select! {
        () = hang_up.cancelled() => {}
        () = writing => {}
    }
    // Dropping `input` is the worker's end of file.
}

/// The gate at the front of the queue: what was ahead may have retired or closed the handle.
fn at_the_front(session: &Session, next: Outgoing) -> Option<Vec<u8>> {
    let mut state = session.state();
    if let Some(refusal) = session.refusal(&state, next.gate) {
        drop(state);
        session.dispatch(Message::Done { id: next.id, result: refused(&refusal) });
        return None;
    }
    if next.retires {
        session.advance(&mut state, Phase::Retired, Some("a command that can replace the target ran"));
    }
    if next.op == Op::End {
        session.advance(&mut state, Phase::Closed, Some("ended on request"));
    }
    drop(state);
    let patience_ms = next.deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    });
    match channel::encode(&Request { id: next.id, op: next.op, patience_ms }) {
        Ok(line) => Some(line),
        Err(error) => {
            let error = ToolError::new(Category::InvalidArgument, format!("the arguments are too long: {error}"));
            session.dispatch(Message::Done { id: next.id, result: refused(&error) });
            None
        }
    }
}

fn refused(error: &ToolError) -> channel::Outcome {
    channel::Outcome::Err { error: serde_json::json!(error) }
}

async fn watch(session: Arc<Session>, mut child: Child, mut output: Lines) {
    let mut fatal = None;
    let mut status = None;
    loop {
        tokio::select! {
            message = output.next() => match message {
                Ok(Some(Message::Fatal { text })) => {
                    fatal = Some(text);
                    break;
                }
                Ok(Some(message)) => session.dispatch(message),
                Ok(None) | Err(_) => break,
            },
            exit = child.wait() => {
                status = exit.ok();
                while let Ok(Ok(Some(message))) = tokio::time::timeout(DRAIN, output.next()).await {
                    session.dispatch(message);
                }
                break;
            }
            () = session.kill.cancelled() => break,
        }
    }
    session.hang_up.cancel();
    if status.is_none() {
        status = reap(&session, &mut child, fatal.is_some()).await;
    }
    session.last_words.all(DRAIN).await;
    let cause = session.last_words.cause();
    session.lose(&how(status, fatal.as_deref(), cause), cause == Some(Cause::Memory));
    session.exited.send_replace(true);
}

/// Waits for the process, killing it when told to, when it talks nonsense, or when it does not go.
async fn reap(session: &Session, child: &mut Child, nonsense: bool) -> Option<ExitStatus> {
    if !nonsense && !session.kill.is_cancelled() {
        tokio::select! {
            exit = child.wait() => return exit.ok(),
            () = tokio::time::sleep(EXIT) => {}
            () = session.kill.cancelled() => {}
        }
    }
    if let Err(error) = child.start_kill() {
        tracing::debug!(session = session.id, %error, "the worker was gone before it could be killed");
    }
    child.wait().await.ok()
}

/// How a worker ended, in words.
fn how(status: Option<ExitStatus>, fatal: Option<&str>, cause: Option<Cause>) -> String {
    let ended = status.map_or_else(|| "it ended".to_owned(), |status| format!("it ended with {status}"));
    match (fatal, cause) {
        (Some(text), _) => format!("it sent what this server does not understand and was killed ({text})"),
        (None, Some(Cause::Memory)) => format!(
            "it reached its memory bound (1024 MiB, or WINDBG_MCP_WORKER_MEMORY_MB, which raises it); {ended}"
        ),
        (None, Some(Cause::Stack)) => format!("its stack overflowed; {ended}"),
        (None, None) => ended,
    }
}
