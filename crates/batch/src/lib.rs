//! The executor of debug_batch over a trait: steps, checks, captures, rollback.
