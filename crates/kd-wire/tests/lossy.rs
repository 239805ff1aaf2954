//! A host and a target joined by a line that loses, doubles and breaks frames: every request completes
//! once or is reported as failed, and none is done twice. Headers are not broken: no checksum covers
//! them, so nothing could tell.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use kd_wire::{
    Expect, HostEvent, HostLink, HostOptions, PacketType, Retry, TargetEvent, TargetLink, TargetOptions,
};
use proptest::prelude::*;

const MANIPULATE: PacketType = PacketType::STATE_MANIPULATE;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fine,
    Lost,
    Doubled,
    Broken(u8),
}

fn fate(bad: u32) -> impl Strategy<Value = Fate> {
    prop_oneof![
        100 - bad => Just(Fate::Fine),
        bad => prop_oneof![Just(Fate::Lost), Just(Fate::Doubled), any::<u8>().prop_map(Fate::Broken)],
    ]
}

fn travel(mut frame: Vec<u8>, fate: Fate) -> Vec<u8> {
    match fate {
        Fate::Fine => frame,
        Fate::Lost => Vec::new(),
        Fate::Doubled => frame.repeat(2),
        Fate::Broken(at) if frame.len() > 16 => {
            let place = 16 + usize::from(at) % (frame.len() - 16);
            frame[place] ^= 0x55;
            frame
        }
        // A control packet that is none.
        Fate::Broken(_) => {
            frame[2] ^= 0x55;
            frame
        }
    }
}

struct Line {
    host: HostLink,
    target: TargetLink,
    now: Duration,
    fates: Vec<Fate>,
    used: usize,
    done: BTreeMap<u32, u32>,
}

impl Line {
    /// Good at last: a line that never is may keep both ends busy for ever.
    fn fate(&mut self) -> Fate {
        self.used += 1;
        self.fates.get(self.used).copied().unwrap_or(Fate::Fine)
    }

    /// Carries frames until both are silent.
    fn carry(&mut self) {
        for _ in 0..1_000 {
            if let Some(frame) = self.host.next_output() {
                let fate = self.fate();
                self.target.receive(&travel(frame, fate), self.now);
            } else if let Some(frame) = self.target.next_output() {
                let fate = self.fate();
                self.host.receive(&travel(frame, fate), self.now);
            } else {
                return;
            }
            self.serve();
        }
        panic!("the ends talk for ever");
    }

    fn serve(&mut self) {
        while let Some(event) = self.target.next_event() {
            match event {
                TargetEvent::Received { kind: MANIPULATE, payload } => {
                    let number = u32::from_le_bytes(payload[..4].try_into().unwrap());
                    *self.done.entry(number).or_default() += 1;
                    self.target.send(MANIPULATE, payload, Retry::Forever, self.now).unwrap();
                }
                TargetEvent::Reset => {
                    let stop = b"stopped".to_vec();
                    self.target.send(PacketType::STATE_CHANGE64, stop, Retry::Forever, self.now).unwrap();
                }
                _ => {}
            }
        }
    }
}

/// The requests that completed, and those that failed; the rest were never sent.
fn converse(count: u32, fates: Vec<Fate>) -> (Line, Vec<u32>, Vec<u32>) {
    let mut line = Line {
        host: HostLink::new(HostOptions::default()),
        target: TargetLink::new(TargetOptions::default()),
        now: Duration::ZERO,
        fates,
        used: 0,
        done: BTreeMap::new(),
    };
    let (mut completed, mut failed) = (Vec::new(), Vec::new());
    let (mut next, mut under_way) = (0, None);
    line.host.reset(line.now);
    for _ in 0..20_000 {
        line.carry();
        while let Some(event) = line.host.next_event() {
            match event {
                HostEvent::Received { kind: MANIPULATE, payload } => {
                    let number = u32::from_le_bytes(payload[..4].try_into().unwrap());
                    assert_eq!(under_way.take(), Some(number), "the answer to another request");
                    completed.push(number);
                }
                HostEvent::Failed(_) => failed.push(under_way.take().expect("something was under way")),
                HostEvent::Silent => line.host.reset(line.now),
                HostEvent::Lost(_) => return (line, completed, failed),
                _ => {}
            }
        }
        if line.host.ready() {
            if next == count {
                return (line, completed, failed);
            }
            let payload = [next.to_le_bytes(), [0x11; 4]].concat();
            line.host.send(MANIPULATE, &payload, Expect::Answer(MANIPULATE), line.now).unwrap();
            under_way = Some(next);
            next += 1;
            continue;
        }
        let due = [line.host.deadline(), line.target.deadline()].into_iter().flatten().min();
        line.now = due.expect("someone waits for something").max(line.now);
        line.host.poll(line.now);
        line.target.poll(line.now);
    }
    panic!("{count} requests did not end");
}

fn check(count: u32, fates: Vec<Fate>) {
    let (line, completed, failed) = converse(count, fates);
    for (number, times) in &line.done {
        assert_eq!(*times, 1, "request {number} was done {times} times");
    }
    for number in &completed {
        assert_eq!(line.done.get(number), Some(&1), "request {number} was answered and not done");
        assert!(!failed.contains(number));
    }
    let mut both = [completed, failed].concat();
    both.sort_unstable();
    assert!(both.windows(2).all(|two| two[0] + 1 == two[1]), "{both:?}");
}

#[test]
fn a_good_line_completes_everything() {
    let (_, completed, failed) = converse(50, vec![Fate::Fine]);
    assert_eq!((completed.len(), failed.len()), (50, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn a_bad_line(fates in prop::collection::vec(fate(10), 0..400)) {
        check(40, fates);
    }

    #[test]
    fn a_terrible_line(fates in prop::collection::vec(fate(45), 0..800)) {
        check(20, fates);
    }
}
