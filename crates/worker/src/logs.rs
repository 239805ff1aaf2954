//! Log records up the channel, through a bounded queue and a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use channel::{LogLine, Message};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry};

use crate::emit::Emitter;

/// Records waiting to be written; more are dropped and counted.
const QUEUE: usize = 512;
/// Longest message, in bytes.
const RECORD: usize = 4096;

enum Item {
    Line(LogLine),
    Flush(SyncSender<()>),
}

pub(crate) struct Logs {
    queue: SyncSender<Item>,
}

impl Logs {
    /// Waits until what was logged before is written, a second at most.
    pub(crate) fn flush(&self) {
        let (done, flushed) = sync_channel(1);
        if self.queue.try_send(Item::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(Duration::from_secs(1));
        }
    }
}

/// Starts mirroring; the filter is `RUST_LOG`'s, `info` without it.
pub(crate) fn start(emitter: Arc<Emitter>) -> Logs {
    let (queue, items) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new().name("log".to_owned());
    if let Err(error) = thread.spawn(move || write(&items, &emitter)) {
        eprintln!("windbg-mcp worker: no log thread: {error}");
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let layer = Mirror { queue: queue.clone(), dropped: AtomicU64::new(0) };
    // Only a second subscriber in one process can fail here.
    let _ = Registry::default().with(filter).with(layer).try_init();
    Logs { queue }
}

fn write(items: &Receiver<Item>, emitter: &Emitter) {
    for item in items {
        match item {
            Item::Line(line) => emitter.emit(&Message::Log(line)),
            Item::Flush(done) => drop(done.send(())),
        }
    }
}

struct Mirror {
    queue: SyncSender<Item>,
    dropped: AtomicU64,
}

struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push_str(&format!(" {}={value:?}", field.name()));
        }
    }
}

impl<S: tracing::Subscriber> Layer<S> for Mirror {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut words = Words { message: String::new(), fields: String::new() };
        event.record(&mut words);
        let mut text = words.message + &words.fields;
        if text.len() > RECORD {
            let whole = text.len();
            let mut end = RECORD;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push_str(&format!(" [{whole} bytes in all]"));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = LogLine {
            at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            level: event.metadata().level().as_str().to_ascii_lowercase(),
            target: event.metadata().target().to_owned(),
            text,
            dropped: self.dropped.swap(0, Ordering::Relaxed),
        };
        let dropped = line.dropped;
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Item::Line(line)) {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }
}
