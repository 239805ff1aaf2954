//! Lines up the channel: one line is one write under one lock.

use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use channel::{LineError, Message, Outcome};
use serde_json::{Value, json};
use tools::{Category, ToolError};

pub(crate) struct Emitter {
    output: Mutex<File>,
}

impl Emitter {
    pub(crate) fn new(output: File) -> Self {
        Self { output: Mutex::new(output) }
    }

    /// Sends a message. A result too long for a line becomes that job's error. That the supervisor
    /// is gone is the reader's business.
    pub(crate) fn emit(&self, message: &Message) {
        let line = match channel::encode(message) {
            Ok(line) => line,
            Err(error) => {
                let Message::Done { id, .. } = message else { return };
                let Ok(line) = channel::encode(&replaced(*id, &error)) else { return };
                line
            }
        };
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = output.write_all(&line);
    }

    pub(crate) fn done(&self, id: u64, result: Result<Value, ToolError>, interrupted: bool) {
        let result = match result {
            Ok(data) => Outcome::Ok { data, interrupted },
            Err(error) => Outcome::Err { error: json!(error) },
        };
        self.emit(&Message::Done { id, result });
    }
}

fn replaced(id: u64, error: &LineError) -> Message {
    let error = ToolError::new(
        Category::Internal,
        format!("the answer could not be sent: {error}; ask for less, and please report it"),
    );
    Message::Done { id, result: Outcome::Err { error: json!(error) } }
}
