//! `dv`: the locals of the current frame.

use target::{Frame, Local, LocalLocation, MemoryExt as _, Result, TargetError, TypeKind, TypeRef};

use crate::format_value::{c_type_text, value_text};
use crate::modules::glob;
use crate::run::{FRAMES_LIMIT, Run, usage};

/// Bytes of a value that are read to show it.
const VALUE_LIMIT: u64 = 256;

#[derive(Default)]
struct Options {
    types: bool,
    locations: bool,
    kinds: bool,
}

/// `dv [/t] [/v] [/i] [PATTERN]`.
pub(crate) fn dv(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let mut options = Options::default();
    let mut pattern = "*";
    for word in arguments.split_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "/t" => options.types = true,
            "/v" => options.locations = true,
            "/i" => options.kinds = true,
            "/a" | "/n" | "/z" | "/f" => {}
            _ if word.starts_with('/') => {
                return Err(usage(format!("dv: option {word} is not served (/t /v /i are)")));
            }
            _ => pattern = word,
        }
    }
    list(run, pattern, &options)
}

/// `x PATTERN` without a module.
pub(crate) fn matching(run: &mut Run<'_>, pattern: &str) -> Result<()> {
    list(
        run,
        if pattern.is_empty() { "*" } else { pattern },
        &Options { locations: true, ..Options::default() },
    )
}

fn list(run: &mut Run<'_>, pattern: &str, options: &Options) -> Result<()> {
    let frame = frame(run)?;
    let locals = run.target.locals(&frame).map_err(|error| without_context(run, error))?;
    let shown: Vec<&Local> = locals.iter().filter(|l| glob(pattern, &l.name)).collect();
    if shown.is_empty() {
        let why = if locals.is_empty() {
            "Unable to enumerate locals: no private symbols (PDB) cover this frame, or it has none"
        } else {
            "no local of this frame fits the pattern"
        };
        return Err(TargetError::failed_because("no_locals", why));
    }
    for local in shown {
        run.check()?;
        let line = line(run, local, options);
        run.say(line);
    }
    Ok(())
}

/// The frame whose locals are asked for.
pub(crate) fn frame(run: &Run<'_>) -> Result<Frame> {
    let index = run.session.frame;
    let mut stack = run.stack(index.saturating_add(2).min(FRAMES_LIMIT))?;
    if index >= stack.frames.len() {
        return Err(TargetError::failed_because("no_frame", "the current frame is no longer on the stack"));
    }
    Ok(stack.frames.swap_remove(index))
}

/// Commands start where the thread stood when the dump was written; a crash is asked about at its fault.
fn without_context(run: &Run<'_>, error: TargetError) -> TargetError {
    let fault = run.session.context.is_none()
        && run.session.frame == 0
        && run.target.stored_event().is_ok_and(|event| event.is_some_and(|e| e.context.is_some()));
    match error {
        TargetError::Failed { reason, message } if fault => TargetError::Failed {
            reason,
            message: format!("{message}; `.ecxr` first goes to the fault, `.frame N` to a caller"),
        },
        other => other,
    }
}

/// Where a local is, in the width of the column.
pub(crate) fn place(run: &Run<'_>, location: &LocalLocation) -> String {
    match location {
        LocalLocation::Memory(address) => run.notation().address(*address),
        LocalLocation::Register { name, .. } => format!("@{name}"),
        LocalLocation::Constant(_) => "<constant>".to_owned(),
        LocalLocation::Unavailable(_) => "<unavailable>".to_owned(),
    }
}

fn line(run: &Run<'_>, local: &Local, options: &Options) -> String {
    let mut line = String::new();
    if options.kinds {
        line.push_str(if local.parameter { "prv param  " } else { "prv local  " });
    }
    if options.locations {
        let place = place(run, &local.location);
        line.push_str(&format!("{place:<17} "));
    }
    let named =
        if options.types { format!("{} {}", c_type_text(&local.ty), local.name) } else { local.name.clone() };
    format!("{line}{named:>16} = {}", value(run, local))
}

pub(crate) fn value(run: &Run<'_>, local: &Local) -> String {
    match &local.location {
        LocalLocation::Constant(value) => format!("0n{value}"),
        LocalLocation::Unavailable(why) => format!("<value unavailable: {why}>"),
        LocalLocation::Register { value, .. } => {
            let size = usize::try_from(local.ty.size().clamp(1, 8)).unwrap_or(8);
            shown(run, &local.ty, &value.to_le_bytes()[..size])
        }
        LocalLocation::Memory(address) => {
            let size = usize::try_from(local.ty.size().clamp(1, VALUE_LIMIT)).unwrap_or(8);
            match run.target.read_prefix(*address, size) {
                (bytes, None) => shown(run, &local.ty, &bytes),
                (_, Some(why)) => format!("<memory access error: {why}>"),
            }
        }
    }
}

/// Structures by their keyword, pointers to them by the address alone, as `dv` does.
fn shown(run: &Run<'_>, ty: &TypeRef, bytes: &[u8]) -> String {
    match ty {
        TypeRef::Named { kind, .. } if *kind != TypeKind::Enum => c_type_text(ty),
        TypeRef::Array { .. } => {
            let text = value_text(run.target, ty, bytes);
            if text.ends_with('"') { text } else { c_type_text(ty) }
        }
        TypeRef::Pointer { to, .. } if !matches!(**to, TypeRef::Base { .. } | TypeRef::Function { .. }) => {
            let text = value_text(run.target, ty, bytes);
            text.split(' ').next().map(|a| a.replace("(null)", "0x0")).unwrap_or_default()
        }
        _ => value_text(run.target, ty, bytes).trim_end().to_owned(),
    }
}
