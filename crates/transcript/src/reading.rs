//! Reading transcripts back: line by line, whatever was torn between.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use redaction::{Redactor, Shape};
use serde_json::Value;

use crate::event::Event;

/// Longest line that is read.
const LINE: usize = 64 << 20;
/// Bytes of transcripts read at once.
const ALL: u64 = 2 << 30;

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub run: String,
    pub seq: u64,
    /// RFC 3339; empty when it had none.
    pub at: String,
    pub mono_ms: u64,
    /// The event's name on the line, known or not.
    pub name: String,
    pub event: Event,
}

/// Transcripts as they were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub records: Vec<Record>,
    /// Lines that are no record.
    pub unreadable: usize,
}

/// Why there is nothing to render.
#[derive(Debug, thiserror::Error)]
pub enum Unrenderable {
    #[error("{path}: {error}", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("no records in {0}; name a transcript that WINDBG_MCP_TRANSCRIPT wrote")]
    Empty(String),
    #[error("the transcripts are larger than {} MiB together; render fewer at a time", ALL >> 20)]
    TooLarge,
}

/// The record of one line; `None` when it is none.
#[must_use]
pub fn parse_line(line: &[u8]) -> Option<Record> {
    let Value::Object(mut members) = serde_json::from_slice(line).ok()? else { return None };
    let text = |members: &serde_json::Map<String, Value>, name: &str| {
        members.get(name).and_then(Value::as_str).map(ToOwned::to_owned)
    };
    let name = text(&members, "event")?;
    let run = text(&members, "run")?;
    let seq = members.get("seq")?.as_u64()?;
    let at = text(&members, "at").unwrap_or_default();
    let mono_ms = members.get("mono_ms").and_then(Value::as_u64).unwrap_or(0);
    for envelope in ["v", "run", "seq", "at", "mono_ms"] {
        members.shift_remove(envelope);
    }
    let event = serde_json::from_value(Value::Object(members)).ok()?;
    Some(Record { run, seq, at, mono_ms, name, event })
}

impl Reading {
    /// Reads transcripts, rotated parts in any order.
    ///
    /// # Errors
    /// [`Unrenderable`].
    pub fn of(paths: &[PathBuf]) -> Result<Self, Unrenderable> {
        let mut reading = Self::default();
        let mut left = ALL;
        for path in paths {
            reading.add(path, &mut left)?;
        }
        if reading.records.is_empty() {
            let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            return Err(Unrenderable::Empty(names.join(", ")));
        }
        Ok(reading)
    }

    fn add(&mut self, path: &Path, left: &mut u64) -> Result<(), Unrenderable> {
        let failed = |error| Unrenderable::File { path: path.to_owned(), error };
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut file).take(LINE as u64).read_until(b'\n', &mut line).map_err(failed)?;
            if read == 0 {
                return Ok(());
            }
            *left = left.checked_sub(read as u64).ok_or(Unrenderable::TooLarge)?;
            self.line(&line);
        }
    }

    /// Passes every text through `redactor`: for a transcript kept without its rules.
    pub fn redact(&mut self, redactor: &Redactor) {
        let (callers, ours) = (Shape::callers(), Shape::untyped());
        for record in &mut self.records {
            let (texts, words) = record.event.strings();
            for text in texts {
                text.text = redactor.text(&text.text).into_owned();
            }
            for word in words {
                *word = redactor.text(word).into_owned();
            }
            match &mut record.event {
                Event::ToolRequest { args: Some(value), .. } => drop(redactor.value(value, &callers)),
                Event::ToolResult { data: Some(value), .. } => drop(redactor.value(value, &ours)),
                _ => {}
            }
        }
    }

    /// Takes one line in.
    pub fn line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        match parse_line(line) {
            Some(record) => self.records.push(record),
            None => self.unreadable += 1,
        }
    }
}
