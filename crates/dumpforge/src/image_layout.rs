//! Code, unwind data and headers of built images. The file is laid out as in memory: file alignment
//! equals section alignment.

use std::collections::BTreeMap;

use target::Machine;

use crate::bytes::{low32, pad_to, put, put16, put32, put64};
use crate::image::{Function, FunctionFacts, Image, ImageBuilder, Position, rsds};
use crate::{code_arm64, code_x64};

const ALIGN: usize = 0x1000;
const TEXT: usize = 0x1000;

pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
    pub(crate) facts: FunctionFacts,
    /// `UNWIND_INFO` or `.xdata`.
    pub(crate) unwind: Vec<u8>,
    pub(crate) positions: Vec<Position>,
}

pub(crate) fn build(builder: &ImageBuilder) -> Image {
    let mut text = Vec::new();
    let mut functions = BTreeMap::new();
    let mut positions = BTreeMap::new();
    let mut entries: Vec<(FunctionFacts, Vec<u8>)> = Vec::new();
    for function in &builder.functions {
        let at = low32(TEXT + text.len());
        let arm64 = builder.machine == Machine::Arm64;
        let code = if arm64 { code_arm64::function(function, at) } else { code_x64::function(function, at) };
        text.extend(&code.bytes);
        text.resize(text.len().next_multiple_of(16), if arm64 { 0 } else { 0xcc });
        functions.insert(function.name.clone(), code.facts.clone());
        positions.insert(function.name.clone(), code.positions);
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
        positions,
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
