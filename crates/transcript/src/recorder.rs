//! The recorder: one line an event, in one write, before its caller goes on.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::event::Event;
use crate::file::Sink;
use crate::recent::Recent;
use crate::scrub;
use crate::settings::Settings;

/// The envelope's version.
pub(crate) const VERSION: u64 = 1;
const SCHEMA: &str = "windbg-mcp/transcript/1";

/// What a run says of itself first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub version: String,
    pub engines: Vec<String>,
    /// The tools served, in words.
    pub surface: String,
}

/// The JSON half of a call's record.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    None,
    /// A request's arguments: members that are secret by name are masked.
    Args(&'a Value),
    /// A result's structured answer.
    Data(&'a Value),
}

/// A transcript being written. Recording never fails the caller; what was lost is counted and said
/// in the next record that could be written.
pub struct Recorder {
    run: String,
    began: Instant,
    max_field: usize,
    state: Mutex<State>,
}

struct State {
    sink: Sink,
    seq: u64,
    /// Records that could not be written since the last that could.
    lost: u64,
    recent: Recent,
}

impl State {
    fn lose(&mut self, error: &io::Error) {
        if self.lost == 0 {
            tracing::error!(%error, "the transcript cannot be written; calls are answered without it");
        }
        self.lost += 1;
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("run", &self.run).finish_non_exhaustive()
    }
}

/// The time of day, and nanoseconds since 1970.
fn now() -> (String, u64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let text = target::value::rfc3339(seconds, since.subsec_millis()).unwrap_or_default();
    (text, u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A name two runs do not share: the clock mixed with the process id (splitmix64).
fn run_name(nanoseconds: u64, pid: u32) -> String {
    let mut z = nanoseconds ^ u64::from(pid).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    format!("{:016x}", z ^ (z >> 31))
}

impl Recorder {
    /// Opens the file, making its folder, and records the start.
    ///
    /// # Errors
    /// The path cannot be opened for appending, or is standard output.
    pub fn open(settings: Settings, start: Start) -> io::Result<Self> {
        let sink = Sink::open(&settings)?;
        let recorder = Self {
            run: run_name(now().1, std::process::id()),
            began: Instant::now(),
            max_field: settings.max_field,
            state: Mutex::new(State { sink, seq: 0, lost: 0, recent: Recent::default() }),
        };
        recorder.record(
            None,
            Event::Start {
                version: start.version,
                pid: std::process::id(),
                field_limit: settings.max_field,
                schema: SCHEMA.to_owned(),
                engines: start.engines,
                surface: start.surface,
            },
        );
        Ok(recorder)
    }

    /// The run's name, on every record: 16 hex digits.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Records an event of `client`, or of nobody's in particular.
    pub fn record(&self, client: Option<&str>, event: Event) {
        self.record_with(client, event, Body::None);
    }

    /// Records an event with its JSON half.
    pub fn record_with(&self, client: Option<&str>, mut event: Event, body: Body<'_>) {
        scrub::event(&mut event, self.max_field);
        let mut rest = rest(&event, body, self.max_field);
        let ceiling = 8 * self.max_field + 4096;
        if self.max_field > 0 && rest.len() > ceiling {
            tracing::error!(
                event = event.name(),
                bytes = rest.len(),
                "a transcript record over its ceiling; report this"
            );
            rest = plain(&Event::Oversized { of: event.name().to_owned(), bytes: rest.len() });
        }
        self.write(client, &rest);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number and time are taken inside the lock: line order, `seq` and time agree.
    fn line(&self, state: &mut State, rest: &str) -> String {
        let seq = state.seq;
        state.seq += 1;
        let mono_ms = self.began.elapsed().as_millis();
        let (run, at) = (&self.run, now().0);
        format!(
            "{{\"v\":{VERSION},\"run\":\"{run}\",\"seq\":{seq},\"at\":\"{at}\",\"mono_ms\":{mono_ms},{rest}\n"
        )
    }

    fn write(&self, client: Option<&str>, rest: &str) {
        let state = &mut *self.lock();
        // The envelope is 120 bytes or so.
        let rotated = match state.sink.ready(rest.len() + 160) {
            Ok(rotated) => rotated,
            Err(error) => {
                state.seq += 1;
                return state.lose(&error);
            }
        };
        let (before, mut lines) = (state.seq, String::new());
        if state.lost > 0 {
            // What was torn ends here; then how much is missing.
            lines.push('\n');
            lines.push_str(&self.line(state, &plain(&Event::Gap { lost: state.lost })));
        }
        if let Some(from) = rotated {
            lines.push_str(&self.line(state, &plain(&Event::Continued { from })));
        }
        lines.push_str(&self.line(state, rest));
        if !Self::put(state, client, &lines) {
            // What is missing is the record; what would have told of it was nothing yet.
            state.seq = before + 1;
        }
    }

    /// Whether they were written.
    fn put(state: &mut State, client: Option<&str>, lines: &str) -> bool {
        match state.sink.append(lines.as_bytes()) {
            Ok(()) => {
                if state.lost > 0 {
                    tracing::warn!(lost = state.lost, "the transcript is written again");
                    state.lost = 0;
                }
                state.recent.push(client, lines.trim_start_matches('\n'));
                true
            }
            Err(error) => {
                state.lose(&error);
                false
            }
        }
    }

    /// The last 256 KiB of whole lines of this run that are `client`'s or nobody's, oldest first.
    #[must_use]
    pub fn recent(&self, client: &str) -> String {
        self.lock().recent.of(client)
    }
}

/// An event's members behind the envelope's, with the closing brace.
fn plain(event: &Event) -> String {
    let encoded = serde_json::to_string(event).unwrap_or_else(|_| "{\"event\":\"other\"}".to_owned());
    encoded[1..].to_owned()
}

fn rest(event: &Event, body: Body<'_>, limit: usize) -> String {
    let mut rest = plain(event);
    let (name, encoded) = match body {
        Body::None => return rest,
        Body::Args(value) => ("args", scrub::json(value, true, limit)),
        Body::Data(value) => ("data", scrub::json(value, false, limit)),
    };
    rest.pop();
    rest.push_str(&format!(",\"{name}\":{encoded}}}"));
    rest
}
