//! Finds symbol and image *files*: symbol paths, plain folders, symbol stores, symbol servers
//! (spec 80 sections 11.1 to 11.3). It knows nothing of what is inside: every candidate is shown
//! to the caller's check, and everything tried is reported so that an answer can say why.

mod body;
mod folder;
mod host;
mod isf;
mod negative;
mod path;
mod place;
mod search;
mod server;
mod store;
mod unpack;

pub use isf::{IsfCandidate, isf_candidates};
pub use path::{Element, Store, SymbolPath};
pub use place::{default_store, user_cache_directory};
pub use search::{Outcome, Search, Settings, Tried, Verdict, Wanted, find};
pub use server::{HEAD_BUDGET, HOST_DOWN_FOR, REACH_BUDGET};
