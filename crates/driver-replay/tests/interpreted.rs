//! The interpreter runs the test drivers' dispatch routines on single codes, on every machine: listed
//! codes are taken, their neighbours get the default status.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use driver_replay::{EntryKind, PlacedImage, discover, replay, stack_bytes};
use emulate::{
    Call, CallAction, Emulator, End, Host, Limits, Request, Routine, Value, Verdict, WdfTable, explore,
    reaches,
};
use pe::{FileImage, ImageSourceExt};
use target::Halt;

/// Sources with one plain routine whose handlers succeed.
const SOURCES: [(&str, &str); 12] = [
    ("d01", "d01_sparse.c"),
    ("d02", "d02_dense.c"),
    ("d03", "d03_bits.c"),
    ("d04", "d04_helper.c"),
    ("d06", "d06_scan.c"),
    ("d06b", "d06b_scan.c"),
    ("d12", "d12_majors.c"),
    ("d16", "d16_decoy.c"),
    ("d19", "d19_hash.c"),
    ("d27", "d27_devices.c"),
    ("d10", "d10_ladder.s"),
    ("d11", "d11_triple.s"),
];

fn numbers(source: &str, key: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(test_data::fixture("drivers/src").join(source)).unwrap();
    let prefix = format!("// {key}: ");
    let lines = text.lines().filter_map(|l| l.strip_prefix(&prefix));
    lines
        .flat_map(str::split_whitespace)
        .filter_map(|word| u32::from_str_radix(word.strip_prefix("0x")?, 16).ok())
        .collect()
}

struct InImage {
    image: PlacedImage,
    /// What an unbound import slot holds, and the routine it stands for.
    imports: HashMap<u64, String>,
}

impl InImage {
    fn new(image: &PlacedImage) -> Self {
        let mut imports = HashMap::new();
        for dll in image.pe.imports(image.bytes.as_ref()) {
            for import in dll.imports {
                let held = if image.pe.is_64 {
                    image.bytes.u64(import.slot)
                } else {
                    image.bytes.u32(import.slot).map(u64::from)
                };
                imports.insert(held.unwrap(), import.name.unwrap());
            }
        }
        Self { image: image.clone(), imports }
    }
}

impl Host for InImage {
    fn call(&mut self, emulator: &mut Emulator, call: &Call) -> CallAction {
        match call.target {
            Some(target) if self.image.contains(target) => CallAction::Enter,
            Some(target) => {
                let popped = self.imports.get(&target).and_then(|name| stack_bytes(name));
                let popped = popped.unwrap_or_else(|| emulate::stack_bytes::inferred(emulator, call));
                CallAction::Return { value: Value::UNKNOWN, popped }
            }
            None => CallAction::Return { value: Value::UNKNOWN, popped: 0 },
        }
    }
}

fn routine(image: &PlacedImage, kind: EntryKind, wdf: Option<WdfTable>) -> Routine {
    let result = replay(image, &Halt::unbounded());
    let found = discover(image, &result);
    let entry = found.entries.iter().find(|e| e.kind == kind).unwrap();
    let (base, bytes) = (image.base, Rc::clone(&image.bytes));
    Routine {
        machine: image.machine,
        entry: entry.address.0,
        convention: kind.convention(),
        image: base..base + u64::from(image.pe.size_of_image),
        bytes: Rc::new(move |address: u64, buffer: &mut [u8]| {
            bytes.read_rva((address - base) as u32, buffer)
        }),
        wdf,
    }
}

fn place(path: &Path) -> PlacedImage {
    let file = FileImage::new(std::fs::read(path).unwrap()).unwrap();
    PlacedImage::of_file(Rc::new(file), None, path.to_str().unwrap()).unwrap()
}

fn request(code: u32) -> Request {
    Request { code, major: 0x0e, input_length: Some(64), output_length: Some(64) }
}

/// The status the routine returns for a code; every path must agree.
fn answer(image: &PlacedImage, routine: &Routine, code: u32) -> u32 {
    let emulator = emulate::enter(routine, &request(code));
    let limits = Limits { steps: 20_000, forks: 256 };
    let run = explore(emulator, &limits, &Halt::unbounded(), &mut InImage::new(image));
    assert!(!run.cut_short && !run.ends.is_empty(), "{code:#x}");
    let statuses: Vec<u32> = run
        .ends
        .iter()
        .map(|(end, _)| match end {
            End::Returned(value) => value.low(4).expect("a known status") as u32,
            other => panic!("{code:#x}: {other:?}"),
        })
        .collect();
    assert!(statuses.iter().all(|s| *s == statuses[0]), "{code:#x}: {statuses:x?}");
    statuses[0]
}

#[test]
fn listed_codes_are_taken_and_their_neighbours_are_not() {
    let mut checked = 0;
    for build in std::fs::read_dir(test_data::fixture("drivers/bin")).unwrap() {
        let build = build.unwrap().path();
        for (name, source) in SOURCES {
            let path = build.join(format!("{name}.sys"));
            if !path.is_file() {
                continue;
            }
            let image = place(&path);
            let routine = routine(&image, EntryKind::Wdm, None);
            let (codes, default) = (numbers(source, "codes"), numbers(source, "default"));
            let default = default.first().copied().unwrap_or(0xc000_0010);
            for &code in &codes {
                assert_ne!(answer(&image, &routine, code), default, "{} {code:#x}", path.display());
                for other in [code ^ 1, code.wrapping_add(4), code ^ 0x8000_0000, code.wrapping_sub(0x100)] {
                    if !codes.contains(&other) {
                        assert_eq!(answer(&image, &routine, other), default, "{} {other:#x}", path.display());
                    }
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 500, "{checked}");
}

/// In a KMDF client the code comes as the fifth argument, or from `WdfRequestGetParameters`: the handler
/// of a code is reached with it, and with no other.
#[test]
fn framework_callbacks_see_the_code() {
    for build in ["x86-clang", "x64-clang", "x64-gcc-o0", "x64-gcc-o2", "x86-gcc", "arm64-clang"] {
        let image = place(&test_data::fixture("drivers/bin").join(build).join("d28.sys"));
        let result = replay(&image, &Halt::unbounded());
        let bind = discover(&image, &result).bind.unwrap();
        let wdf = WdfTable {
            table: bind.function_table.0,
            pointer: bind.table_is_pointer,
            count: bind.function_count,
        };
        for (kind, code) in
            [(EntryKind::WdfDeviceControl, 0x0022_2003), (EntryKind::WdfInCallerContext, 0x0022_e003)]
        {
            let routine = routine(&image, kind, Some(wdf));
            let called = handlers(&image, &routine, code);
            assert!(!called.is_empty(), "{build} {kind:?}");
            let unknown = |_: &Call| None;
            let limits = Limits::default();
            let halt = Halt::unbounded();
            for handler in called {
                let hit =
                    |code| reaches(&routine, &request(code), handler, &[], &unknown, &limits, &halt).verdict;
                assert_eq!(hit(code), Verdict::Reached, "{build} {kind:?}");
                assert_eq!(hit(code ^ 4), Verdict::NotReached, "{build} {kind:?}");
            }
        }
    }
}

/// Functions called directly that `code` reaches and `code ^ 4` does not.
fn handlers(image: &PlacedImage, routine: &Routine, code: u32) -> Vec<u64> {
    let hit = |code: u32, handler: u64| {
        reaches(routine, &request(code), handler, &[], &|_| None, &Limits::default(), &Halt::unbounded())
            .verdict
    };
    let mut all = called(image);
    all.retain(|&t| hit(code, t) == Verdict::Reached && hit(code ^ 4, t) == Verdict::NotReached);
    all
}

/// Targets of direct calls in the image's code.
fn called(image: &PlacedImage) -> Vec<u64> {
    let text = image.pe.sections.iter().find(|s| s.is_executable()).unwrap();
    let bytes = image.bytes.prefix(text.rva, text.virtual_size as usize);
    let start = image.base + u64::from(text.rva);
    let mut found: Vec<u64> = if image.machine == target::Machine::Arm64 {
        let words = (0u64..).zip(bytes.chunks_exact(4));
        let calls = words.filter_map(|(i, w)| {
            let word = u32::from_le_bytes(w.try_into().unwrap());
            let offset = i64::from((word << 6) as i32 >> 6) * 4;
            (word >> 26 == 0x25).then(|| (start + 4 * i).wrapping_add_signed(offset))
        });
        calls.collect()
    } else {
        let bits = if image.pe.is_64 { 64 } else { 32 };
        iced_x86::Decoder::with_ip(bits, &bytes, start, iced_x86::DecoderOptions::NONE)
            .into_iter()
            .filter(|i| i.is_call_near())
            .map(|i| i.near_branch_target())
            .collect()
    };
    found.retain(|&t| image.contains(t));
    found.sort_unstable();
    found.dedup();
    found
}
