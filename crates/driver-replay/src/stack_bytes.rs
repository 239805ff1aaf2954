//! What kernel routines take off the stack on x86.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Bytes of arguments the routine `name` of the kernel, the HAL, the framework loader or the filter
/// manager takes off an x86 stack (0: the caller does); `None` for a routine that is not listed.
#[must_use]
pub fn stack_bytes(name: &str) -> Option<u32> {
    static TABLE: OnceLock<HashMap<&'static str, u32>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let lines = include_str!("stack_bytes.txt").lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(bytes, names)| Some((bytes.parse().ok()?, names)))
            .flat_map(|(bytes, names)| names.split(' ').map(move |name| (name, bytes)))
            .collect()
    });
    table.get(name).copied()
}
