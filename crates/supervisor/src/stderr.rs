//! What a worker prints: drained into the log at a bounded rate, and read for last words.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::sync::watch;

use crate::{Shared, lock};

/// Longest line; the rest of a longer one is the next.
const LINE: usize = 4096;
/// Lines filed per second and worker.
const RATE: u32 = 200;

/// Why a worker died, as far as its runtime said so on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An allocation was refused.
    Memory,
    Stack,
}

/// What a worker last printed.
#[derive(Debug)]
pub(crate) struct LastWords {
    cause: Mutex<Option<Cause>>,
    line: Mutex<Option<String>>,
    ended: watch::Sender<bool>,
}

impl LastWords {
    pub(crate) fn cause(&self) -> Option<Cause> {
        *lock(&self.cause)
    }
    pub(crate) fn said(&self) -> Option<String> {
        lock(&self.line).clone()
    }
    /// Waits until everything printed was read, `limit` at most.
    pub(crate) async fn all(&self, limit: Duration) {
        let mut ended = self.ended.subscribe();
        let _ = tokio::time::timeout(limit, ended.wait_for(|ended| *ended)).await;
    }

    fn hear(&self, line: &str) {
        // The words of Rust's runtime; spec'd nowhere, so only the cause's wording hangs on them.
        let cause = if line.contains("memory allocation of") && line.contains("failed") {
            Some(Cause::Memory)
        } else if line.contains("has overflowed its stack") {
            Some(Cause::Stack)
        } else {
            None
        };
        if cause.is_some() {
            *lock(&self.cause) = cause;
        }
        *lock(&self.line) = Some(line.to_owned());
    }
}

#[cfg(test)]
impl LastWords {
    pub(crate) fn none() -> Arc<Self> {
        let (cause, line) = (Mutex::new(None), Mutex::new(None));
        Arc::new(Self { cause, line, ended: watch::Sender::new(true) })
    }
}

/// Starts draining.
pub(crate) fn drain(stderr: ChildStderr, shared: Arc<Shared>, session: String) -> Arc<LastWords> {
    let words = Arc::new(LastWords {
        cause: Mutex::new(None),
        line: Mutex::new(None),
        ended: watch::Sender::new(false),
    });
    let heard = Arc::clone(&words);
    tokio::spawn(async move {
        read(stderr, &heard, &shared, &session).await;
        heard.ended.send_replace(true);
    });
    words
}

async fn read(mut stderr: ChildStderr, words: &LastWords, shared: &Shared, session: &str) {
    let mut line = Vec::new();
    let mut piece = [0_u8; 4096];
    let mut rate = Rate::new();
    while let Ok(count @ 1..) = stderr.read(&mut piece).await {
        for &byte in &piece[..count] {
            if byte != b'\n' {
                line.push(byte);
            }
            if byte == b'\n' || line.len() == LINE {
                file(&mut line, &mut rate, words, shared, session);
            }
        }
    }
    file(&mut line, &mut rate, words, shared, session);
    rate.report(shared, session);
}

fn file(line: &mut Vec<u8>, rate: &mut Rate, words: &LastWords, shared: &Shared, session: &str) {
    let text = String::from_utf8_lossy(line).trim_end().to_owned();
    line.clear();
    if text.is_empty() {
        return;
    }
    words.hear(&text);
    if rate.admit(shared, session) {
        shared.log.push(crate::log::now_ms(), "debug", Some(session), "worker::stderr", &text);
    }
}

/// Lines of the running second.
struct Rate {
    second: Instant,
    filed: u32,
    dropped: u64,
}

impl Rate {
    fn new() -> Self {
        Self { second: Instant::now(), filed: 0, dropped: 0 }
    }
    fn admit(&mut self, shared: &Shared, session: &str) -> bool {
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.report(shared, session);
            *self = Self::new();
        }
        self.filed += 1;
        if self.filed > RATE {
            self.dropped += 1;
        }
        self.filed <= RATE
    }
    fn report(&self, shared: &Shared, session: &str) {
        if self.dropped > 0 {
            let text = format!("{} more lines of this worker's output were dropped", self.dropped);
            shared.log.push(crate::log::now_ms(), "warn", Some(session), "worker::stderr", &text);
        }
    }
}
