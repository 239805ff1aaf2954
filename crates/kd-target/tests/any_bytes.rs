//! A server and bytes of any kind: bounded, never a panic, and no reply where none is due.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use kd_api::{
    Answer, Api, Context, ControlReport, Exception, Request, StateChange, StopReason, Version, context_flags,
};
use kd_target::{KdBackend, Options, Refusal, Resume, Server, Stop, TargetMessage};
use kd_wire::{Decoder, Frame, PacketType, encode_control, encode_data};
use proptest::prelude::*;

/// A machine with one page of memory, that stops as soon as it runs.
#[derive(Debug, Default)]
struct Tiny {
    running: bool,
    resumed: u32,
}

impl Tiny {
    fn told() -> Stop {
        StateChange {
            processor_level: 6,
            processor: 0,
            processors: 1,
            thread: 1,
            program_counter: 0x1000,
            reason: StopReason::Exception(Exception::default()),
            control: ControlReport::default(),
            alternate: false,
        }
    }
}

impl KdBackend for Tiny {
    fn version(&mut self) -> Version {
        Version {
            major: 0xf,
            minor: 1,
            protocol: 6,
            secondary: 2,
            flags: 4,
            machine: 0x8664,
            max_packet_type: 12,
            max_state_change: 3,
            max_manipulate: 0x31,
            simulation: 0,
            kernel_base: 0x1000,
            loaded_module_list: 0,
            debugger_data_list: 0,
        }
    }
    fn stop(&mut self) -> Option<Stop> {
        (!self.running).then(Self::told)
    }
    fn run(&mut self) -> Option<TargetMessage> {
        self.running = false;
        Some(TargetMessage::Stopped(Box::new(Self::told())))
    }
    fn break_in(&mut self) {}
    fn resume(&mut self, _: Resume) {
        self.running = true;
        self.resumed += 1;
    }
    fn read_virtual(&mut self, address: u64, buffer: &mut [u8]) -> Result<usize, Refusal> {
        if (0x1000..0x2000).contains(&address) {
            Ok(buffer.len().min((0x2000 - address) as usize))
        } else {
            Err(Refusal::default())
        }
    }
    fn context(&mut self, processor: u16) -> Result<Vec<u8>, Refusal> {
        if processor > 0 {
            return Err(Refusal::default());
        }
        Ok(Context::zeroed(context_flags::CONTROL).as_bytes().to_vec())
    }
    fn control_space(&mut self, _: u16, _: u64) -> Result<Vec<u8>, Refusal> {
        Ok(vec![0; 0xE0])
    }
}

const NOW: Duration = Duration::ZERO;

fn out(server: &mut Server<Tiny>) -> Vec<Frame> {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    while let Some(bytes) = server.next_output() {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            rest = &rest[decoder.push(rest)..];
            frames.extend(std::iter::from_fn(|| decoder.next()).map(Result::unwrap));
        }
    }
    frames
}

fn server() -> Server<Tiny> {
    let mut server = Server::new(Tiny::default(), Options::default());
    server.receive(&encode_control(PacketType::RESET, 0), NOW);
    let first = out(&mut server);
    assert!(matches!(
        first[..],
        [Frame::Control { .. }, Frame::Data { kind: PacketType::STATE_CHANGE64, .. }]
    ));
    server.receive(&encode_control(PacketType::ACKNOWLEDGE, 0x8080_0000), NOW);
    server
}

/// The kinds of the data packets that answer a request.
fn answers(payload: &[u8]) -> Vec<PacketType> {
    let mut server = server();
    server.receive(&encode_data(PacketType::STATE_MANIPULATE, 0x8080_0000, payload).unwrap(), NOW);
    let kind = |frame| match frame {
        Frame::Data { kind, .. } => Some(kind),
        _ => None,
    };
    out(&mut server).into_iter().filter_map(kind).collect()
}

#[test]
fn every_api_is_answered_as_it_says() {
    for api in (0x3130..=0x3165).chain([0, 0x9999]) {
        let expected: &[PacketType] = match Api(api).answer() {
            Answer::Reply => &[PacketType::STATE_MANIPULATE],
            Answer::Nothing => &[],
            Answer::StateChange => &[PacketType::STATE_CHANGE64],
        };
        assert_eq!(answers(&Request::Unknown { api }.encode()), expected, "{api:#x}");
        // Of too few bytes, too: those of an API are enough to know.
        assert_eq!(answers(&api.to_le_bytes()), expected, "{api:#x}, short");
    }
}

#[test]
fn a_continue_goes_on_once() {
    let mut server = server();
    let go = encode_data(
        PacketType::STATE_MANIPULATE,
        0x8080_0000,
        &Request::Continue { status: 0x0001_0002 }.encode(),
    )
    .unwrap();
    server.receive(&go, NOW);
    assert!(server.running());
    // Again while it runs: nobody listens.
    server.receive(&go, NOW);
    server.poll(NOW);
    server.receive(&go, NOW);
    assert_eq!(server.backend().resumed, 1);
    assert!(!server.running());
}

proptest! {
    #[test]
    fn any_bytes_are_taken(parts in prop::collection::vec(prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        Just(encode_control(PacketType::RESET, 0)),
        Just(encode_control(PacketType::ACKNOWLEDGE, 0x8080_0000)),
        (0x3130u32..0x3162, prop::collection::vec(any::<u8>(), 0x34..0x80), any::<bool>()).prop_map(|(api, rest, odd)| {
            let payload = [&api.to_le_bytes()[..], &rest].concat();
            encode_data(PacketType::STATE_MANIPULATE, 0x8080_0000 | u32::from(odd), &payload).unwrap()
        }),
        (any::<u16>(), prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(kind, payload)| {
            encode_data(PacketType(kind & 15), 0x8080_0000, &payload).unwrap()
        }),
    ], 0..60)) {
        let mut server = server();
        for (tick, part) in parts.iter().enumerate() {
            let now = Duration::from_millis(300 * tick as u64);
            server.receive(part, now);
            server.poll(now);
            for frame in out(&mut server) {
                if let Frame::Data { kind: PacketType::STATE_MANIPULATE, payload, .. } = frame {
                    let api = u32::from_le_bytes(payload[..4].try_into().unwrap());
                    prop_assert_eq!(Api(api).answer(), Answer::Reply);
                }
            }
        }
    }
}
