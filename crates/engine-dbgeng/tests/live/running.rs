//! Launch, steps, runs, and why they stop.

use std::time::{Duration, Instant};

use engine_dbgeng::Milestone;
use target::capability::{Resume, StopReason};
use target::{Halt, MemoryExt, Target, TargetError, TargetExt, TargetKind};

use crate::harness::{at, command_line, context, inventory, launched, options, resume, resume_within, set};

pub(crate) const CASES: &[crate::harness::Case] = &[
    ("launch_victim_then_current_location", launch_victim_then_current_location),
    ("breakpoint_at_poke_then_go_backtrace_registers", breakpoint_at_poke),
    ("step_over_and_step_into_move_by_the_instruction", steps_move_by_the_instruction),
    ("go_to_exit", go_to_exit),
    ("a_bound_on_spin_breaks_in", a_bound_on_spin_breaks_in),
    ("an_interrupt_of_a_run", an_interrupt_of_a_run),
    ("an_interrupt_during_the_first_resume_does_not_kill", an_interrupt_during_the_first_resume),
    ("first_and_second_chance_then_the_end", first_and_second_chance),
    ("a_handled_exception_is_passed_on", a_handled_exception_is_passed_on),
    ("a_breakpoint_of_the_programs_own_is_no_break_in", a_breakpoint_of_its_own),
    ("module_loads_stand_in_the_output", module_loads_stand_in_the_output),
    ("milestones_come_in_order", milestones_come_in_order),
    ("registers_of_a_stopped_process_are_fast", registers_are_fast),
    ("memory_and_registers_are_written", memory_and_registers_are_written),
    ("locals_are_read_through_registers", locals_are_read),
];

fn launch_victim_then_current_location() {
    let engine = launched("victim.exe", "");
    assert_eq!(engine.facts().kind, TargetKind::Process);
    let ip = context(&engine).ip();
    let module = engine.module_at(ip).unwrap().expect("mapped");
    assert_eq!(module.name, "ntdll");
    assert!(engine.module_named("victim").unwrap().is_some());
    assert_eq!(engine.release().unwrap(), target::Ending::Terminated);
}

fn breakpoint_at_poke() {
    let engine = launched("victim.exe", "");
    let record = set(&engine, &at("victim!poke"));
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Breakpoint { id: record.id });
    let here = context(&engine);
    assert_eq!(Some(here.ip()), record.address);
    let victim = engine.module_named("victim").unwrap().unwrap();
    // The export table of the image names the same place.
    let image = pe::MappedImage::new(&engine, victim.base);
    let exports = pe::Pe::parse(&image).unwrap().exports(&image);
    let poke = exports.iter().find(|e| e.name.as_deref() == Some("poke")).and_then(pe::Export::rva).unwrap();
    assert_eq!(here.ip() - victim.base, u64::from(poke));
    assert_eq!(here.by_name("rdx"), Some(0));
    let stack = engine.stack(&here, 32, &Halt::unbounded()).unwrap();
    let names: Vec<String> =
        stack.frames.iter().filter_map(|f| f.symbol.as_ref().map(target::SymbolHit::qualified)).collect();
    assert_eq!(names[..3], ["victim!poke", "victim!work", "victim!main"], "{names:?}");
    assert!(
        stack.frames[0].source.as_ref().is_some_and(|s| s.file.ends_with("victim.c")),
        "{:?}",
        stack.frames[0]
    );
}

fn steps_move_by_the_instruction() {
    let engine = launched("victim.exe", "");
    set(&engine, &at("victim!poke"));
    resume(&engine, Resume::Go);
    for how in [Resume::StepOver, Resume::StepInto] {
        let before = context(&engine).ip();
        let instruction = engine.disassemble(before, 1).unwrap().remove(0);
        let stop = resume(&engine, how);
        assert_eq!(stop.reason, StopReason::Step);
        let moved = context(&engine).ip();
        let returned = instruction.flow == target::Flow::Return;
        assert!(
            returned || moved == before + instruction.bytes.0.len() as u64,
            "{instruction:?} led to {moved:#x}"
        );
    }
}

fn go_to_exit() {
    let engine = launched("victim.exe", "");
    let stop = resume(&engine, Resume::Go);
    assert!(stop.target_gone);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(7) });
    assert!(stop.output.contains("victim begins"), "{}", stop.output);
    let refused = engine.context(target::ContextOf::Selected, target::View::Default);
    assert!(matches!(refused, Err(TargetError::Gone(_))), "{refused:?}");
    for refused in
        [engine.modules().err(), engine.threads().err(), engine.evaluate("1", &Halt::unbounded()).err()]
    {
        assert!(matches!(refused, Some(TargetError::Gone(_))), "{refused:?}");
    }
    let refused = engine.run().unwrap().resume(Resume::Go, crate::harness::BOUND, &|| {}, &Halt::unbounded());
    assert!(matches!(refused, Err(TargetError::Gone(_))), "{refused:?}");
    assert_eq!(engine.release().unwrap(), target::Ending::Terminated);
}

fn a_bound_on_spin_breaks_in() {
    let engine = launched("spin.exe", "");
    let main = engine.selection();
    let bound = Duration::from_millis(300);
    let began = Instant::now();
    let stop = resume_within(&engine, Resume::Go, bound);
    assert!(began.elapsed() >= bound && began.elapsed() < Duration::from_secs(10));
    assert!(stop.timed_out && !stop.interrupted && !stop.target_gone, "{stop:?}");
    assert_eq!(stop.reason, StopReason::BreakIn);
    assert!(stop.break_thread.is_some() && stop.break_thread != main.thread, "{stop:?}");
    assert_eq!(engine.selection(), main);
    let again = resume_within(&engine, Resume::Go, bound);
    assert!(again.timed_out, "{again:?}");
    assert_eq!(engine.selection(), main);
    let step = resume(&engine, Resume::StepInto);
    assert_eq!(step.reason, StopReason::Step, "{step:?}");
}

fn an_interrupt_of_a_run() {
    let engine = launched("spin.exe", "");
    resume_within(&engine, Resume::Go, Duration::from_millis(300));
    let breaker = engine.breaker();
    assert!(!breaker.raise(), "nothing is running");
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        breaker.raise()
    });
    let stop = resume(&engine, Resume::Go);
    assert!(thread.join().unwrap());
    assert!(stop.interrupted && !stop.timed_out, "{stop:?}");
    // The flag of the halt does the same.
    let halt = Halt::unbounded();
    let flag = halt.flag();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        flag.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let stop = engine.run().unwrap().resume(Resume::Go, crate::harness::BOUND, &|| {}, &halt).unwrap();
    thread.join().unwrap();
    assert!(stop.interrupted, "{stop:?}");
    // Nothing is left over for the next run.
    let stop = resume_within(&engine, Resume::Go, Duration::from_millis(300));
    assert!(stop.timed_out, "{stop:?}");
}

fn an_interrupt_during_the_first_resume() {
    let engine = launched("spin.exe", "");
    let halt = Halt::unbounded();
    let flag = halt.flag();
    let stop = engine
        .run()
        .unwrap()
        .resume(
            Resume::Go,
            crate::harness::BOUND,
            &|| flag.store(true, std::sync::atomic::Ordering::Relaxed),
            &halt,
        )
        .unwrap();
    assert!(stop.interrupted && !stop.target_gone, "{stop:?}");
}

fn first_and_second_chance() {
    let engine = launched("thrower.exe", "read");
    for first in [true, false] {
        let stop = resume(&engine, Resume::Go);
        let StopReason::Exception { record, first_chance } = &stop.reason else { panic!("{stop:?}") };
        assert_eq!(
            (record.code, record.parameters.as_slice(), *first_chance),
            (0xc000_0005, &[0, 0x10][..], first)
        );
        let event = engine.stored_event().unwrap().expect("stopped on it");
        assert_eq!((event.record.code, event.first_chance), (0xc000_0005, Some(first)));
        assert!(engine.describe(context(&engine).ip()).starts_with("thrower!main"));
    }
    let stop = resume(&engine, Resume::Go);
    assert!(stop.target_gone, "{stop:?}");
    assert_eq!(stop.reason, StopReason::Exited { code: Some(0xc000_0005) });
}

fn a_handled_exception_is_passed_on() {
    let engine = launched("thrower.exe", "handled");
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(3) }, "{stop:?}");
    assert!(stop.output.contains("e0001234"), "{}", stop.output);
}

fn a_breakpoint_of_its_own() {
    let engine = launched("thrower.exe", "debug");
    let stop = resume(&engine, Resume::Go);
    assert!(
        matches!(&stop.reason, StopReason::Exception { record, .. } if record.code == 0x8000_0003),
        "{stop:?}"
    );
    assert_eq!(stop.break_thread, None);
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(4) });
}

fn module_loads_stand_in_the_output() {
    let engine = launched("thrower.exe", "load");
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(6) });
    assert!(stop.output.contains("ModLoad") && stop.output.contains("version.dll"), "{}", stop.output);
}

fn milestones_come_in_order() {
    let said = std::cell::RefCell::new(Vec::new());
    let launch =
        engine_dbgeng::LaunchOptions { command_line: command_line("victim.exe", ""), ..Default::default() };
    let engine =
        engine_dbgeng::launch(&launch, &options(), &|m| said.borrow_mut().push(m), &Halt::unbounded())
            .unwrap();
    assert_eq!(*said.borrow(), [Milestone::Committed, Milestone::Opened]);
    assert!(inventory(&engine).is_empty());
}

fn registers_are_fast() {
    let engine = launched("victim.exe", "");
    let mut times: Vec<Duration> = (0..1000)
        .map(|_| {
            let began = Instant::now();
            context(&engine);
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    assert!(times[500] <= Duration::from_millis(2), "p50 {:?}", times[500]);
}

fn memory_and_registers_are_written() {
    let engine = launched("victim.exe", "");
    set(&engine, &at("victim!poke"));
    resume(&engine, Resume::Go);
    let watched = engine.evaluate("victim!g_watch", &Halt::unbounded()).unwrap();
    let write = engine.write().unwrap();
    assert_eq!(write.write(target::Space::Virtual, watched, &[1, 2, 3, 4]).unwrap(), 4);
    assert_eq!(engine.read_u32(watched).unwrap(), 0x0403_0201);
    write.set_register("edx", 0x55).unwrap();
    assert_eq!(context(&engine).by_name("edx"), Some(0x55));
    // The program stores what was put into its register.
    resume(&engine, Resume::StepInto);
    assert_eq!(engine.read_u32(watched).unwrap(), 0x55);
    assert!(write.set_register("no_such", 1).is_err());
    assert!(write.write(target::Space::Virtual, 0x10, &[1]).is_err());
    // Code under a breakpoint reads as it was.
    let poke = engine.evaluate("victim!poke", &Halt::unbounded()).unwrap();
    assert_ne!(engine.read_u8(poke).unwrap(), 0xcc);
}

fn locals_are_read() {
    let engine = launched("victim.exe", "");
    set(&engine, &at("victim!poke"));
    resume(&engine, Resume::Go);
    let stack = engine.stack(&context(&engine), 8, &Halt::unbounded()).unwrap();
    let locals = engine.locals(&stack.frames[0]).unwrap();
    let watched = engine.evaluate("victim!g_watch", &Halt::unbounded()).unwrap();
    let place = locals.iter().find(|l| l.name == "where").map(|l| l.location.clone());
    assert_eq!(place, Some(target::LocalLocation::Register { name: "rcx", value: watched }), "{locals:?}");
}
