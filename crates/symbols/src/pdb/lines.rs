//! Source lines: the C13 line subsections of a module and the binary annotations of inline sites.

use std::collections::HashMap;

use super::bytes::{Bytes, Record};
use super::scopes::S_INLINESITE2;

const DEBUG_S_LINES: u32 = 0xf2;
const DEBUG_S_FILECHKSMS: u32 = 0xf4;
const DEBUG_S_INLINEELINES: u32 = 0xf6;
const DEBUG_S_CROSSSCOPEIMPORTS: u32 = 0xf7;
const DEBUG_S_CROSSSCOPEEXPORTS: u32 = 0xf8;
/// Compilers' "never step here" lines.
const HIDDEN_LINES: [u32; 2] = [0x00f0_0f00, 0x00fe_efee];

/// A line of code: where it starts and what it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Section offset of its first byte.
    pub(crate) offset: u32,
    /// Into the file checksums.
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// Iterates `u32 kind, u32 length, data` aligned to four.
fn subsections(lines: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = Bytes::new(lines);
    std::iter::from_fn(move || {
        let (kind, length) = (rest.u32()?, rest.u32()? as usize);
        let data = rest.take(length.min(rest.rest().len()))?;
        rest.take((length.wrapping_neg() & 3).min(rest.rest().len()))?;
        Some((kind, data))
    })
}

/// The line that holds `offset` of `section`, of the physical function.
pub(crate) fn line_at(lines: &[u8], section: u16, offset: u32) -> Option<Line> {
    subsections(lines)
        .filter(|&(kind, _)| kind == DEBUG_S_LINES)
        .filter_map(|(_, data)| line_in_block(data, section, offset))
        .max_by_key(|line| line.offset)
}

fn line_in_block(data: &[u8], section: u16, offset: u32) -> Option<Line> {
    let mut data = Bytes::new(data);
    let (start, of, _flags, size) = (data.u32()?, data.u16()?, data.u16()?, data.u32()?);
    let wanted = offset.checked_sub(start).filter(|&o| of == section && o < size)?;
    let mut best: Option<(u32, u32, u32)> = None;
    while let (Some(file), Some(count), Some(bytes)) = (data.u32(), data.u32(), data.u32()) {
        let Some(block) = data.take((bytes as usize).saturating_sub(12).min(data.rest().len())) else {
            break;
        };
        let mut rows = Bytes::new(block);
        for _ in 0..count {
            let (Some(at), Some(bits)) = (rows.u32(), rows.u32()) else { break };
            if at <= wanted && best.is_none_or(|(b, ..)| at >= b) {
                best = Some((at, file, bits & 0x00ff_ffff));
            }
        }
        if bytes < 12 {
            break;
        }
    }
    let (at, file, line) = best?;
    (!HIDDEN_LINES.contains(&line)).then_some(Line { offset: start.checked_add(at)?, file, line })
}

/// Offset into the names stream of the file a line refers to.
pub(crate) fn file_name_offset(lines: &[u8], file: u32) -> Option<u32> {
    let (_, checksums) = subsections(lines).find(|&(kind, _)| kind == DEBUG_S_FILECHKSMS)?;
    Bytes::at(checksums, file as usize)?.u32()
}

/// File and line each inlined function of the module starts at, by its IPI index.
pub(crate) fn inlinees(lines: &[u8]) -> HashMap<u32, (u32, u32)> {
    let mut found = HashMap::new();
    for (_, data) in subsections(lines).filter(|&(kind, _)| kind == DEBUG_S_INLINEELINES) {
        let mut data = Bytes::new(data);
        let extended = data.u32() == Some(1);
        while let (Some(inlinee), Some(file), Some(line)) = (data.u32(), data.u32(), data.u32()) {
            found.entry(inlinee).or_insert((file, line));
            if extended {
                let extra = data.u32().unwrap_or(0) as usize;
                if data.take(extra.saturating_mul(4)).is_none() {
                    break;
                }
            }
        }
    }
    found
}

/// Ids with this bit are of another module (link-time code generation).
pub(crate) const IMPORTED: u32 = 0x8000_0000;

/// Where an imported id comes from: offset of the module's name in the names stream, and the id it
/// has in that module.
pub(crate) fn import(lines: &[u8], id: u32) -> Option<(u32, u32)> {
    let (module, position) = ((id >> 20) & 0x7ff, id & 0xf_ffff);
    let (_, data) = subsections(lines).find(|&(kind, _)| kind == DEBUG_S_CROSSSCOPEIMPORTS)?;
    let mut data = Bytes::new(data);
    for index in 0.. {
        let (name, count) = (data.u32()?, data.u32()? as usize);
        let ids = data.take(count.checked_mul(4)?)?;
        if index == module {
            return Some((name, Bytes::at(ids, (position as usize).checked_mul(4)?)?.u32()?));
        }
    }
    None
}

/// The global id a module gave an id it exports.
pub(crate) fn export(lines: &[u8], local: u32) -> Option<u32> {
    let (_, data) = subsections(lines).find(|&(kind, _)| kind == DEBUG_S_CROSSSCOPEEXPORTS)?;
    let mut data = Bytes::new(data);
    loop {
        let (exported, global) = (data.u32()?, data.u32()?);
        if exported == local {
            return Some(global);
        }
    }
}

/// A stretch of an inlined body, in offsets from the physical function's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InlineRange {
    pub(crate) start: u32,
    /// One past the end; `None` until the next record or length tells.
    pub(crate) end: Option<u32>,
    /// File, when the annotations change it from the inlinee's own.
    pub(crate) file: Option<u32>,
    /// Lines below the inlinee's first line.
    pub(crate) line_delta: i32,
}

/// The IPI index of an inline site record and its ranges.
pub(crate) fn inline_site(record: Record<'_>) -> Option<(u32, Vec<InlineRange>)> {
    let mut data = Bytes::new(record.data);
    data.take(8)?;
    let inlinee = data.u32()?;
    if record.kind == S_INLINESITE2 {
        data.u32()?;
    }
    Some((inlinee, ranges(data)))
}

/// Decodes binary annotations (cvinfo.h `BinaryAnnotationOpcode`): a small state machine that
/// emits a range at each change of the code offset.
fn ranges(mut data: Bytes<'_>) -> Vec<InlineRange> {
    let mut found: Vec<InlineRange> = Vec::new();
    let (mut base, mut offset, mut line_delta, mut file) = (0u32, 0u32, 0i32, None);
    while let Some(opcode) = data.compressed().filter(|&o| o != 0) {
        let Some(first) = data.compressed() else { break };
        let mut length = None;
        match opcode {
            // CodeOffset
            1 => {
                offset = first;
                continue;
            }
            // ChangeCodeOffsetBase
            2 => {
                base = first;
                continue;
            }
            // ChangeCodeOffset
            3 => offset = offset.wrapping_add(first),
            // ChangeCodeLength
            4 => {
                if let Some(last) = found.last_mut().filter(|r| r.end.is_none()) {
                    last.end = Some(last.start.saturating_add(first));
                }
                offset = offset.wrapping_add(first);
                continue;
            }
            // ChangeFile
            5 => {
                file = Some(first);
                continue;
            }
            // ChangeLineOffset
            6 => {
                line_delta = line_delta.wrapping_add(signed(first));
                continue;
            }
            // ChangeCodeOffsetAndLineOffset
            11 => {
                offset = offset.wrapping_add(first & 0xf);
                line_delta = line_delta.wrapping_add(signed(first >> 4));
            }
            // ChangeCodeLengthAndCodeOffset
            12 => {
                let Some(second) = data.compressed() else { break };
                length = Some(first);
                offset = offset.wrapping_add(second);
            }
            // Line ends, range kinds, columns.
            7..=10 | 13 => continue,
            _ => break,
        }
        let start = base.wrapping_add(offset);
        if let Some(last) = found.last_mut().filter(|r| r.end.is_none()) {
            last.end = Some(start.max(last.start));
        }
        let end = length.map(|l| start.saturating_add(l));
        found.push(InlineRange { start, end, file, line_delta });
    }
    found
}

/// Annotations store the sign in the lowest bit.
fn signed(value: u32) -> i32 {
    let magnitude = (value >> 1) as i32;
    if value & 1 != 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::{InlineRange, ranges};
    use crate::pdb::bytes::Bytes;

    fn range(start: u32, end: Option<u32>, line_delta: i32) -> InlineRange {
        InlineRange { start, end, file: None, line_delta }
    }

    #[test]
    fn annotations_make_ranges() {
        // +0x10, line +2 and offset +4, length 8; then 5 bytes at +0x20 in one step.
        let bytes = [3, 0x10, 11, 0x44, 4, 8, 12, 5, 4, 0, 0];
        assert_eq!(
            ranges(Bytes::new(&bytes)),
            [range(0x10, Some(0x14), 0), range(0x14, Some(0x1c), 2), range(0x20, Some(0x25), 2)]
        );
    }

    #[test]
    fn a_negative_line_and_a_cut_end() {
        assert_eq!(ranges(Bytes::new(&[6, 3, 3, 1, 4])), [range(1, None, -1)]);
    }
}
