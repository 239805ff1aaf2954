//! The log: standard error and the ring that `server_log` reads, under one filter.

use std::io::{self, Write};
use std::sync::Arc;

use redaction::Redactor;
use supervisor::{LogRing, RingLayer};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The protocol library narrates every message; only its troubles are news.
const SERVING: &str = "info,rmcp=warn";
const FOR_PEOPLE: &str = "warn,rmcp=warn";

fn filter(serving: bool) -> Result<EnvFilter, ParseError> {
    match std::env::var("RUST_LOG") {
        Ok(asked) if !asked.trim().is_empty() => EnvFilter::try_new(asked),
        _ => EnvFilter::try_new(if serving { SERVING } else { FOR_PEOPLE }),
    }
}

/// Standard error behind the redactor. The formatter writes an event at a time.
struct Filtered(Redactor);

impl Write for Filtered {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        io::stderr().write_all(self.0.log_line(&text).as_bytes())?;
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// What a panic says goes to standard error past every layer.
fn filter_panics(redactor: Redactor) {
    std::panic::set_hook(Box::new(move |panic| {
        let text = format!("windbg-mcp: {panic}; this is a bug, please report it\n");
        // Nobody is left to tell when standard error is gone.
        let _ = io::stderr().write_all(redactor.log_line(&text).as_bytes());
    }));
}

/// Starts logging; `serving` decides how much when `RUST_LOG` does not.
///
/// # Errors
/// A `RUST_LOG` that does not parse.
pub(crate) fn start(serving: bool, redactor: Redactor) -> Result<Arc<LogRing>, ParseError> {
    let records = supervisor::Config::from_env().map_or(1000, |config| config.log_records);
    let ring = Arc::new(LogRing::redacting(records, redactor.clone()));
    if redactor.filters() {
        filter_panics(redactor.clone());
    }
    let stderr = tracing_subscriber::fmt::layer();
    let stderr = stderr.with_writer(move || Filtered(redactor.clone())).with_ansi(false);
    tracing_subscriber::registry()
        .with(filter(serving)?)
        .with(stderr)
        .with(RingLayer(Arc::clone(&ring)))
        .init();
    Ok(ring)
}
