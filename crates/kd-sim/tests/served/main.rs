//! The simulator behind its sockets, asked by a small host of kd-wire and kd-api.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod host;
mod machine;
mod program;
mod running;
