//! x86 frame programs: FrameData ("new FPO") and FPO records.

use super::bytes::Bytes;
use crate::{Fpo, FpoFrame, FrameData, FrameProgram};

/// Offsets into the names stream are resolved by the caller.
pub(super) struct FrameTable {
    /// By start.
    data: Vec<RawFrameData>,
    fpo: Vec<Fpo>,
}

#[derive(Clone, Copy, Debug)]
struct RawFrameData {
    start: u32,
    size: u32,
    locals: u32,
    params: u32,
    max_stack: u32,
    program: u32,
    prolog: u16,
    saved: u16,
    flags: u32,
}

impl FrameTable {
    /// From the two streams; starts are RVAs, moved by `translate` when the image was reordered.
    pub(super) fn parse(frame_data: &[u8], fpo: &[u8], translate: impl Fn(u32) -> Option<u32>) -> Self {
        // Some linkers put a relocated base before the records.
        let skip = frame_data.len() % 32;
        let records = frame_data.get(if skip == 4 { 4 } else { 0 }..).unwrap_or_default();
        let mut data: Vec<_> = records.chunks_exact(32).filter_map(read_frame_data).collect();
        let mut fpo: Vec<_> = fpo.chunks_exact(16).filter_map(read_fpo).collect();
        data.retain_mut(|d| translate(d.start).map(|rva| d.start = rva).is_some());
        fpo.retain_mut(|f| {
            let moved = u32::try_from(f.start).ok().and_then(&translate);
            moved.map(|rva| f.start = u64::from(rva)).is_some()
        });
        // Of two at one place the function's own is found first, which is from the end.
        data.sort_by_key(|d| (d.start, d.flags & 4));
        fpo.sort_by_key(|f| f.start);
        Self { data, fpo }
    }

    /// FrameData before FPO; of several that cover the address, the largest start.
    pub(super) fn at(&self, rva: u32, name: impl Fn(u32) -> Option<String>) -> Option<FrameProgram> {
        // Records nest a few deep (function, block): no need to look back further.
        let after = self.data.partition_point(|d| d.start <= rva);
        let found = self.data[..after].iter().rev().take(64).find(|d| rva - d.start < d.size);
        if let Some(d) = found {
            return Some(FrameProgram::Data(FrameData {
                start: u64::from(d.start),
                code_size: d.size,
                locals: d.locals,
                params: d.params,
                max_stack: d.max_stack,
                saved_registers: d.saved,
                prolog: d.prolog,
                has_seh: d.flags & 1 != 0,
                has_eh: d.flags & 2 != 0,
                function_start: d.flags & 4 != 0,
                program: name(d.program).unwrap_or_default(),
            }));
        }
        let rva = u64::from(rva);
        let after = self.fpo.partition_point(|f| f.start <= rva);
        let found = self.fpo[..after].iter().rev().take(64).find(|f| rva - f.start < u64::from(f.code_size));
        found.cloned().map(FrameProgram::Fpo)
    }

    pub(super) fn counts(&self) -> (usize, usize) {
        (self.data.len(), self.fpo.len())
    }
}

fn read_frame_data(record: &[u8]) -> Option<RawFrameData> {
    let mut b = Bytes::new(record);
    Some(RawFrameData {
        start: b.u32()?,
        size: b.u32()?,
        locals: b.u32()?,
        params: b.u32()?,
        max_stack: b.u32()?,
        program: b.u32()?,
        prolog: b.u16()?,
        saved: b.u16()?,
        flags: b.u32()?,
    })
}

/// `FPO_DATA` (winnt.h).
fn read_fpo(record: &[u8]) -> Option<Fpo> {
    let mut b = Bytes::new(record);
    let (start, code_size, locals) = (u64::from(b.u32()?), b.u32()?, b.u32()?);
    let (params, bits) = (u32::from(b.u16()?), b.u16()?);
    Some(Fpo {
        start,
        code_size,
        locals: locals.saturating_mul(4),
        params: params.saturating_mul(4),
        prolog: bits as u8,
        saved_registers: ((bits >> 8) & 7) as u8 * 4,
        has_seh: bits & 0x800 != 0,
        uses_base_pointer: bits & 0x1000 != 0,
        frame: match bits >> 14 {
            0 => FpoFrame::Fpo,
            1 => FpoFrame::Trap,
            2 => FpoFrame::Tss,
            _ => FpoFrame::NonFpo,
        },
    })
}
