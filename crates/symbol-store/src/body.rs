//! The body of an answer, read on a thread of its own: a break is heard while it is silent, and a
//! server that lets it trickle is given up.

use std::io::{self, Read};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use target::Halt;

use crate::host::Host;
use crate::server::POLL;

/// A body that sends nothing for this long is given up.
pub(crate) const IDLE: Duration = Duration::from_secs(10);
/// Bytes a second a body must bring on average once it is [`IDLE`] old: an hour for 15 MB.
const LEAST_PACE: u64 = 4096;

/// Sends a body in pieces until it ends or nobody listens any more.
pub(crate) fn pump(mut body: impl Read, chunks: &mpsc::SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut buffer = vec![0; 64 << 10];
        let piece = body.read(&mut buffer).map(|count| {
            buffer.truncate(count);
            buffer
        });
        let last = piece.as_ref().map_or(true, Vec::is_empty);
        if chunks.send(piece).is_err() || last {
            return;
        }
    }
}

/// The receiving end of [`pump`].
pub(crate) struct Pumped {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    current: Vec<u8>,
    at: usize,
    halt: Halt,
    /// Who is asked no more when the body does not come.
    host: Option<Host>,
    received: u64,
    /// Time spent waiting for pieces; what is done with them meanwhile is not the server's fault.
    waited: Duration,
}

impl Pumped {
    pub(crate) fn new(chunks: mpsc::Receiver<io::Result<Vec<u8>>>, halt: Halt, host: Option<Host>) -> Self {
        Self { chunks, current: Vec::new(), at: 0, halt, host, received: 0, waited: Duration::ZERO }
    }

    fn next_piece(&mut self) -> io::Result<Vec<u8>> {
        let (started, before) = (Instant::now(), self.waited);
        loop {
            let piece = self.chunks.recv_timeout(POLL);
            let silent = started.elapsed();
            self.waited = before + silent;
            match piece {
                Ok(Err(why)) if why.kind() == io::ErrorKind::TimedOut => return Err(self.too_slow()),
                Ok(piece) => {
                    let piece = piece?;
                    self.received += piece.len() as u64;
                    let least = self.waited.as_secs().saturating_mul(LEAST_PACE);
                    if self.waited > IDLE && self.received < least && !piece.is_empty() {
                        return Err(self.too_slow());
                    }
                    return Ok(piece);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if self.halt.stop().is_none() => {
                    if silent > IDLE {
                        return Err(self.too_slow());
                    }
                }
                Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "cut short")),
            }
        }
    }

    fn too_slow(&self) -> io::Error {
        if let Some(host) = &self.host {
            host.mark_down();
        }
        io::Error::other(format!("too slow: {} bytes in {} s", self.received, self.waited.as_secs()))
    }
}

impl Read for Pumped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            (self.current, self.at) = (self.next_piece()?, 0);
            if self.current.is_empty() {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.current.len() - self.at);
        buffer[..count].copy_from_slice(&self.current[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host::of(&format!("http://{name}/")).unwrap()
    }

    #[test]
    fn a_body_that_trickles_is_given_up_and_its_host_with_it() {
        let (sender, chunks) = mpsc::sync_channel(4);
        let slow = host("trickles.test");
        let mut body = Pumped::new(chunks, Halt::unbounded(), Some(slow.clone()));
        body.waited = IDLE;
        sender.send(Ok(vec![0; 100])).unwrap();
        let error = body.read(&mut [0; 10]).unwrap_err();
        assert!(error.to_string().contains("too slow: 100 bytes in 10 s"), "{error}");
        assert!(slow.is_down());
    }

    #[test]
    fn a_body_at_a_fair_pace_is_read_to_its_end() {
        let (sender, chunks) = mpsc::sync_channel(4);
        let fair = host("fair.test");
        let mut body = Pumped::new(chunks, Halt::unbounded(), Some(fair.clone()));
        body.waited = IDLE;
        body.received = 60 * LEAST_PACE;
        sender.send(Ok(vec![7; 10])).unwrap();
        sender.send(Ok(Vec::new())).unwrap();
        let mut all = Vec::new();
        body.read_to_end(&mut all).unwrap();
        assert_eq!(all, [7; 10]);
        assert!(!fair.is_down());
    }
}
