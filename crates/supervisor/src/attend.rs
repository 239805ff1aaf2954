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

async fn write(
    session: Arc<Session>,
    mut input: ChildStdin,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
) {
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
    if next.op == Op::End && session.remote_kernel {
        // It is closed when its target was let go of, and not before.
        state.releasing = true;
    } else if next.op == Op::End {
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
            let error =
                ToolError::new(Category::InvalidArgument, format!("the arguments are too long: {error}"));
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
    let words = session.last_words.said().unwrap_or_default();
    session.lose(&how(status, fatal.as_deref(), cause, &words), cause == Some(Cause::Memory));
    drop(crate::lock(&session.reservation).take());
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
fn how(status: Option<ExitStatus>, fatal: Option<&str>, cause: Option<Cause>, words: &str) -> String {
    let ended = status.map_or_else(|| "it ended".to_owned(), |status| format!("it ended with {status}"));
    match (fatal, cause) {
        (Some(text), _) => format!("it sent what this server does not understand and was killed ({text})"),
        (None, Some(Cause::Memory)) => {
            format!("it reached its memory bound ({words}; WINDBG_MCP_WORKER_MEMORY_MB raises it); {ended}")
        }
        (None, Some(Cause::Stack)) => format!("its stack overflowed; {ended}"),
        // A mapped file that shrinks takes its pages away.
        (None, None) if ended.contains("(SIGBUS)") => {
            format!("{ended}: a file it reads was cut short meanwhile; wait until the dump is whole")
        }
        (None, None) => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Milestones;
    use crate::session::{Ask, Birth, Effects, Gate};
    use crate::stderr::LastWords;
    use crate::{Config, Supervisor};
    use serde_json::{Value, json};
    use tokio::sync::mpsc::UnboundedReceiver;

    fn session() -> (Arc<Session>, UnboundedReceiver<Outgoing>) {
        let shared = Arc::clone(&Supervisor::new(Config::default()).shared);
        let (id, aim) = ("sess-1".to_owned(), "x.dmp".to_owned());
        let (client, engine) = (std::sync::Weak::new(), "scripted".to_owned());
        let (engine_reason, limitation, under_wine) = (String::new(), None, false);
        Session::new(Birth {
            id,
            aim,
            pid: 1,
            engine,
            engine_reason,
            limitation,
            under_wine,
            remote_kernel: false,
            reservation: None,
            shared,
            client,
            last_words: LastWords::none(),
        })
    }

    fn ask(session: &Session, gate: Gate, retires: bool) -> Arc<crate::call::Call> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let op = Op::Run { operation: "execute".into(), args: json!({}) };
        let (name, key, milestones) = ("execute".to_owned(), String::new(), Milestones::none());
        session
            .submit(Ask {
                name,
                key,
                op,
                gate,
                deadline,
                effects: Effects { retires, moves: false },
                milestones,
                request: 0,
            })
            .unwrap()
    }

    fn front(session: &Session, outgoing: &mut UnboundedReceiver<Outgoing>) -> Option<Value> {
        let line = at_the_front(session, outgoing.try_recv().unwrap())?;
        Some(serde_json::from_slice(&line).unwrap())
    }

    #[tokio::test]
    async fn a_named_call_behind_a_retiring_one_never_reaches_the_engine() {
        let (session, mut outgoing) = session();
        ask(&session, Gate::Named, true);
        let named = ask(&session, Gate::Named, false);
        ask(&session, Gate::Default, false);
        let first = front(&session, &mut outgoing).unwrap();
        assert!(first["patience_ms"].as_u64().is_some_and(|ms| (4000..=5000).contains(&ms)), "{first}");
        assert_eq!(session.row(true).state, "retired");
        assert_eq!(front(&session, &mut outgoing), None);
        let error = named.answer().await.unwrap_err();
        assert_eq!(error.category, Category::StaleSession);
        assert!(error.message.contains("was retired"), "{}", error.message);
        assert!(front(&session, &mut outgoing).is_some(), "an unnamed call still reaches the worker");
        drop(session.control(Op::End, Gate::Teardown).unwrap());
        assert_eq!(front(&session, &mut outgoing).unwrap()["op"], "end");
        assert_eq!(session.row(true).state, "closed");
    }

    #[tokio::test]
    async fn calls_queued_behind_the_end_are_refused_at_their_turn() {
        let (session, mut outgoing) = session();
        let ahead = ask(&session, Gate::Default, false);
        drop(session.control(Op::End, Gate::Teardown).unwrap());
        let behind = ask(&session, Gate::Named, false);
        assert!(front(&session, &mut outgoing).is_some());
        assert!(front(&session, &mut outgoing).is_some());
        assert!(front(&session, &mut outgoing).is_none());
        assert_eq!(behind.answer().await.unwrap_err().category, Category::StaleSession);
        let done = channel::Outcome::Ok { data: json!(1), interrupted: false };
        session.dispatch(Message::Done { id: ahead.id, result: done });
        assert_eq!(ahead.answer().await.unwrap().data, json!(1));
    }

    #[tokio::test]
    async fn a_session_takes_so_many_calls_and_no_more() {
        let (session, _outgoing) = session();
        for _ in 0..256 {
            ask(&session, Gate::Default, false);
        }
        let op = Op::Run { operation: "execute".into(), args: json!({}) };
        let refused = session.submit(Ask {
            name: "execute".into(),
            key: String::new(),
            op,
            gate: Gate::Default,
            deadline: Instant::now(),
            effects: Effects::default(),
            milestones: Milestones::none(),
            request: 0,
        });
        assert_eq!(refused.unwrap_err().category, Category::Capacity);
    }

    #[test]
    fn causes_are_told_before_statuses() {
        let memory = how(None, None, Some(Cause::Memory), "memory allocation of 7 bytes failed");
        assert!(memory.starts_with("it reached its memory bound (memory allocation of 7 bytes"), "{memory}");
        assert!(how(None, Some("x"), None, "").contains("does not understand"));
        assert_eq!(how(None, None, None, ""), "it ended");
        #[cfg(unix)]
        {
            use std::os::unix::process::ExitStatusExt as _;
            let bus = how(Some(ExitStatus::from_raw(7)), None, None, "");
            #[cfg(target_os = "linux")]
            assert!(bus.contains("cut short meanwhile; wait until"), "{bus}");
            assert!(bus.starts_with("it ended with signal"), "{bus}");
        }
    }
}
