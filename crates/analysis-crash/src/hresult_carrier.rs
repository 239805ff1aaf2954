//! HRESULTs inside thrown objects, by type (spec 60 section 3.5).

use analysis_status::{StatusInfo, StatusSpace, decode};
use target::{MemoryExt as _, Target, TargetExt as _};

use crate::layout::c_text;
use crate::result::{HresultSource, ThrowOrigin};
use crate::thrown::TypeGraph;

/// C++/WinRT's mark in front of the code.
const WINRT_MAGIC: u32 = 0xaabb_ccdd;
/// Object bytes searched for it when the type is not known.
const PATTERN_SCAN: u64 = 64;
const FAILED: u32 = 0x8000_0000;

/// What the types say of an HRESULT.
pub(crate) enum Carried {
    Value {
        info: Box<StatusInfo>,
        source: HresultSource,
        origin: Option<ThrowOrigin>,
    },
    /// A type carries one and the object does not agree, or it is something else.
    Note(String),
    NoCarrier,
}

/// Looks through all types, not only the thrown one: any base may carry it.
pub(crate) fn by_type(target: &dyn Target, graph: &TypeGraph, object: u64, wide: bool) -> Carried {
    let has = |name: &str| graph.types.iter().any(|t| t.name == name);
    if has("winrt::hresult_error") {
        return winrt(target, object, wide);
    }
    if has("_com_error") {
        return plain(
            target,
            object.checked_add(if wide { 8 } else { 4 }),
            HresultSource::ComError,
            "_com_error",
        );
    }
    if has("wil::ResultException") {
        return wil(target, object, wide);
    }
    if has("ATL::CAtlException") {
        return plain(target, Some(object), HresultSource::Atl, "ATL::CAtlException");
    }
    if has("std::system_error") {
        return system_error(target, object, wide);
    }
    match graph.types.first() {
        Some(first) if first.mangled.starts_with(".PAV") || first.mangled.starts_with(".PEAV") => {
            Carried::Note(format!(
                "The thrown object is a pointer ({}); it carries no HRESULT known here.",
                first.name
            ))
        }
        _ => Carried::NoCarrier,
    }
}

fn value(code: u32, source: HresultSource, origin: Option<ThrowOrigin>) -> Carried {
    Carried::Value { info: Box::new(decode(code, StatusSpace::Hresult)), source, origin }
}

fn disagrees(name: &str) -> Carried {
    Carried::Note(format!(
        "The type is {name}, but the object does not read as one that holds a failed HRESULT."
    ))
}

fn plain(target: &dyn Target, at: Option<u64>, source: HresultSource, name: &str) -> Carried {
    match at.and_then(|at| target.read_u32(at).ok()).filter(|code| code & FAILED != 0) {
        Some(code) => value(code, source, None),
        None => disagrees(name),
    }
}

fn winrt(target: &dyn Target, object: u64, wide: bool) -> Carried {
    let at = if wide { 8 } else { 4 };
    let read = |offset: u64| object.checked_add(offset).and_then(|a| target.read_u32(a).ok());
    match (read(at), read(at + 4)) {
        (Some(WINRT_MAGIC), Some(code)) if code & FAILED != 0 => value(code, HresultSource::Winrt, None),
        _ => disagrees("winrt::hresult_error"),
    }
}

/// The pattern without the type: the magic followed by a failed code in the first 64 bytes.
pub(crate) fn winrt_pattern(target: &dyn Target, object: u64) -> Option<StatusInfo> {
    for offset in (0..PATTERN_SCAN).step_by(4) {
        let at = object.checked_add(offset)?;
        // The first unreadable word ends the object.
        let word: [u8; 8] = target.read_array(at).ok()?;
        let magic = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let code = u32::from_le_bytes([word[4], word[5], word[6], word[7]]);
        if magic == WINRT_MAGIC && code & FAILED != 0 {
            return Some(decode(code, StatusSpace::Hresult));
        }
    }
    None
}

/// `FailureInfo` behind the `std::exception`: type, flags, hr, status, message, ... (new), or
/// type, hr, message, ... (old).
fn wil(target: &dyn Target, object: u64, wide: bool) -> Carried {
    let start = if wide { 24 } else { 12 };
    let Some(info) = object.checked_add(start) else { return disagrees("wil::ResultException") };
    for (hresult_at, pointers_at) in [(8u64, 16u64), (4, 8)] {
        if let Some((code, origin)) = wil_form(target, info, hresult_at, pointers_at, wide) {
            return value(code, HresultSource::Wil, Some(origin));
        }
    }
    disagrees("wil::ResultException")
}

fn wil_form(
    target: &dyn Target,
    info: u64,
    hresult_at: u64,
    pointers_at: u64,
    wide: bool,
) -> Option<(u32, ThrowOrigin)> {
    let kind = target.read_u32(info).ok()?;
    let code = target.read_u32(info.checked_add(hresult_at)?).ok()?;
    if kind > 3 || code & FAILED == 0 {
        return None;
    }
    let width: u8 = if wide { 8 } else { 4 };
    let step = u64::from(width);
    let pointer_at =
        |slot: u64| target.read_pointer(info.checked_add(pointers_at + slot * step)?, width).ok();
    // Slots: failureId, pszMessage, threadId, pszCode, pszFunction, pszFile, uLineNumber.
    let message = pointer_at(1)?;
    let code_text = pointer_at(3)?;
    let function = pointer_at(4)?;
    let file = pointer_at(5)?;
    let line = target.read_u32(info.checked_add(pointers_at + 6 * step)?).ok()?;
    let file_text = if file == 0 { None } else { Some(c_text(target, file, 512)?) };
    if line >= 1_000_000 {
        return None;
    }
    let text = |at: u64| (at != 0).then(|| c_text(target, at, 512)).flatten();
    let origin = ThrowOrigin {
        file: file_text,
        line: (line != 0).then_some(line),
        function: text(function),
        code: text(code_text),
        message: (message != 0).then(|| crate::layout::wide_text(target, message, 1024)).flatten(),
    };
    Some((code, origin))
}

fn system_error(target: &dyn Target, object: u64, wide: bool) -> Carried {
    let (value_at, category_at, width) = if wide { (24, 32, 8) } else { (12, 16, 4) };
    let number = object.checked_add(value_at).and_then(|a| target.read_u32(a).ok());
    let category = object.checked_add(category_at).and_then(|a| target.read_pointer(a, width).ok());
    let (Some(number), Some(category)) = (number, category) else { return disagrees("std::system_error") };
    let name = target.describe(category).to_ascii_lowercase();
    // The category object has no symbol of its own in a stripped image; its vtable may.
    let vtable = target.read_pointer(category, width).map(|v| target.describe(v).to_ascii_lowercase());
    let says = |word: &str| name.contains(word) || vtable.as_ref().is_ok_and(|v| v.contains(word));
    if says("generic") {
        return Carried::Note(format!("The error code is errno {number} (generic category), no HRESULT."));
    }
    if says("system") {
        let info = decode(number, StatusSpace::Win32);
        return Carried::Value { info: Box::new(info), source: HresultSource::SystemError, origin: None };
    }
    Carried::Note(format!("The error code is {number} of a category whose name cannot be read."))
}
