//! Operands are operands (spec 20 section 6.4): no string that becomes part of an expression can end
//! it, open another or switch evaluators. Every string a tool takes is tried; one that is no operand
//! says here what it is.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod operand;

use operand::{OTHER, calls_with, strings};
use serde_json::json;
use tools::{Category, Surface, admit};

/// What an operand must not hold, with what it stands in.
const BREAKERS: [&str; 8] =
    ["@rip; .echo x", "a\nb", "a\rb", "a\"b", "a\0b", "@@c++(1)", "1+@@(2)", "${alias}"];

#[test]
fn no_operand_takes_a_breaker() {
    let mut wrong = Vec::new();
    for breaker in BREAKERS {
        for (operand, tool, arguments) in calls_with(breaker) {
            // The data model's expressions quote; they have no C++ evaluator and no aliases.
            if tool == "dx" && !breaker.contains([';', '\n', '\r', '\0']) {
                continue;
            }
            let field = operand.rsplit('.').next().unwrap().trim_end_matches("[]");
            match admit(tools::find(tool).unwrap(), Some(arguments)) {
                Ok(_) => wrong.push(format!("{operand} takes {breaker:?}")),
                Err(error)
                    if error.category != Category::InvalidArgument || !error.message.contains(field) =>
                {
                    wrong.push(format!("{operand} {breaker:?}: {}", error.message));
                }
                Err(_) => {}
            }
        }
    }
    let operands: Vec<String> = calls_with("").into_iter().map(|(operand, ..)| operand).collect();
    assert!(wrong.is_empty(), "guard these, or say in OTHER what they are: {wrong:#?}");
    for operand in [
        "disassemble.address",
        "read_memory.address",
        "read_memory.coordinate.module",
        "run_to_address.address",
        "set_breakpoint.expression",
        "set_breakpoint.condition",
        "set_symbol_path.reload",
        "driver_object.name",
        "device_object.device",
        "irp_stack.irp",
        "device_security.device",
        "walk_memory.start",
        "walk_memory.stop_at",
        "debug_batch.steps[].address",
        "debug_batch.steps[].expr",
        "debug_batch.steps[].expect[].equals",
    ] {
        assert!(operands.iter().any(|known| known == operand), "{operand} was not tried: {operands:#?}");
    }
}

#[test]
fn a_refusal_names_the_character_and_where_it_is() {
    let entry = tools::find("disassemble").unwrap();
    let error = admit(entry, json!({ "address": "@rip; .opendump x" }).as_object().cloned()).err().unwrap();
    let refusal = "address: ';' at position 4 is not allowed in an operand";
    let told = |surface: &str| error.clone().told(&Surface::parse(surface, "--tools").unwrap()).message;
    assert_eq!(told("disassemble"), refusal);
    assert_eq!(told("disassemble,execute"), format!("{refusal}; whole commands are for execute"));
}

#[test]
fn what_is_no_operand_is_still_there() {
    let mut places = Vec::new();
    for entry in tools::all() {
        let mut found = Vec::new();
        strings(entry.input_schema(), entry.input_schema(), "", &mut found);
        places.extend(found.iter().map(|place| format!("{}.{place}", entry.name)));
    }
    for (pattern, _) in OTHER {
        let used = places.iter().any(|place| match pattern.split_once('*') {
            None => pattern == place,
            Some((before, after)) => place.starts_with(before) && place.ends_with(after),
        });
        assert!(used, "{pattern} names no string of any tool");
    }
}
