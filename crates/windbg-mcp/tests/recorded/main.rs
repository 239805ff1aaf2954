//! What leaves a server beside its answers: transcripts and the log, and what the redaction rules and
//! the masking of secrets keep back from all of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

#[path = "../mcp/mod.rs"]
mod mcp;

mod channels;
mod redaction;
mod transcripts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mcp::{Client, Era};
use serde_json::Value;

/// A folder with everything a server writes: its transcript, its standard error.
pub(crate) struct Watched {
    pub(crate) folder: tempfile::TempDir,
}

impl Watched {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn transcript(&self) -> PathBuf {
        self.path("t.jsonl")
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A server with a transcript and all its log in a file; `before` runs in the shell that starts it.
    pub(crate) fn server(&self, before: &str, environment: &[(&str, &Path)]) -> Client {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("{before}; RUST_LOG=debug exec \"$0\" 2>>\"$1\""))
            .arg(env!("CARGO_BIN_EXE_windbg-mcp"))
            .arg(self.path("stderr"))
            .env("WINDBG_MCP_TRANSCRIPT", self.transcript())
            .envs(environment.iter().copied());
        let mut client = Client::of(command, Era::Handshake("2025-06-18"));
        client.greet();
        client
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.transcript()).unwrap();
        text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Everything in the folder that holds `word`.
    pub(crate) fn grep(&self, word: &str) -> Vec<String> {
        let mut hits = Vec::new();
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap_or_default();
            for line in String::from_utf8_lossy(&bytes).lines().filter(|line| line.contains(word)) {
                hits.push(format!("{}: {}", path.display(), around(line, word)));
            }
        }
        hits
    }
}

/// `word` with what is near it.
pub(crate) fn around(text: &str, word: &str) -> String {
    let Some(at) = text.find(word) else { return String::new() };
    let near = text.char_indices().filter(|(index, _)| index + 120 > at && *index < at + word.len() + 120);
    near.map(|(_, c)| c).collect()
}

/// Where one of `answers` holds `word`.
pub(crate) fn said(answers: &[Value], word: &str) -> Vec<String> {
    let texts = answers.iter().map(Value::to_string).filter(|text| text.contains(word));
    texts.map(|text| around(&text, word)).collect()
}

/// Lets the server end and waits for it.
pub(crate) fn leave(mut client: Client) {
    client.hang_up();
    client.exit(Duration::from_secs(20)).expect("the server ends with its client");
}

pub(crate) fn events<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == name).collect()
}
