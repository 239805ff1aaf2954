//! Frames from streams of any split, with noise and errors.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use kd_wire::{Decoder, Frame, FrameError, MAX_PAYLOAD, PacketType, checksum, encode_control, encode_data};
use proptest::prelude::*;

fn frames(parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<Result<Frame, FrameError>> {
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    for part in parts {
        let mut rest = part.as_slice();
        while !rest.is_empty() {
            rest = &rest[decoder.push(rest)..];
            while let Some(frame) = decoder.next() {
                out.push(frame);
            }
            assert!(decoder.held() <= Decoder::MOST_HELD);
        }
    }
    out
}

/// Spec 71 section 12.1, vector 1: as DbgEng writes it.
#[test]
fn a_reset_in_sixteen_writes() {
    let bytes = [0x69, 0x69, 0x69, 0x69, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let decoded = frames(bytes.iter().map(|b| vec![*b]));
    assert_eq!(decoded, [Ok(Frame::Control { kind: PacketType::RESET, id: 0 })]);
    assert_eq!(encode_control(PacketType::RESET, 0), bytes);
}

#[test]
fn a_data_packet_is_these_bytes() {
    let bytes = [0x30, 0x30, 0x30, 0x30, 2, 0, 3, 0, 0, 8, 0x80, 0x80, 0x1d, 2, 0, 0, 0xff, 0xfe, 0x20, 0xaa];
    let encoded = encode_data(PacketType::STATE_MANIPULATE, 0x8080_0800, &[0xff, 0xfe, 0x20]).unwrap();
    assert_eq!(encoded, bytes);
    assert_eq!(checksum(&[0xff; 4]), 0x3fc);
}

#[test]
fn a_break_in_is_one_between_packets_and_data_inside() {
    let mut stream = vec![0x62];
    stream.extend(encode_data(PacketType::DEBUG_IO, 1, &[0x62, 0x62]).unwrap());
    stream.push(0x62);
    let kinds: Vec<bool> =
        frames([stream]).into_iter().map(|f| matches!(f.unwrap(), Frame::BreakIn)).collect();
    assert_eq!(kinds, [true, false, true]);
}

#[test]
fn each_error_and_what_follows_it() {
    let good = encode_control(PacketType::ACKNOWLEDGE, 7);
    let data = encode_data(PacketType::STATE_MANIPULATE, 1, &[1, 2, 3]).unwrap();
    let mut broken = data.clone();
    broken[17] ^= 1;
    let mut unended = data.clone();
    *unended.last_mut().unwrap() = 0;
    let mut oversized = data;
    oversized[6..8].copy_from_slice(&4_001u16.to_le_bytes());
    let mut loaded = encode_control(PacketType::RESEND, 0);
    loaded[6] = 1;
    let cases = [
        (broken, FrameError::BadChecksum { expected: 6, found: 7 }),
        (unended, FrameError::MissingTrailer(0)),
        (oversized, FrameError::Oversized(4_001)),
        (loaded, FrameError::ControlPayload),
    ];
    for (bytes, error) in cases {
        let decoded = frames([bytes, good.clone()]);
        assert_eq!(decoded.first(), Some(&Err(error)));
        assert_eq!(decoded.last(), Some(&Ok(Frame::Control { kind: PacketType::ACKNOWLEDGE, id: 7 })));
    }
}

#[test]
fn the_longest_payload_is_4000() {
    let longest = vec![0x30; MAX_PAYLOAD];
    let encoded = encode_data(PacketType::STATE_MANIPULATE, 1, &longest).unwrap();
    let [Ok(Frame::Data { payload, .. })] = &frames([encoded])[..] else { panic!("not one packet") };
    assert_eq!(payload, &longest);
    assert!(encode_data(PacketType::STATE_MANIPULATE, 1, &vec![0; MAX_PAYLOAD + 1]).is_err());
    assert!(encode_data(PacketType::STATE_MANIPULATE, 1, &vec![0; 70_000]).is_err());
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        Just(Frame::BreakIn),
        (any::<u16>(), any::<u32>()).prop_map(|(kind, id)| Frame::Control { kind: PacketType(kind), id }),
        (any::<u16>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(kind, id, payload)| Frame::Data { kind: PacketType(kind), id, payload }),
    ]
}

fn bytes(frame: &Frame) -> Vec<u8> {
    match frame {
        Frame::BreakIn => vec![0x62],
        Frame::Control { kind, id } => encode_control(*kind, *id),
        Frame::Data { kind, id, payload } => encode_data(*kind, *id, payload).unwrap(),
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_frames(sent in prop::collection::vec(frame(), 0..12), cuts in prop::collection::vec(1usize..40, 1..400)) {
        let stream: Vec<u8> = sent.iter().flat_map(bytes).collect();
        let mut parts = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break }
            let (part, more) = rest.split_at((*cut).min(rest.len()));
            parts.push(part.to_vec());
            rest = more;
        }
        let decoded: Vec<Frame> = frames(parts).into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(decoded, sent);
    }

    /// Noise that cannot begin a packet is dropped, wherever it stands between packets.
    #[test]
    fn noise_between_packets_is_dropped(sent in prop::collection::vec(frame(), 1..6), noise in prop::collection::vec(prop::sample::select(vec![0u8, 0x31, 0x61, 0x63, 0xaa, 0xff]), 0..20)) {
        let stream: Vec<u8> = sent.iter().flat_map(|f| [noise.clone(), bytes(f)].concat()).collect();
        let decoded: Vec<Frame> = frames([stream]).into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(decoded, sent);
    }

    #[test]
    fn any_bytes_are_taken(stream in prop::collection::vec(prop_oneof![Just(0x30u8), Just(0x69), Just(0x62), Just(0), any::<u8>()], 0..9_000)) {
        frames(stream.chunks(97).map(<[u8]>::to_vec));
    }
}
