//! Requests and their answers. One is under way at a time, and none is sent twice but by the link
//! itself, whose repeats the target tells from new ones.

use std::time::{Duration, Instant};

use kd_api::{Reply, ReplyBody, Request};
use kd_wire::{Expect, PacketType};
use target::{ReadOutcome, TargetError, Unreadable};

use crate::kernel::{Came, State};

/// Longest to wait for a stopped target to tell its state after a reset.
const SETTLE: Duration = Duration::from_secs(8);
/// Most bytes of one request: half a page.
pub(crate) const CHUNK: usize = 0x800;

/// What became of a request.
pub(crate) enum Asked {
    Reply(Reply),
    /// It may have been done; the link is good again and the target stands where it stood.
    Unanswered(TargetError),
}

impl State {
    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Asked, TargetError> {
        self.send(request, Expect::Answer(PacketType::STATE_MANIPULATE))?;
        loop {
            match self.turn(Duration::MAX)? {
                Some(Came::Reply(payload)) => {
                    return Reply::decode(request, &payload).map(Asked::Reply).or_else(|error| {
                        self.resynchronise(&format!(
                            "its answer to {} makes no sense: {error}",
                            name(request)
                        ))
                        .map(Asked::Unanswered)
                    });
                }
                Some(Came::Failed(failure)) => {
                    let why = format!("{}: {failure}", name(request));
                    return self.settle(&why).map(Asked::Unanswered);
                }
                Some(Came::Silent) => return Err(self.lose_to_silence(silent(name(request)))),
                Some(Came::Acknowledged | Came::Reset | Came::Stopped) | None => {}
            }
        }
    }

    /// As [`Self::ask`]; the answer must be a success.
    pub(crate) fn must(&mut self, request: &Request) -> Result<ReplyBody, TargetError> {
        match self.ask(request)? {
            Asked::Unanswered(error) => Err(error),
            Asked::Reply(reply) if reply.succeeded() => Ok(reply.body),
            Asked::Reply(reply) => Err(refused(request, reply.status)),
        }
    }

    /// As [`Self::must`], asked once more when it was not answered: for what only reads.
    pub(crate) fn read(&mut self, request: &Request) -> Result<ReplyBody, TargetError> {
        let reply = match self.ask(request)? {
            Asked::Reply(reply) => reply,
            Asked::Unanswered(_) => match self.ask(request)? {
                Asked::Reply(reply) => reply,
                Asked::Unanswered(error) => return Err(error),
            },
        };
        if reply.succeeded() { Ok(reply.body) } else { Err(refused(request, reply.status)) }
    }

    /// Sends what has no answer but its acknowledgement, and waits for that.
    pub(crate) fn tell(&mut self, request: &Request) -> Result<(), TargetError> {
        self.send(request, Expect::Acknowledgement)?;
        loop {
            match self.turn(Duration::MAX)? {
                Some(Came::Acknowledged) => return Ok(()),
                Some(Came::Failed(failure)) => {
                    let why = format!("{}: {failure}", name(request));
                    return Err(self.settle(&why)?);
                }
                Some(Came::Silent) => return Err(self.lose_to_silence(silent(name(request)))),
                Some(Came::Reply(_) | Came::Reset | Came::Stopped) | None => {}
            }
        }
    }

    fn send(&mut self, request: &Request, expect: Expect) -> Result<(), TargetError> {
        self.alive()?;
        if self.standing.is_none() {
            return Err(TargetError::Running);
        }
        self.until_ready()?;
        if self.standing.is_none() {
            return Err(TargetError::Running);
        }
        self.link
            .send(PacketType::STATE_MANIPULATE, &request.encode(), expect)
            .map_err(|error| TargetError::failed(format!("{} was not sent: {error}", name(request))))
    }

    /// Waits until an answer of ours to the target is out of the way.
    fn until_ready(&mut self) -> Result<(), TargetError> {
        let began = Instant::now();
        while !self.link.ready() {
            if began.elapsed() > SETTLE.max(self.options.timeout.saturating_mul(8)) {
                return Err(self.lose_to_silence(silent("the link")));
            }
            if let Some(Came::Silent) = self.turn(Duration::MAX)? {
                return Err(self.lose_to_silence(silent("the link")));
            }
        }
        Ok(())
    }

    /// Starts the link again after an answer that was none.
    fn resynchronise(&mut self, why: &str) -> Result<TargetError, TargetError> {
        self.link.reset();
        self.settle(why)
    }

    /// Waits until the target tells its state again. The error that says what happened; `Err` when the
    /// link is lost.
    pub(crate) fn settle(&mut self, why: &str) -> Result<TargetError, TargetError> {
        let (before, began) = (self.stops, Instant::now());
        while began.elapsed() < SETTLE {
            match self.turn(Duration::MAX)? {
                Some(Came::Stopped) if self.stops == before => {
                    return Ok(TargetError::failed_because(
                        "unanswered",
                        format!("{why}; the target still stands"),
                    ));
                }
                Some(Came::Stopped) => {
                    return Ok(TargetError::failed_because(
                        "stopped_again",
                        format!("{why}; the target stopped again during recovery, somewhere else"),
                    ));
                }
                Some(Came::Silent) => return Err(self.lose_to_silence(silent(why))),
                _ => {}
            }
        }
        Err(self.lose_to_silence(format!(
            "{why}; the target did not tell its state again within {} s",
            SETTLE.as_secs()
        )))
    }

    /// Reads with `request` in half pages; the prefix that could be read.
    pub(crate) fn read_memory(
        &mut self,
        address: u64,
        buffer: &mut [u8],
        request: impl Fn(u64, u32) -> Request,
    ) -> ReadOutcome {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return ReadOutcome::stopped(done, Unreadable::NonCanonical);
            };
            let in_page = usize::try_from(0x1000 - at % 0x1000).unwrap_or(CHUNK);
            let count = in_page.min(CHUNK).min(buffer.len() - done);
            let wanted = u32::try_from(count).unwrap_or(0);
            let Ok(ReplyBody::Data(data)) = self.read(&request(at, wanted)) else {
                return ReadOutcome::stopped(done, Unreadable::Refused);
            };
            let got = data.len().min(count);
            buffer[done..done + got].copy_from_slice(&data[..got]);
            done += got;
            if got < count {
                return ReadOutcome::stopped(done, Unreadable::Refused);
            }
        }
        ReadOutcome::complete(done)
    }

    /// How much of `data` a write took.
    pub(crate) fn write_memory(&mut self, request: &Request) -> Result<usize, TargetError> {
        match self.must(request)? {
            ReplyBody::Written(count) => Ok(usize::try_from(count).unwrap_or(0)),
            _ => Ok(0),
        }
    }
}

pub(crate) fn name(request: &Request) -> &'static str {
    request.api().name().unwrap_or("a request")
}

fn silent(what: &str) -> String {
    format!(
        "{what}: the target no longer answers; whether it runs is not known. End the session and attach again"
    )
}

pub(crate) fn refused(request: &Request, status: u32) -> TargetError {
    TargetError::failed_because(
        "refused_by_target",
        format!("the target refuses {} with NTSTATUS {status:#010x}", name(request)),
    )
}
