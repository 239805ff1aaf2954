//! What a fuzzer starts from: the committed fixtures, forged dumps, and the lines of `fuzz/seeds`.

use std::path::Path;

use anyhow::{Context as _, Result};
use dumpforge::{
    DumpType, FrameSpec, Function, Image, ImageBuilder, KernelForge, StackBuilder, ThreadState, UserDump,
    UserException, UserThread,
};
use target::{ExceptionRecord, Guid, Machine};

use crate::process::root;

/// Bytes of a kernel dump that a target of the file format needs: header, map and the first pages.
const FORMAT_PART: usize = 0x5000;

/// Adds the seeds of `target` to `corpus`. Answers how long the longest is.
pub(crate) fn write(target: &str, corpus: &Path) -> Result<usize> {
    std::fs::create_dir_all(corpus)?;
    let mut longest = 0;
    for (number, seed) in of(target)?.into_iter().enumerate() {
        longest = longest.max(seed.len());
        std::fs::write(corpus.join(format!("seed-{number:03}")), seed)?;
    }
    Ok(longest)
}

/// The seeds of `target`; none for one that is not known here.
pub(super) fn of(target: &str) -> Result<Vec<Vec<u8>>> {
    let mut seeds = match target {
        "pe" | "code_flow" | "ioctl_map" | "replay" => images()?,
        "pdb" => ending(&root().join("fixtures"), "pdb")?,
        "image_symbols" => vec![std::fs::read(root().join("crates/symbols/tests/data/dwarf.exe"))?],
        "mdmp" => minidumps()?,
        "pagedu64" => kernel_dumps(FORMAT_PART, &DumpType::ALL)?,
        "triage" => kernel_dumps(usize::MAX, &[DumpType::Triage])?
            .into_iter()
            .map(|dump| dump.get(0x2000..).unwrap_or_default().to_vec())
            .collect(),
        "engine" | "crash_analysis" => {
            let mut seeds = minidumps()?;
            seeds.extend(kernel_dumps(usize::MAX, &[DumpType::Triage, DumpType::BitmapKernel])?);
            seeds.extend(images()?.into_iter().take(4));
            seeds
        }
        "userdu64" => vec![full_user()],
        "isf" => {
            let kernel = dumpforge::image::stand_in_kernel(Machine::X64);
            vec![dumpforge::isf::isf(&kernel, &dumpforge::Layout::of(Machine::X64)).into_bytes()]
        }
        "kernel_edits" | "pdb_edits" => {
            (0u8..8).map(|way| [3 * way, way, way, 0, 1, 0, 0].repeat(3)).collect()
        }
        "tool_call" => tool_calls()?,
        "kd_link" => vec![kd_packets()],
        "kd_manipulate" | "kd_server" => (0x3130u32..0x3163).map(kd_request).collect(),
        // The first stop, a printed line, the opening of a file.
        "kd_payload" => [0x3030u32, 0x3230, 0x3430].into_iter().map(kd_request).collect(),
        "cab" => vec![cabinet(b"MDMP")],
        "transcript" => vec![std::fs::read(root().join("crates/transcript/tests/data/session.jsonl"))?],
        "instruction" | "emulate" => code()?,
        "unwind_x64" => vec![unwind(12, &[0x11_00ff, 0x01_04_01_0e, 0x30_0a_72_0e])],
        "unwind_arm64" => vec![unwind(8, &[0x1000_0040, 0xe3e3_81d1]), unwind(8, &[0x0104_00ff, 0])],
        "unwind_x86" => {
            vec![b"\x40\0\x01\x08$T0 .raSearch = $eip $T0 ^ = $esp $T0 4 + =\0\0\0\0".repeat(2)]
        }
        _ => Vec::new(),
    };
    let lines = root().join("fuzz/seeds").join(format!("{target}.txt"));
    if lines.is_file() {
        let text = std::fs::read_to_string(&lines)?;
        seeds.extend(text.lines().map(|line| line.as_bytes().to_vec()));
    }
    Ok(seeds)
}

/// Files of `folder` and the folders in it whose names end in `extension`, in order.
fn ending(folder: &Path, extension: &str) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut entries = std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(ending(&path, extension)?);
        } else if path.extension().is_some_and(|has| has == extension) {
            found.push(std::fs::read(&path)?);
        }
    }
    Ok(found)
}

fn images() -> Result<Vec<Vec<u8>>> {
    let fixtures = root().join("fixtures");
    let mut found = ending(&fixtures, "exe")?;
    found.extend(ending(&fixtures, "sys")?);
    found.retain(|bytes| bytes.len() <= 0x2000);
    Ok(found)
}

/// The code of the images, a kind byte in front that chooses machine and memory for `emulate`.
fn code() -> Result<Vec<Vec<u8>>> {
    Ok(images()?
        .into_iter()
        .enumerate()
        .filter_map(|(number, bytes)| Some([&[(number % 3) as u8][..], bytes.get(0x400..0x600)?].concat()))
        .collect())
}

fn program(machine: Machine) -> Image {
    ImageBuilder::new(machine, "crashme.exe")
        .pdb(Guid(*b"crash me, please"), 1, r"C:\fx\crashme.pdb")
        .program()
        .function(Function::new("crash"))
        .function(Function::new("main"))
        .build()
}

fn minidumps() -> Result<Vec<Vec<u8>>> {
    const BASE: u64 = 0x1_4000_0000;
    let mut dumps = ending(&root().join("fixtures"), "dmp")?;
    dumps.retain(|bytes| bytes.starts_with(b"MDMP"));
    for (machine, full) in [(Machine::X64, false), (Machine::X64, true), (Machine::Arm64, true)] {
        let image = program(machine);
        let frames = [FrameSpec::inside(&image, BASE, "crash"), FrameSpec::calling(&image, BASE, "main")];
        let stack = StackBuilder::new(machine, 0x20_0000, 0x400).build(&frames, 0);
        let mut dump = UserDump::new(machine);
        dump.full_memory = full;
        dump.add_image(&image, BASE, r"C:\fx\crashme.exe", false);
        dump.threads.push(UserThread { extended: 0x340, ..UserThread::new(0x10, &stack).named("main") });
        dump.exception = Some(UserException {
            thread: 0x10,
            record: ExceptionRecord {
                code: 0xc000_0005,
                address: frames[0].ip,
                parameters: vec![1, 0x45],
                ..ExceptionRecord::default()
            },
            context: Some(stack.context.clone()),
        });
        dump.regions.push(dumpforge::user::RegionSpec {
            base: 0x50_0000,
            allocation_base: 0x50_0000,
            size: 0x1000,
            state: 0x1000,
            protect: 4,
            kind: 0x2_0000,
        });
        dump.build_string = Some("19041.1.amd64fre.forge".into());
        dump.unloaded.push(("gone.dll".into(), 0x7ff8_0000_0000, 0x3000));
        dump.handles.push((4, "Event".into(), r"\BaseNamedObjects\done".into()));
        dump.comment = Some("a seed".into());
        dumps.push(dump.dump()?);
    }
    Ok(dumps)
}

/// A crashed kernel as each of `kinds`, of each at most `most` bytes.
fn kernel_dumps(most: usize, kinds: &[DumpType]) -> Result<Vec<Vec<u8>>> {
    const DRIVER: u64 = 0xffff_f803_4000_0000;
    const KERNEL: u64 = 0xffff_f803_2100_0000;
    let mut dumps = Vec::new();
    for machine in [Machine::X64, Machine::Arm64] {
        let mut forge = KernelForge::new(machine);
        let driver = ImageBuilder::new(machine, "myfault.sys")
            .function(Function::new("Dispatch").locals(0x38))
            .build();
        forge.add_driver(&driver, DRIVER, r"\SystemRoot\system32\drivers\myfault.sys");
        forge.add_unloaded_driver("gone.sys", 0xffff_f803_5000_0000, 0xffff_f803_5001_0000);
        let kernel = forge.kernel.clone();
        let crash = [
            FrameSpec::inside(&kernel, KERNEL, "KeBugCheckEx"),
            FrameSpec::calling(&driver, DRIVER, "Dispatch"),
            FrameSpec::calling(&kernel, KERNEL, "KiSystemStartup"),
        ];
        let system = forge.system_process();
        forge.add_thread(system, 8, ThreadState::Running { processor: 0 }, &crash);
        forge.bug_check = (0xd1, [0, 2, 1, DRIVER]);
        forge.comment = "a seed".into();
        for kind in kinds {
            let mut dump = forge.dump(*kind)?;
            dump.truncate(most);
            dumps.push(dump);
        }
    }
    Ok(dumps)
}

/// A legacy full user dump: one thread, one module, one region, an exception event.
fn full_user() -> Vec<u8> {
    const CONTEXT: u64 = 0x4d0;
    let (threads, states) = (0x60, 0x60 + CONTEXT);
    let modules = states + 0x50;
    let regions = modules + 0x40;
    let (event, version, data) = (regions + 48, regions + 48 + 0xb0, regions + 48 + 0xc0);
    let mut dump = vec![0u8; data as usize + 0x100];
    dump[..8].copy_from_slice(b"USERDU64");
    let mut put = |at: u64, value: u64, size: usize| {
        dump[at as usize..at as usize + size].copy_from_slice(&value.to_le_bytes()[..size]);
    };
    for (at, value) in [(0x10, 0x8664), (0x14, 1), (0x18, 1), (0x1c, 1)] {
        put(at, value, 4);
    }
    for (at, value) in [threads, modules, data, regions, event, states, version].into_iter().enumerate() {
        put(0x20 + 8 * at as u64, value, 8);
    }
    put(states, 1, 4);
    put(modules, 0x1_4000_0000, 8);
    put(modules + 8, 0x1000, 4);
    for (at, value) in [(0, 0x1_4000_0000), (8, 0x1_4000_0000), (24, 0x100)] {
        put(regions + at, value, 8);
    }
    put(event, 1, 4);
    dump
}

/// Input of the unwind targets: where the ip is, one directory entry of `entry` bytes whose unwind data
/// follows it, and a stack that returns into the same function.
fn unwind(entry: usize, words: &[u32]) -> Vec<u8> {
    const SIZE: usize = 0x200;
    let mut image = vec![0u8; SIZE];
    let (begin, data) = (0x40u32, entry as u32);
    let directory: &[u32] = if entry == 12 { &[begin, 0x100, data] } else { &[begin, data] };
    for (index, word) in directory.iter().chain(words).enumerate() {
        image[index * 4..index * 4 + 4].copy_from_slice(&word.to_le_bytes());
    }
    image[0x40..].fill(0x90);
    let stack = 0x10_0050u64.to_le_bytes().repeat(SIZE / 8);
    [&[0x50, 0, 0, 0][..], &image, &stack].concat()
}

/// A cabinet of one stored file.
fn cabinet(content: &[u8]) -> Vec<u8> {
    let name = b"a.dmp\0";
    let (folder, file) = (36u32, 44u32);
    let data = file + 16 + name.len() as u32;
    let size = data + 8 + content.len() as u32;
    let mut out = b"MSCF\0\0\0\0".to_vec();
    for word in [size, 0, file, 0] {
        out.extend(word.to_le_bytes());
    }
    // Version 1.3; one folder, one file; no flags, set 0, cabinet 0.
    out.extend([3, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    debug_assert_eq!(out.len(), folder as usize);
    out.extend(data.to_le_bytes());
    out.extend([1, 0, 0, 0]);
    out.extend((content.len() as u32).to_le_bytes());
    out.extend([0; 12]);
    out.extend(name);
    out.extend([0; 4]);
    out.extend([content.len() as u8, 0, content.len() as u8, 0]);
    out.extend(content);
    out
}

/// The good call of every tool, as lines of `tool_call`.
fn tool_calls() -> Result<Vec<Vec<u8>>> {
    let table = std::fs::read_to_string(root().join("tests/calls.json"))?;
    let table: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&table)?;
    let line = |tool: &String, row: &serde_json::Value| {
        let which = match row["on"].as_str() {
            Some("kernel") => "1",
            Some("image") => "2",
            _ => "0",
        };
        format!("{which} {tool} {}", row["good"]).into_bytes()
    };
    Ok(table.iter().map(|(tool, row)| line(tool, row)).collect())
}

/// A KD payload of this API number that names processor 0, an address and 16 bytes there.
fn kd_request(number: u32) -> Vec<u8> {
    let mut out = vec![0u8; 0x100];
    out[..4].copy_from_slice(&number.to_le_bytes());
    out[0x10..0x18].copy_from_slice(&0xffff_f803_2100_0000u64.to_le_bytes());
    out[0x18..0x1c].copy_from_slice(&16u32.to_le_bytes());
    out
}

/// A KD reset, and a request with its checksum (leader, type, bytes, id, sum; trailer).
fn kd_packets() -> Vec<u8> {
    let payload = kd_request(0x3146);
    let mut out = b"iiii\x06\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend(b"0000\x02\0");
    out.extend((payload.len() as u16).to_le_bytes());
    out.extend(0x8080_0000u32.to_le_bytes());
    out.extend(payload.iter().map(|byte| u32::from(*byte)).sum::<u32>().to_le_bytes());
    out.extend(payload);
    out.push(0xaa);
    out
}
