//! Breakpoints of every kind, and those that would poison later resumes.

use target::capability::{Access, Breakpoint, Resume, StopReason};
use target::{MemoryExt, Target, TargetError};

use crate::harness::{at, context, inventory, launched, resume, set};

pub(crate) const CASES: &[crate::harness::Case] = &[
    ("a_watch_of_g_watch_stops_after_the_store", a_watch_stops_after_the_store),
    ("each_row_of_the_poison_table_is_refused", poison_is_refused),
    ("a_name_of_a_module_not_loaded_is_deferred", deferred),
    ("a_deferred_breakpoint_comes_alive", a_deferred_breakpoint_comes_alive),
    ("a_condition_passes_by", a_condition_passes_by),
    ("a_command_logs_and_goes_on", a_command_logs_and_goes_on),
    ("a_pass_count_and_one_shot", a_pass_count_and_one_shot),
    ("a_thread_filter", a_thread_filter),
    ("removing_what_is_not_there", removing_what_is_not_there),
];

fn watch(expression: &str, access: Access, size: u8) -> Breakpoint {
    Breakpoint { watch: Some((access, size)), ..at(expression) }
}

fn a_watch_stops_after_the_store() {
    let engine = launched("victim.exe", "");
    let record = set(&engine, &watch("victim!g_watch", Access::Write, 4));
    assert_eq!(record.watch, Some((Access::Write, 4)));
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::DataBreakpoint { id: record.id }, "{stop:?}");
    let after = context(&engine).ip();
    let poke = engine.resolve("victim!poke").unwrap()[0].address;
    let store = engine.disassemble(poke, 1).unwrap().remove(0);
    assert_eq!(after, poke + store.bytes.0.len() as u64);
    assert_eq!(engine.read_u32(record.address.unwrap()).unwrap(), 0);
}

fn poison_is_refused() {
    let engine = launched("victim.exe", "");
    let base = set(&engine, &at("victim!work"));
    let before = inventory(&engine);
    let other = engine.resolve("victim!g_other").unwrap()[0].address;
    let rows = [
        ("a name its loaded module does not have", at("victim!nosuch"), "debugger"),
        (
            "code that is not readable",
            Breakpoint { address: Some(0x10), expression: None, ..at("") },
            "debugger",
        ),
        ("a name without a module", at("no_such_name_anywhere"), "debugger"),
        ("a misaligned watch", watch("victim!g_other+1", Access::Write, 4), "invalid_argument"),
        ("a watch of three bytes", watch("victim!g_other", Access::Write, 3), "invalid_argument"),
        ("an execute watch of four", watch("victim!poke", Access::Execute, 4), "invalid_argument"),
        ("a port watch", watch("victim!g_other", Access::Io, 1), "unsupported"),
        (
            "a thread that is not there",
            Breakpoint { thread: Some(0xfff0), ..at("victim!poke") },
            "invalid_argument",
        ),
    ];
    for (what, row, category) in rows {
        let refused = engine.breakpoints().unwrap().add(&row).expect_err(what);
        assert_eq!(refused.category().0, category, "{what}: {refused}");
        assert_eq!(inventory(&engine), before, "{what}");
    }
    for index in 0..4u64 {
        let breakpoint =
            Breakpoint { address: Some(other + 4 * index), watch: Some((Access::Write, 4)), ..at("") };
        set(&engine, &breakpoint);
    }
    let four = inventory(&engine);
    let fifth = engine.breakpoints().unwrap().add(&watch("victim!g_watch", Access::Write, 4)).unwrap_err();
    assert!(fifth.to_string().contains("4 hardware slots in use by ids"), "{fifth}");
    assert_eq!(inventory(&engine), four);
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Breakpoint { id: base.id }, "{stop:?}");
}

fn deferred() {
    let engine = launched("victim.exe", "");
    let record = set(&engine, &at("nope!x"));
    assert_eq!(record.address, None);
    assert_eq!(record.expression.as_deref(), Some("nope!x"));
    assert_eq!(inventory(&engine).len(), 1);
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(7) }, "{stop:?}");
}

fn a_deferred_breakpoint_comes_alive() {
    let engine = launched("thrower.exe", "load");
    let record = set(&engine, &at("version!VerQueryValueW"));
    assert_eq!(record.address, None);
    let alive = crate::harness::execute(&engine, "sxe ld:version; g");
    assert!(inventory(&engine)[0].address.is_some(), "{}", alive.text);
}

fn a_condition_passes_by() {
    let engine = launched("victim.exe", "5");
    let record = set(&engine, &Breakpoint { condition: Some("@rdx == 3".to_owned()), ..at("victim!poke") });
    assert_eq!(record.condition.as_deref(), Some("@rdx == 3"));
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Breakpoint { id: record.id }, "{stop:?}");
    assert_eq!(context(&engine).by_name("rdx"), Some(3));
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(7) }, "{stop:?}");
}

fn a_command_logs_and_goes_on() {
    let engine = launched("victim.exe", "3");
    let command = Some(".echo poked; gc".to_owned());
    let record = set(&engine, &Breakpoint { command: command.clone(), ..at("victim!poke") });
    assert_eq!(record.command, command);
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(7) }, "{stop:?}");
    assert_eq!(stop.output.matches("poked").count(), 3, "{}", stop.output);
}

fn a_pass_count_and_one_shot() {
    let engine = launched("victim.exe", "5");
    let record = set(&engine, &Breakpoint { pass_count: 3, one_shot: true, ..at("victim!poke") });
    assert_eq!((record.pass_count, record.one_shot), (3, true));
    let stop = resume(&engine, Resume::Go);
    assert!(matches!(stop.reason, StopReason::Breakpoint { .. }), "{stop:?}");
    assert_eq!(context(&engine).by_name("rdx"), Some(2));
    let stop = resume(&engine, Resume::Go);
    assert_eq!(stop.reason, StopReason::Exited { code: Some(7) }, "{stop:?}");
}

fn a_thread_filter() {
    let engine = launched("victim.exe", "");
    let main = engine.threads().unwrap()[0].system_id;
    let record = set(&engine, &Breakpoint { thread: Some(main), ..at("victim!poke") });
    assert_eq!(record.thread, Some(main));
    assert!(matches!(resume(&engine, Resume::Go).reason, StopReason::Breakpoint { .. }));
}

fn removing_what_is_not_there() {
    let engine = launched("victim.exe", "");
    let record = set(&engine, &at("victim!poke"));
    let breakpoints = engine.breakpoints().unwrap();
    assert!(matches!(breakpoints.remove(99), Err(TargetError::InvalidArgument(_))));
    breakpoints.remove(record.id).unwrap();
    assert!(inventory(&engine).is_empty());
    assert!(resume(&engine, Resume::Go).target_gone);
}
