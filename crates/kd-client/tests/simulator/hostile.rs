//! What is at the other side is no kernel: it lies about lengths, floods, repeats, answers nonsense.
//! Whatever it does, an attach ends within its time and nothing panics.

use std::time::Duration;

use kd_client::{Options, attach_stream};
use kd_transport::{ByteStream, TransportError};
use kd_wire::{PacketType, Retry, TargetEvent, TargetLink, TargetOptions};
use proptest::prelude::*;
use target::{Halt, MemoryExt, Target};

/// Packets a liar sends at a reset, and to every request.
#[derive(Clone, Debug)]
struct Lies {
    at_reset: Vec<(u16, Vec<u8>)>,
    answers: Vec<(u16, Vec<u8>)>,
    noise: Vec<u8>,
}

struct Liar {
    lies: Lies,
    link: TargetLink,
    asked: usize,
    began: std::time::Instant,
}

impl Liar {
    fn new(lies: Lies) -> Self {
        let options = TargetOptions { repeat: Duration::from_millis(5) };
        Self { lies, link: TargetLink::new(options), asked: 0, began: std::time::Instant::now() }
    }

    fn act(&mut self) {
        let now = self.began.elapsed();
        while let Some(event) = self.link.next_event() {
            let packets = match event {
                TargetEvent::Reset => self.lies.at_reset.clone(),
                TargetEvent::Received { payload, .. } => {
                    self.asked += 1;
                    let chosen = self.lies.answers.get(self.asked % self.lies.answers.len().max(1)).cloned();
                    // Some answers look like answers.
                    chosen.into_iter().map(|(kind, body)| (kind, mixed(&payload, body))).collect()
                }
                _ => continue,
            };
            for (kind, body) in packets {
                let _ = self.link.send(PacketType(kind), body, Retry::Times(3), now);
            }
        }
        self.link.poll(now);
    }
}

/// The request's number before the lie, half of the time.
fn mixed(request: &[u8], mut body: Vec<u8>) -> Vec<u8> {
    if body.first().is_some_and(|b| b & 1 == 0) && body.len() >= 0x38 && request.len() >= 0x38 {
        body[..8].copy_from_slice(&request[..8]);
        body[8..12].fill(0);
    }
    body
}

impl ByteStream for Liar {
    fn read(&mut self, buffer: &mut [u8], _: Duration) -> Result<usize, TransportError> {
        std::thread::sleep(Duration::from_millis(1));
        self.act();
        let mut bytes = std::mem::take(&mut self.lies.noise);
        while let Some(frame) = self.link.next_output() {
            bytes.extend(frame);
        }
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.lies.noise = bytes.split_off(count);
        Ok(count)
    }
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let now = self.began.elapsed();
        self.link.receive(bytes, now);
        Ok(())
    }
}

fn attach_liar(lies: Lies) -> Option<Box<dyn Target>> {
    let options = Options {
        timeout: Duration::from_millis(10),
        stop_within: Duration::from_millis(200),
        input_wait: Duration::ZERO,
        ..Options::default()
    };
    attach_stream(Box::new(Liar::new(lies)), &options, &(), &Halt::within(Duration::from_secs(2))).ok()
}

fn packet() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let kind = prop_oneof![Just(7u16), Just(2), Just(3), Just(11), Just(9), Just(10), any::<u16>()];
    let body = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..600),
        proptest::collection::vec(any::<u8>(), 0xf0..0x110),
        Just(vec![0; 0xf0]),
    ];
    (kind, body)
}

/// A state change that holds together.
fn stop() -> Vec<u8> {
    let mut bytes = vec![0; 0xf0];
    bytes[..4].copy_from_slice(&0x3030u32.to_le_bytes());
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    bytes[0x18..0x20].copy_from_slice(&0xffff_f800_0000_1000u64.to_le_bytes());
    bytes[0x20..0x24].copy_from_slice(&0x8000_0003u32.to_le_bytes());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_liar_is_survived(
        mut at_reset in proptest::collection::vec(packet(), 0..6),
        answers in proptest::collection::vec(packet(), 0..6),
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        stops in any::<bool>(),
    ) {
        if stops {
            at_reset.push((7, stop()));
        }
        if let Some(target) = attach_liar(Lies { at_reset, answers, noise }) {
            let _ = target.modules();
            let _ = target.read_u64(0xffff_f800_0000_1000);
            let _ = target.release();
        }
    }
}

#[test]
fn endless_stops_end_the_attach() {
    let lies =
        Lies { at_reset: vec![(7, stop()); 20], answers: vec![(7, stop()), (7, stop())], noise: Vec::new() };
    assert!(attach_liar(lies).is_none());
}
