//! What a worker tells an operation that must end in a defined state (a batch), and is told by it.

use std::time::Duration;

/// The state of the session around one running operation. All of it is under one lock, so that a
/// teardown never hears "nothing to wait for" of a batch that is about to begin.
pub trait Transaction {
    /// Begins: it will be over within this. `false` when the session is being torn down: it must not
    /// begin, and nobody saw it.
    fn begin(&self, within: Duration) -> bool;
    /// A teardown of the session is under way. Sticky.
    fn abandoned(&self) -> bool;
    /// A break was raised for this operation and not drained.
    fn interrupted(&self) -> bool;
    /// From here on no break reaches the operation. One that is pending is drained; says whether
    /// there was one.
    fn seal(&self) -> bool;
    /// It is over: a teardown that was told to wait need not any longer.
    fn end(&self);
}
