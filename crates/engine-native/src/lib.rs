//! The native engine: a Target over dump files and PE images, on any host.

pub mod paging;
