//! Code, unwind data and headers of built images. The file is laid out as in memory: file alignment
//! equals section alignment.

use std::collections::BTreeMap;

use target::{Machine, reg};

use crate::bytes::{low32, pad_to, put, put16, put32, put64};
use crate::image::{Function, FunctionFacts, Image, ImageBuilder, rsds};

const ALIGN: usize = 0x1000;
const TEXT: usize = 0x1000;

struct Code {
    bytes: Vec<u8>,
    facts: FunctionFacts,
    /// `UNWIND_INFO` or `.xdata`.
    unwind: Vec<u8>,
}

pub(crate) fn build(builder: &ImageBuilder) -> Image {
    let mut text = Vec::new();
    let mut functions = BTreeMap::new();
    let mut entries: Vec<(FunctionFacts, Vec<u8>)> = Vec::new();
    for function in &builder.functions {
        let at = low32(TEXT + text.len());
        let code = if builder.machine == Machine::Arm64 { arm64(function, at) } else { x64(function, at) };
        text.extend(&code.bytes);
        let (unit, filler) = if builder.machine == Machine::Arm64 { (16, 0x1f) } else { (16, 0xcc) };
        text.resize(text.len().next_multiple_of(unit), filler);
        functions.insert(function.name.clone(), code.facts.clone());
        entries.push((code.facts, code.unwind));
    }
    pad_to(&mut text, 16);
    let rdata_at = (TEXT + text.len()).next_multiple_of(ALIGN);
    let (rdata, unwinds) = read_only(builder, &functions, &entries, rdata_at);
    let pdata_at = (rdata_at + rdata.bytes.len()).next_multiple_of(ALIGN);
    let pdata = exception_table(builder.machine, &entries, &unwinds);
    let data_at = (pdata_at + pdata.len()).next_multiple_of(ALIGN);
    let mut symbols: BTreeMap<String, u32> = functions.iter().map(|(n, f)| (n.clone(), f.begin)).collect();
    let mut data = Vec::new();
    for (name, size, content) in &builder.variables {
        symbols.insert(name.clone(), low32(data_at + data.len()));
        let end = (data.len() + (*size as usize).max(content.len()).max(8)).next_multiple_of(16);
        data.extend(content);
        data.resize(end, 0);
    }
    let sections = [
        Section { name: b".text", at: TEXT, bytes: text, flags: 0x6000_0020 },
        Section { name: b".rdata", at: rdata_at, bytes: rdata.bytes.clone(), flags: 0x4000_0040 },
        Section { name: b".pdata", at: pdata_at, bytes: pdata.clone(), flags: 0x4000_0040 },
        Section { name: b".data", at: data_at, bytes: data, flags: 0xc000_0040 },
    ];
    let directories = [(0, rdata.exports), (3, (low32(pdata_at), low32(pdata.len()))), (6, rdata.debug)];
    let file = headers(builder, &sections, &directories);
    Image {
        name: builder.name.clone(),
        machine: builder.machine,
        size: low32(file.len()),
        timestamp: builder.timestamp,
        checksum: 0,
        entry_point: low32(TEXT),
        preferred_base: builder.base,
        exception_directory: directories[1].1,
        codeview: codeview(builder),
        file,
        symbols,
        functions,
    }
}

struct Section {
    name: &'static [u8],
    at: usize,
    bytes: Vec<u8>,
    flags: u32,
}

fn headers(builder: &ImageBuilder, sections: &[Section], directories: &[(usize, (u32, u32))]) -> Vec<u8> {
    let mut out = b"MZ".to_vec();
    put32(&mut out, 0x3c, 0x80);
    put(&mut out, 0x80, b"PE\0\0");
    put16(&mut out, 0x84, builder.machine.image_machine());
    put16(&mut out, 0x86, (sections.len() & 0xffff) as u16);
    put32(&mut out, 0x88, builder.timestamp);
    put16(&mut out, 0x94, 0xf0);
    put16(&mut out, 0x96, if builder.dll { 0x2022 } else { 0x22 });
    let optional = 0x98;
    put16(&mut out, optional, 0x20b);
    put32(&mut out, optional + 16, low32(TEXT));
    put64(&mut out, optional + 24, builder.base);
    put32(&mut out, optional + 32, low32(ALIGN));
    put32(&mut out, optional + 36, low32(ALIGN));
    put16(&mut out, optional + 40, 10);
    put16(&mut out, optional + 48, 10);
    put32(&mut out, optional + 60, 0x1000);
    put16(&mut out, optional + 68, 1);
    put32(&mut out, optional + 108, 16);
    for &(index, (rva, size)) in directories {
        put32(&mut out, optional + 112 + 8 * index, rva);
        put32(&mut out, optional + 116 + 8 * index, size);
    }
    for (index, section) in sections.iter().enumerate() {
        let at = optional + 0xf0 + 40 * index;
        put(&mut out, at, section.name);
        put32(&mut out, at + 8, low32(section.bytes.len()));
        put32(&mut out, at + 12, low32(section.at));
        put32(&mut out, at + 16, low32(section.bytes.len().next_multiple_of(ALIGN)));
        put32(&mut out, at + 20, low32(section.at));
        put32(&mut out, at + 36, section.flags);
    }
    for section in sections {
        put(&mut out, section.at, &section.bytes);
    }
    pad_to(&mut out, ALIGN);
    let size = low32(out.len());
    put32(&mut out, optional + 56, size);
    out
}

struct ReadOnly {
    bytes: Vec<u8>,
    exports: (u32, u32),
    debug: (u32, u32),
}

fn codeview(builder: &ImageBuilder) -> Vec<u8> {
    builder.pdb.as_ref().map(|(guid, age, path)| rsds(*guid, *age, path)).unwrap_or_default()
}

/// Unwind records, exports and the debug directory; the RVAs of the unwind records.
fn read_only(
    builder: &ImageBuilder,
    functions: &BTreeMap<String, FunctionFacts>,
    entries: &[(FunctionFacts, Vec<u8>)],
    at: usize,
) -> (ReadOnly, Vec<u32>) {
    let mut bytes = Vec::new();
    let mut unwinds = Vec::new();
    for (_, unwind) in entries {
        pad_to(&mut bytes, 4);
        unwinds.push(low32(at + bytes.len()));
        bytes.extend(unwind);
    }
    let mut out = ReadOnly { bytes, exports: (0, 0), debug: (0, 0) };
    let mut names: Vec<&Function> = builder.functions.iter().filter(|f| f.exported).collect();
    names.sort_by(|a, b| a.name.cmp(&b.name));
    if !names.is_empty() {
        pad_to(&mut out.bytes, 8);
        let start = at + out.bytes.len();
        let directory = export_directory(&builder.name, &names, functions, start);
        out.exports = (low32(start), low32(directory.len()));
        out.bytes.extend(directory);
    }
    let record = codeview(builder);
    if !record.is_empty() {
        pad_to(&mut out.bytes, 8);
        let start = at + out.bytes.len();
        let mut entry = vec![0; 28];
        put32(&mut entry, 4, builder.timestamp);
        put32(&mut entry, 12, 2);
        put32(&mut entry, 16, low32(record.len()));
        put32(&mut entry, 20, low32(start + 28));
        put32(&mut entry, 24, low32(start + 28));
        out.debug = (low32(start), 28);
        out.bytes.extend(entry);
        out.bytes.extend(record);
    }
    (out, unwinds)
}

fn export_directory(
    name: &str,
    exported: &[&Function],
    functions: &BTreeMap<String, FunctionFacts>,
    at: usize,
) -> Vec<u8> {
    let count = exported.len();
    let (addresses, names, ordinals) = (40, 40 + 4 * count, 40 + 8 * count);
    let mut out = vec![0; 40 + 10 * count];
    let string = |text: &str, out: &mut Vec<u8>| {
        let rva = low32(at + out.len());
        out.extend(text.as_bytes());
        out.push(0);
        rva
    };
    let name = string(name, &mut out);
    put32(&mut out, 12, name);
    put32(&mut out, 16, 1);
    put32(&mut out, 20, low32(count));
    put32(&mut out, 24, low32(count));
    put32(&mut out, 28, low32(at + addresses));
    put32(&mut out, 32, low32(at + names));
    put32(&mut out, 36, low32(at + ordinals));
    for (index, function) in exported.iter().enumerate() {
        let rva = functions.get(&function.name).map_or(0, |f| f.begin);
        put32(&mut out, addresses + 4 * index, rva);
        let name = string(&function.name, &mut out);
        put32(&mut out, names + 4 * index, name);
        put16(&mut out, ordinals + 2 * index, (index & 0xffff) as u16);
    }
    out
}

fn exception_table(machine: Machine, entries: &[(FunctionFacts, Vec<u8>)], unwinds: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    for ((facts, _), unwind) in entries.iter().zip(unwinds) {
        out.extend(facts.begin.to_le_bytes());
        if machine != Machine::Arm64 {
            out.extend(facts.end.to_le_bytes());
        }
        out.extend(unwind.to_le_bytes());
    }
    out
}

/// Bytes and the unwind codes they need, newest first.
struct X64 {
    code: Vec<u8>,
    codes: Vec<Vec<u8>>,
}

impl X64 {
    fn emit(&mut self, bytes: &[u8], operation: u8, info: u8, extra: Option<u16>) {
        self.code.extend(bytes);
        let offset = (self.code.len() & 0xff) as u8;
        let mut code = vec![offset, operation | info << 4];
        code.extend(extra.into_iter().flat_map(u16::to_le_bytes));
        self.codes.insert(0, code);
    }
}

fn low8(value: usize) -> u8 {
    (value & 0xff) as u8
}

fn x64_push(register: usize, opcode: u8) -> Vec<u8> {
    let short = opcode | low8(register & 7);
    if register >= 8 { vec![0x41, short] } else { vec![short] }
}

fn x64_adjust(locals: u32, subtract: bool) -> Vec<u8> {
    let operation = if subtract { 0xec } else { 0xc4 };
    if locals < 0x80 {
        vec![0x48, 0x83, operation, low8(locals as usize)]
    } else {
        let mut out = vec![0x48, 0x81, operation];
        out.extend(locals.to_le_bytes());
        out
    }
}

fn x64(function: &Function, at: u32) -> Code {
    let mut saved = function.saved.clone();
    if function.frame_pointer.is_some() && !saved.contains(&reg::RBP) {
        saved.insert(0, reg::RBP);
    }
    let locals = function.locals.next_multiple_of(8);
    let mut out = X64 { code: Vec::new(), codes: Vec::new() };
    for &register in &saved {
        out.emit(&x64_push(register, 0x50), 0, low8(register), None);
    }
    if locals > 0 {
        let bytes = x64_adjust(locals, true);
        if locals <= 128 {
            out.emit(&bytes, 2, low8((locals as usize - 8) / 8), None);
        } else {
            out.emit(&bytes, 1, 0, Some((locals / 8 & 0xffff) as u16));
        }
    }
    if let Some(offset) = function.frame_pointer {
        out.emit(&[0x48, 0x8d, 0x6c, 0x24, offset & 0x70], 3, 0, None);
    }
    let prolog = out.code.len();
    let mut facts = FunctionFacts {
        begin: at,
        body: at + low32(prolog),
        frame_size: locals + 8 * low32(saved.len()),
        frame_pointer: function.frame_pointer.map(|offset| (reg::RBP, u32::from(offset & 0x70))),
        ..FunctionFacts::default()
    };
    for (index, &register) in saved.iter().rev().enumerate() {
        facts.saved.push((register, locals + 8 * low32(index)));
    }
    out.code.push(0x90);
    for _ in 0..function.calls {
        // call: to the function's own start, which is as good as any.
        let next = out.code.len() + 5;
        out.code.push(0xe8);
        out.code.extend((low32(next)).wrapping_neg().to_le_bytes());
        facts.returns.push(at + low32(next));
        out.code.push(0x90);
    }
    if let Some((_, offset)) = facts.frame_pointer {
        out.code.extend([0x48, 0x8d, 0xa5]);
        out.code.extend((locals.wrapping_sub(offset)).to_le_bytes());
    } else if locals > 0 {
        out.code.extend(x64_adjust(locals, false));
    }
    for &register in saved.iter().rev() {
        out.code.extend(x64_push(register, 0x58));
    }
    out.code.push(0xc3);
    facts.end = at + low32(out.code.len());
    let codes: Vec<u8> = out.codes.concat();
    let frame = facts.frame_pointer.map_or(0, |(register, offset)| low8(register) | low8(offset as usize));
    let mut unwind = vec![1, low8(prolog), low8(codes.len() / 2), frame];
    unwind.extend(codes);
    pad_to(&mut unwind, 4);
    Code { bytes: out.code, facts, unwind }
}

/// `stp x29, x30, [sp, #-frame]!`, saves, `mov x29, sp`, body, the same back, `ret`.
fn arm64(function: &Function, at: u32) -> Code {
    let registers: Vec<usize> = function.saved.iter().copied().filter(|r| (19..=28).contains(r)).collect();
    let saves = 16 + (8 * low32(registers.len())).next_multiple_of(16);
    let frame = (saves + function.locals.next_multiple_of(16)).min(504).next_multiple_of(16).min(496);
    let mut words = vec![0xa980_0000 | ((frame / 8).wrapping_neg() & 0x7f) << 15 | 30 << 10 | 31 << 5 | 29];
    let mut codes = vec![vec![0x80 | low8(frame as usize / 8 - 1)]];
    let mut restores = vec![0xa8c0_0000 | (frame / 8 & 0x7f) << 15 | 30 << 10 | 31 << 5 | 29];
    let mut facts = FunctionFacts {
        begin: at,
        frame_size: frame,
        saved: vec![(reg::A64_FP, 0), (reg::A64_LR, 8)],
        frame_pointer: Some((reg::A64_FP, 0)),
        ..FunctionFacts::default()
    };
    for (index, pair) in registers.chunks(2).enumerate() {
        let slot = 2 + 2 * low32(index);
        let (first, x) = (low32(pair[0]), pair[0] - 19);
        facts.saved.push((pair[0], 8 * slot));
        let (high, low) = (low8(x >> 2), low8((x & 3) << 6) | low8(slot as usize));
        if let [_, second] = *pair {
            facts.saved.push((second, 8 * slot + 8));
            words.push(0xa900_0000 | slot << 15 | low32(second) << 10 | 31 << 5 | first);
            restores.insert(0, 0xa940_0000 | slot << 15 | low32(second) << 10 | 31 << 5 | first);
            codes.insert(0, vec![0xc8 | high, low]);
        } else {
            words.push(0xf900_0000 | slot << 10 | 31 << 5 | first);
            restores.insert(0, 0xf940_0000 | slot << 10 | 31 << 5 | first);
            codes.insert(0, vec![0xd0 | high, low]);
        }
    }
    words.push(0x9100_03fd);
    facts.body = at + 4 * low32(words.len());
    words.push(0xd503_201f);
    for _ in 0..function.calls {
        // bl to the function's own start.
        words.push(0x9400_0000 | low32(words.len()).wrapping_neg() & 0x03ff_ffff);
        facts.returns.push(at + 4 * low32(words.len()));
        words.push(0xd503_201f);
    }
    words.extend(restores);
    words.push(0xd65f_03c0);
    facts.end = at + 4 * low32(words.len());
    // set_fp, then the saves, which the epilog (starting behind set_fp) shares; end.
    let mut stream = vec![0xe1];
    stream.extend(codes.concat());
    stream.push(0xe4);
    pad_to(&mut stream, 4);
    let header = low32(words.len()) | 1 << 21 | 1 << 22 | low32(stream.len() / 4) << 27;
    let mut unwind = header.to_le_bytes().to_vec();
    unwind.extend(stream);
    Code { bytes: words.iter().flat_map(|w| w.to_le_bytes()).collect(), facts, unwind }
}
