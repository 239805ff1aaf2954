use std::time::Duration;

use kd_client::AttachError;
use kd_sim::{Fault, Injected, Listen, Scenario, Simulator};
use target::{
    Context, ContextOf, Halt, Machine, MemoryExt, Selection, TargetExt, TargetKind, View, Write, reg,
};

use super::proxy::Proxy;
use super::{attached, dial, halt, quick, simulator};

#[test]
fn a_stopped_target_is_what_the_scenario_says() {
    let simulator = simulator(&Scenario::with_processors(2));
    let target = attached(&simulator);
    let facts = target.facts();
    assert_eq!((facts.kind, facts.machine, facts.processors), (TargetKind::Kernel, Machine::X64, Some(2)));
    assert_eq!(facts.os.as_ref().unwrap().build, 19041);
    assert_eq!(facts.limitations.len(), 1, "{:?}", facts.limitations);
    for processor in 0..2 {
        let ours = target.context(ContextOf::Processor(processor), View::Default).unwrap().unwrap();
        simulator.with_machine(|machine| {
            let theirs = machine.registers(processor as usize).unwrap();
            for number in 0..16 {
                assert_eq!(ours.get(number), Some(theirs.general(number)), "register {number}");
            }
            assert_eq!(ours.ip(), theirs.rip());
            assert_eq!(ours.get(reg::EFLAGS), Some(theirs.eflags().into()));
            assert_eq!(ours.get(reg::CS), Some(theirs.segments()[0].into()));
        });
    }
    let modules = target.modules().unwrap();
    assert_eq!((modules[0].name.as_str(), modules[0].base), ("nt", Scenario::KERNEL_BASE));
    let processes = target.processes(&halt()).unwrap();
    let rows: Vec<(u64, &str)> = processes.iter().map(|p| (p.pid, p.name.as_str())).collect();
    assert_eq!(rows, [(4, "System"), (0x1a4, "orders.exe")]);
    assert_eq!(target::conformance::check(target.as_ref()), []);
    // A debugger before us may have left breakpoints.
    let restored = simulator.report().summary.requests.get(&0x3135).copied();
    assert_eq!(restored, Some(32));
}

#[test]
fn the_same_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kd.sock");
    let simulator = Simulator::start(&Scenario::default(), &Listen::Unix(path)).unwrap();
    let target = attached(&simulator);
    assert_eq!(target.module_named("nt").unwrap().unwrap().base, Scenario::KERNEL_BASE);
}

#[test]
fn a_running_target_is_broken_into() {
    let simulator = simulator(&Scenario { running: true, ..Scenario::default() });
    let target = attached(&simulator);
    assert!(simulator.report().summary.break_ins >= 1);
    let context = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
    assert_eq!(Some(context.ip()), simulator.with_machine(|m| m.registers(0).map(kd_rip)));
}

fn kd_rip(context: &kd_api::Context) -> u64 {
    context.rip()
}

#[test]
fn three_lost_resets_cost_time_only() {
    let simulator = simulator(&Scenario::default());
    let proxy = Proxy::before(&simulator);
    // A RESET is 16 bytes.
    proxy.swallow_from_debugger(48);
    let target = dial(&proxy.connection(), &quick(), &halt()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(target.modules().unwrap()[0].name, "nt");
}

#[test]
fn packets_lost_broken_and_doubled_change_nothing() {
    use Fault::{Corrupt, Drop, Duplicate, Garbage, Split, WrongId};
    for what in [Drop, Corrupt, Duplicate, Split, Garbage, WrongId] {
        let faults = [1, 2, 5, 40, 41].map(|at| Injected { at, what }).to_vec();
        let simulator = simulator(&Scenario { faults, repeat_ms: 100, ..Scenario::default() });
        let target = attached(&simulator);
        let ours = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
        assert_eq!(ours.get(reg::RBX), Some(0x3333), "{what:?}");
        assert_eq!(target.modules().unwrap()[0].name, "nt", "{what:?}");
    }
}

#[test]
fn reads_end_where_the_page_does() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let (bytes, stopped) = target.read_prefix(Scenario::CODE + 0xff0, 0x20);
    assert_eq!(bytes.len(), 0x10);
    assert!(stopped.is_some());
    let mut buffer = [0; 8];
    let physical = target.physical().unwrap().translate(Scenario::CODE).unwrap();
    target.read_exact_in(target::Space::Physical, physical, &mut buffer).unwrap();
    assert_eq!(buffer, target.read_array::<8>(Scenario::CODE).unwrap());
}

#[test]
fn another_process_is_read_through_its_page_tables() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let other = target.processes(&halt()).unwrap()[1].clone();
    let before = target.selection();
    target.select(Selection { process: Some(other.object), ..before }).unwrap();
    let peb = other.peb.unwrap();
    assert!(target.read_u8(peb).is_ok());
    let refused = target.write().unwrap().write(target::Space::Virtual, peb, &[1]).unwrap_err();
    assert_eq!(refused.category(), ("unsupported", Some("wrong_address_space")));
    target.select(before).unwrap();
    assert!(target.read_u8(peb).is_err());
}

#[test]
fn memory_and_registers_are_written_and_verified() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let write: &dyn Write = target.write().unwrap();
    let at = Scenario::STACK - 0x100;
    assert_eq!(write.write(target::Space::Virtual, at, b"written").unwrap(), 7);
    assert_eq!(target.read_array::<7>(at).unwrap(), *b"written");
    assert_eq!(simulator.with_machine(|m| m.read(at, 7)), b"written");
    assert!(write.write(target::Space::Virtual, 0xffff_f000_0000_0000, &[1]).is_err());
    write.set_register("rbx", 0x55).unwrap();
    write.set_register("al", 0x77).unwrap();
    let context: Context = target.context(ContextOf::Selected, View::Default).unwrap().unwrap();
    assert_eq!((context.by_name("rbx"), context.by_name("al")), (Some(0x55), Some(0x77)));
    assert_eq!(simulator.with_machine(|m| m.registers(0).unwrap().general(3)), 0x55);
    assert!(write.set_register("al", 0x100).is_err());
    assert!(write.set_register("nonsense", 0).is_err());
    assert!(write.set_register("dr0", 0).is_err());
}

#[test]
fn nobody_answers_until_the_call_is_ended() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!("com:ipport={},port=127.0.0.1", listener.local_addr().unwrap().port());
    let halt = Halt::within(Duration::from_millis(700));
    let error = dial(&text, &quick(), &halt).err().unwrap();
    assert!(matches!(error, AttachError::Ended(_)), "{error}");
    assert_eq!(error.category().0, "timeout");
}

#[test]
fn a_target_that_is_let_go_runs_and_holds_no_breakpoint() {
    let simulator = simulator(&Scenario::default());
    let target = attached(&simulator);
    let place = Scenario::CODE + 8;
    let breakpoint = target::capability::Breakpoint {
        address: Some(place),
        enabled: true,
        pass_count: 1,
        ..Default::default()
    };
    target.breakpoints().unwrap().add(&breakpoint).unwrap();
    let before = target.read_array::<3>(place).unwrap();
    super::run(target.as_ref(), target::capability::Resume::Go, Duration::from_secs(20));
    assert_eq!(target.release().unwrap(), target::Ending::ResumedAndDetached);
    assert_eq!(target.release().unwrap(), target::Ending::ResumedAndDetached, "a second time is nothing");
    drop(target);
    assert!(simulator.running());
    assert_eq!(simulator.with_machine(|m| m.breakpoints()), 0);
    assert_eq!(simulator.with_machine(|m| m.read(place, 3)), before);
}

#[test]
fn a_release_that_is_not_acknowledged_says_so() {
    let simulator = simulator(&Scenario::default());
    let proxy = Proxy::before(&simulator);
    let target = dial(&proxy.connection(), &quick(), &halt()).unwrap_or_else(|error| panic!("{error}"));
    proxy.cut();
    let refused = target.release().unwrap_err();
    assert!(refused.to_string().contains("not known"), "{refused}");
}

#[test]
fn a_connection_that_ends_is_said_at_once() {
    let simulator = simulator(&Scenario::default());
    let proxy = Proxy::before(&simulator);
    let target = dial(&proxy.connection(), &quick(), &halt()).unwrap_or_else(|error| panic!("{error}"));
    proxy.hang_up();
    assert!(target.read_u8(Scenario::CODE + 0x800).is_err());
    let error = target.modules().unwrap_err();
    assert_eq!(error.category(), ("debugger", Some("link_lost")));
    assert!(error.to_string().contains("hung up"), "{error}");
}
