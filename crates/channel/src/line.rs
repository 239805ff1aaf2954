//! Lines out of bytes, bounded.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line either side sends or takes, its `\n` not counted.
pub const MAX_LINE: usize = 32 << 20;

/// Capacity a buffer keeps between messages.
const KEPT_CAPACITY: usize = 1 << 20;

/// Why a line is no message.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("a line of the worker channel is longer than {MAX_LINE} bytes")]
    TooLong,
    #[error("a line of the worker channel does not parse: {error}; it begins {begins:?}")]
    Unparsable { error: serde_json::Error, begins: String },
}

/// One message as a line, `\n` included.
///
/// # Errors
/// [`LineError::TooLong`] when it would pass [`MAX_LINE`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, LineError> {
    let mut line = Bounded(Vec::with_capacity(256));
    match serde_json::to_writer(&mut line, message) {
        Ok(()) => {
            line.0.push(b'\n');
            Ok(line.0)
        }
        Err(error) if error.is_io() => Err(LineError::TooLong),
        Err(error) => Err(LineError::Unparsable { error, begins: String::new() }),
    }
}

/// Refuses what would pass the bound while it is written, not after.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_LINE {
            return Err(std::io::Error::other("line too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Collects bytes as they come and gives the messages of whole lines.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// How far `bytes` was searched for a newline.
    searched: usize,
    /// Where the next line starts.
    start: usize,
}

impl LineBuffer {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what was read.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
            // One long line must not cost its size for the life of the session.
            if self.bytes.capacity() > KEPT_CAPACITY {
                self.bytes.shrink_to(KEPT_CAPACITY);
            }
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line's message; `Ok(None)` when more bytes are needed. Blank lines are
    /// skipped. After an unparsable line the ones behind it can still be read; after `TooLong`
    /// nothing can.
    ///
    /// # Errors
    /// [`LineError`].
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LineError> {
        loop {
            let found = self.bytes[self.searched..].iter().position(|&b| b == b'\n');
            let Some(at) = found.map(|at| at + self.searched) else {
                self.searched = self.bytes.len();
                let held = self.bytes.len() - self.start;
                return if held > MAX_LINE { Err(LineError::TooLong) } else { Ok(None) };
            };
            let line = self.start..at;
            self.start = at + 1;
            self.searched = self.start;
            if line.len() > MAX_LINE {
                return Err(LineError::TooLong);
            }
            let line = &self.bytes[line];
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return serde_json::from_slice(line).map(Some).map_err(|error| LineError::Unparsable {
                error,
                begins: String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned(),
            });
        }
    }
}
