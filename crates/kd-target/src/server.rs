//! A backend behind a link.

use std::collections::BTreeMap;
use std::time::Duration;

use kd_api::{Answer, Api, DebugIo, FileReply, MAX_VARIABLE, Reply, ReplyBody, Request, StateChange, status};
use kd_wire::{BREAK_IN, PacketType, Retry, TargetEvent, TargetLink, TargetOptions};

use crate::backend::{KdBackend, Refusal, Resume, TargetMessage};

/// Most numbers of unknown APIs that are counted one by one.
const MOST_UNKNOWN: usize = 64;
/// Most of a control space, or of what is read and written at a time.
const MOST_BYTES: u32 = MAX_VARIABLE as u32;
/// Repeats of a print before it is dropped.
const PRINT_REPEATS: u32 = 20;

/// How a target behaves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub link: TargetOptions,
    /// APIs refused without asking the backend.
    pub refused: Vec<Api>,
}

/// What a debugger asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Requests by API.
    pub requests: BTreeMap<u32, u64>,
    /// Requests of APIs that have no meaning here, refused; at most 64 numbers.
    pub unknown: BTreeMap<u32, u64>,
    /// Requests that were refused, of any API.
    pub refused: u64,
    /// Packets that are no requests: too short, or of a type no debugger sends.
    pub malformed: u64,
    pub resets: u64,
    pub break_ins: u64,
    /// Prints that no debugger took.
    pub dropped: u64,
}

/// A machine, served. Its owner passes in bytes and the time, and takes out frames.
#[derive(Debug)]
pub struct Server<B> {
    link: TargetLink,
    backend: B,
    options: Options,
    summary: Summary,
    /// The machine waits for the answer to what it asked.
    asking: bool,
}

impl<B: KdBackend> Server<B> {
    pub fn new(backend: B, options: Options) -> Self {
        Self {
            link: TargetLink::new(options.link),
            backend,
            options,
            summary: Summary::default(),
            asking: false,
        }
    }

    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Takes what arrived and answers it.
    pub fn receive(&mut self, bytes: &[u8], now: Duration) {
        // One at a time: what one does decides who listens to the next.
        for byte in bytes {
            if self.deaf() {
                if *byte == BREAK_IN {
                    self.broken_into();
                }
            } else {
                self.link.receive(&[*byte], now);
                self.events(now);
            }
        }
    }

    /// A running machine looks for the break-in byte and drops all else, but while it waits for its own
    /// packet to be taken.
    fn deaf(&mut self) -> bool {
        self.running() && !self.asking && self.link.pending() == 0
    }

    fn broken_into(&mut self) {
        self.summary.break_ins += 1;
        if self.running() {
            self.backend.break_in();
        }
    }

    /// The connection ended; the machine stays as it is and waits for another.
    pub fn disconnected(&mut self) {
        self.link = TargetLink::new(self.options.link);
        self.asking = false;
    }

    /// Repeats what is due, and lets the machine run a while if it does.
    pub fn poll(&mut self, now: Duration) {
        self.link.poll(now);
        self.events(now);
        // A machine that waits for its text or its file to be taken does not run on.
        if !self.running() || self.asking || self.link.pending() > 0 {
            return;
        }
        match self.backend.run() {
            Some(TargetMessage::Stopped(stop)) => self.tell(&stop, now),
            Some(TargetMessage::Print(text)) => {
                let text = text.get(..3_000).map_or(text.clone(), <[u8]>::to_vec);
                let print = DebugIo::Print { processor: 0, text };
                self.send(PacketType::DEBUG_IO, print.encode(), Retry::Times(PRINT_REPEATS), now);
            }
            Some(TargetMessage::GetString { prompt, most }) => {
                self.asking = true;
                let ask = DebugIo::GetString { processor: 0, prompt, most };
                self.send(PacketType::DEBUG_IO, ask.encode(), Retry::Forever, now);
            }
            Some(TargetMessage::File(request)) => {
                self.asking = true;
                self.send(PacketType::FILE_IO, request.encode(), Retry::Forever, now);
            }
            None => {}
        }
    }

    /// When [`poll`](Self::poll) has something to do if nothing arrives before; a machine that runs
    /// wants it at once.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.link.deadline()
    }

    /// Whether the machine runs.
    pub fn running(&mut self) -> bool {
        self.backend.stop().is_none()
    }

    /// The next frame to write, whole.
    pub fn next_output(&mut self) -> Option<Vec<u8>> {
        self.link.next_output()
    }

    fn events(&mut self, now: Duration) {
        while let Some(event) = self.link.next_event() {
            match event {
                TargetEvent::Received { kind, payload } => self.received(kind, &payload, now),
                TargetEvent::BreakIn => self.broken_into(),
                TargetEvent::Reset => {
                    self.summary.resets += 1;
                    if let Some(stop) = self.backend.stop() {
                        self.tell(&stop, now);
                    }
                    // A question that was under way went with the old ids: it has no answer.
                    if std::mem::take(&mut self.asking) {
                        self.backend.string_answered(&[]);
                        self.backend.file_answered(&FileReply::failure(kd_api::NO_SUCH_FILE));
                    }
                }
                TargetEvent::Dropped { .. } => self.summary.dropped += 1,
                TargetEvent::Acknowledged { .. } | TargetEvent::Lost(_) => {}
            }
        }
    }

    fn received(&mut self, kind: PacketType, payload: &[u8], now: Duration) {
        match kind {
            PacketType::STATE_MANIPULATE => self.request(payload, now),
            PacketType::DEBUG_IO => match DebugIo::decode_answer(payload) {
                Ok(DebugIo::Answer { text, .. }) if self.asking => {
                    self.asking = false;
                    self.backend.string_answered(&text);
                }
                _ => self.summary.malformed += 1,
            },
            PacketType::FILE_IO => match FileReply::decode(payload) {
                Ok(reply) if self.asking => {
                    self.asking = false;
                    self.backend.file_answered(&reply);
                }
                _ => self.summary.malformed += 1,
            },
            _ => self.summary.malformed += 1,
        }
    }

    fn tell(&mut self, stop: &StateChange, now: Duration) {
        self.send(PacketType::STATE_CHANGE64, stop.encode(), Retry::Forever, now);
    }

    /// Everything sent is bounded before: a longer packet would be a fault of ours, and is not sent.
    fn send(&mut self, kind: PacketType, payload: Vec<u8>, retry: Retry, now: Duration) {
        if self.link.send(kind, payload, retry, now).is_err() {
            self.summary.malformed += 1;
        }
    }

    fn request(&mut self, bytes: &[u8], now: Duration) {
        let request = Request::decode(bytes);
        let api = api_of(bytes);
        *self.summary.requests.entry(api.0).or_default() += 1;
        if self.summary.requests.len() > 4 * MOST_UNKNOWN {
            self.summary.requests.pop_last();
        }
        let outcome = match request {
            // Only a stopped machine is asked; a running one does not listen.
            _ if self.running() => Err(Refusal::default()),
            Ok(request) if !self.options.refused.contains(&api) => self.answer(request),
            Ok(_) => Err(Refusal::default()),
            Err(_) => {
                self.summary.malformed += 1;
                Err(Refusal::default())
            }
        };
        if outcome.is_err() {
            self.summary.refused += 1;
        }
        match api.answer() {
            Answer::Nothing => {}
            // Refused or not: a debugger waits for a state, of the processor that is current.
            Answer::StateChange => {
                if let Some(stop) = self.backend.stop() {
                    self.tell(&stop, now);
                }
            }
            Answer::Reply => {
                let reply = match outcome {
                    Ok(body) => Reply::success(body),
                    Err(Refusal(status)) => Reply::failure(status | 0x8000_0000),
                };
                self.send(PacketType::STATE_MANIPULATE, reply.encode(bytes), Retry::Forever, now);
            }
        }
    }

    fn answer(&mut self, request: Request) -> Result<ReplyBody, Refusal> {
        let b = &mut self.backend;
        match request {
            Request::GetVersion => Ok(ReplyBody::Version(b.version())),
            Request::ReadVirtual { address, count } => read(count, |buffer| b.read_virtual(address, buffer)),
            Request::ReadPhysical { address, count, .. } => {
                read(count, |buffer| b.read_physical(address, buffer))
            }
            Request::WriteVirtual { address, data } => written(b.write_virtual(address, &data)?),
            Request::WritePhysical { address, data, .. } => written(b.write_physical(address, &data)?),
            Request::QueryMemory { address } => {
                let (space, flags) = b.query_memory(address)?;
                Ok(ReplyBody::Memory { space, flags })
            }
            Request::GetContext { processor } => Ok(ReplyBody::Data(b.context(processor)?)),
            Request::SetContext { processor, context } => done(b.set_context(processor, &context)),
            Request::GetContextEx { processor, offset, count } => {
                let context = b.context(processor)?;
                Ok(ReplyBody::Data(part(&context, offset, count)?.to_vec()))
            }
            Request::SetContextEx { processor, offset, data } => {
                let mut context = b.context(processor)?;
                let count = u32::try_from(data.len()).map_err(|_| Refusal::default())?;
                let at = part(&context, offset, count)?.len();
                let start = offset as usize;
                let place = context.get_mut(start..start + at).filter(|p| p.len() == data.len());
                place.ok_or_else(Refusal::default)?.copy_from_slice(&data);
                b.set_context(processor, &context)?;
                Ok(ReplyBody::Written(count))
            }
            Request::ReadControlSpace { processor, selector, count } => {
                let space = b.control_space(processor, selector)?;
                Ok(ReplyBody::Data(part(&space, 0, count)?.to_vec()))
            }
            Request::WriteControlSpace { processor, selector, data } => {
                b.set_control_space(processor, selector, &data)?;
                written(data.len())
            }
            Request::WriteBreakpoint { address } => Ok(ReplyBody::Handle(b.insert_breakpoint(address)?)),
            Request::RestoreBreakpoint { handle } => done(b.remove_breakpoint(handle)),
            Request::WriteBreakpointEx { breakpoints, .. } => {
                Ok(ReplyBody::Breakpoints(self.breakpoints(&breakpoints)))
            }
            Request::RestoreBreakpointEx { handles, .. } => Ok(ReplyBody::Restored(
                handles.into_iter().filter(|&handle| b.remove_breakpoint(handle).is_ok()).collect(),
            )),
            other => self.answer_rare(other),
        }
    }

    fn answer_rare(&mut self, request: Request) -> Result<ReplyBody, Refusal> {
        let b = &mut self.backend;
        match request {
            Request::Continue { status } => {
                b.resume(Resume::Plain { status });
                Ok(ReplyBody::None)
            }
            Request::Continue2(how) => {
                b.resume(Resume::Controlled(how));
                Ok(ReplyBody::None)
            }
            Request::SwitchProcessor { processor } => done(b.switch_processor(processor)),
            Request::ReadMsr { msr } => Ok(ReplyBody::Msr(b.msr(msr)?)),
            Request::WriteMsr { msr, value } => done(b.set_msr(msr, value)),
            Request::ReadIo { port, size: size @ (1 | 2 | 4) } => Ok(ReplyBody::Value(b.port(port, size)?)),
            Request::WriteIo { port, size: size @ (1 | 2 | 4), value } => done(b.set_port(port, size, value)),
            Request::SearchMemory { start, length, pattern } if !pattern.is_empty() => {
                Ok(ReplyBody::Found(b.search(start, length, &pattern)?))
            }
            Request::FillMemory { address, length, space, pattern } if !pattern.is_empty() => {
                Ok(ReplyBody::Filled(b.fill(space, address, length, &pattern)?))
            }
            Request::CauseBugCheck { code } => done(b.bug_check(code)),
            Request::Reboot => done(b.reboot()),
            // Nothing counts internal breakpoints or special calls here: there are none to forget.
            Request::ClearAllInternal | Request::ClearSpecialCalls => Ok(ReplyBody::None),
            Request::Unknown { api } => {
                if self.summary.unknown.len() < MOST_UNKNOWN || self.summary.unknown.contains_key(&api) {
                    *self.summary.unknown.entry(api).or_default() += 1;
                }
                Err(Refusal::default())
            }
            _ => Err(Refusal::default()),
        }
    }

    /// Each entry inserts (no handle) or removes (no address); what failed keeps a handle of 0.
    fn breakpoints(&mut self, asked: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let one = |&(address, handle): &(u64, u32)| {
            if handle != 0 && address == 0 {
                let removed = self.backend.remove_breakpoint(handle).is_ok();
                (address, if removed { 0 } else { handle })
            } else {
                (address, self.backend.insert_breakpoint(address).unwrap_or(0))
            }
        };
        asked.iter().map(one).collect()
    }
}

fn api_of(bytes: &[u8]) -> Api {
    Api(bytes.get(..4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes))
}

fn done(outcome: Result<(), Refusal>) -> Result<ReplyBody, Refusal> {
    outcome.map(|()| ReplyBody::None)
}

fn written(count: usize) -> Result<ReplyBody, Refusal> {
    Ok(ReplyBody::Written(u32::try_from(count).unwrap_or(u32::MAX)))
}

fn read(count: u32, read: impl FnOnce(&mut [u8]) -> Result<usize, Refusal>) -> Result<ReplyBody, Refusal> {
    let mut buffer = vec![0; count.min(MOST_BYTES) as usize];
    let got = read(&mut buffer)?;
    buffer.truncate(got);
    if buffer.is_empty() && count > 0 {
        return Err(Refusal(status::UNSUCCESSFUL));
    }
    Ok(ReplyBody::Data(buffer))
}

/// Up to `count` of the bytes from `offset` on.
fn part(bytes: &[u8], offset: u32, count: u32) -> Result<&[u8], Refusal> {
    let rest = bytes.get(offset as usize..).ok_or_else(Refusal::default)?;
    Ok(rest.get(..count.min(MOST_BYTES) as usize).unwrap_or(rest))
}
