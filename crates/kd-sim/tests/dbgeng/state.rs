//! Registers, memory, disassembly, symbols.

use kd_api::{Api, Context};
use kd_sim::{Direction, Hex, Scenario};
use kd_target::KdBackend as _;

use crate::debugger::{Case, Debugger, address, has};

pub(crate) const CASES: &[Case] = &[
    ("registers", registers),
    ("steps_keep_the_program_counter", ordering),
    ("without_a_gdt_the_program_counter_is_lost", without_gdt),
    ("disassembly", disassembly),
    ("memory", memory),
    ("symbols_of_the_fixtures", symbols),
    ("msr_port_physical", machine),
    ("two_processors", processors),
];

fn registers() {
    let debugger = Debugger::attach(&Scenario::default());
    let text = debugger.run("r");
    let context = debugger.simulator.with_machine(|m| m.registers(0).unwrap().clone());
    for (number, name) in Context::GENERAL_NAMES.iter().enumerate() {
        has(&text, &format!("{name}={:016x}", context.general(number)));
    }
    has(&text, &format!("rip={:016x}", context.rip()));
    for part in ["cs=0010", "ss=0018", "ds=002b", "es=002b", "fs=0053", "gs=002b", "efl=00000246"] {
        has(&text, part);
    }
    has(&debugger.run("r cr3,gdtr,gdtl"), "gdtl=0057");
}

/// Steps, with a register set in between.
fn stepping(scenario: &Scenario) -> String {
    let debugger = Debugger::attach(scenario);
    let mut said = String::new();
    for command in ["r", "t", "r rax=1234", "t", "t", "r rax,rip"] {
        said += &debugger.run(command);
    }
    said
}

fn ordering() {
    let said = stepping(&Scenario::default());
    assert!(!said.contains("Unable to get program counter"), "{said}");
    // nop, mov rax, inc rax.
    has(&said, "rax=0000000000001235");
    has(&said, &format!("rip={:016x}", Scenario::CODE + 0xb));
}

fn without_gdt() {
    let said = stepping(&Scenario { without_gdt: true, ..Scenario::default() });
    has(&said, "Unable to get program counter");
}

fn disassembly() {
    let debugger = Debugger::attach(&Scenario::default());
    let text = debugger.run("u rip l4");
    let lines = [
        (0, "90", "nop"),
        (1, "48c7c034120000", "mov     rax,1234h"),
        (8, "48ffc0", "inc     rax"),
        (0xb, "e810000000", &format!("call    {}", address(Scenario::CODE + 0x20))),
    ];
    for (offset, bytes, instruction) in lines {
        let line = text.lines().find(|l| l.starts_with(&address(Scenario::CODE + offset))).unwrap_or(&text);
        has(line, bytes);
        has(line, instruction);
    }
}

fn memory() {
    let debugger = Debugger::attach(&Scenario::default());
    let at = Scenario::CODE + 0x100;
    has(&debugger.run(&format!("dq {:#x} l1", Scenario::KERNEL_BASE)), "00000000`00005a4d");
    debugger.run(&format!("eb {at:#x} 11 22 33 44"));
    assert_eq!(debugger.simulator.with_machine(|m| m.read(at, 4)), [0x11, 0x22, 0x33, 0x44]);
    has(&debugger.run(&format!("s -b {:#x} l200 22 33 44", Scenario::CODE)), &address(at + 1));
    debugger.run(&format!("f {at:#x} l8 ab cd"));
    assert_eq!(debugger.simulator.with_machine(|m| m.read(at, 4)), [0xab, 0xcd, 0xab, 0xcd]);
    has(&debugger.run("dq 0xfffff80500000000 l1"), "????????`????????");
    let file = std::env::temp_dir().join(format!("kd-sim-{}.bin", std::process::id()));
    debugger.run(&format!(".writemem {} {:#x} l200", file.display(), Scenario::CODE));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(bytes, debugger.simulator.with_machine(|m| m.read(Scenario::CODE, 0x200)));
    for api in [Api::FILL_MEMORY, Api::SEARCH_MEMORY] {
        assert!(debugger.asked(api.0) > 0, "{api:?} was not asked for");
    }
}

fn symbols() {
    let folder = test_data::fixture("ntkrnlmp.exe").parent().unwrap().to_owned();
    let debugger = Debugger::attach(&Scenario::default().with_fixtures(&folder));
    debugger.with_symbols();
    has(&debugger.run("x nt!KeBugCheckEx"), "nt!KeBugCheckEx");
    let list = debugger.simulator.with_machine(|m| m.symbol("PsLoadedModuleList"));
    has(&debugger.run("? nt!PsLoadedModuleList"), &address(list));
    let modules = debugger.run("lm");
    has(&modules, "nt ");
    has(&modules, "faultdrv");
    has(&debugger.run("x faultdrv!*"), "DispatchDeviceControl");
}

fn machine() {
    let debugger = Debugger::attach(&Scenario::default());
    has(&debugger.run("rdmsr c0000080"), "00000000`00000d01");
    debugger.run("wrmsr c0000080 d03");
    has(&debugger.run("rdmsr c0000080"), "00000000`00000d03");
    has(&debugger.run("ib 80"), "5a");
    // The top table's entry of the code.
    let root = debugger.simulator.with_machine(|m| m.special_registers(0).unwrap().cr3) & !0xfff;
    let entry = root + 8 * (Scenario::CODE >> 39 & 511);
    let mut bytes = [0; 8];
    debugger.simulator.with_machine(|m| m.read_physical(entry, &mut bytes)).unwrap();
    let value = u64::from_le_bytes(bytes);
    assert_eq!(value & 1, 1);
    has(&debugger.run(&format!("dq /p {entry:#x} l1")), &address(value));
    assert!(debugger.asked(Api::READ_PHYSICAL.0) > 0);
}

fn processors() {
    let mut scenario = Scenario::with_processors(2);
    scenario.processors[1].registers.insert("rbx".into(), Hex(0xfeed));
    let debugger = Debugger::attach(&scenario);
    has(&debugger.said, "MP (2 procs)");
    debugger.run("~1s");
    has(&debugger.run("r rbx"), "rbx=000000000000feed");
    debugger.run("~0s");
    has(&debugger.run("r rbx"), "rbx=0000000000003333");
    assert_eq!(debugger.asked(Api::SWITCH_PROCESSOR.0), 2);
    let frames = debugger.report().frames;
    let replies = frames.iter().filter(|f| f.dir == Direction::FromTarget);
    assert_eq!(replies.filter(|f| f.api == Some(Api::SWITCH_PROCESSOR.0)).count(), 0);
}
