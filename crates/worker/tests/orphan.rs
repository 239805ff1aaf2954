//! A worker whose supervisor is gone lets go and exits by itself.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use channel::{LineBuffer, Message, OPEN_ID, Op, Request, encode};
use serde_json::json;

struct Raw {
    child: Child,
    buffer: LineBuffer,
}

impl Raw {
    fn start() -> Self {
        Self::start_with(&[])
    }
    fn start_with(environment: &[(&str, &std::path::Path)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scripted-worker"));
        command.env("WINDBG_MCP_TEST_SCRIPTED", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.envs(environment.iter().copied());
        let mut raw =
            Self { child: command.stderr(Stdio::null()).spawn().unwrap(), buffer: LineBuffer::new() };
        assert!(matches!(raw.message(), Message::Ready { build, .. } if build == channel::build()));
        raw
    }
    fn send(&mut self, id: u64, op: Op) {
        let line = encode(&Request { id, op, patience_ms: None }).unwrap();
        self.child.stdin.as_mut().unwrap().write_all(&line).unwrap();
    }
    fn message(&mut self) -> Message {
        loop {
            match self.buffer.next_message().unwrap() {
                Some(Message::Log(_)) => {}
                Some(message) => return message,
                None => {
                    let mut piece = [0; 4096];
                    let count = self.child.stdout.as_mut().unwrap().read(&mut piece).unwrap();
                    assert!(count > 0, "the worker closed its channel");
                    self.buffer.extend(&piece[..count]);
                }
            }
        }
    }
    fn open(&mut self, script: serde_json::Value) {
        let request = json!({ "open": "scripted", "script": script.to_string() });
        self.send(OPEN_ID, Op::Open { request });
        while !matches!(self.message(), Message::Done { id: OPEN_ID, .. }) {}
    }
    /// Closes the channel; how long the worker took to exit.
    fn abandon(mut self) -> Duration {
        drop(self.child.stdin.take());
        let began = Instant::now();
        self.child.wait().unwrap();
        began.elapsed()
    }
}

#[test]
fn an_idle_worker_goes_at_once() {
    let mut raw = Raw::start();
    raw.open(json!({}));
    let took = raw.abandon();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_working_one_is_broken_off() {
    let mut raw = Raw::start();
    raw.open(json!({ "commands": { "work": [{ "sleep": { "ms": 60_000 } }] } }));
    raw.send(1, Op::Run { operation: "scripted".into(), args: json!({ "line": "work" }) });
    std::thread::sleep(Duration::from_millis(100));
    let took = raw.abandon();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn one_that_hears_nothing_is_gone_within_six_seconds() {
    let mut raw = Raw::start();
    raw.open(json!({ "commands": { "deaf": [{ "deaf": { "ms": 60_000 } }] } }));
    raw.send(1, Op::Run { operation: "scripted".into(), args: json!({ "line": "deaf" }) });
    std::thread::sleep(Duration::from_millis(100));
    let took = raw.abandon();
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn a_barred_job_never_begins() {
    let mut raw = Raw::start();
    raw.open(json!({ "commands": { "nap": [{ "sleep": { "ms": 300 } }], "history": ["say_history"] } }));
    let line = |line: &str| Op::Run { operation: "scripted".into(), args: json!({ "line": line }) };
    raw.send(1, line("nap"));
    raw.send(2, line("nap"));
    raw.send(3, Op::Interrupt { job: Some(2) });
    raw.send(4, line("history"));
    let mut text = String::new();
    for _ in 0..4 {
        if let Message::Done { id, result } = raw.message() {
            text.push_str(&format!("{id} {result:?}\n"));
        }
    }
    assert!(text.contains("3 Ok { data: Object {\"outcome\": String(\"barred\")"), "{text}");
    assert!(text.contains("interrupted before it began"), "{text}");
    assert!(text.contains("\"text\": String(\"nap\")"), "one nap only: {text}");
}

#[test]
fn a_supervisor_of_another_build_is_told_off() {
    let mut raw = Raw::start();
    raw.child.stdin.as_mut().unwrap().write_all(b"{\"id\":1,\"op\":\"levitate\"}\n").unwrap();
    assert!(matches!(raw.message(), Message::Fatal { text } if text.contains("levitate")));
    assert_eq!(raw.child.wait().unwrap().code(), Some(1));
}

/// A worker that controls a kernel it was told to keep, or that it cannot let go of, outlives its
/// supervisor; one that can let go does, and goes.
#[test]
fn a_kernel_is_let_go_of_or_kept() {
    for (script, preserve, keeps) in [
        (json!({}), false, false),
        (json!({}), true, true),
        (json!({ "release": [{ "fail": "not now" }] }), false, true),
        (json!({ "load": [{ "fail": "it ran on" }] }), false, true),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), script.to_string()).unwrap();
        let mut raw = Raw::start_with(&[("WINDBG_MCP_TEST_KERNEL", file.path())]);
        let request = json!({ "open": "kernel", "connection": "com:ipport=1,port=h" });
        raw.send(OPEN_ID, Op::Open { request });
        while !matches!(raw.message(), Message::Done { id: OPEN_ID, .. }) {}
        if preserve {
            raw.send(7, Op::PreserveKernel);
            while !matches!(raw.message(), Message::Done { id: 7, .. }) {}
        }
        drop(raw.child.stdin.take());
        let until = Instant::now() + Duration::from_secs(if keeps { 7 } else { 20 });
        let mut exited = None;
        while exited.is_none() && Instant::now() < until {
            exited = raw.child.try_wait().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        raw.child.kill().unwrap();
        raw.child.wait().unwrap();
        assert_eq!(exited.is_none(), keeps, "{script} {preserve}");
    }
}
