//! Files nobody should open, over MCP.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::io::Read as _;
use std::time::{Duration, Instant};

use mcp::{Client, Era, fixture};
use serde_json::json;

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    liblzma::read::XzEncoder::new(bytes, 0).read_to_end(&mut packed).unwrap();
    packed
}

#[test]
fn a_break_is_heard_while_an_archive_is_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.xz");
    let zeros = xz(&vec![0; 64 << 20]);
    let mut bomb = xz(&std::fs::read(fixture("crash.dmp")).unwrap());
    (0..100).for_each(|_| bomb.extend_from_slice(&zeros));
    std::fs::write(&path, bomb).unwrap();
    let mut client = Client::start(Era::Handshake("2025-06-18"));
    let opening = client.send("tools/call", json!({ "name": "open_dump", "arguments": { "path": path } }));
    std::thread::sleep(Duration::from_millis(400));
    let raised = Instant::now();
    assert_eq!(client.ok("interrupt", json!({}))["outcome"], "raised");
    let answer = client.answer(opening);
    let error = &answer["result"]["structuredContent"]["error"];
    assert_eq!(error["category"], "interrupted", "{answer}");
    assert!(error["message"].as_str().unwrap().contains("bomb.xz"), "{error}");
    assert!(raised.elapsed() < Duration::from_secs(3), "{:?}", raised.elapsed());
    client.open(&fixture("crash.dmp"));
}
