#![no_main]
//! Any requests to the simulated machine behind its server, packed as a debugger would.

use std::time::Duration;

use kd_sim::{Machine, Scenario};
use kd_target::{Options, Server};
use kd_wire::{PacketType, encode_control, encode_data};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(machine) = Machine::build(&Scenario::default()) else { return };
    let mut server = Server::new(machine, Options::default());
    let mut id = 0x8080_0000;
    for (tick, part) in data.chunks(0x60).take(64).enumerate() {
        let now = Duration::from_millis(100 * tick as u64);
        if let Ok(packet) = encode_data(PacketType::STATE_MANIPULATE, id, part) {
            server.receive(&packet, now);
        }
        id ^= 1;
        server.poll(now);
        // Every packet of the target is taken, whichever of its ids it has.
        for acknowledged in [0x8080_0000, 0x8080_0001] {
            server.receive(&encode_control(PacketType::ACKNOWLEDGE, acknowledged), now);
        }
        while server.next_output().is_some() {}
    }
});
