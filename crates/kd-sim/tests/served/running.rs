//! Runs, stops, and what a machine tells by itself.

use std::time::{Duration, Instant};

use kd_api::{
    Continue2, DebugIo, FileRequest, ReplyBody, Request, SpecialRegisters, StopReason, selector, status,
};
use kd_sim::{Fault, Hex, Injected, Occurrence, Scenario, Scripted, Simulator};
use kd_wire::HostEvent;

use crate::host::{Host, Told, attached, connected, exception};

fn scripted(what: impl IntoIterator<Item = Occurrence>) -> Scenario {
    let events = what.into_iter().map(|what| Scripted { at: 1, what }).collect();
    Scenario { events, ..Scenario::default() }
}

fn register(simulator: &Simulator, number: usize) -> u64 {
    simulator.with_machine(|m| m.registers(0).unwrap().general(number))
}

#[test]
fn steps_go_through_the_code() {
    let (simulator, mut host, _) = attached(&Scenario::default());
    for offset in [1, 8, 0xb, 0x20, 0x21, 0x22, 0x10, 0x17] {
        host.go(true);
        let stop = host.stop();
        assert_eq!(exception(&stop), status::SINGLE_STEP);
        assert_eq!(stop.program_counter, Scenario::CODE + offset);
        assert_eq!(stop.control.dr6 & 0x4000, 0x4000);
    }
    assert_eq!(register(&simulator, 0), 0x1235);
    assert_eq!(host.read(Scenario::CODE + 0x80, 8), 0x1235u64.to_le_bytes());
}

#[test]
fn a_register_that_is_set_is_there_for_the_next_step() {
    let (simulator, mut host, _) = attached(&Scenario::default());
    let data = Scenario::CODE.wrapping_add(8).to_le_bytes().to_vec();
    host.ask(&Request::SetContextEx { processor: 0, offset: 0xF8, data });
    host.ask(&Request::SetContextEx { processor: 0, offset: 0x78, data: 41u64.to_le_bytes().to_vec() });
    host.go(true);
    assert_eq!(host.stop().program_counter, Scenario::CODE + 0xb);
    assert_eq!(register(&simulator, 0), 42);
}

#[test]
fn a_breakpoint_stops_at_its_address_again_and_again() {
    let (_simulator, mut host, _) = attached(&Scenario::default());
    let at = Scenario::CODE + 0x20;
    for _ in 0..2 {
        let ReplyBody::Handle(handle) = host.ask(&Request::WriteBreakpoint { address: at }).body else {
            panic!("no handle")
        };
        host.go(false);
        let stop = host.stop();
        assert_eq!((exception(&stop), stop.program_counter), (status::BREAKPOINT, at));
        host.ask(&Request::RestoreBreakpoint { handle });
        host.go(true);
        assert_eq!(host.stop().program_counter, at + 1);
    }
}

/// The watch is set on a processor that is not the current one.
#[test]
fn a_write_watch_of_the_second_processor() {
    let mut scenario = Scenario::with_processors(2);
    scenario.processors.swap(0, 1);
    let (simulator, mut host, stop) = attached(&scenario);
    assert_eq!(stop.processor, 0);
    let mut special = simulator.with_machine(|m| *m.special_registers(1).unwrap());
    special.dr[2] = Scenario::CODE + 0x80;
    special.dr7 = 0x400 | 1 << 4 | 0b1001 << 24;
    let number = selector::SPECIAL_REGISTERS;
    let set = Request::WriteControlSpace { processor: 1, selector: number, data: special.encode() };
    assert!(host.ask(&set).succeeded());
    host.go(false);
    let stop = host.stop();
    assert_eq!((stop.processor, exception(&stop)), (1, status::SINGLE_STEP));
    assert_eq!((stop.program_counter, stop.control.dr6 & 15), (Scenario::CODE + 0x17, 4));
}

#[test]
fn an_execute_watch_comes_from_continue() {
    let (simulator, mut host, _) = attached(&Scenario::default());
    let mut special: SpecialRegisters = simulator.with_machine(|m| *m.special_registers(0).unwrap());
    special.dr[0] = Scenario::CODE + 0x21;
    let number = selector::SPECIAL_REGISTERS;
    host.ask(&Request::WriteControlSpace { processor: 0, selector: number, data: special.encode() });
    for _ in 0..2 {
        host.go_with(Continue2::new(status::DBG_EXCEPTION_HANDLED, false, 0x401));
        let stop = host.stop();
        assert_eq!((exception(&stop), stop.program_counter), (status::SINGLE_STEP, Scenario::CODE + 0x21));
    }
}

#[test]
fn processors_are_switched_without_a_reply() {
    let (simulator, mut host, _) = attached(&Scenario::with_processors(2));
    host.send(kd_wire::PacketType::STATE_MANIPULATE, &Request::SwitchProcessor { processor: 1 }.encode());
    let stop = match host.told.pop() {
        Some(Told::Stop(stop)) => *stop,
        _ => host.stop(),
    };
    assert_eq!((stop.processor, stop.program_counter), (1, Scenario::CODE + 0x40));
    assert!(simulator.report().frames.iter().all(|f| f.api != Some(0x3150) || f.id & 0x800 == 0));
}

#[test]
fn a_running_machine_hears_the_break_in_only() {
    let (simulator, mut host) = connected(&Scenario { running: true, ..Scenario::default() });
    let end = Instant::now() + Duration::from_secs(10);
    let silent = std::iter::from_fn(|| (Instant::now() < end).then(|| host.turn()))
        .any(|events| events.contains(&HostEvent::Silent));
    assert!(silent && simulator.report().summary.resets == 0);
    host.break_in();
    assert_eq!(exception(&host.stop()), status::BREAKPOINT);
    assert_eq!(simulator.report().summary.break_ins, 1);
    assert!(host.ask(&Request::GetVersion).succeeded());
}

#[test]
fn it_prints_asks_and_wants_a_file() {
    let scenario = scripted([
        Occurrence::Print("hello\n".into()),
        Occurrence::GetString { prompt: "? ".into(), most: 8 },
        Occurrence::File(r"\SystemRoot\x.sys".into()),
    ]);
    let (simulator, mut host, _) = attached(&scenario);
    host.go(false);
    let text = |text: &[u8]| Told::Text(DebugIo::Print { processor: 0, text: text.to_vec() });
    assert_eq!(host.next_told(), text(b"hello\n"));
    let prompt = b"? ".to_vec();
    assert_eq!(host.next_told(), Told::Text(DebugIo::GetString { processor: 0, prompt, most: 8 }));
    host.answer("yes");
    assert_eq!(host.next_told(), text(b"yes"));
    let Told::File(request) = host.next_told() else { panic!("no file request") };
    let FileRequest::Create { path, .. } = FileRequest::decode(&request).unwrap() else { panic!() };
    assert_eq!(String::from_utf16(&path).unwrap(), r"\SystemRoot\x.sys");
    host.no_file(&request);
    host.break_in();
    host.stop();
    let refusal = kd_api::FileReply::failure(kd_api::NO_SUCH_FILE);
    assert_eq!(simulator.with_machine(|m| m.files().to_vec()), [refusal]);
}

#[test]
fn modules_come_and_go_and_the_machine_reboots() {
    let base = 0xffff_f803_7000_0000;
    let path = r"\SystemRoot\late.sys".to_owned();
    let scenario = scripted([
        Occurrence::Load { path: path.clone(), base: Hex(base), size: 0x4000 },
        Occurrence::Unload { path, base: Hex(base) },
        Occurrence::CommandString(".echo".into()),
        Occurrence::BugCheck { code: 0xd1, parameters: [Hex(1), Hex(2), Hex(3), Hex(4)] },
        Occurrence::Reboot,
    ]);
    let (simulator, mut host, _) = attached(&scenario);
    host.ask(&Request::WriteBreakpoint { address: Scenario::CODE + 0x20 });
    let mut next = || {
        host.go(false);
        host.stop()
    };
    let StopReason::LoadSymbols(load) = next().reason else { panic!() };
    assert_eq!((load.base, load.unload), (base, false));
    let StopReason::LoadSymbols(load) = next().reason else { panic!() };
    assert!(load.unload && load.base == base);
    let StopReason::CommandString { command, .. } = next().reason else { panic!() };
    assert_eq!(command, b".echo");
    assert_eq!(exception(&next()), status::BREAKPOINT);
    let data = simulator.with_machine(|m| m.symbol("KiBugCheckData"));
    assert_eq!(simulator.with_machine(|m| m.read(data, 9)), [0xd1, 0, 0, 0, 0, 0, 0, 0, 1]);
    let StopReason::LoadSymbols(gone) = next().reason else { panic!() };
    assert!(gone.forgets_all());
    let again = next();
    assert_eq!((exception(&again), again.program_counter), (status::BREAKPOINT, Scenario::CODE));
    assert_eq!(simulator.with_machine(|m| m.breakpoints()), 0);
}

#[test]
fn what_is_no_instruction_and_what_is_no_memory() {
    let mut scenario = Scenario::default();
    scenario.processors[0].rip = Hex(Scenario::CODE + 0x200);
    scenario.code.push(kd_sim::Code { address: Hex(Scenario::CODE + 0x200), bytes: "0f0b".into() });
    let (_simulator, mut host, _) = attached(&scenario);
    host.go(false);
    let stop = host.stop();
    assert_eq!((exception(&stop), stop.program_counter), (0xC000_001D, Scenario::CODE + 0x200));
    // mov rax, [rbx]: rbx is no address of the machine.
    host.ask(&Request::WriteVirtual { address: Scenario::CODE + 0x200, data: vec![0x48, 0x8b, 0x03] });
    host.go(false);
    assert_eq!(exception(&host.stop()), 0xC000_0005);
}

#[test]
fn every_fault_is_lived_through() {
    for what in [Fault::Drop, Fault::Corrupt, Fault::Duplicate, Fault::Split, Fault::Garbage, Fault::WrongId]
    {
        for at in [1, 2, 3] {
            let scenario =
                Scenario { faults: vec![Injected { at, what }], repeat_ms: 100, ..Scenario::default() };
            let (_simulator, mut host, stop) = attached(&scenario);
            assert_eq!(stop.program_counter, Scenario::CODE, "{what:?} {at}");
            for _ in 0..3 {
                assert_eq!(host.read(Scenario::CODE, 2), [0x90, 0x48], "{what:?} {at}");
            }
        }
    }
}

#[test]
fn a_line_that_ends_or_falls_silent() {
    let faults = |what| Scenario { faults: vec![Injected { at: 2, what }], ..Scenario::default() };
    let (_simulator, mut host, _) = attached(&faults(Fault::Stall));
    assert_eq!(host.failure(&Request::GetVersion), Some(kd_wire::Failure::Unanswered));
    let (simulator, mut host, _) = attached(&faults(Fault::Disconnect));
    assert_eq!(host.failure(&Request::GetVersion), None);
    // The machine waits for the next.
    assert_eq!(Host::connect(&simulator).stop().program_counter, Scenario::CODE);
}

#[test]
fn breakpoints_left_behind_are_found_by_their_handles() {
    let (simulator, mut host, _) = attached(&Scenario::default());
    for round in 0..40 {
        let set = Request::WriteBreakpoint { address: Scenario::CODE + 0x20 };
        let ReplyBody::Handle(handle) = host.ask(&set).body else { panic!("no handle") };
        assert_eq!(handle, 1);
        if round < 39 {
            host.ask(&Request::RestoreBreakpoint { handle });
        }
    }
    drop(host);
    let mut second = Host::connect(&simulator);
    second.stop();
    let removed = (1..=32).filter(|&handle| second.ask(&Request::RestoreBreakpoint { handle }).succeeded());
    assert_eq!(removed.count(), 1);
    assert_eq!(simulator.with_machine(|m| m.read(Scenario::CODE + 0x20, 1)), [0x51]);
}

#[test]
fn another_debugger_may_come() {
    let (simulator, host, _) = attached(&Scenario::default());
    drop(host);
    let mut second = Host::connect(&simulator);
    assert_eq!(second.stop().program_counter, Scenario::CODE);
    assert_eq!(second.read(Scenario::CODE, 1), [0x90]);
}
