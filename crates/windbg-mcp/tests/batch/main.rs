//! `debug_batch` from a client's side: on a dump, and on live processes of DbgEng under Wine, with a
//! second reader that looks at the process's memory past every debugger. The live ones run with
//! `WINDBG_MCP_LAB=1`.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

mod cut;
#[path = "../../../worker/tests/cuts/mod.rs"]
mod cuts;
mod dump;
mod live;
#[path = "../mcp/mod.rs"]
mod mcp;
mod process;
