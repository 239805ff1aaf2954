//! Why a file was not opened.

use std::path::PathBuf;

use target::TargetError;

/// What went wrong, with what, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error("{} does not exist; check the path", path.display())]
    NotFound { path: PathBuf },
    #[error("{} is a folder; name the dump file in it", path.display())]
    Directory { path: PathBuf },
    /// A pipe, socket or device: never opened, because that may block.
    #[error("{} is a {what}, not a file; copy the dump to a file first", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("{} cannot be read: {why}; check its permissions", path.display())]
    Unreadable { path: PathBuf, why: std::io::Error },
    #[error("{} is empty (0 bytes); the dump was not written or not copied", path.display())]
    Empty { path: PathBuf },
    /// Neither a dump nor an image nor a container of one.
    #[error("not a crash dump or PE image: the file starts with {first}; check that it is the right file")]
    Unrecognised { first: String },
    /// The signature is right, the content is not.
    #[error("{what}")]
    Malformed { what: String },
    /// A real dump of a kind that is not served.
    #[error("{message}")]
    Unsupported { reason: &'static str, message: String },
    #[error("the {container} holds {} dumps ({}); unpack it and open one of them", members.len(), members.join(", "))]
    SeveralDumps { container: &'static str, members: Vec<String> },
    #[error("the {container} holds no crash dump; unpack it and look what it holds")]
    NoDump { container: &'static str },
    #[error("the {container} unpacks to more than {limit} bytes; unpack it yourself and open the dump")]
    TooLarge { container: &'static str, limit: u64 },
    #[error(
        "the {container} does not fit into the temporary folder: {needed} bytes needed, {free} free; free some space or set TMPDIR to a larger disk"
    )]
    DiskFull { container: &'static str, needed: u64, free: u64 },
    #[error("the {container} cannot be unpacked: {why}; unpack it yourself and open the dump")]
    Unpack { container: &'static str, why: String },
}

pub type Result<T, E = DumpError> = std::result::Result<T, E>;

impl DumpError {
    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }
    pub(crate) fn unsupported(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Unsupported { reason, message: message.into() }
    }

    /// `(category, reason)` of spec 20 section 1.3.
    #[must_use]
    pub fn category(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::NotFound { .. } => ("debugger", Some("not_found")),
            Self::Directory { .. } | Self::NotAFile { .. } => ("debugger", Some("not_a_file")),
            Self::Unreadable { .. } => ("debugger", Some("unreadable")),
            Self::Empty { .. } | Self::Unrecognised { .. } | Self::Malformed { .. } | Self::Unpack { .. } => {
                ("debugger", Some("malformed_file"))
            }
            Self::Unsupported { reason, .. } => ("unsupported", Some(reason)),
            Self::SeveralDumps { .. } => ("unsupported", Some("several_dumps")),
            Self::NoDump { .. } => ("debugger", Some("malformed_file")),
            Self::TooLarge { .. } => ("unsupported", Some("too_large")),
            Self::DiskFull { .. } => ("debugger", Some("disk_full")),
        }
    }
}

impl From<DumpError> for TargetError {
    fn from(error: DumpError) -> Self {
        let message = error.to_string();
        match error.category() {
            ("unsupported", reason) => Self::Unsupported { reason: reason.unwrap_or("unsupported"), message },
            (_, reason) => Self::Failed { reason, message },
        }
    }
}
