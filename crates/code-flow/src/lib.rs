//! Functions, control flow, references: code recovered from bytes by recursive descent.
//!
//! Everything reads one [`CodeImage`] (bytes with their provenance, behind a page cache) and never
//! an engine. Bytes are hostile: every walk is bounded, polls its halt, and says what it did not see.

pub mod blocks;
mod cache;
pub mod callee;
mod collector;
mod descent;
pub mod image;
pub mod imports;
pub mod listing;
pub mod mitigations;
mod no_return;
pub mod over_target;
pub mod reach;
pub mod recipe;
mod reference_list;
pub mod references;
pub mod regions;
pub mod sinks;
pub mod spans;
pub mod spread;
pub mod starts;
mod structural;
pub mod symbols;
pub mod vocabulary;
mod walk;
pub mod wdf;

pub use blocks::{Block, Blocks, Edge};
pub use cache::IndexCache;
pub use callee::{Callee, callee, callee_in, decode_at};
pub use descent::{function_at, listing};
pub use image::{CodeImage, ImageError, Origin, PageRead, PageSource, Whole};
pub use imports::{ImportSlot, Imports, NamedFrom};
pub use listing::{
    EdgeKind, EntrySource, ExternalEdge, Listing, NoTables, Resolution, ResolvedTable, TableResolver,
};
pub use mitigations::{Mitigations, mitigations};
pub use no_return::may_return;
pub use reach::{Hop, HopKind, Reached, Search, reach};
pub use references::{
    DataPointer, ImageIndex, ImportSite, ImportUse, PrivilegedSite, Reference, XrefKind, data_pointers,
};
pub use regions::{Region, Regions, Scope};
pub use sinks::{SINK_LIST_VERSION, SinkKind, sink_kind};
pub use spread::{Spread, spread};
pub use starts::KnownStarts;
pub use structural::Structural;
pub use symbols::{Names, NoNames};
pub use vocabulary::{
    BytesFrom, CodeLocation, Coverage, ImageRecord, PdbRecord, Range, SectionState, Standing, Stopped,
};
