//! Crash dump formats: minidumps, legacy user dumps, kernel dumps of every type, and their containers.
