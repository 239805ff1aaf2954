#![no_main]
//! Any bytes as instructions of every machine: the full record and the light one agree.

use code::record::Transfer;
use target::Machine;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for machine in [Machine::X64, Machine::X86, Machine::Arm64] {
        let full = code::record(machine, 0xffff_f800_0000_1000, data);
        let light = code::scan(machine, 0xffff_f800_0000_1000, data);
        if full.transfer != Transfer::Undecodable {
            assert_eq!(full.transfer, light.transfer);
            assert_eq!(full.length, light.length);
        }
        light.mentions(|_, _| {});
        let _ = (full.text(), full.sources().len(), light.privilege());
    }
});
