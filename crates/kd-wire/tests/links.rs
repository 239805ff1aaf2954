//! Ids, acknowledgements, repeats and resets of both ends, against literal packets.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use kd_wire::{
    Decoder, Expect, Failure, Frame, HostEvent, HostLink, HostOptions, Lost, PacketType, Retry, SendError,
    TargetEvent, TargetLink, TargetOptions, encode_control, encode_data,
};

const MANIPULATE: PacketType = PacketType::STATE_MANIPULATE;
const STOP: PacketType = PacketType::STATE_CHANGE64;
const ANSWER: Expect = Expect::Answer(MANIPULATE);

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn decoded(bytes: &[u8]) -> Frame {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    decoder.next().unwrap().unwrap()
}

fn control(kind: PacketType, id: u32) -> Frame {
    Frame::Control { kind, id }
}

fn data(kind: PacketType, id: u32, payload: &[u8]) -> Frame {
    Frame::Data { kind, id, payload: payload.to_vec() }
}

fn host_out(link: &mut HostLink) -> Vec<Frame> {
    std::iter::from_fn(|| link.next_output()).map(|b| decoded(&b)).collect()
}
fn host_events(link: &mut HostLink) -> Vec<HostEvent> {
    std::iter::from_fn(|| link.next_event()).collect()
}
fn target_out(link: &mut TargetLink) -> Vec<Frame> {
    std::iter::from_fn(|| link.next_output()).map(|b| decoded(&b)).collect()
}
fn target_events(link: &mut TargetLink) -> Vec<TargetEvent> {
    std::iter::from_fn(|| link.next_event()).collect()
}

fn received(payload: &[u8]) -> HostEvent {
    HostEvent::Received { kind: MANIPULATE, payload: payload.to_vec() }
}

/// A host whose RESET was answered.
fn ready() -> HostLink {
    let mut host = HostLink::new(HostOptions::default());
    host.reset(at(0));
    assert_eq!(host_out(&mut host), [control(PacketType::RESET, 0)]);
    assert_eq!(host.send(MANIPULATE, b"x", ANSWER, at(0)), Err(SendError::Resetting));
    host.receive(&encode_control(PacketType::RESET, 0), at(1));
    host.receive(&encode_data(STOP, 0x8080_0800, b"stop").unwrap(), at(2));
    // Acknowledged without the mark of the first packet.
    assert_eq!(host_out(&mut host), [control(PacketType::ACKNOWLEDGE, 0x8080_0000)]);
    let stop = HostEvent::Received { kind: STOP, payload: b"stop".to_vec() };
    assert_eq!(host_events(&mut host), [HostEvent::Reset, stop]);
    host
}

#[test]
fn a_request_and_its_answer() {
    let mut host = ready();
    host.send(MANIPULATE, b"one", ANSWER, at(10)).unwrap();
    assert_eq!(host.send(MANIPULATE, b"two", ANSWER, at(10)), Err(SendError::Busy));
    assert_eq!(host_out(&mut host), [data(MANIPULATE, 0x8080_0000, b"one")]);
    host.receive(&encode_control(PacketType::ACKNOWLEDGE, 0x8080_0000), at(11));
    assert!(host_events(&mut host).is_empty() && !host.ready());
    host.receive(&encode_data(MANIPULATE, 0x8080_0001, b"1").unwrap(), at(12));
    assert_eq!(host_events(&mut host), [received(b"1")]);
    assert_eq!(host_out(&mut host), [control(PacketType::ACKNOWLEDGE, 0x8080_0001)]);
    // The same answer again is acknowledged, and not told.
    host.receive(&encode_data(MANIPULATE, 0x8080_0001, b"1").unwrap(), at(13));
    assert!(host_events(&mut host).is_empty());
    assert_eq!(host_out(&mut host), [control(PacketType::ACKNOWLEDGE, 0x8080_0001)]);
    // The next goes out under the other id; its answer stands for the acknowledgement.
    host.send(MANIPULATE, b"two", ANSWER, at(20)).unwrap();
    assert_eq!(host_out(&mut host), [data(MANIPULATE, 0x8080_0001, b"two")]);
    host.receive(&encode_data(MANIPULATE, 0x8080_0000, b"2").unwrap(), at(21));
    assert_eq!(host_events(&mut host), [received(b"2")]);
    assert!(host.ready());
    host.send(MANIPULATE, b"three", ANSWER, at(30)).unwrap();
    assert_eq!(host_out(&mut host)[1], data(MANIPULATE, 0x8080_0000, b"three"));
}

#[test]
fn an_unknown_id_is_asked_for_again() {
    let mut host = ready();
    host.receive(&encode_data(MANIPULATE, 0x1234, b"?").unwrap(), at(5));
    assert_eq!(host_out(&mut host), [control(PacketType::RESEND, 0)]);
    assert!(host_events(&mut host).is_empty());
}

#[test]
fn a_continue_ends_with_its_acknowledgement() {
    let mut host = ready();
    host.send(MANIPULATE, b"go", Expect::Acknowledgement, at(10)).unwrap();
    // Of another packet.
    host.receive(&encode_control(PacketType::ACKNOWLEDGE, 0x8080_0001), at(11));
    assert!(!host.ready());
    host.receive(&encode_control(PacketType::ACKNOWLEDGE, 0x8080_0000), at(12));
    assert_eq!(host_events(&mut host), [HostEvent::Acknowledged]);
    assert!(host.ready() && host.deadline().is_none());
}

#[test]
fn unanswered_it_is_repeated_five_times_then_the_link_is_reset() {
    let mut host = ready();
    host.send(MANIPULATE, b"one", ANSWER, at(0)).unwrap();
    let packet = data(MANIPULATE, 0x8080_0000, b"one");
    assert_eq!(host_out(&mut host), std::slice::from_ref(&packet));
    for repeat in 1..=5 {
        host.poll(at(4_000 * repeat - 1));
        assert!(host_out(&mut host).is_empty());
        host.poll(host.deadline().unwrap());
        assert_eq!(host_out(&mut host), std::slice::from_ref(&packet));
    }
    host.poll(host.deadline().unwrap());
    assert_eq!(host_events(&mut host), [HostEvent::Failed(Failure::Unanswered)]);
    for _ in 0..3 {
        assert_eq!(host_out(&mut host), [control(PacketType::RESET, 0)]);
        host.poll(host.deadline().unwrap());
    }
    assert_eq!(host_events(&mut host), [HostEvent::Silent]);
    assert_eq!((host.deadline(), host.ready()), (None, false));
    // Whatever comes then begins another round.
    host.receive(&encode_data(STOP, 0x8080_0001, b"old").unwrap(), at(90_000));
    assert_eq!(host_out(&mut host), [control(PacketType::RESET, 0)]);
}

#[test]
fn answers_to_all_resets_are_awaited() {
    let mut host = HostLink::new(HostOptions::default());
    host.reset(at(0));
    host.poll(at(1_000));
    assert_eq!(host_out(&mut host).len(), 2);
    let reset = encode_control(PacketType::RESET, 0);
    let stop = |text: &[u8]| encode_data(STOP, 0x8080_0800, text).unwrap();
    host.receive(&[reset.clone(), stop(b"first")].concat(), at(1_010));
    assert!(host_events(&mut host).is_empty() && !host.ready());
    host.receive(&[reset.clone(), stop(b"second")].concat(), at(1_020));
    let second = HostEvent::Received { kind: STOP, payload: b"second".to_vec() };
    assert_eq!(host_events(&mut host), [HostEvent::Reset, second]);
    // One that is never answered is waited for only so long.
    host.reset(at(2_000));
    host.poll(at(3_000));
    host.receive(&[reset, stop(b"third")].concat(), at(3_010));
    assert!(host_events(&mut host).is_empty());
    host.poll(host.deadline().unwrap());
    assert_eq!(host_events(&mut host).len(), 2);
    assert!(host.ready());
}

#[test]
fn a_reset_of_the_target_fails_what_is_under_way() {
    let mut host = ready();
    host.send(MANIPULATE, b"one", ANSWER, at(10)).unwrap();
    host_out(&mut host);
    host.receive(&encode_control(PacketType::RESET, 0), at(11));
    assert_eq!(host_events(&mut host), [HostEvent::Failed(Failure::Reset)]);
    assert_eq!(host_out(&mut host), [control(PacketType::RESET, 0)]);
}

#[test]
fn three_errors_lose_the_link_and_a_good_frame_forgives() {
    let mut broken = encode_data(STOP, 0x8080_0000, b"stop").unwrap();
    broken[17] ^= 1;
    let mut host = ready();
    host.receive(&[broken.clone(), broken.clone()].concat(), at(5));
    assert_eq!(host_out(&mut host), [control(PacketType::RESEND, 0), control(PacketType::RESEND, 0)]);
    host.receive(&encode_control(PacketType::ACKNOWLEDGE, 9), at(6));
    host.receive(&[broken.clone(), broken.clone()].concat(), at(7));
    host.send(MANIPULATE, b"one", ANSWER, at(8)).unwrap();
    host.receive(&broken, at(9));
    let lost = Lost::Framing;
    assert_eq!(host_events(&mut host), [HostEvent::Failed(Failure::Lost(lost)), HostEvent::Lost(lost)]);
    assert_eq!(host.send(MANIPULATE, b"x", ANSWER, at(10)), Err(SendError::Lost(lost)));
    host.poll(at(99));
    assert!(host_events(&mut host).is_empty());
}

#[test]
fn a_flood_loses_the_link() {
    let mut host = ready();
    let acknowledgement = encode_control(PacketType::ACKNOWLEDGE, 1);
    host.receive(&acknowledgement.repeat(1_000), at(5));
    assert!(host.ready());
    let mut id = 0x8080_0001;
    for _ in 0..70 {
        host.receive(&encode_data(PacketType::DEBUG_IO, id, b"text").unwrap(), at(6));
        id ^= 1;
    }
    assert_eq!(host_events(&mut host).last(), Some(&HostEvent::Lost(Lost::Flooded)));
}

#[test]
fn a_target_answers_reset_repeats_and_queues() {
    let mut target = TargetLink::new(TargetOptions::default());
    target.receive(&encode_control(PacketType::RESET, 0), at(0));
    assert_eq!(target_events(&mut target), [TargetEvent::Reset]);
    target.send(STOP, b"stop".to_vec(), Retry::Forever, at(0)).unwrap();
    let stop = data(STOP, 0x8080_0800, b"stop");
    assert_eq!(target_out(&mut target), [control(PacketType::RESET, 0), stop.clone()]);
    target.poll(at(999));
    assert!(target_out(&mut target).is_empty());
    target.poll(at(1_000));
    target.receive(&encode_control(PacketType::RESEND, 0), at(1_001));
    assert_eq!(target_out(&mut target), [stop.clone(), stop]);
    target.receive(&encode_control(PacketType::ACKNOWLEDGE, 0x8080_0000), at(1_002));
    assert_eq!(target_events(&mut target), [TargetEvent::Acknowledged { kind: STOP }]);
    // Nothing to send again.
    target.receive(&encode_control(PacketType::RESEND, 0), at(1_003));
    assert!(target_out(&mut target).is_empty() && target_events(&mut target).is_empty());
}

/// What DbgEng does when an answer is lost: it asks again, under the same id or the next one.
#[test]
fn a_request_that_is_repeated_is_answered_and_not_done_again() {
    let mut target = TargetLink::new(TargetOptions::default());
    let request = |id, text: &[u8]| encode_data(MANIPULATE, id, text).unwrap();
    target.receive(&request(0x8080_0000, b"one"), at(0));
    assert_eq!(target_events(&mut target).len(), 1);
    target.send(MANIPULATE, b"1".to_vec(), Retry::Forever, at(0)).unwrap();
    let answer = data(MANIPULATE, 0x8080_0800, b"1");
    assert_eq!(target_out(&mut target), [control(PacketType::ACKNOWLEDGE, 0x8080_0000), answer.clone()]);
    target.receive(&request(0x8080_0000, b"one"), at(1));
    assert_eq!(target_out(&mut target), [control(PacketType::ACKNOWLEDGE, 0x8080_0000), answer.clone()]);
    target.receive(&request(0x8080_0001, b"one"), at(2));
    assert_eq!(target_out(&mut target), [control(PacketType::ACKNOWLEDGE, 0x8080_0001), answer]);
    assert!(target_events(&mut target).is_empty());
    // Another request: the answer arrived, its acknowledgement did not.
    target.receive(&request(0x8080_0000, b"two"), at(3));
    assert_eq!(target_events(&mut target).len(), 2);
    target.send(MANIPULATE, b"2".to_vec(), Retry::Forever, at(3)).unwrap();
    assert_eq!(target_out(&mut target)[1], data(MANIPULATE, 0x8080_0001, b"2"));
}

/// Whose owner does not take its frames, or which hears nothing but broken ones, answers RESET still.
#[test]
fn a_target_outlives_floods_and_broken_packets() {
    let mut target = TargetLink::new(TargetOptions::default());
    let reset = encode_control(PacketType::RESET, 0);
    for _ in 0..200 {
        target.receive(&reset, at(0));
        assert_eq!(target_events(&mut target), [TargetEvent::Reset]);
    }
    assert_eq!(target_out(&mut target).len(), 64);
    let mut broken = encode_data(MANIPULATE, 0x8080_0000, b"one").unwrap();
    broken[17] ^= 1;
    target.receive(&broken.repeat(50), at(1));
    assert_eq!(target_out(&mut target).len(), 2);
    target.receive(&reset, at(2));
    assert_eq!(target_out(&mut target), [control(PacketType::RESET, 0)]);
}

#[test]
fn a_print_nobody_takes_is_dropped() {
    let mut target = TargetLink::new(TargetOptions::default());
    target.send(PacketType::DEBUG_IO, b"text".to_vec(), Retry::Times(20), at(0)).unwrap();
    target.send(STOP, b"stop".to_vec(), Retry::Forever, at(0)).unwrap();
    for second in 1..=21 {
        target.poll(at(1_000 * second));
    }
    let out = target_out(&mut target);
    assert_eq!(out.len(), 1 + 20 + 2);
    assert_eq!(out[21..], [control(PacketType::RESET, 0), data(STOP, 0x8080_0800, b"stop")]);
    assert_eq!(target_events(&mut target), [TargetEvent::Dropped { kind: PacketType::DEBUG_IO }]);
}

#[test]
fn break_ins_and_resets_that_come_together_ask_once_and_never_flood_a_target() {
    let mut target = TargetLink::new(TargetOptions::default());
    // A broken packet that held them back lets all of them go at once.
    let mut bytes = vec![0x30, 0x30, 0x30, 0x30, 0x30, 0x98, 0xff, 0x00];
    bytes.extend([0x62; 1000]);
    target.receive(&bytes, at(0));
    target.receive(&[0; 64], at(1));
    target.receive(&encode_control(PacketType::RESET, 0).repeat(100), at(2));
    assert_eq!(target_out(&mut target).last(), Some(&control(PacketType::RESET, 0)));
    let events: Vec<TargetEvent> = std::iter::from_fn(|| target.next_event()).collect();
    assert_eq!(events, [TargetEvent::BreakIn, TargetEvent::Reset]);
}
