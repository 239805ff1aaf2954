//! Crash analysis as pure functions of a Target: bug checks, exceptions, buckets.
