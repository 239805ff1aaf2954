#![no_main]
//! A worker may write anything: every line is a message or an error, and reading ends.

use channel::{LineBuffer, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut buffer = LineBuffer::new();
    for piece in bytes.chunks(17) {
        buffer.extend(piece);
        while !matches!(buffer.next_message::<Message>(), Ok(None)) {}
    }
});
