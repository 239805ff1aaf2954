#![no_main]
//! Any bytes, in parts, at both ends of a KD link: bounded, never a panic, and a target still answers RESET
//! unless more packets came at once than it queues.

use std::time::Duration;

use kd_wire::{
    Decoder, Expect, HostLink, HostOptions, Lost, PacketType, Retry, TargetEvent, TargetLink, TargetOptions,
    encode_control,
};

/// Whether more came at once than the link queues.
fn overflowed(target: &mut TargetLink) -> bool {
    std::iter::from_fn(|| target.next_event())
        .fold(false, |lost, event| lost || event == TargetEvent::Lost(Lost::Flooded))
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (mut host, mut target) =
        (HostLink::new(HostOptions::default()), TargetLink::new(TargetOptions::default()));
    let (mut decoder, mut flooded) = (Decoder::default(), false);
    host.reset(Duration::ZERO);
    for (tick, part) in data.chunks(23).enumerate() {
        let now = Duration::from_millis(700 * tick as u64);
        decoder.push(part);
        while decoder.next().is_some() {}
        assert!(decoder.held() <= Decoder::MOST_HELD);
        host.receive(part, now);
        target.receive(part, now);
        host.poll(now);
        target.poll(now);
        if host.ready() {
            let expect = Expect::Answer(PacketType::STATE_MANIPULATE);
            let _ = host.send(PacketType::STATE_MANIPULATE, part, expect, now);
        }
        let _ = target.send(PacketType::STATE_CHANGE64, part.to_vec(), Retry::Times(2), now);
        while host.next_output().is_some() || host.next_event().is_some() {}
        while target.next_output().is_some() {}
        flooded |= overflowed(&mut target);
    }
    // Behind whatever packet the bytes began: it ends as broken.
    let end = Duration::from_secs(1_000_000);
    target.receive(&[0; Decoder::MOST_HELD], end);
    while target.next_output().is_some() {}
    if overflowed(&mut target) || flooded {
        return;
    }
    target.receive(&encode_control(PacketType::RESET, 0), end);
    let reset = encode_control(PacketType::RESET, 0);
    assert!(std::iter::from_fn(|| target.next_output()).any(|frame| frame == reset));
});
