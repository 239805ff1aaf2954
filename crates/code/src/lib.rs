//! Bytes to instructions: x64, x86 and ARM64, decoded fields and text.
