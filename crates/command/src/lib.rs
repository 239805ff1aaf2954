//! The read-only WinDbg commands served on any Target.
