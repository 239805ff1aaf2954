//! The session transcript (spec 20 section 4): one JSON object a line for every call and event,
//! scrubbed of secrets, capped, rotated; and its rendering as an asciicast or one HTML page.
//!
//! [`Recorder::record`] never fails its caller: what could not be written is counted and said in
//! the transcript itself. [`Reading::of`] reads transcripts back, [`render::cast`] and
//! [`render::html`] show them.
//!
//! ```
//! use transcript::{Event, Recorder, Settings, Start, Text};
//!
//! let folder = std::env::temp_dir().join(format!("transcript-doc-{}", std::process::id()));
//! let settings = Settings::at(folder.join("t.jsonl"));
//! let start = Start { version: "0.1.0".into(), engines: vec!["native".into()], surface: "all".into() };
//! let recorder = Recorder::open(settings, start)?;
//! recorder.record(None, Event::WorkerLost { session: "sess-1".into(), detail: Text::new("it ended") });
//! let reading = transcript::Reading::of(&[folder.join("t.jsonl")])?;
//! assert_eq!((reading.records.len(), reading.unreadable), (2, 0));
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod event;
mod file;
mod reading;
mod recent;
mod recorder;
pub mod render;
mod scrub;
mod settings;

pub use event::{Derived, Event, Text};
pub use reading::{Reading, Record, Unrenderable, parse_line};
pub use recorder::{Body, Recorder, Start};
pub use settings::Settings;
