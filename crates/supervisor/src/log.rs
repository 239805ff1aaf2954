//! The server's log (spec 10 section 1.11): one bounded ring of the supervisor's own records and
//! every worker's.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use redaction::Redactor;
use tools::sessions::{LogPage, LogQuery, LogRecord};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer};

/// Longest message kept, in bytes.
const RECORD: usize = 4096;

/// The ring. Share it with [`RingLayer`] so that the supervisor's own records reach it.
#[derive(Debug)]
pub struct LogRing {
    capacity: usize,
    redactor: Redactor,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    records: VecDeque<LogRecord>,
    next: u64,
}

fn rank(level: &str) -> u8 {
    match level {
        "error" => 0,
        "warn" => 1,
        "info" => 2,
        "debug" => 3,
        _ => 4,
    }
}

fn at(milliseconds: u64) -> String {
    let seconds = i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX);
    let rest = u32::try_from(milliseconds % 1000).unwrap_or(0);
    target::value::rfc3339(seconds, rest).unwrap_or_default()
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl LogRing {
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::redacting(capacity, Redactor::none())
    }

    /// A ring whose records pass `redactor` as they are filed.
    #[must_use]
    pub fn redacting(capacity: usize, redactor: Redactor) -> Self {
        Self { capacity: capacity.max(1), redactor, inner: Mutex::default() }
    }

    /// Adds a record; `session_id` only for what that session's worker wrote.
    pub fn push(&self, at_ms: u64, level: &str, session_id: Option<&str>, target: &str, message: &str) {
        // Before the cut, which could leave half of what is looked for.
        let message = &*self.redactor.log_line(message);
        let mut text = crate::answer::prefix(message, RECORD).to_owned();
        if text.len() < message.len() {
            text.push_str(&format!(" [{} bytes in all]", message.len()));
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = inner.next;
        inner.next += 1;
        if inner.records.len() == self.capacity {
            inner.records.pop_front();
        }
        inner.records.push_back(LogRecord {
            seq,
            at: at(at_ms),
            level: level.to_owned(),
            session_id: session_id.map(ToOwned::to_owned),
            target: target.to_owned(),
            message: text,
        });
    }

    /// The latest records that match, oldest first. `owned` are the asking client's sessions;
    /// records that name another's are not there for it. A set and not a question: asking while the
    /// ring is locked could wait for someone who logs.
    pub(crate) fn page(&self, query: &LogQuery, owned: &HashSet<String>) -> LogPage {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = rank(&query.level);
        let matches: Vec<&LogRecord> = inner
            .records
            .iter()
            .filter(|record| query.since.is_none_or(|since| record.seq >= since))
            .filter(|record| rank(&record.level) <= wanted)
            .filter(|record| match (&query.session_id, &record.session_id) {
                (Some(asked), Some(its)) => asked == its,
                (Some(_), None) => false,
                (None, _) => true,
            })
            .filter(|record| record.session_id.as_deref().is_none_or(|its| owned.contains(its)))
            .filter(|record| handles(&record.message).all(|named| owned.contains(named)))
            .collect();
        let oldest_seq = inner.records.front().map(|record| record.seq);
        LogPage {
            matched: matches.len(),
            records: matches[matches.len().saturating_sub(query.limit)..].iter().copied().cloned().collect(),
            next_since: inner.next,
            held: inner.records.len(),
            capacity: self.capacity,
            oldest_seq,
            missed: matches!((query.since, oldest_seq), (Some(since), Some(oldest)) if since < oldest),
        }
    }
}

/// Session handles a message names.
fn handles(message: &str) -> impl Iterator<Item = &str> {
    message.match_indices("sess-").map(|(start, _)| {
        let digits = message[start + 5..].bytes().take_while(u8::is_ascii_hexdigit).count();
        &message[start..start + 5 + digits]
    })
}

/// A `tracing` layer that files the supervisor's events in a ring. Put the same filter on it as on
/// stderr.
pub struct RingLayer(pub std::sync::Arc<LogRing>);

#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        // Writing to a String cannot fail.
        let _ = if field.name() == "message" {
            let rest = std::mem::take(&mut self.0);
            write!(self.0, "{value:?}{rest}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}

impl<S: tracing::Subscriber> Layer<S> for RingLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut words = Words::default();
        event.record(&mut words);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        self.0.push(now_ms(), &level, None, event.metadata().target(), &words.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(level: &str, limit: usize) -> LogQuery {
        LogQuery { level: level.into(), limit, ..LogQuery::default() }
    }

    #[test]
    fn the_latest_matches_oldest_first() {
        let ring = LogRing::new(3);
        for (index, level) in ["info", "debug", "warn", "info"].into_iter().enumerate() {
            ring.push(0, level, None, "t", &format!("m{index}"));
        }
        let page = ring.page(&query("info", 1), &HashSet::new());
        assert_eq!(page.records.iter().map(|r| r.message.as_str()).collect::<Vec<_>>(), ["m3"]);
        assert_eq!((page.matched, page.held, page.oldest_seq, page.next_since), (2, 3, Some(1), 4));
        let since = LogQuery { since: Some(0), ..query("trace", 9) };
        assert!(ring.page(&since, &HashSet::new()).missed);
        let empty = LogQuery { since: Some(4), ..query("trace", 9) };
        assert_eq!(ring.page(&empty, &HashSet::new()).next_since, 4);
    }

    #[test]
    fn another_clients_records_are_not_there() {
        let ring = LogRing::new(9);
        ring.push(0, "info", Some("sess-aa"), "worker", "mine");
        ring.push(0, "info", Some("sess-bb"), "worker", "theirs");
        ring.push(0, "info", None, "supervisor", "session sess-bb closed");
        ring.push(0, "info", None, "supervisor", "listening");
        let mine = HashSet::from(["sess-aa".to_owned()]);
        let page = ring.page(&query("info", 9), &mine);
        assert_eq!(
            page.records.iter().map(|r| r.message.as_str()).collect::<Vec<_>>(),
            ["mine", "listening"]
        );
        let one = LogQuery { session_id: Some("sess-aa".into()), ..query("info", 9) };
        assert_eq!(ring.page(&one, &mine).matched, 1);
    }

    #[test]
    fn long_records_are_cut_at_a_character() {
        let ring = LogRing::new(1);
        ring.push(0, "info", None, "t", &"é".repeat(3000));
        let page = ring.page(&query("info", 1), &HashSet::new());
        assert!(page.records[0].message.ends_with("é [6000 bytes in all]"));
    }
}
