//! Images for speed only, generated and never committed: a driver of a megabyte, an image of ten.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::build;
use super::source::{Source, Variant};
use crate::process::root;

/// Routines of the large driver: about 300 bytes each.
const ROUTINES: u32 = 3400;
/// Control codes of the large driver.
const CODES: u32 = 256;

/// Generates both into `target/drivers/speed`; the folder.
pub(crate) fn generate() -> Result<PathBuf> {
    let folder = root().join("target/drivers/speed");
    std::fs::create_dir_all(&folder)?;
    large_driver(&folder)?;
    std::fs::write(folder.join("references.dll"), references(175_000))?;
    for file in ["large.sys", "references.dll"] {
        let path = folder.join(file);
        println!("{} {} bytes", path.display(), path.metadata()?.len());
    }
    Ok(folder)
}

/// A driver of ordinary compiled code: many codes, deep calls, sinks here and there.
fn large_driver(folder: &Path) -> Result<()> {
    let mut text = String::from("#define NAME \"LARGE\"\n#include \"driver.h\"\nULONG g_words[4096];\n");
    for i in 0..ROUTINES {
        writeln!(text, "NOINLINE NTSTATUS R{i}(IRP *irp, ULONG x);")?;
    }
    for i in 0..ROUTINES {
        routine(&mut text, i)?;
    }
    text += "NTSTATUS NTAPI Dispatch(DEVICE_OBJECT *device, IRP *irp) {\n    NTSTATUS status;\n    switch (Code(Location(irp))) {\n";
    for i in 0..CODES {
        let code = 0x0022_2000 + i * 4 + i / 64 * 0x4000 + i % 4;
        writeln!(text, "    case {code:#x}: status = R{}(irp, {i}); break;", i * 13)?;
    }
    text +=
        "    default: status = STATUS_INVALID_DEVICE_REQUEST;\n    }\n    return Finish(irp, status);\n}\n";
    let path = folder.join("large.c");
    if std::fs::read_to_string(&path).ok().as_ref() == Some(&text) && folder.join("large.sys").is_file() {
        return Ok(());
    }
    std::fs::write(&path, text)?;
    let source = Source::named("large", &path);
    build::into(&[source], Variant::X64Clang, folder)
}

fn routine(text: &mut String, i: u32) -> Result<()> {
    let callee = |n: u32| (i + n < ROUTINES).then_some(i + n);
    writeln!(text, "NOINLINE NTSTATUS R{i}(IRP *irp, ULONG x) {{")?;
    writeln!(text, "    ULONG *words = irp->SystemBuffer;")?;
    writeln!(
        text,
        "    for (ULONG k = 0; k < (x & 15); k++) g_words[(x + k * {}) & 4095] ^= words[k & 7];",
        i | 1
    )?;
    writeln!(
        text,
        "    if (g_words[{}] > {i}) x = x * {} + words[1];",
        i % 4096,
        i.wrapping_mul(2_654_435_761) | 1
    )?;
    if i % 97 == 5 {
        writeln!(text, "    if (x < 256) memmove(g_words, words, x);")?;
    }
    if i % 389 == 7 {
        writeln!(
            text,
            "    void *p = MmMapIoSpace(0xfed00000 + {i}, 0x1000, 0); if (p) MmUnmapIoSpace(p, 0x1000);"
        )?;
    }
    for (bit, n) in [(1, 1), (2, 37), (4, 611)] {
        if let Some(to) = callee(n) {
            writeln!(text, "    if (x & {bit}) x += R{to}(irp, x >> 1);")?;
        }
    }
    writeln!(text, "    g_calls += x;\n    return x ? g_result : STATUS_INVALID_PARAMETER;\n}}")?;
    Ok(())
}

/// The shape of a generated routine: 48 bytes of code, two calls, one address, one immediate.
const SHAPE: [u8; 48] = [
    0x48, 0x83, 0xec, 0x28, // sub rsp,28h
    0x48, 0x8d, 0x05, 0, 0, 0, 0, // lea rax,[rip+data]
    0xb9, 0, 0, 0, 0, // mov ecx,immediate
    0xe8, 0, 0, 0, 0, // call
    0x85, 0xc0, // test eax,eax
    0x74, 0x05, // je over the call
    0xe8, 0, 0, 0, 0, // call
    0x48, 0x83, 0xc4, 0x28, // add rsp,28h
    0xc3, // ret
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
];
const ADDRESS_AT: usize = 7;
const IMMEDIATE_AT: usize = 12;
const CALLS_AT: [usize; 2] = [17, 26];

const ALIGN: u32 = 0x1000;
const TEXT: u32 = ALIGN;

/// An x64 image of `routines` routines, each with unwind data; every thousandth calls the first.
fn references(routines: u32) -> Vec<u8> {
    let size = SHAPE.len() as u32;
    let start = |i: u32| TEXT + i * size;
    let text_size = routines * size;
    let data = TEXT + text_size.next_multiple_of(ALIGN);
    let unwind = data + ALIGN;
    let mut text = Vec::with_capacity(text_size as usize);
    let mut pdata = Vec::new();
    let mut seed = 0x2545_f491_u32;
    for i in 0..routines {
        let mut code = SHAPE;
        let mut put = |at: usize, target: u32| {
            let relative = target.wrapping_sub(start(i) + at as u32 + 4);
            code[at..at + 4].copy_from_slice(&relative.to_le_bytes());
        };
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        put(ADDRESS_AT, data + seed % 0x800);
        put(CALLS_AT[0], start(if i % 1000 == 999 { 0 } else { seed % routines }));
        put(CALLS_AT[1], start((seed >> 8) % routines));
        // Bytes of a call in an immediate: nothing that reads bytes instead of instructions is right.
        code[IMMEDIATE_AT..IMMEDIATE_AT + 4].copy_from_slice(&[0xe8, seed as u8, (seed >> 8) as u8, 0]);
        text.extend(code);
        for field in [start(i), start(i) + 35, unwind] {
            pdata.extend(field.to_le_bytes());
        }
    }
    // Version 1, prolog 4 bytes, one code: at 4, allocate 28h.
    let mut unwind_data = vec![1, 4, 1, 0, 4, 0x42, 0, 0];
    let pdata_at = unwind + 8;
    let pdata_size = pdata.len() as u32;
    unwind_data.extend(pdata);
    image(
        &[
            (b".text\0\0\0", 0x6000_0020, text),
            (b".data\0\0\0", 0xc000_0040, vec![0; ALIGN as usize]),
            (b".pdata\0\0", 0x4000_0040, unwind_data),
        ],
        (pdata_at, pdata_size),
    )
}

/// A PE32+ file of these sections, one behind the other from `TEXT` on; the entry is the first byte.
fn image(sections: &[(&[u8; 8], u32, Vec<u8>)], exceptions: (u32, u32)) -> Vec<u8> {
    const FILE_ALIGN: u32 = 0x200;
    let mut table = Vec::new();
    let (mut rva, mut raw) = (TEXT, FILE_ALIGN * 2);
    for (name, flags, bytes) in sections {
        let (length, padded) = (bytes.len() as u32, (bytes.len() as u32).next_multiple_of(FILE_ALIGN));
        table.extend(name.iter());
        for field in [length, rva, padded, raw, 0, 0, 0, *flags] {
            table.extend(field.to_le_bytes());
        }
        rva += length.next_multiple_of(ALIGN);
        raw += padded;
    }
    let mut file = vec![0; 0x40];
    file[..2].copy_from_slice(b"MZ");
    file[0x3c] = 0x40;
    file.extend(b"PE\0\0\x64\x86");
    file.extend((sections.len() as u16).to_le_bytes());
    // No symbols; an optional header of 240 bytes; executable, large address aware.
    file.extend([0; 12]);
    file.extend([240, 0, 0x22, 0]);
    let optional = file.len();
    file.resize(optional + 240, 0);
    let mut put = |at: usize, bytes: &[u8]| file[optional + at..][..bytes.len()].copy_from_slice(bytes);
    put(0, &0x20b_u16.to_le_bytes());
    put(16, &TEXT.to_le_bytes());
    put(24, &0x1_4000_0000_u64.to_le_bytes());
    put(32, &ALIGN.to_le_bytes());
    put(36, &FILE_ALIGN.to_le_bytes());
    put(40, &6_u16.to_le_bytes());
    put(48, &6_u16.to_le_bytes());
    put(56, &rva.to_le_bytes());
    put(60, &(FILE_ALIGN * 2).to_le_bytes());
    put(68, &1_u16.to_le_bytes());
    put(108, &16_u32.to_le_bytes());
    put(112 + 3 * 8, &exceptions.0.to_le_bytes());
    put(116 + 3 * 8, &exceptions.1.to_le_bytes());
    file.extend(table);
    file.resize(FILE_ALIGN as usize * 2, 0);
    for (_, _, bytes) in sections {
        file.extend(bytes);
        file.resize((file.len() as u32).next_multiple_of(FILE_ALIGN) as usize, 0);
    }
    file
}
