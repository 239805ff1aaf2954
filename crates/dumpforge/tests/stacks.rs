//! What the builder lays out, the unwinder finds.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use dumpforge::{FrameSpec, Function, Image, ImageBuilder, StackBuilder};
use target::{Guid, Machine};

const BASE: u64 = 0x7ff6_1234_0000;

fn functions(machine: Machine) -> Image {
    let saved: [&[usize]; 4] = if machine == Machine::Arm64 {
        [&[19], &[19, 20], &[19, 20, 21], &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28]]
    } else {
        [&[3], &[3, 6], &[5, 12, 13], &[3, 5, 6, 7, 12, 13, 14, 15]]
    };
    ImageBuilder::new(machine, "frames.dll")
        .pdb(Guid(*b"0123456789abcdef"), 2, "frames.pdb")
        .function(Function::new("small").locals(0x28).exported())
        .function(Function::new("one").saving(saved[0]).locals(0x20).exported())
        .function(Function::new("two").saving(saved[1]).locals(0x78).calling(3))
        .function(Function::new("three").saving(saved[2]).locals(0x80))
        .function(Function::new("all").saving(saved[3]).locals(0x188))
        .function(Function::new("framed").saving(saved[0]).locals(0x60).framed(0x20))
        .function(Function::new("bare").locals(0).saving(saved[1]))
        .build()
}

#[test]
fn every_function_is_unwound_from_its_body() {
    for machine in [Machine::X64, Machine::Arm64] {
        let image = functions(machine);
        let all: Vec<FrameSpec> = ["small", "one", "two", "three", "all", "framed", "bare", "one"]
            .iter()
            .map(|name| FrameSpec::calling(&image, BASE, name))
            .collect();
        for skipped in 0..all.len() {
            let mut frames = all[skipped..].to_vec();
            frames[0].ip = BASE + u64::from(frames[0].facts.body);
            let stack = StackBuilder::new(machine, 0x50_0000, 0x4000).build(&frames, 0);
            support::World::new(&stack, &[(BASE, &image)]).check(&stack);
        }
    }
}

#[test]
fn the_innermost_frame_is_unwound_from_every_instruction() {
    for machine in [Machine::X64, Machine::Arm64] {
        let image = functions(machine);
        let outer = [FrameSpec::calling(&image, BASE, "two"), FrameSpec::calling(&image, BASE, "small")];
        let mut cases = 0;
        for position in image.positions.values().flatten() {
            let frames = [&[FrameSpec::at(BASE, position)], &outer[..]].concat();
            let stack = StackBuilder::new(machine, 0x50_0000, 0x4000).build(&frames, 0);
            support::World::new(&stack, &[(BASE, &image)]).check(&stack);
            cases += 1;
        }
        assert!(cases > 60, "{cases}");
    }
}

#[test]
fn traps_are_unwound_into_any_instruction() {
    let image = ImageBuilder::new(Machine::X64, "traps.sys")
        .function(Function::new("inner"))
        .function(Function::new("fault").saving(&[5]).locals(0x158).trap_handler(true))
        .function(Function::new("interrupt").locals(0x40).trap_handler(false))
        .function(Function::new("victim").saving(&[3, 6]).locals(0x98))
        .function(Function::new("outer"))
        .build();
    for handler in ["fault", "interrupt"] {
        for position in &image.positions["victim"] {
            let frames = [
                FrameSpec::inside(&image, BASE, "inner"),
                FrameSpec::calling(&image, BASE, handler),
                FrameSpec::at(BASE, position),
                FrameSpec::calling(&image, BASE, "outer"),
            ];
            let stack = StackBuilder::new(Machine::X64, 0x50_0000, 0x4000).build(&frames, 0);
            support::World::new(&stack, &[(BASE, &image)]).check(&stack);
        }
    }
}

#[test]
fn a_built_image_is_a_pe_image() {
    for machine in [Machine::X64, Machine::Arm64] {
        let image = functions(machine);
        let source = pe::FileImage::new(&image.file[..]).unwrap();
        let pe = source.pe();
        assert_eq!((pe.machine, pe.size_of_image), (Some(machine), image.size));
        let exports = pe.exports(&source);
        let mut named: Vec<_> = exports.iter().filter_map(|e| Some((e.name.clone()?, e.rva()?))).collect();
        named.sort();
        assert_eq!(named, [("one".to_owned(), image.rva("one")), ("small".to_owned(), image.rva("small"))]);
        assert_eq!(pe.pdb(&source).unwrap().key(), format!("{}2", Guid(*b"0123456789abcdef")));
        assert_eq!(pe.exception_table(&source).unwrap().len(), 7);
        assert_eq!(pe.is_executable(image.rva("small")), Some(true));
        assert_eq!(image.mapped_at(BASE).len(), image.size as usize);
    }
}

#[test]
fn facts_of_built_functions_are_those_of_their_unwind_codes() {
    let image = functions(Machine::X64);
    for (name, facts) in &image.functions {
        let read = image.x64_facts(facts.body).unwrap();
        assert_eq!(read.frame_size, facts.frame_size, "{name}");
        assert_eq!(read.saved, facts.saved, "{name}");
        assert_eq!(read.frame_pointer, facts.frame_pointer, "{name}");
        assert_eq!((read.begin, read.end, read.body), (facts.begin, facts.end, facts.body), "{name}");
    }
}

/// Microsoft's compiler's functions: stacks built from their own unwind codes.
#[test]
fn stacks_through_compiled_functions() {
    let Some(data) = test_data::shared() else { return };
    let image =
        Image::from_file("xcpt4.exe", std::fs::read(data.join("pe/ms_seh/x64/xcpt4.exe")).unwrap()).unwrap();
    let source = pe::FileImage::new(&image.file[..]).unwrap();
    let table = source.pe().exception_table(&source).unwrap();
    let mut usable = Vec::new();
    for index in 0..table.len() {
        let entry = table.get(index).unwrap();
        if let Some(facts) = image.x64_facts(entry.begin)
            && facts.body + 16 < facts.end
            && facts.frame_pointer.is_none()
            && facts.frame_size > 0
        {
            usable.push(facts);
        }
    }
    assert!(usable.len() > 100, "{}", usable.len());
    for facts in &usable {
        // The instruction behind the prolog is in no epilog; above it the function itself again.
        let outer = FrameSpec { ip: BASE + u64::from(usable[0].body), facts: usable[0].clone() };
        let frames = [FrameSpec { ip: BASE + u64::from(facts.body), facts: facts.clone() }, outer];
        let stack = StackBuilder::new(Machine::X64, 0x50_0000, 0x2_0000).build(&frames, 0);
        support::World::new(&stack, &[(BASE, &image)]).check(&stack);
    }
}
