//! A concrete interpreter over decoded instructions: x64, x86, ARM64; unknown values stay unknown.
