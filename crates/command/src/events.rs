//! `.lastevent`, `.exr`, `.ecxr`, `.cxr`, `.trap`, `.bugcheck`.

use target::{
    Context, ContextOf, ContextSource, ExceptionRecord, Machine, MemoryExt as _, Result, TargetError, View,
};

use crate::notation::{Notation, frame_place, known_place};
use crate::registers;
use crate::run::{Run, usage};

/// What the debugger shows for a process id nobody recorded.
pub(crate) const UNKNOWN_ID: u32 = 0xf0f0_f0f0;

/// DbgEng's words for exception codes (its default event filters).
pub(crate) fn exception_words(code: u32) -> Option<&'static str> {
    Some(match code {
        0x8000_0001 => "Guard page violation",
        0x8000_0002 => "Data misaligned",
        0x8000_0003 => "Break instruction exception",
        0x8000_0004 => "Single step exception",
        0xc000_0005 => "Access violation",
        0xc000_0006 => "In-page I/O error",
        0xc000_0008 => "Invalid handle",
        0xc000_001c => "Invalid system call",
        0xc000_001d => "Illegal instruction",
        0xc000_001e => "Invalid lock sequence",
        0xc000_0037 => "Port disconnected",
        0xc000_0094 => "Integer divide-by-zero",
        0xc000_0095 => "Integer overflow",
        0xc000_00fd => "Stack overflow",
        0xc000_0194 => "Possible deadlock",
        0xc000_0409 => "Security check failure or stack buffer overrun",
        0xc000_0420 => "Assertion failure",
        0xc000_041d => "Exception in user callback",
        0xc037_1000..=0xc037_1fff => "Memory corruption",
        0xcfff_ffff => "Application hang",
        0xe043_4352 | 0xe043_4f4d => "CLR exception",
        0xe06d_7363 => "C++ EH exception",
        0x4001_0005 => "Control-C exception",
        0x4001_0008 => "Control-Break exception",
        0x4000_001e => "WOW64 single step exception",
        0x4000_001f => "WOW64 breakpoint",
        0x4008_0201 => "Windows Runtime Originate Error",
        0x4008_0202 => "Windows Runtime Transform Error",
        _ => return None,
    })
}

pub(crate) fn last_event(run: &mut Run<'_>, _: &str) -> Result<()> {
    let Some(event) = run.target.stored_event()? else {
        run.say("Last event: <no event>");
        return Ok(());
    };
    let pid = run.target.facts().process.as_ref().and_then(|p| p.pid);
    let who = match (event.thread, run.target.facts().kind.is_kernel()) {
        (Some(tid), false) => format!("{:x}.{tid:x}: ", pid.unwrap_or(UNKNOWN_ID)),
        _ => String::new(),
    };
    let chance = match event.first_chance {
        Some(true) => "first chance",
        Some(false) => "!!! second chance !!!",
        None => "first/second chance not available",
    };
    let code = event.record.code;
    let words = exception_words(code).unwrap_or("Unknown exception");
    run.say(format!("Last event: {who}{words} - code {code:08x} ({chance})"));
    if let Some(time) = debugger_time(run) {
        run.say(format!("  debugger time: {time}"));
    }
    Ok(())
}

pub(crate) fn debugger_time(run: &Run<'_>) -> Option<String> {
    let time = run.target.facts().dump.as_ref()?.time.as_deref()?;
    Some(format!("{} (UTC + 0:00)", crate::calendar::from_rfc3339(time)?))
}

/// `.exr -1`, `.exr ADDRESS`.
pub(crate) fn exr(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    if !matches!(arguments, "" | "-1") {
        let record = read_record(run, run.evaluate(arguments)?)?;
        let place = known_place(run.target, record.address);
        print_record(run, &record, place);
        return Ok(());
    }
    let Some(event) = run.target.stored_event()? else {
        return Err(TargetError::failed_because("no_exception", "Last event was not an exception"));
    };
    // The stack knows of functions inlined there.
    let context = event.context.filter(|c| c.ip() == event.record.address);
    let frame = context.and_then(|c| run.target.stack(&c, 1, run.halt).ok()?.frames.into_iter().next());
    let notation = Notation::of(run.target.facts().machine);
    let place = match frame.filter(|f| f.inline) {
        Some(frame) => Some(frame_place(run.target, notation, &frame)),
        None => known_place(run.target, event.record.address),
    };
    print_record(run, &event.record, place);
    Ok(())
}

/// `EXCEPTION_RECORD` of the target's pointer size (winnt.h).
fn read_record(run: &Run<'_>, address: u64) -> Result<ExceptionRecord> {
    const PARAMETERS_LIMIT: u32 = 15;
    let size = run.notation().pointer_size;
    let word = u64::from(size);
    let pointer = |offset: u64| run.target.read_pointer(address.wrapping_add(offset), size);
    let count = run.target.read_u32(address.wrapping_add(8 + 2 * word))?;
    if count > PARAMETERS_LIMIT {
        return Err(TargetError::failed_because(
            "malformed",
            format!(
                "no exception record at {}: it claims {count:#x} parameters",
                run.notation().address(address)
            ),
        ));
    }
    let first = if size == 8 { 0x20 } else { 0x14 };
    let parameters =
        (0..u64::from(count)).map(|n| pointer(first + n * word)).collect::<Result<Vec<_>, _>>()?;
    Ok(ExceptionRecord {
        code: run.target.read_u32(address)?,
        flags: run.target.read_u32(address.wrapping_add(4))?,
        nested: pointer(8)?,
        address: pointer(8 + word)?,
        parameters,
    })
}

fn print_record(run: &mut Run<'_>, record: &ExceptionRecord, place: Option<String>) {
    let notation = Notation::of(run.target.facts().machine);
    let place = place.map(|p| wide_displacement(notation, p)).unwrap_or_default();
    run.say(format!("ExceptionAddress: {}{place}", notation.digits(record.address)));
    let words = exception_words(record.code).map(|w| format!(" ({w})")).unwrap_or_default();
    run.say(format!("   ExceptionCode: {:08x}{words}", record.code));
    run.say(format!("  ExceptionFlags: {:08x}", record.flags));
    run.say(format!("NumberParameters: {}", record.parameters.len()));
    for (index, parameter) in record.parameters.iter().enumerate() {
        run.say(format!("   Parameter[{index}]: {}", notation.digits(*parameter)));
    }
    if let Some(line) = meaning(notation, record) {
        run.say(line);
    }
    if record.nested != 0 {
        run.say(format!("Nested exception record at {}: .exr {0}", notation.digits(record.nested)));
    }
}

/// ` (nt+0x00000000003f5a80)`: here the displacement is as wide as a pointer.
fn wide_displacement(notation: Notation, place: String) -> String {
    let wide = place.rsplit_once("+0x").and_then(|(name, digits)| {
        let value = u64::from_str_radix(digits, 16).ok()?;
        Some(format!("{name}+0x{}", notation.digits(value)))
    });
    format!(" ({})", wide.unwrap_or(place))
}

fn meaning(notation: Notation, record: &ExceptionRecord) -> Option<String> {
    let parameter = |n: usize| record.parameters.get(n).copied();
    match record.code {
        0xc000_0005 => {
            let at = notation.digits(parameter(1)?);
            Some(match parameter(0)? {
                0 => format!("Attempt to read from address {at}"),
                1 => format!("Attempt to write to address {at}"),
                8 => format!("Attempt to execute non-executable address {at}"),
                _ => return None,
            })
        }
        0xc000_0006 => Some(format!(
            "Inpage operation failed at {}, due to I/O error {}",
            notation.digits(parameter(1)?),
            notation.digits(parameter(2)?)
        )),
        0xc000_0409 => {
            let code = parameter(0)?;
            let name = analysis_status::fast_fail_name(code).map(|n| format!(" FAST_FAIL_{n}"));
            Some(format!("Subcode: {code:#x}{}", name.unwrap_or_default()))
        }
        _ => None,
    }
}

/// The context stored with the event.
pub(crate) fn ecxr(run: &mut Run<'_>, _: &str) -> Result<()> {
    let event = run.target.stored_event()?;
    let invalid = event.as_ref().is_some_and(|e| e.context_invalid);
    let Some(context) = event.and_then(|e| e.context) else {
        let why = if invalid { "the stored one does not hold up" } else { "there is none in this target" };
        return Err(TargetError::failed_because(
            "no_exception_context",
            format!("Unable to get exception context: {why}"),
        ));
    };
    set(run, context)
}

fn set(run: &mut Run<'_>, context: Context) -> Result<()> {
    registers::block(run, &context)?;
    run.session.frame = 0;
    run.session.context = Some(context);
    Ok(())
}

/// `.cxr ADDRESS`; `.cxr` and `.cxr 0` reset.
pub(crate) fn cxr(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let address = if arguments.is_empty() { 0 } else { run.evaluate(arguments)? };
    if address == 0 {
        run.session.reset_scope();
        run.say("Resetting default scope");
        return Ok(());
    }
    let machine = run.target.facts().machine;
    let (bytes, stopped) = run.target.read_prefix(address, Context::record_size(machine));
    let context = Context::from_bytes(machine, &bytes, ContextSource::ContextRecord);
    match (context, stopped) {
        (Some(context), _) => set(run, context),
        (None, Some(why)) => {
            Err(target::ReadError { address: address.wrapping_add(bytes.len() as u64), why }.into())
        }
        (None, None) => Err(TargetError::failed_because(
            "malformed",
            format!(
                "Unable to read context: {} holds no {} CONTEXT (its flags do not say so)",
                run.notation().address(address),
                machine.name()
            ),
        )),
    }
}

/// `.trap ADDRESS`; `.trap` and `.trap 0` reset.
pub(crate) fn trap(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    const FRAME_SIZE: usize = 0x190;
    let address = if arguments.is_empty() { 0 } else { run.evaluate(arguments)? };
    if address == 0 {
        run.session.reset_scope();
        run.say("Resetting default scope");
        return Ok(());
    }
    if run.target.facts().machine != Machine::X64 {
        return Err(TargetError::unsupported(
            "foreign_architecture",
            "trap frames are read on x64 only here; the dbgeng engine reads the others",
        ));
    }
    let mut bytes = vec![0; FRAME_SIZE];
    run.target.read_exact(address, &mut bytes)?;
    let context =
        Context::from_x64_trap_frame(&bytes).ok_or_else(|| usage("a trap frame has 0x190 bytes"))?;
    run.say("NOTE: The trap frame does not contain all registers.");
    run.say("Some register values may be zeroed or incorrect.");
    set(run, context)
}

pub(crate) fn bug_check(run: &mut Run<'_>, _: &str) -> Result<()> {
    let Some(bug) = run.target.bug_check()? else {
        return Err(TargetError::unsupported("wrong_target_kind", "only kernel targets have a bug check"));
    };
    let arguments: Vec<String> = bug.parameters.iter().map(|p| run.notation().address(*p)).collect();
    run.say(format!("Bugcheck code {:08X}", bug.code));
    run.say(format!("Arguments {}", arguments.join(" ")));
    Ok(())
}

/// The context of a thread of the target, for commands that switch to one.
pub(crate) fn context_of(run: &Run<'_>, of: ContextOf) -> Result<Option<Context>> {
    run.target.context(of, View::Default)
}
