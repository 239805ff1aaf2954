//! Reads PE images from a file or from target memory, holes and lies included.
//!
//! All reading goes through [`ImageSource`] (bytes by RVA). [`MappedImage`] is an image in a target's
//! memory, [`FileImage`] one in a file. [`Pe`] holds the headers; directories are read when asked
//! for, each bounded by its declared size and a cap.

mod authenticode;
mod coff;
mod debug;
mod exception;
mod exports;
mod field;
mod headers;
mod identity;
mod imports;
mod load_config;
mod relocations;
mod source;
mod version;

pub use coff::{CoffSymbol, CoffSymbols};
pub use exception::{ExceptionTable, FunctionEntry, UnreadableTable};
pub use exports::{Export, ExportTarget};
pub use headers::{DirectoryIndex, Pe, PeError, Section};
pub use imports::{Import, ImportedDll};
pub use load_config::LoadConfig;
pub use relocations::{Relocation, RelocationKind};
pub use source::{FileImage, ImageSource, ImageSourceExt, MappedImage};
pub use version::VersionInfo;
