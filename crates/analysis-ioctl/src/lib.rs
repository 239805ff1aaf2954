//! Control codes a driver's dispatch routine accepts.
//!
//! Compare chains are not matched: the set of control codes that can reach each block is propagated
//! over recovered control flow, and every edge narrows it by what its condition says. Compare chains,
//! subtraction ladders, search trees, bit tests, jump tables and masks all come out of that one rule.

pub mod analysis;
mod at;
pub mod discover;
pub mod explore;
pub mod expr;
pub mod flow;
pub mod layout;
pub mod map;
pub mod names;
pub mod pass;
pub mod record;
pub mod semantics;
pub mod set;
pub mod solve;
pub mod state;
pub mod taint;
pub mod verify;

pub use at::{Compared, Gates, Routine, gates};
