//! Sessions: registry, worker processes, queues, interrupt, reclaim, progress, log.
