//! Noise as unwind data, code and stack: every walk ends and nothing panics.

#[path = "support/any_image.rs"]
mod any_image;

use proptest::prelude::*;
use target::Machine;

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn x64_walks_end(data in proptest::collection::vec(any::<u8>(), 4..4096)) {
        any_image::exercise(Machine::X64, &data);
    }

    #[test]
    fn arm64_walks_end(data in proptest::collection::vec(any::<u8>(), 4..4096)) {
        any_image::exercise(Machine::Arm64, &data);
    }

    #[test]
    fn x86_walks_end(data in proptest::collection::vec(any::<u8>(), 4..4096)) {
        any_image::exercise(Machine::X86, &data);
    }

    /// Small numbers make entries that cover the ip, and codes that exist.
    #[test]
    fn entries_that_cover_the_ip(codes in proptest::collection::vec(any::<u8>(), 64..512), ip in 0u16..0x400,
                                 stack in proptest::collection::vec(any::<u8>(), 512), version in 1u8..3) {
        for machine in [Machine::X64, Machine::Arm64] {
            let mut image = vec![0u8; 0x20];
            if machine == Machine::X64 {
                image[4..8].copy_from_slice(&0x400u32.to_le_bytes());
                image[8..12].copy_from_slice(&0x20u32.to_le_bytes());
            } else {
                image[4..8].copy_from_slice(&0x20u32.to_le_bytes());
            }
            let mut body = codes.clone();
            if machine == Machine::X64 {
                body[0] = version | body[0] & 0x20;
            } else {
                body[1] = 1;
                body[2] &= 0x3c;
            }
            image.extend_from_slice(&body);
            let mut data = ip.to_le_bytes().to_vec();
            data.extend_from_slice(&[0, 0]);
            let mut words = stack.clone();
            words.resize(image.len(), 0x10);
            data.extend_from_slice(&image);
            data.extend_from_slice(&words);
            any_image::exercise(machine, &data);
        }
    }
}
