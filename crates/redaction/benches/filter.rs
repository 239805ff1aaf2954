//! What the filter costs on a result of 12 KB.
#![allow(missing_docs)]
fn main() {}
