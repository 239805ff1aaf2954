//! One look-up over a whole path.

use std::fmt;
use std::path::{Path, PathBuf};

use target::{Halt, PdbIdentity, base_name};

use crate::path::{Element, SymbolPath};

/// Rows kept in [`Search::tried`].
const TRIED_LIMIT: usize = 256;

/// What is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A PDB. `image_name` gives the sub-folder Microsoft's debuggers look in too (`dll`, `sys`).
    Pdb { identity: PdbIdentity, image_name: Option<String> },
    /// An image by file name, `TimeDateStamp` and `SizeOfImage`.
    Image { name: String, timestamp: u32, size: u32 },
}

impl Wanted {
    /// File name without folders; empty when the recorded name is unusable.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let name = match self {
            Self::Pdb { identity, .. } => identity.file_name(),
            Self::Image { name, .. } => base_name(name),
        };
        // A hostile name must not climb out of a store or carry a URL's punctuation far.
        let usable = !name.is_empty()
            && name != "."
            && name != ".."
            && name.len() <= 255
            && !name.chars().any(|c| c.is_control() || matches!(c, ':' | '*' | '?' | '"' | '<' | '>' | '|'));
        if usable { name } else { "" }
    }

    /// Symbol-store key (spec 80 section 11.3).
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Pdb { identity, .. } => identity.key(),
            Self::Image { timestamp, size, .. } => format!("{timestamp:08X}{size:x}"),
        }
    }

    /// Extension of the image, lower case: the sub-folder `symbols/EXT`.
    pub(crate) fn image_extension(&self) -> Option<String> {
        let name = match self {
            Self::Pdb { image_name, .. } => image_name.as_deref().map(base_name)?,
            Self::Image { .. } => self.file_name(),
        };
        let (_, extension) = name.rsplit_once('.')?;
        extension.chars().all(|c| c.is_ascii_alphanumeric()).then(|| extension.to_ascii_lowercase())
    }
}

/// What the caller's check says of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Match,
    /// The right kind of file with another identity: both ids, for people.
    Mismatch(String),
    /// Not that kind of file at all.
    NotThis,
}

/// How one place answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Match,
    Mismatch(String),
    NotThis,
    Absent,
    /// The server said so within the last 24 hours and was not asked again.
    AbsentAsRemembered,
    /// `file.ptr` says why there is none.
    Message(String),
    /// The path does not allow the network.
    NetworkOff,
    /// The host did not answer within the last minute and was not asked again.
    HostDown,
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match => f.write_str("found"),
            Self::Mismatch(why) => write!(f, "mismatched: {why}"),
            Self::NotThis => f.write_str("not such a file"),
            Self::Absent => f.write_str("not there"),
            Self::AbsentAsRemembered => f.write_str("not there (asked within the last 24 h)"),
            Self::Message(text) => write!(f, "the store says: {text}"),
            Self::NetworkOff => f.write_str("not asked: the network is off"),
            Self::HostDown => f.write_str("not asked: the host did not answer within the last minute"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// One place that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// A file, a folder or a URL.
    pub place: String,
    pub outcome: Outcome,
}

/// What a look-up found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The file, checked by the caller.
    pub found: Option<PathBuf>,
    /// Files of another identity, nearest first: a caller may force one.
    pub mismatched: Vec<(PathBuf, String)>,
    /// Every place, in order, at most 256.
    pub tried: Vec<Tried>,
    /// The look-up was stopped by its [`Halt`].
    pub cut_short: bool,
}

impl Search {
    /// Why nothing was found, in one sentence; `None` when something was.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        if self.found.is_some() {
            return None;
        }
        if self.cut_short {
            return Some("the look-up was cut short".to_owned());
        }
        if let Some((file, why)) = self.mismatched.first() {
            return Some(format!("{} does not match: {why}", file.display()));
        }
        let telling =
            self.tried.iter().rev().find(|t| {
                !matches!(t.outcome, Outcome::Absent | Outcome::AbsentAsRemembered | Outcome::NotThis)
            });
        Some(match telling.or(self.tried.last()) {
            None => "no place to look in: the path is empty".to_owned(),
            Some(tried) if self.tried.len() == 1 || telling.is_some() => {
                format!("{}: {}", tried.place, tried.outcome)
            }
            Some(_) => format!("not found in {} places", self.tried.len()),
        })
    }

    fn note(&mut self, place: impl fmt::Display, outcome: Outcome) {
        if self.tried.len() < TRIED_LIMIT {
            self.tried.push(Tried { place: place.to_string(), outcome });
        }
    }
}

/// What a look-up may do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether servers may be asked.
    pub network: bool,
    /// Where downloads and unpacked files go when the chain has no writable folder.
    pub default_store: PathBuf,
}

impl Settings {
    /// No network, the user's default store.
    #[must_use]
    pub fn offline() -> Self {
        Self { network: false, default_store: crate::default_store() }
    }
    #[must_use]
    pub fn with_network(network: bool) -> Self {
        Self { network, ..Self::offline() }
    }
}

/// Looks for a file along `path`, element by element; stops at the first that `verify` accepts.
/// A dead server costs at most [`crate::REACH_BUDGET`] once, then nothing for
/// [`crate::HOST_DOWN_FOR`], in the whole process. `verify` must judge by content: downloads are
/// shown to it under a temporary name, before they enter a store.
#[must_use]
pub fn find(
    path: &SymbolPath,
    wanted: &Wanted,
    settings: &Settings,
    halt: &Halt,
    verify: &dyn Fn(&Path) -> Verdict,
) -> Search {
    let mut hunt = Hunt { search: Search::default(), wanted, settings, halt, verify };
    if wanted.file_name().is_empty() {
        hunt.note("the recorded name", Outcome::Failed("not a usable file name".to_owned()));
        return hunt.search;
    }
    let mut caches: Vec<PathBuf> = Vec::new();
    for element in &path.elements {
        if hunt.stopped() {
            break;
        }
        let found = match element {
            Element::Folder(folder) => hunt.look_in_plain_folder(folder),
            Element::Cache(folder) => {
                let hit = hunt.look_in_store_folder(folder, &[]);
                caches.push(folder.clone());
                hit
            }
            Element::Chain(stores) => hunt.look_in_chain(stores, &caches),
        };
        if found {
            break;
        }
    }
    hunt.search
}

/// One running look-up.
pub(crate) struct Hunt<'a> {
    pub(crate) search: Search,
    pub(crate) wanted: &'a Wanted,
    pub(crate) settings: &'a Settings,
    pub(crate) halt: &'a Halt,
    verify: &'a dyn Fn(&Path) -> Verdict,
}

impl Hunt<'_> {
    pub(crate) fn note(&mut self, place: impl fmt::Display, outcome: Outcome) {
        self.search.note(place, outcome);
    }

    /// Whether it is time to stop, remembered in the answer.
    pub(crate) fn stopped(&mut self) -> bool {
        self.search.cut_short |= self.halt.stop().is_some();
        self.search.cut_short
    }

    /// Shows a file that stays where it is to the check; true when it is the one.
    pub(crate) fn offer(&mut self, file: &Path) -> bool {
        let outcome = self.judge(file);
        if let Outcome::Mismatch(why) = &outcome
            && self.search.mismatched.len() < TRIED_LIMIT
        {
            self.search.mismatched.push((file.to_owned(), why.clone()));
        }
        let matches = outcome == Outcome::Match;
        if matches {
            self.search.found = Some(file.to_owned());
        }
        self.note(file.display(), outcome);
        matches
    }

    /// What the check says of a file.
    pub(crate) fn judge(&self, file: &Path) -> Outcome {
        match (self.verify)(file) {
            Verdict::Match => Outcome::Match,
            Verdict::Mismatch(why) => Outcome::Mismatch(why),
            Verdict::NotThis => Outcome::NotThis,
        }
    }
}
