//! Why a file was not opened.

use std::path::PathBuf;

use target::{Stop, TargetError};

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
    #[error("{} cannot be read: {why}; {}", path.display(), remedy(why))]
    Unreadable { path: PathBuf, why: std::io::Error },
    #[error("{} is empty (0 bytes); the dump was not written or not copied", path.display())]
    Empty { path: PathBuf },
    /// Neither a dump nor an image nor a container of one.
    #[error("not a crash dump or PE image: the file starts with {first}; check that it is the right file")]
    Unrecognised { first: String },
    /// A file of another kind that people take for a dump.
    #[error("not a crash dump or PE image but {what}; {next}")]
    Mistaken { what: &'static str, next: &'static str },
    /// The signature is right, the content is not.
    #[error("{what}")]
    Malformed { what: String },
    /// A real dump of a kind that is not served.
    #[error("{message}")]
    Unsupported { reason: &'static str, message: String },
    #[error("the {container} holds {} dumps ({}); unpack it and open one of them", count, members.join(", "))]
    SeveralDumps { container: &'static str, count: usize, members: Vec<String> },
    #[error("the {container} holds no crash dump; unpack it and look what it holds")]
    NoDump { container: &'static str },
    #[error(
        "the {container} holds no crash dump but {member}, an archive in the archive; unpack it and open the dump"
    )]
    Nested { container: &'static str, member: String },
    #[error("the {container} ends early; copy it again")]
    EndsEarly { container: &'static str },
    /// A break or the end of the call's time while unpacking.
    #[error("unpacking the {container} was {}", cut(*why))]
    Stopped { container: &'static str, why: Stop },
    #[error("the {container} unpacks to more than {limit} bytes; unpack it yourself and open the dump")]
    TooLarge { container: &'static str, limit: u64 },
    #[error(
        "the {container} does not fit into the temporary folder: {needed} bytes needed, {free} free; free some space or set TMPDIR to a larger disk"
    )]
    DiskFull { container: &'static str, needed: u64, free: u64 },
    #[error("the {container} cannot be unpacked: {why}; unpack it yourself and open the dump")]
    Unpack { container: &'static str, why: String },
}

fn remedy(why: &std::io::Error) -> &'static str {
    match why.kind() {
        std::io::ErrorKind::PermissionDenied => "check its permissions",
        _ => "check the path and what it leads to",
    }
}

fn cut(why: Stop) -> &'static str {
    match why {
        Stop::Interrupted => "interrupted on request",
        Stop::Deadline => "cut short: the call's time ran out; unpack it yourself and open the dump",
    }
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
            Self::Empty { .. }
            | Self::Unrecognised { .. }
            | Self::Mistaken { .. }
            | Self::Malformed { .. }
            | Self::Unpack { .. }
            | Self::EndsEarly { .. }
            | Self::NoDump { .. } => ("debugger", Some("malformed_file")),
            Self::Nested { .. } => ("unsupported", Some("nested_archive")),
            Self::Stopped { why: Stop::Interrupted, .. } => ("interrupted", None),
            Self::Stopped { why: Stop::Deadline, .. } => ("timeout", None),
            Self::Unsupported { reason, .. } => ("unsupported", Some(reason)),
            Self::SeveralDumps { .. } => ("unsupported", Some("several_dumps")),
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
            ("interrupted", _) => Self::Interrupted,
            ("timeout", _) => Self::Deadline("opening the dump"),
            (_, reason) => Self::Failed { reason, message },
        }
    }
}
