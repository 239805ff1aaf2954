//! Raw commands: bounded, pumped, and said what became of the target.

use std::time::{Duration, Instant};

use target::{Halt, Target, TargetError};

use crate::harness::{execute, launched};

pub(crate) const CASES: &[crate::harness::Case] = &[
    ("execute_t_ends_with_the_position", execute_t_ends_with_the_position),
    ("execute_bp_and_g_stops_and_says_where", execute_bp_and_g),
    ("an_interrupt_keeps_what_was_printed", an_interrupt_keeps_what_was_printed),
    ("a_loop_is_cut_by_its_bound", a_loop_is_cut_by_its_bound),
    ("a_command_that_asks_gets_an_empty_line", a_command_that_asks),
    ("a_command_that_ends_the_target", a_command_that_ends_the_target),
    ("an_error_in_text_is_text", an_error_in_text_is_text),
    ("dx_evaluates", dx_evaluates),
    ("a_radix_change_does_not_bend_evaluation", a_radix_change),
];

const LOOP: &str = ".for (r $t0=0; @$t0<0x7fffffff; r $t0=@$t0+1) {}";

fn execute_t_ends_with_the_position() {
    let engine = launched("victim.exe", "");
    let output = execute(&engine, "t");
    let last = output.text.lines().last().unwrap_or_default();
    assert!(last.starts_with("the target is stopped at ntdll!") && last.ends_with(": step"), "{output:?}");
}

fn execute_bp_and_g() {
    let engine = launched("victim.exe", "");
    let output = execute(&engine, "bp victim!poke; g");
    let last = output.text.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("the target is stopped at victim!poke") && last.ends_with("breakpoint 0"),
        "{output:?}"
    );
}

fn an_interrupt_keeps_what_was_printed() {
    let engine = launched("victim.exe", "");
    let breaker = engine.breaker();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        breaker.raise()
    });
    let began = Instant::now();
    let output = execute(&engine, &format!(".echo begun; {LOOP}"));
    assert!(thread.join().unwrap());
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(output.cut_short && output.text.contains("begun"), "{output:?}");
    let reached = engine.evaluate("@$t0", &Halt::unbounded()).unwrap();
    assert!(reached > 1 && reached < 0x7fff_ffff, "{reached:#x}");
    // The break was for that command alone.
    assert_eq!(execute(&engine, ".echo next").text.trim(), "next");
}

fn a_loop_is_cut_by_its_bound() {
    let engine = launched("victim.exe", "");
    let began = Instant::now();
    let output = engine.command().unwrap().execute(LOOP, &Halt::within(Duration::from_millis(500))).unwrap();
    assert!(output.cut_short && began.elapsed() < Duration::from_secs(10), "{output:?}");
    assert_eq!(execute(&engine, ".echo next").text.trim(), "next");
}

fn a_command_that_asks() {
    let engine = launched("victim.exe", "");
    let began = Instant::now();
    execute(&engine, "eb @rsp");
    execute(&engine, "a");
    assert!(began.elapsed() < Duration::from_secs(10));
}

fn a_command_that_ends_the_target() {
    let engine = launched("victim.exe", "");
    let before = engine.identity();
    let output = execute(&engine, "q");
    assert!(output.text.contains("holds no target"), "{output:?}");
    assert_ne!(engine.identity(), before);
    let refused = engine.command().unwrap().execute("r", &Halt::unbounded());
    assert!(matches!(refused, Err(TargetError::Gone(_))), "{refused:?}");
    engine.release().unwrap();
}

fn an_error_in_text_is_text() {
    let engine = launched("victim.exe", "");
    let output = execute(&engine, "bp victim!nosuch");
    assert!(output.text.contains("Couldn't resolve error"), "{output:?}");
}

fn dx_evaluates() {
    let engine = launched("victim.exe", "");
    let output = engine.data_model().unwrap().dx("1+2", 1, &Halt::within(crate::harness::BOUND)).unwrap();
    assert!(output.text.contains(": 3"), "{output:?}");
}

fn a_radix_change() {
    let engine = launched("victim.exe", "");
    execute(&engine, "n 10");
    assert_eq!(engine.evaluate("10", &Halt::unbounded()), Ok(0x10));
    for text in ["@rsp; .echo hi", "1 +", "", "@$t0 )"] {
        assert!(engine.evaluate(text, &Halt::unbounded()).is_err(), "{text}");
    }
}
