//! A debugger of few words.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use kd_api::{
    Api, Continue2, DebugIo, FileReply, Reply, ReplyBody, Request, StateChange, StopReason, status,
};
use kd_sim::{Listen, Scenario, Simulator};
use kd_wire::{Expect, Failure, HostEvent, HostLink, HostOptions, PacketType};

const BOUND: Duration = Duration::from_secs(20);

trait Line: Read + Write {}
impl<T: Read + Write> Line for T {}

/// What the machine told by itself.
#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    Stop(Box<StateChange>),
    Text(DebugIo),
    File(Vec<u8>),
}

pub(crate) struct Host {
    link: HostLink,
    line: Box<dyn Line>,
    began: Instant,
    events: VecDeque<HostEvent>,
    pub(crate) told: Vec<Told>,
}

/// The simulator of a scenario, and a host whose first RESET was sent.
pub(crate) fn connected(scenario: &Scenario) -> (Simulator, Host) {
    let simulator = Simulator::start(scenario, &Listen::local()).unwrap();
    let host = Host::connect(&simulator);
    (simulator, host)
}

/// The same, with the first stop.
pub(crate) fn attached(scenario: &Scenario) -> (Simulator, Host, StateChange) {
    let (simulator, mut host) = connected(scenario);
    let stop = host.stop();
    (simulator, host, stop)
}

pub(crate) fn exception(stop: &StateChange) -> u32 {
    match &stop.reason {
        StopReason::Exception(exception) => exception.code,
        other => panic!("{other:?}"),
    }
}

impl Host {
    pub(crate) fn connect(simulator: &Simulator) -> Self {
        let line: Box<dyn Line> = match simulator.endpoint().split_once(':').unwrap() {
            ("tcp", address) => {
                let stream = std::net::TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                Box::new(stream)
            }
            #[cfg(unix)]
            ("unix", path) => {
                let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                Box::new(stream)
            }
            (other, _) => panic!("{other}"),
        };
        let options = HostOptions { timeout: Duration::from_millis(400), ..HostOptions::default() };
        let mut host = Self {
            link: HostLink::new(options),
            line,
            began: Instant::now(),
            events: VecDeque::new(),
            told: Vec::new(),
        };
        host.link.reset(host.began.elapsed());
        host
    }

    /// Carries bytes once; the events.
    pub(crate) fn turn(&mut self) -> Vec<HostEvent> {
        while let Some(frame) = self.link.next_output() {
            self.line.write_all(&frame).unwrap();
        }
        let mut buffer = [0; 4096];
        if let Ok(read) = self.line.read(&mut buffer) {
            self.link.receive(&buffer[..read], self.began.elapsed());
        }
        self.link.poll(self.began.elapsed());
        while let Some(frame) = self.link.next_output() {
            self.line.write_all(&frame).unwrap();
        }
        std::iter::from_fn(|| self.link.next_event()).collect()
    }

    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self, &HostEvent) -> Option<T>) -> T {
        let end = Instant::now() + BOUND;
        while Instant::now() < end {
            let events = self.turn();
            self.events.extend(events);
            // What comes behind the event that was waited for is for whoever waits next.
            while let Some(event) = self.events.pop_front() {
                if let Some(value) = done(self, &event) {
                    return value;
                }
                self.note(&event);
            }
        }
        panic!("no {what}");
    }

    fn note(&mut self, event: &HostEvent) {
        let HostEvent::Received { kind, payload } = event else { return };
        match *kind {
            PacketType::STATE_CHANGE64 => {
                self.told.push(Told::Stop(Box::new(StateChange::decode(payload).unwrap())));
            }
            PacketType::DEBUG_IO => self.told.push(Told::Text(DebugIo::decode(payload).unwrap())),
            PacketType::FILE_IO => self.told.push(Told::File(payload.clone())),
            _ => {}
        }
    }

    /// The next stop.
    pub(crate) fn stop(&mut self) -> StateChange {
        self.until("stop", |_, event| match event {
            HostEvent::Received { kind: PacketType::STATE_CHANGE64, payload } => {
                Some(StateChange::decode(payload).unwrap())
            }
            _ => None,
        })
    }

    /// The next of anything that is no stop.
    pub(crate) fn next_told(&mut self) -> Told {
        let end = Instant::now() + BOUND;
        while self.told.is_empty() && Instant::now() < end {
            let events = self.turn();
            self.events.extend(events);
            while let Some(event) = self.events.pop_front() {
                self.note(&event);
            }
        }
        self.told.remove(0)
    }

    fn ready(&mut self) {
        let end = Instant::now() + BOUND;
        while !self.link.ready() && Instant::now() < end {
            let events = self.turn();
            self.events.extend(events);
        }
    }

    pub(crate) fn send(&mut self, kind: PacketType, payload: &[u8]) {
        self.ready();
        self.link.send(kind, payload, Expect::Acknowledgement, self.began.elapsed()).unwrap();
        self.until("acknowledgement", |_, event| (*event == HostEvent::Acknowledged).then_some(()));
    }

    /// The payload that answers these bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.ready();
        let expect = Expect::Answer(PacketType::STATE_MANIPULATE);
        self.link.send(PacketType::STATE_MANIPULATE, bytes, expect, self.began.elapsed()).unwrap();
        self.until("reply", |_, event| match event {
            HostEvent::Received { kind: PacketType::STATE_MANIPULATE, payload } => Some(payload.clone()),
            HostEvent::Failed(failure) => panic!("{failure}"),
            _ => None,
        })
    }

    /// Why a request is not answered; `None` when the line ended.
    pub(crate) fn failure(&mut self, request: &Request) -> Option<Failure> {
        let expect = Expect::Answer(PacketType::STATE_MANIPULATE);
        self.ready();
        let now = self.began.elapsed();
        self.link.send(PacketType::STATE_MANIPULATE, &request.encode(), expect, now).unwrap();
        let end = Instant::now() + BOUND;
        while Instant::now() < end {
            let mut buffer = [0; 4096];
            while let Some(frame) = self.link.next_output() {
                self.line.write_all(&frame).ok()?;
            }
            match self.line.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.link.receive(&buffer[..read], self.began.elapsed()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return None,
            }
            self.link.poll(self.began.elapsed());
            while let Some(event) = self.link.next_event() {
                match event {
                    HostEvent::Failed(failure) => return Some(failure),
                    HostEvent::Received { kind: PacketType::STATE_MANIPULATE, .. } => panic!("answered"),
                    _ => {}
                }
            }
        }
        panic!("neither failed nor ended");
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Reply {
        let bytes = self.raw(&request.encode());
        Reply::decode(request, &bytes).unwrap()
    }

    /// Bytes read; none when it was refused.
    pub(crate) fn read(&mut self, address: u64, count: u32) -> Vec<u8> {
        match self.ask(&Request::ReadVirtual { address, count }).body {
            ReplyBody::Data(data) => data,
            _ => Vec::new(),
        }
    }

    pub(crate) fn go(&mut self, trace: bool) {
        let go = Continue2::new(status::DBG_EXCEPTION_HANDLED, trace, 0x400);
        self.go_with(go);
    }

    pub(crate) fn go_with(&mut self, go: Continue2) {
        self.send(PacketType::STATE_MANIPULATE, &Request::Continue2(go).encode());
    }

    pub(crate) fn break_in(&mut self) {
        self.link.break_in();
    }

    pub(crate) fn answer(&mut self, text: &str) {
        let answer = DebugIo::Answer { processor: 0, text: text.into() };
        self.send(PacketType::DEBUG_IO, &answer.encode());
    }

    pub(crate) fn no_file(&mut self, request: &[u8]) {
        let refusal = FileReply::failure(kd_api::NO_SUCH_FILE).encode(request);
        self.send(PacketType::FILE_IO, &refusal);
    }

    /// What an API that has no meaning here answers.
    pub(crate) fn unknown(&mut self, api: u32) -> u32 {
        let bytes = self.raw(&Request::Unknown { api }.encode());
        assert_eq!(Api(u32::from_le_bytes(bytes[..4].try_into().unwrap())).0, api);
        u32::from_le_bytes(bytes[8..12].try_into().unwrap())
    }
}
