//! The log: standard error and the ring that `server_log` reads, under one filter.

use std::sync::Arc;

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

/// Starts logging; `serving` decides how much when `RUST_LOG` does not.
///
/// # Errors
/// A `RUST_LOG` that does not parse.
pub(crate) fn start(serving: bool) -> Result<Arc<LogRing>, ParseError> {
    let records = supervisor::Config::from_env().map_or(1000, |config| config.log_records);
    let ring = Arc::new(LogRing::new(records));
    let stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry()
        .with(filter(serving)?)
        .with(stderr)
        .with(RingLayer(Arc::clone(&ring)))
        .init();
    Ok(ring)
}
