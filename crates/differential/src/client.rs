//! A bare MCP client over stdio. Several calls may be under way at once: the engines work side by side.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Error;

/// No call may take longer: the first session of a new Wine prefix sets that up, in 10 to 60 s.
const BOUND: Duration = Duration::from_secs(150);

/// What a tool answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The structured content; of a tool that has none, its text as `text`.
    Served(Value),
    /// `error.category`, `error.reason`, the message.
    Refused { category: String, reason: Option<String>, message: String },
}

impl Answer {
    /// The structured content, `None` of a refusal.
    #[must_use]
    pub fn served(&self) -> Option<&Value> {
        match self {
            Self::Served(value) => Some(value),
            Self::Refused { .. } => None,
        }
    }

    fn of(result: &Value) -> Self {
        let content = &result["structuredContent"];
        if result["isError"] != true {
            let text = || json!({ "text": result["content"][0]["text"] });
            return Self::Served(if content.is_null() { text() } else { content.clone() });
        }
        let error = &content["error"];
        let text = |field: &str| error[field].as_str().map(ToOwned::to_owned);
        Self::Refused {
            category: text("category").unwrap_or_default(),
            reason: text("reason"),
            message: text("message").unwrap_or_default(),
        }
    }
}

/// A call that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sent(u64);

/// A running server that has been initialised.
pub struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next: u64,
    early: HashMap<u64, Value>,
}

impl Client {
    /// Starts `binary` with `environment` added to this process's.
    ///
    /// # Errors
    /// When it does not start or does not answer `initialize`.
    pub fn start(binary: &Path, environment: &[(String, OsString)]) -> Result<Self, Error> {
        let started = |error| Error::NotStarted { program: binary.to_owned(), error };
        let mut command = Command::new(binary);
        command.env_remove("_NT_SYMBOL_PATH").env_remove("_NT_EXECUTABLE_IMAGE_PATH").env("RUST_LOG", "off");
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(started)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(started(std::io::Error::other("it has no pipes")));
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut client = Self { child, stdin: Some(stdin), lines, next: 0, early: HashMap::new() };
        let info = json!({ "name": "differential", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        let sent = client.send("initialize", &hello)?;
        client.result(sent)?;
        client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(client)
    }

    fn write(&mut self, message: &Value) -> Result<(), Error> {
        let stdin = self.stdin.as_mut().ok_or(Error::Hung)?;
        writeln!(stdin, "{message}").and_then(|()| stdin.flush()).map_err(|_| Error::Hung)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<Sent, Error> {
        self.next += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }))?;
        Ok(Sent(self.next))
    }

    fn result(&mut self, sent: Sent) -> Result<Value, Error> {
        let until = Instant::now() + BOUND;
        loop {
            if let Some(message) = self.early.remove(&sent.0) {
                return match message.get("result") {
                    Some(result) => Ok(result.clone()),
                    None => Err(Error::Protocol(message.to_string())),
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).map_err(|error| match error {
                RecvTimeoutError::Timeout => Error::Silent { seconds: BOUND.as_secs() },
                RecvTimeoutError::Disconnected => Error::Hung,
            })?;
            let message: Value = serde_json::from_str(&line).map_err(|_| Error::Protocol(line))?;
            if let Some(id) = message["id"].as_u64() {
                self.early.insert(id, message);
            }
        }
    }

    /// Sends a tool call; [`Client::answer`] waits for what it gives.
    ///
    /// # Errors
    /// When the server is gone.
    pub fn ask(&mut self, tool: &str, arguments: &Value) -> Result<Sent, Error> {
        self.send("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// The answer to a call, within 150 s.
    ///
    /// # Errors
    /// When the server is gone, silent, or does not speak the protocol.
    pub fn answer(&mut self, sent: Sent) -> Result<Answer, Error> {
        Ok(Answer::of(&self.result(sent)?))
    }

    /// A tool call and its answer.
    ///
    /// # Errors
    /// As [`Client::answer`].
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Answer, Error> {
        let sent = self.ask(tool, arguments)?;
        self.answer(sent)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The end of its input tells the server to end its workers; a kill would leave that to them.
        self.stdin = None;
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
