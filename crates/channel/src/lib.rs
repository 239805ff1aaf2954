//! The line protocol between supervisor and worker.
