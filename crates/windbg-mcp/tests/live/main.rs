//! Live programs under DbgEng through the tools, supervisor and worker as a client has them. Runs with
//! `WINDBG_MCP_LAB=1`, which the full test command sets after making the lab.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

mod bench;
mod inspection;
mod kernel;
mod kernel_engines;
#[path = "../../../tools/tests/operand/mod.rs"]
mod operand;
mod operands;
mod pinned;
mod requests;
mod session;
#[path = "../stdio/mod.rs"]
mod stdio;
mod walk;
