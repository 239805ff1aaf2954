//! Byte streams to a kernel's debug port: TCP and Unix sockets (spec 71 section 2). Nothing here waits
//! longer than it is told to, and a connect ends when its [`Halt`] says so.

mod connect;
mod stream;

use std::time::Duration;

pub use connect::connect;
pub use stream::SocketStream;
use target::Halt;

/// A byte stream in both directions. Any split of what is sent may arrive.
pub trait ByteStream {
    /// Waits at most `wait` for bytes; how many came. `Ok(0)`: none in that time.
    ///
    /// # Errors
    /// [`TransportError::Closed`] when the other side hung up; nothing comes any more.
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> Result<usize, TransportError>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As for [`read`](Self::read); [`TransportError::Stuck`] when the other side takes none for
    /// [`WRITE_BOUND`].
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransportError>;
}

/// How long the other side may take none of what is written to it.
pub const WRITE_BOUND: Duration = Duration::from_secs(2);

/// Why there is no stream, or no longer one.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Nobody can be reached there.
    #[error(
        "{what} cannot be reached: {error}; look whether the target is up and waits for a debugger there"
    )]
    Unreachable { what: String, error: std::io::Error },
    /// Another form of connection.
    #[error("the native engine does not dial {what}; engine dbgeng does")]
    Unsupported { what: &'static str },
    /// A form of connection this operating system does not have.
    #[error("this system has no {what}")]
    NoSuchTransport { what: &'static str },
    /// The halt ended the connect.
    #[error("connecting was cut short")]
    Halted,
    /// The other side hung up.
    #[error("the connection to the target is closed: the other side hung up")]
    Closed,
    /// The other side takes nothing.
    #[error("the connection to the target is stuck: nothing was taken from it for {} s", WRITE_BOUND.as_secs())]
    Stuck,
    /// The operating system says so.
    #[error("the connection to the target failed: {0}")]
    Io(std::io::Error),
}

/// Why waiting ends, as every wait here asks it: at least this often.
pub(crate) const POLL: Duration = Duration::from_millis(20);

pub(crate) fn halted(halt: &Halt) -> bool {
    halt.stop().is_some()
}
