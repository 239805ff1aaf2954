//! Reaching the other side. Name look-ups and connects cannot be cut short, so a thread makes them and
//! is left behind when nobody waits for it any more; it ends by itself.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use connection_string::Transport;
use target::Halt;

use crate::stream::SocketStream;
use crate::{POLL, TransportError, halted};

/// Longest one address may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// Addresses of one name tried.
const MOST_ADDRESSES: usize = 8;

/// Connects as `transport` says.
///
/// # Errors
/// What [`TransportError`] lists; nothing was sent then.
pub fn connect(transport: &Transport, halt: &Halt) -> Result<SocketStream, TransportError> {
    match transport {
        Transport::Tcp { host, port } => {
            let (name, port) = (host.trim_start_matches('[').trim_end_matches(']').to_owned(), *port);
            let what = format!("{host} port {port}");
            during(&what, halt, move || tcp(&name, port)).map(SocketStream::tcp)?
        }
        Transport::Unix { path } => unix(path, halt),
        other => Err(TransportError::Unsupported { what: other.words() }),
    }
}

fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()?.take(MOST_ADDRESSES) {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(unix)]
fn unix(path: &str, halt: &Halt) -> Result<SocketStream, TransportError> {
    let (what, path) = (path.to_owned(), path.to_owned());
    during(&what, halt, move || std::os::unix::net::UnixStream::connect(path)).map(SocketStream::unix)?
}

#[cfg(not(unix))]
fn unix(_: &str, _: &Halt) -> Result<SocketStream, TransportError> {
    Err(TransportError::NoSuchTransport { what: "Unix sockets" })
}

/// Does `work` on a thread of its own and waits until it is done or the halt says otherwise.
fn during<T: Send + 'static>(
    what: &str,
    halt: &Halt,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, TransportError> {
    let (done, result) = sync_channel(1);
    let thread = thread::Builder::new().name("connect".to_owned());
    thread.spawn(move || drop(done.send(work()))).map_err(TransportError::Io)?;
    loop {
        if halted(halt) {
            return Err(TransportError::Halted);
        }
        match result.recv_timeout(POLL) {
            Ok(Ok(made)) => return Ok(made),
            Ok(Err(error)) => return Err(TransportError::Unreachable { what: what.to_owned(), error }),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let error = io::Error::other("the attempt ended without an answer");
                return Err(TransportError::Unreachable { what: what.to_owned(), error });
            }
        }
    }
}
