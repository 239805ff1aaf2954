//! An MCP client that sees everything the server writes, in either era of the protocol.

#![allow(dead_code, unreachable_pub, unused_imports)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub mod calls;
pub mod checked;
pub mod surface;

const BOUND: Duration = Duration::from_secs(60);

/// How the protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize` first, naming this revision.
    Handshake(&'static str),
    /// Every request describes itself (2026-07-28).
    Stateless,
}

pub const ERAS: [Era; 5] = [
    Era::Handshake("2024-11-05"),
    Era::Handshake("2025-03-26"),
    Era::Handshake("2025-06-18"),
    Era::Handshake("2025-11-25"),
    Era::Stateless,
];

pub struct Client {
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    era: Era,
    next_id: u64,
    /// Notifications as they came.
    pub notifications: Vec<Value>,
    /// What `initialize` or `server/discover` answered.
    pub greeting: Value,
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

impl Client {
    /// A server that was not spoken to yet.
    pub fn mute(era: Era, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
        command.envs(environment.iter().copied());
        Self::of(command, era)
    }

    /// The server that `command` starts, not spoken to yet.
    pub fn of(mut command: Command, era: Era) -> Self {
        command.env_remove("_NT_SYMBOL_PATH").env_remove("_NT_EXECUTABLE_IMAGE_PATH").env("RUST_LOG", "warn");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, era, next_id: 0, notifications: Vec::new(), greeting: Value::Null }
    }

    pub fn start(era: Era) -> Self {
        Self::start_with(era, &[])
    }

    pub fn start_with(era: Era, environment: &[(&str, &str)]) -> Self {
        let mut client = Self::mute(era, environment);
        client.greet();
        client
    }

    /// Says hello in the client's era.
    pub fn greet(&mut self) {
        self.greeting = match self.era {
            Era::Stateless => self.result("server/discover", json!({})),
            Era::Handshake(version) => {
                let info = json!({ "name": "test", "version": "1" });
                let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": info });
                let greeting = self.result("initialize", params);
                self.line(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
                greeting
            }
        };
    }

    /// Sends one line as it is.
    pub fn line(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{text}").unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request and answers its id.
    pub fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next_id += 1;
        if self.era == Era::Stateless {
            let mut own = meta();
            if let Some(Value::Object(given)) = params.get("_meta") {
                own.as_object_mut().unwrap().extend(given.clone());
            }
            params["_meta"] = own;
        }
        let message = json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params });
        self.line(&message.to_string());
        self.next_id
    }

    /// The next message, whatever it is. Every line of standard output is JSON-RPC.
    pub fn message(&mut self, within: Duration) -> Option<Value> {
        let line = self.lines.recv_timeout(within).ok()?;
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("not JSON ({e}): {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        Some(message)
    }

    /// The answer to `id`, notifications kept aside.
    pub fn answer(&mut self, id: u64) -> Value {
        let until = Instant::now() + BOUND;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.message(left).unwrap_or_else(|| panic!("no answer to {id} within {BOUND:?}"));
            if message["id"] == id {
                return message;
            }
            self.notifications.push(message);
        }
    }

    /// The answer to `id`, perhaps one that came while another was waited for.
    pub fn answer_kept(&mut self, id: u64) -> Value {
        match self.notifications.iter().position(|message| message["id"] == id) {
            Some(at) => self.notifications.remove(at),
            None => self.answer(id),
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub fn result(&mut self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The whole result of a tool call.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// A tool call that must work: its structured answer.
    pub fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone());
        assert_ne!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// A tool call that must fail: its error object.
    pub fn err(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone());
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"]["error"].clone()
    }

    pub fn open(&mut self, path: &Path) -> String {
        self.ok("open_dump", json!({ "path": path }))["session_id"].as_str().unwrap().to_owned()
    }

    /// Closes the server's input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// How the process ended, if it did within the bound.
    pub fn exit(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name).canonicalize().unwrap()
}

pub use test_data::shared as data;
