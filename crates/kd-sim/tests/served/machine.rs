//! What a stopped machine answers.

use kd_api::{
    Api, Context, DebuggerData, ENVELOPE, FillSpace, Reply, ReplyBody, Request, SpecialRegisters, selector,
    status,
};
use kd_sim::{Hex, Scenario};

use crate::host::{attached, exception};

fn data(reply: Reply) -> Vec<u8> {
    match reply.body {
        ReplyBody::Data(data) => data,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_stop_and_the_registers_are_the_scenarios() {
    let (simulator, mut host, stop) = attached(&Scenario::with_processors(2));
    assert_eq!((stop.program_counter, stop.processors, stop.processor), (Scenario::CODE, 2, 0));
    assert_eq!(exception(&stop), status::BREAKPOINT);
    assert_eq!(stop.control.instructions[..4], [0x90, 0x48, 0xc7, 0xc0]);
    for processor in 0..2u16 {
        let built = simulator.with_machine(|m| m.registers(processor.into()).unwrap().clone());
        let whole = data(host.ask(&Request::GetContext { processor }));
        assert_eq!(Context::decode(&whole).unwrap(), built);
        let part = data(host.ask(&Request::GetContextEx { processor, offset: 0x78, count: 16 }));
        assert_eq!(part, whole[0x78..0x88]);
        let ask = Request::ReadControlSpace {
            processor,
            selector: selector::SPECIAL_REGISTERS,
            count: SpecialRegisters::LENGTH as u32,
        };
        let special = SpecialRegisters::decode(&data(host.ask(&ask))).unwrap();
        assert_eq!(Some(special), simulator.with_machine(|m| m.special_registers(processor.into()).copied()));
        // The descriptor of CS: 64-bit code.
        let descriptor = host.read(special.gdt_base + 0x10, 8);
        assert_eq!(descriptor, 0x0020_9b00_0000_0000u64.to_le_bytes());
    }
    assert!(!host.ask(&Request::GetContext { processor: 2 }).succeeded());
}

#[test]
fn discovery_leads_from_the_version_to_modules_and_thread() {
    let (_simulator, mut host, stop) = attached(&Scenario::default());
    let ReplyBody::Version(version) = host.ask(&Request::GetVersion).body else { panic!("no version") };
    assert_eq!((version.minor, version.machine), (19041, 0x8664));
    let quad = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let block = quad(&host.read(version.debugger_data_list, 8));
    let bytes = host.read(block, 0x340);
    let facts = DebuggerData::decode(&bytes, version.debugger_data_list, version.kernel_base).unwrap();
    assert_eq!(facts.get(DebuggerData::LOADED_MODULE_LIST), Some(version.loaded_module_list));
    let first = quad(&host.read(version.loaded_module_list, 8));
    assert_eq!(quad(&host.read(first + 0x30, 8)), version.kernel_base);
    assert_eq!(host.read(version.kernel_base, 2), b"MZ");
    let ask = Request::ReadControlSpace { processor: 0, selector: selector::PRCB, count: 8 };
    let prcb = quad(&data(host.ask(&ask)));
    let offset = facts.get(DebuggerData::OFFSET_PRCB_CURRENT_THREAD).unwrap();
    assert_eq!(quad(&host.read(prcb + offset, 8)), stop.thread);
}

#[test]
fn a_read_stops_at_a_page_that_is_not_there() {
    let (_simulator, mut host, _) = attached(&Scenario::default());
    let last = Scenario::STACK + 0x4000 - 0x10;
    assert_eq!(host.read(last, 0x100).len(), 0x10);
    let refused = host.ask(&Request::ReadVirtual { address: last + 0x10, count: 8 });
    assert_eq!(refused, Reply::failure(status::UNSUCCESSFUL));
    // More than a packet holds is a short success.
    assert_eq!(host.read(Scenario::STACK - 0x2000, 5_000).len(), kd_api::MAX_VARIABLE);
    assert!(!host.ask(&Request::QueryMemory { address: last + 0x10 }).succeeded());
}

#[test]
fn page_tables_in_physical_memory_lead_to_the_same_bytes() {
    let (simulator, mut host, _) = attached(&Scenario::default());
    let mut table = simulator.with_machine(|m| m.special_registers(0).unwrap().cr3) & !0xfff;
    for level in (1..=4).rev() {
        let index = Scenario::CODE >> (12 + 9 * (level - 1)) & 511;
        let ask = Request::ReadPhysical { address: table + 8 * index, count: 8, cache: 0 };
        let entry = u64::from_le_bytes(data(host.ask(&ask)).try_into().unwrap());
        assert_eq!(entry & 1, 1, "level {level}");
        table = entry & 0x000f_ffff_ffff_f000;
    }
    let physical = Request::ReadPhysical { address: table, count: 16, cache: 0 };
    assert_eq!(data(host.ask(&physical)), host.read(Scenario::CODE, 16));
    assert!(!host.ask(&Request::ReadPhysical { address: 1 << 45, count: 8, cache: 0 }).succeeded());
}

#[test]
fn memory_is_written_searched_and_filled() {
    let (_simulator, mut host, _) = attached(&Scenario::default());
    let at = Scenario::CODE + 0x100;
    let written = host.ask(&Request::WriteVirtual { address: at, data: b"needle".to_vec() });
    assert_eq!(written.body, ReplyBody::Written(6));
    let search = |pattern: &[u8]| Request::SearchMemory {
        start: Scenario::CODE,
        length: 0x800,
        pattern: pattern.to_vec(),
    };
    assert_eq!(host.ask(&search(b"edle")).body, ReplyBody::Found(at + 2));
    assert_eq!(host.ask(&search(b"not there")), Reply::failure(status::NO_MORE_ENTRIES));
    let space = FillSpace::Virtual;
    let fill = Request::FillMemory { address: at, length: 5, space, pattern: b"ab".to_vec() };
    assert_eq!(host.ask(&fill).body, ReplyBody::Filled(5));
    assert_eq!(host.read(at, 6), b"ababae");
}

#[test]
fn msrs_ports_and_what_is_none() {
    let (simulator, mut host, _) = attached(&Scenario::default());
    assert_eq!(host.ask(&Request::ReadMsr { msr: 0xc000_0080 }).body, ReplyBody::Msr(0xd01));
    host.ask(&Request::WriteMsr { msr: 0xc000_0080, value: 0x1_0000_0002 });
    assert_eq!(host.ask(&Request::ReadMsr { msr: 0xc000_0080 }).body, ReplyBody::Msr(0x1_0000_0002));
    assert!(!host.ask(&Request::ReadMsr { msr: 1 }).succeeded());
    assert_eq!(host.ask(&Request::ReadIo { port: 0x80, size: 1 }).body, ReplyBody::Value(0x5a));
    assert!(!host.ask(&Request::ReadIo { port: 0x80, size: 3 }).succeeded());
    assert_eq!(host.unknown(0x3199), status::UNSUCCESSFUL);
    // A request of less than an envelope is refused, and the session goes on.
    let short = host.raw(&0x3146u32.to_le_bytes());
    assert_eq!((short.len(), short[8..12].to_vec()), (ENVELOPE, vec![1, 0, 0, 0xc0]));
    assert!(host.ask(&Request::GetVersion).succeeded());
    let summary = simulator.report().summary;
    assert_eq!((summary.unknown.get(&0x3199), summary.malformed), (Some(&1), 1));
}

#[test]
fn a_refused_api_is_refused() {
    let refused = vec![Hex(Api::QUERY_MEMORY.0.into()), Hex(Api::GET_CONTEXT_EX.0.into())];
    let (_simulator, mut host, _) = attached(&Scenario { refused, ..Scenario::default() });
    assert!(!host.ask(&Request::QueryMemory { address: Scenario::CODE }).succeeded());
    assert!(!host.ask(&Request::GetContextEx { processor: 0, offset: 0, count: 8 }).succeeded());
    assert!(host.ask(&Request::GetContext { processor: 0 }).succeeded());
}

#[test]
fn a_breakpoint_is_in_memory_and_not_in_reads() {
    for shows_breakpoints in [false, true] {
        let scenario = Scenario { shows_breakpoints, ..Scenario::default() };
        let (simulator, mut host, _) = attached(&scenario);
        let at = Scenario::CODE + 0x20;
        let set = Request::WriteBreakpoint { address: at };
        let ReplyBody::Handle(handle) = host.ask(&set).body else { panic!("no handle") };
        assert_eq!(host.read(at - 1, 3)[1], if shows_breakpoints { 0xcc } else { 0x51 });
        assert_eq!(simulator.with_machine(|m| m.read(at, 1)), [0xcc]);
        // What is written under it is there when it goes.
        host.ask(&Request::WriteVirtual { address: at, data: vec![0x90] });
        assert_eq!(simulator.with_machine(|m| m.read(at, 1)), [0xcc]);
        assert!(host.ask(&Request::RestoreBreakpoint { handle }).succeeded());
        assert_eq!(simulator.with_machine(|m| m.read(at, 1)), [0x90]);
        assert!(!host.ask(&Request::RestoreBreakpoint { handle }).succeeded());
        assert!(!host.ask(&Request::WriteBreakpoint { address: 0x1000 }).succeeded());
    }
}
