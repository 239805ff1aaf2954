//! Packets that are lost or broken on their way to the engine.

use kd_sim::{Direction, Fault, FrameRecord, Injected, Scenario};

use crate::debugger::{Case, Debugger, has};

pub(crate) const CASES: &[Case] = &[
    ("a_broken_packet_is_asked_for_again", corrupt),
    ("a_lost_packet_is_repeated", lost),
    ("bytes_one_by_one", split),
    ("noise", noise),
    ("a_doubled_packet", doubled),
];

fn attached(what: Fault) -> (Debugger, Vec<FrameRecord>) {
    let scenario =
        Scenario { faults: vec![Injected { at: 5, what }], repeat_ms: 5_000, ..Scenario::default() };
    let debugger = Debugger::attach(&scenario);
    has(&debugger.said, "Break instruction exception");
    has(&debugger.run("r rip"), &format!("rip={:016x}", Scenario::CODE));
    let frames = debugger.report().frames;
    (debugger, frames)
}

/// The ids of the target's data packets.
fn sent(frames: &[FrameRecord]) -> Vec<u32> {
    let from_target = frames.iter().filter(|f| f.dir == Direction::FromTarget && f.api.is_some());
    from_target.map(|f| f.id).collect()
}

fn corrupt() {
    let (_debugger, frames) = attached(Fault::Corrupt);
    let resent = frames.iter().any(|f| f.dir == Direction::FromDebugger && f.kind == Some(5));
    assert!(resent, "no RESEND");
    assert!(sent(&frames).windows(2).any(|ids| ids[0] == ids[1]), "no packet twice");
}

/// The engine asks again, under a new id when the request was acknowledged, and gets the first answer.
fn lost() {
    let (_debugger, frames) = attached(Fault::Drop);
    let asked: Vec<&FrameRecord> =
        frames.iter().filter(|f| f.dir == Direction::FromDebugger && f.kind == Some(2)).collect();
    let again = asked.windows(2).filter(|two| two[0].hex == two[1].hex && two[1].t_ms >= two[0].t_ms + 900);
    assert_eq!(again.count(), 1, "no request was repeated: {asked:#?}");
    assert!(sent(&frames).windows(2).any(|ids| ids[0] == ids[1]), "no packet twice");
}

fn split() {
    attached(Fault::Split);
}

fn noise() {
    attached(Fault::Garbage);
}

fn doubled() {
    attached(Fault::Duplicate);
}
