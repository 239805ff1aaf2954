//! Sockets as byte streams.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::{ByteStream, POLL, TransportError, WRITE_BOUND};

enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

/// A connected socket.
pub struct SocketStream {
    socket: Socket,
    /// The read timeout the socket has now.
    waits: Option<Duration>,
}

impl SocketStream {
    /// # Errors
    /// The socket takes no timeout.
    pub fn tcp(stream: TcpStream) -> Result<Self, TransportError> {
        // Control packets are 16 bytes and waited for.
        stream.set_nodelay(true).map_err(TransportError::Io)?;
        stream.set_write_timeout(Some(POLL)).map_err(TransportError::Io)?;
        Ok(Self { socket: Socket::Tcp(stream), waits: None })
    }

    /// # Errors
    /// The socket takes no timeout.
    #[cfg(unix)]
    pub fn unix(stream: std::os::unix::net::UnixStream) -> Result<Self, TransportError> {
        stream.set_write_timeout(Some(POLL)).map_err(TransportError::Io)?;
        Ok(Self { socket: Socket::Unix(stream), waits: None })
    }

    fn wait_at_most(&mut self, wait: Duration) -> io::Result<()> {
        // Zero would mean for ever.
        let wait = wait.max(Duration::from_millis(1));
        if self.waits != Some(wait) {
            match &self.socket {
                Socket::Tcp(stream) => stream.set_read_timeout(Some(wait))?,
                #[cfg(unix)]
                Socket::Unix(stream) => stream.set_read_timeout(Some(wait))?,
            }
            self.waits = Some(wait);
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn failed(error: io::Error) -> TransportError {
    match error.kind() {
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::NotConnected
        | ErrorKind::UnexpectedEof => TransportError::Closed,
        _ => TransportError::Io(error),
    }
}

impl ByteStream for SocketStream {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> Result<usize, TransportError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.wait_at_most(wait).map_err(failed)?;
        let read = match &mut self.socket {
            Socket::Tcp(stream) => stream.read(buffer),
            #[cfg(unix)]
            Socket::Unix(stream) => stream.read(buffer),
        };
        match read {
            Ok(0) => Err(TransportError::Closed),
            Ok(count) => Ok(count),
            Err(error) if is_timeout(&error) => Ok(0),
            Err(error) => Err(failed(error)),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), TransportError> {
        let mut taken = Instant::now();
        while !bytes.is_empty() {
            let written = match &mut self.socket {
                Socket::Tcp(stream) => stream.write(bytes),
                #[cfg(unix)]
                Socket::Unix(stream) => stream.write(bytes),
            };
            match written {
                Ok(0) => return Err(TransportError::Closed),
                Ok(count) => {
                    bytes = bytes.get(count..).unwrap_or_default();
                    taken = Instant::now();
                }
                Err(error) if is_timeout(&error) => {
                    if taken.elapsed() >= WRITE_BOUND {
                        return Err(TransportError::Stuck);
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}
