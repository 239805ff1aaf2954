//! A bare MCP client over stdio, for tests and benchmarks that drive the binary.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// No call may take longer.
const CALL_BOUND: Duration = Duration::from_secs(10);

/// The binary under test: this build's, or the one `WINDBG_MCP_BINARY` names (a release build).
pub fn binary() -> std::ffi::OsString {
    std::env::var_os("WINDBG_MCP_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_windbg-mcp").into())
}

/// A running server that has been initialised.
pub struct Server {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    next_id: u64,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(Vec::new())
    }

    /// With these variables beside the inherited ones.
    pub fn start_with(environment: Vec<(String, std::ffi::OsString)>) -> Self {
        let mut child = Command::new(binary())
            .env("RUST_LOG", "off")
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut server = Self { child, stdin, lines, next_id: 0 };
        let client = json!({ "name": "mutation", "version": "1" });
        server.request(
            "initialize",
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client }),
        );
        server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
        self.stdin.flush().unwrap();
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let until = Instant::now() + CALL_BOUND;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|error| {
                panic!("{method} {params} did not answer within {CALL_BOUND:?}: {error}")
            });
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                assert!(self.child.try_wait().unwrap().is_none(), "the server died");
                return message["result"].clone();
            }
        }
    }

    /// The whole `tools/call` result.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
