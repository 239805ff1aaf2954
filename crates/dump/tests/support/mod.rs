//! Finds the shared test data.

pub(crate) use test_data::shared as data;
