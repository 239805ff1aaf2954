//! The docs pages, embedded.

include!(concat!(env!("OUT_DIR"), "/pages.rs"));
