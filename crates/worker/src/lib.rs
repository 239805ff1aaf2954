//! The worker's main loop: reader, engine thread, interrupt bound to its job.
