//! What the executor drives: a target behind its engine, or a script with a virtual clock.

use std::time::Duration;

use control::Verdict;
pub use target::Identity;

/// What a step's action did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What the engine printed.
    pub output: String,
    /// Of a `run_to`.
    pub verdict: Option<Verdict>,
    /// Where the target stands, after an action that moved it.
    pub stopped_at: Option<u64>,
    /// The wait ran out and the target was broken in.
    pub timed_out: bool,
    /// The engine stopped it before its end.
    pub cut_short: bool,
}

/// Why an action failed, with what it had done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// A category of spec 20 section 1.3.
    pub category: &'static str,
    pub message: String,
    pub done: Done,
    /// The engine refused before anything could change.
    pub untouched: bool,
}

impl Failure {
    #[must_use]
    pub fn new(category: &'static str, message: impl Into<String>) -> Self {
        Self { category, message: message.into(), ..Self::default() }
    }
}

/// Why the identity is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unidentified {
    /// The target ended or was let go of.
    Gone(String),
    Unreadable(String),
}

/// Where the target stands after the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    Stopped {
        ip: u64,
    },
    Running,
    /// Why it cannot be told.
    Unknown(String),
}

/// A target under a batch, the batch's clock, and what the worker says of the call (spec 20 section
/// 2.11). Times are bounds: an implementation ends its action within them.
pub trait Subject {
    /// Time since the batch began.
    fn elapsed(&self) -> Duration;
    /// A teardown of the session is under way. Sticky.
    fn abandoned(&self) -> bool;
    /// A break was raised for this operation.
    fn interrupted(&self) -> bool;
    /// From here on no break reaches this operation; one that is pending is drained, and it is said
    /// that there was one.
    fn rolling_back(&mut self) -> bool;

    /// What is held now and where a write would land, read from the engine.
    ///
    /// # Errors
    /// [`Unidentified`].
    fn identity(&mut self) -> Result<Identity, Unidentified>;
    /// Selects the target and the process of `aim` again.
    ///
    /// # Errors
    /// Why they cannot be selected.
    fn aim_at(&mut self, aim: &str) -> Result<(), String>;

    /// Runs a raw command to its end; one that left the target running is pumped to the next stop.
    ///
    /// # Errors
    /// What the engine refused or failed; never success with an error's text where the engine says.
    fn command(&mut self, text: &str, within: Duration) -> Result<Done, Failure>;
    /// Runs a command that moves the target and waits for its stop.
    ///
    /// # Errors
    /// As [`Self::command`]; a command that moved nothing.
    fn resume(&mut self, text: &str, wait: Duration) -> Result<Done, Failure>;
    /// Runs until execution reaches the address; `verdict` is set.
    ///
    /// # Errors
    /// An address without a value or without code; the engine's own.
    fn run_to(&mut self, address: &str, wait: Duration) -> Result<Done, Failure>;
    /// The value of an expression.
    ///
    /// # Errors
    /// The evaluator's.
    fn eval(&mut self, expression: &str, within: Duration) -> Result<u64, Failure>;
    /// As many of `size` bytes from `address` as can be read.
    ///
    /// # Errors
    /// Only when none can.
    fn read(&mut self, address: u64, size: usize, within: Duration) -> Result<Vec<u8>, Failure>;
    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// The engine's; `untouched` when the target takes no writes.
    fn write(&mut self, address: u64, bytes: &[u8], within: Duration) -> Result<(), Failure>;
    /// Where the target stands.
    fn probe(&mut self) -> Probe;
    /// What is being done, in words, for whoever watches.
    fn progress(&mut self, _text: &str) {}
}
