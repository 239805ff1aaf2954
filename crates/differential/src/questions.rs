//! What is asked of both engines. Addresses and names that a question needs come from the answers
//! before it, of both sides, so that neither chooses what the other is asked.

use serde_json::{Value, json};

use crate::Error;
use crate::sessions::Pair;
use crate::text;

/// Threads whose registers and stacks are asked for.
const THREADS: usize = 64;
/// Places whose code is disassembled.
const PLACES: usize = 96;
/// Modules whose headers are read.
const MODULES: usize = 64;
/// Functions looked up by name.
const NAMES: usize = 48;
/// Types whose layout is compared, of each module with a PDB.
const TYPES: usize = 24;

/// Expressions: of the registers a raw command sees, and such as have a value in any target.
const EXPRESSIONS: [&str; 11] = [
    "@$ip",
    "poi(@$csp)",
    "by(@$ip)",
    "0n10+0x10",
    "(1<<4)|3",
    "ffffffff80000000",
    "0n255 & 0n15",
    "7 % 3",
    "-1",
    "low(12345678)",
    "hi(12345678)",
];

/// Registers, and memory behind them: of the context that the other tools show, which a raw command
/// of DbgEng need not.
const PLACES_BY_REGISTER: [&str; 8] = [
    "@$ip+by(@$csp)",
    "@$ip+wo(@$csp)",
    "@$ip",
    "@$csp+10",
    "poi(@$csp)",
    "@$ip+by(@$csp)-by(@$csp)",
    "@$ip+wo(@$csp)-wo(@$csp)",
    "dwo(@$csp)",
];

/// Everything.
pub(crate) fn all(pair: &mut Pair<'_>, kernel: bool, wow64: bool) -> Result<(), Error> {
    pair.ask("current_location", "current_location", &json!({}))?;
    let mut frames = Vec::new();
    triage(pair, kernel, &mut frames)?;
    whose(pair, "", &json!({}), &mut frames)?;
    if wow64 {
        for view in ["native", "wow64"] {
            whose(pair, &format!(" view {view}"), &json!({ "view": view }), &mut frames)?;
        }
    }
    if let Some((native, other)) = pair.ask("threads", "threads", &json!({ "limit": 1024 }))? {
        for thread in union(&native["threads"], &other["threads"], "system_id").iter().take(THREADS) {
            whose(pair, &format!(" thread {thread}"), &json!({ "thread": thread }), &mut frames)?;
        }
    }
    code_and_memory(pair, &frames)?;
    expressions(pair)?;
    names(pair, &frames)?;
    // Last, because symbols are loaded when something asks for them.
    if let Some((native, other)) = pair.ask("modules", "modules", &json!({ "limit": 2000 }))? {
        headers(pair, &native, &other)?;
        symbols_and_types(pair, &native)?;
    }
    Ok(())
}

fn triage(pair: &mut Pair<'_>, kernel: bool, frames: &mut Vec<Value>) -> Result<(), Error> {
    let tool = if kernel { "crash_triage" } else { "exception_triage" };
    if let Some((native, other)) = pair.ask(tool, tool, &json!({ "frames": 128 }))? {
        keep_frames(frames, &native["frames"], &other["frames"]);
    }
    Ok(())
}

/// Registers and stack of one thread, processor or view.
fn whose(pair: &mut Pair<'_>, who: &str, of: &Value, frames: &mut Vec<Value>) -> Result<(), Error> {
    let with = |name: &str, value: Value| {
        let mut arguments = of.clone();
        arguments[name] = value;
        arguments
    };
    pair.ask(&format!("registers{who}"), "registers", &with("all", Value::from(true)))?;
    if let Some((native, other)) =
        pair.ask(&format!("backtrace{who}"), "backtrace", &with("frames", Value::from(256)))?
    {
        keep_frames(frames, &native["frames"], &other["frames"]);
    }
    Ok(())
}

fn keep_frames(frames: &mut Vec<Value>, native: &Value, other: &Value) {
    let rows = [native, other].into_iter().filter_map(Value::as_array).flatten();
    frames.extend(rows.filter(|row| row["found"] != "scan").cloned());
}

/// The values of `field` in both lists, each once.
fn union(native: &Value, other: &Value, field: &str) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    for row in [native, other].into_iter().filter_map(Value::as_array).flatten() {
        if !values.contains(&row[field]) && !row[field].is_null() {
            values.push(row[field].clone());
        }
    }
    values
}

fn each_once<'a>(frames: &'a [Value], field: &str) -> Vec<&'a str> {
    let mut values: Vec<&str> = Vec::new();
    for value in frames.iter().filter_map(|frame| frame[field].as_str()) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn code_and_memory(pair: &mut Pair<'_>, frames: &[Value]) -> Result<(), Error> {
    for address in each_once(frames, "address").into_iter().take(PLACES) {
        pair.ask(
            &format!("disassemble {address}"),
            "disassemble",
            &json!({ "address": address, "count": 8 }),
        )?;
        pair.ask(
            &format!("read_memory code {address}"),
            "read_memory",
            &json!({ "address": address, "size": 64 }),
        )?;
    }
    for address in each_once(frames, "sp").into_iter().take(PLACES) {
        pair.ask(
            &format!("read_memory stack {address}"),
            "read_memory",
            &json!({ "address": address, "size": 256 }),
        )?;
    }
    // Page 0 and the end of the address space: both refuse, for the same reason.
    for address in ["0x0", "0xfffffffffffffff0"] {
        pair.ask(
            &format!("read_memory {address}"),
            "read_memory",
            &json!({ "address": address, "size": 16 }),
        )?;
    }
    Ok(())
}

fn expressions(pair: &mut Pair<'_>) -> Result<(), Error> {
    for expression in EXPRESSIONS {
        // What the target does not hold has no value.
        let always = !expression.contains('@');
        pair.ask_text(&format!("? {expression}"), always, text::value)?;
    }
    for place in PLACES_BY_REGISTER {
        pair.ask(&format!("disassemble {place}"), "disassemble", &json!({ "address": place, "count": 1 }))?;
    }
    Ok(())
}

/// Functions of the stacks by their names.
fn names(pair: &mut Pair<'_>, frames: &[Value]) -> Result<(), Error> {
    for symbol in each_once(frames, "symbol").into_iter().take(NAMES) {
        pair.ask(&format!("disassemble {symbol}"), "disassemble", &json!({ "address": symbol, "count": 1 }))?;
    }
    Ok(())
}

fn headers(pair: &mut Pair<'_>, native: &Value, other: &Value) -> Result<(), Error> {
    for start in union(&native["modules"], &other["modules"], "start").iter().take(MODULES) {
        pair.ask(
            &format!("read_memory header {}", start.as_str().unwrap_or_default()),
            "read_memory",
            &json!({ "address": start, "size": 64 }),
        )?;
    }
    Ok(())
}

/// Searches in modules that have a PDB, and the layouts of their first types with plain names.
fn symbols_and_types(pair: &mut Pair<'_>, native: &Value) -> Result<(), Error> {
    let modules = native["modules"].as_array().cloned().unwrap_or_default();
    let with_pdb = modules.iter().filter(|row| row["symbols"] == "pdb");
    for module in with_pdb.filter_map(|row| row["name"].as_str()).take(3) {
        for pattern in ["main", "*main*", "*init*", "*Create*", "_C*", "Ki*", "Nt*"] {
            pair.ask_text(&format!("x {module}!{pattern}"), false, text::symbols)?;
        }
        let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "_!".contains(c));
        // Which types there are is the native engine's choice: DbgEng lists typedefs and duplicates too.
        let listed = pair.facts(&format!("dt {module}!*"), text::names)?;
        let Some(listed) = listed.as_ref().and_then(|(native, _)| native.served()) else { continue };
        let listed = listed["names"].as_array().cloned().unwrap_or_default();
        let types: Vec<&str> = listed.iter().filter_map(Value::as_str).filter(|name| plain(name)).collect();
        // Spread over the alphabet.
        let step = (types.len() / TYPES).max(1);
        for name in types.into_iter().step_by(step).take(TYPES) {
            pair.ask_text(&format!("dt {name}"), false, text::layout)?;
        }
    }
    Ok(())
}
