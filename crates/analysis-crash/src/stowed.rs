//! Stowed exceptions (spec 60 section 3.7): what a WinRT program put aside before it ended itself.

use analysis_status::{StatusSpace, decode};
use target::{Address, Found, Frame, FrameInfo, MemoryExt as _, Target, TargetExt as _};

use crate::layout::wide_text;
use crate::result::Stowed;

const SE01: u32 = 0x5345_3031;
const SE02: u32 = 0x5345_3032;
const MAX_ITEMS: u64 = 16;
const MAX_FRAMES: u64 = 64;

/// The exceptions of the array of `count` pointers at `array`.
pub(crate) fn read(target: &dyn Target, array: u64, count: u64, wide: bool) -> Vec<Stowed> {
    let width: u8 = if wide { 8 } else { 4 };
    (0..count.min(MAX_ITEMS))
        .filter_map(|index| {
            let at = array.checked_add(index * u64::from(width))?;
            item(target, target.read_pointer(at, width).ok()?, wide)
        })
        .collect()
}

fn item(target: &dyn Target, at: u64, wide: bool) -> Option<Stowed> {
    let width: u8 = if wide { 8 } else { 4 };
    let u32_at = |offset: u64| at.checked_add(offset).and_then(|a| target.read_u32(a).ok());
    let pointer_at = |offset: u64| at.checked_add(offset).and_then(|a| target.read_pointer(a, width).ok());
    let signature = u32_at(4)?;
    if signature != SE01 && signature != SE02 {
        return None;
    }
    let form = u32_at(12)?;
    let mut out = Stowed {
        hresult: decode(u32_at(8)?, StatusSpace::Hresult),
        thread_id: Some(form & !3).filter(|t| *t != 0),
        address: None,
        stack: vec![],
        text: None,
        nested_type: None,
    };
    match form & 3 {
        1 => {
            let (size_at, count_at, trace_at, nested_at) =
                if wide { (24, 28, 32, 40) } else { (20, 24, 28, 32) };
            out.address = pointer_at(16).filter(|a| *a != 0).map(Address);
            let word = u32_at(size_at).unwrap_or(0);
            let count = u32_at(count_at).unwrap_or(0);
            if let Some(trace) = pointer_at(trace_at).filter(|_| word == 4 || word == 8) {
                out.stack = frames(target, trace, u64::from(count), u64::from(word));
            }
            if signature == SE02 {
                out.nested_type = u32_at(nested_at).and_then(nested_type);
            }
        }
        2 => out.text = pointer_at(16).and_then(|p| wide_text(target, p, 4096)),
        _ => {}
    }
    Some(out)
}

/// Four letters as a big-endian number.
fn nested_type(value: u32) -> Option<String> {
    let bytes = value.to_be_bytes();
    bytes.iter().all(u8::is_ascii_alphanumeric).then(|| bytes.iter().map(|&b| char::from(b)).collect())
}

fn frames(target: &dyn Target, trace: u64, count: u64, word: u64) -> Vec<FrameInfo> {
    let mut out = Vec::new();
    for index in 0..count.min(MAX_FRAMES) {
        let ip =
            trace.checked_add(index * word).map(|at| target.read_pointer(at, if word == 8 { 8 } else { 4 }));
        let Some(Ok(ip)) = ip else { break };
        if ip == 0 {
            break;
        }
        let frame = Frame {
            ip,
            sp: 0,
            found: Found::Unwind,
            inline: false,
            attribution: target.attribute(ip),
            symbol: target.symbol_at(ip).ok().flatten(),
            source: None,
            context: None,
            return_address: 0,
        };
        out.push(FrameInfo::new(out.len(), &frame));
    }
    out
}
