//! Packets that are lost or broken on their way to the engine.

use kd_sim::{Direction, Fault, FrameRecord, Injected, Scenario};

use crate::debugger::{Case, Debugger, has};

pub(crate) const CASES: &[Case] = &[
    ("a_broken_packet_is_asked_for_again", corrupt),
    ("a_lost_packet_is_repeated", lost),
    ("bytes_one_by_one", split),
    ("noise_and_doubles", noise),
];

fn attached(what: Fault) -> (Debugger, Vec<FrameRecord>) {
    let scenario = Scenario { faults: vec![Injected { at: 5, what }], repeat_ms: 5_000, ..Scenario::default() };
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

fn lost() {
    let (_debugger, frames) = attached(Fault::Drop);
    let asked: Vec<u32> = frames
        .iter()
        .filter(|f| f.dir == Direction::FromDebugger && f.kind == Some(2))
        .map(|f| f.id)
        .collect();
    assert!(asked.windows(2).any(|ids| ids[0] == ids[1]), "no request was repeated: {asked:x?}");
    assert!(sent(&frames).windows(2).any(|ids| ids[0] == ids[1]), "no packet twice");
}

fn split() {
    attached(Fault::Split);
}

fn noise() {
    attached(Fault::Garbage);
    // One engine a process, but the simulator is another: the doubled packet is the next case's.
}
