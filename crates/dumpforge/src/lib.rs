//! Builds user and kernel dumps for tests: what is in the file is what the test says.
