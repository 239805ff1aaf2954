//! What can be wrong with a symbol file.

use std::io::Read;
use std::path::Path;

use target::TargetError;

/// A symbol file that cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SymbolError {
    #[error("cannot read the symbol file {path}: {why}")]
    Io { path: String, why: String },
    /// Not the format it was opened as.
    #[error("{0}")]
    NotSymbols(String),
    /// The right format, damaged: `what` names the structure.
    #[error("the symbol file is damaged: {0}; get it again from its source")]
    Damaged(String),
    #[error("no type named `{0}` is defined in these symbols; `dt MODULE!*part*` lists those that match")]
    NoSuchType(String),
    /// The source has no types at all.
    #[error("{0} symbols hold no types; a PDB or an ISF is needed")]
    NoTypes(&'static str),
}

pub type Result<T, E = SymbolError> = std::result::Result<T, E>;

impl SymbolError {
    pub(crate) fn damaged(what: impl std::fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }
}

impl From<SymbolError> for TargetError {
    fn from(error: SymbolError) -> Self {
        let message = error.to_string();
        match error {
            SymbolError::Io { .. } => Self::failed(message),
            SymbolError::NotSymbols(_) | SymbolError::Damaged(_) => {
                Self::failed_because("malformed_file", message)
            }
            SymbolError::NoSuchType(_) => Self::failed_because("no_such_type", message),
            SymbolError::NoTypes(_) => Self::failed_because("no_types", message),
        }
    }
}

pub(crate) fn io(path: &Path, error: &std::io::Error) -> SymbolError {
    SymbolError::Io { path: path.display().to_string(), why: error.to_string() }
}

/// The first bytes of a file, at most 64.
pub(crate) fn read_head(path: &Path) -> Result<Vec<u8>> {
    let file = std::fs::File::open(path).map_err(|e| io(path, &e))?;
    let mut head = Vec::with_capacity(64);
    file.take(64).read_to_end(&mut head).map_err(|e| io(path, &e))?;
    Ok(head)
}

/// Runs `work` over third-party readers; a panic in them becomes an error.
pub(crate) fn guarded<T>(doing: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(_) => Err(SymbolError::damaged(format_args!("reading its {doing} failed inside the reader"))),
    }
}
