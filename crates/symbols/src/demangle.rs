//! Undecorated names: MSVC (`undname`), Itanium (`cpp_demangle`), Rust (`rustc-demangle`).

/// The name a debugger shows for `raw`, a function without its parameters; `None` when `raw` is
/// not decorated.
#[must_use]
pub fn display_name(_raw: &str) -> Option<String> {
    None
}
