//! Both engines asked the same questions about the same dump, compared field by field: a development
//! tool (`cargo xtask compare`) and a test. It knows the product by its tools only.

mod accepted;
mod case;
mod client;
mod fields;
mod glob;
mod lab;
mod questions;
mod report;
mod sessions;
mod stacks;
mod text;

use std::path::{Path, PathBuf};

pub use accepted::{ACCEPTED, Row, accepted};
pub use case::{Case, dumps_below};
pub use client::{Answer, Client, Sent};
pub use fields::{Compared, Difference, compare};
pub use lab::Lab;
pub use report::render;
pub use sessions::Engines;

use sessions::Pair;

/// Why a comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{} could not be started: {error}", program.display())]
    NotStarted { program: PathBuf, error: std::io::Error },
    #[error("{0}")]
    NoEngine(String),
    #[error("the server went away in the middle of a call")]
    Hung,
    #[error("the server did not answer within {seconds} s")]
    Silent { seconds: u64 },
    #[error("the server's answer is none: {0}")]
    Protocol(String),
}

impl Error {
    fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }
}

/// A difference, and the row of [`ACCEPTED`] that accepts it.
#[derive(Clone, Debug)]
pub struct Judged {
    pub difference: Difference,
    pub accepted: Option<usize>,
}

/// What came of one dump.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub dump: String,
    pub questions: usize,
    /// Single values that were compared.
    pub looked_at: usize,
    pub differences: Vec<Judged>,
}

impl Comparison {
    /// Differences nobody accepted.
    pub fn open(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|judged| judged.accepted.is_none()).map(|judged| &judged.difference)
    }
}

/// Opens `case` with both engines and asks both everything.
///
/// # Errors
/// When the server cannot be talked to, or an engine is not to be had.
pub fn compare_dump(client: &mut Client, case: &Case, engines: Engines) -> Result<Comparison, Error> {
    let (mut pair, summary) = Pair::open(client, case, engines)?;
    let asked = if pair.both_open() {
        questions::all(&mut pair, summary["kernel_mode"] == true, summary["wow64"] == true)
    } else {
        Ok(())
    };
    pair.end()?;
    asked?;
    let differences = std::mem::take(&mut pair.differences);
    let judge = |difference: Difference| Judged { accepted: accepted(&case.name, &difference), difference };
    Ok(Comparison {
        dump: case.name.clone(),
        questions: pair.questions,
        looked_at: pair.looked_at,
        differences: differences.into_iter().map(judge).collect(),
    })
}
