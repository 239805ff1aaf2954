//! Spec 40 section 9.8: each of these once gave somebody a wrong answer.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod assembled;

use analysis_ioctl::map::IoctlMap;
use assembled::assembler::{Assembler, BASE, Label, image};
use assembled::{codes, map, map_image, set};

#[test]
fn a_ladder_stepped_by_a_register() {
    let map = map(|asm, [a, b], default| {
        asm.immediate(5, 1, 0x22_2003);
        asm.jcc(4, a);
        asm.mov_immediate(0, 4);
        for _ in 0..3 {
            asm.rr(&[0x29], 1, 0); // sub ecx, eax
            asm.jcc(4, b);
        }
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2003, 0x22_2007, 0x22_200b, 0x22_200f]));
    assert!(map.complete);
}

#[test]
fn one_compare_for_two_branches_in_two_blocks() {
    let map = map(|asm, [a, b], default| {
        let (above, equal) = (asm.label(), asm.label());
        asm.immediate(7, 1, 0x22_2007);
        asm.jcc(7, above);
        asm.jmp(equal);
        asm.bind(equal);
        asm.jcc(4, a);
        asm.jmp(default);
        asm.bind(above);
        // Equality cannot hold where `ja` was taken.
        asm.jcc(4, b);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2007]));
    assert_eq!(map.codes[0].sites.len(), 1, "{map:?}");
}

#[test]
fn one_je_fed_by_two_compares() {
    let map = map(|asm, [a, _], default| {
        let (high, shared) = (asm.label(), asm.label());
        asm.immediate(7, 1, 0x30_0000);
        asm.jcc(7, high);
        asm.immediate(7, 1, 0x22_2003);
        asm.jmp(shared);
        asm.bind(high);
        asm.immediate(7, 1, 0x9c40_2007);
        asm.bind(shared);
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2003, 0x9c40_2007]));
}

#[test]
fn a_narrow_compare_is_no_code() {
    let map = map(|asm, [a, _], default| {
        asm.bytes(&[0x66, 0x81, 0xf9, 0x03, 0x20]); // cmp cx, 2003h
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert!(map.codes.is_empty(), "{map:?}");
    assert_eq!((map.patterns[0].mask.0, map.patterns[0].value.0), (0xffff, 0x2003));
}

#[test]
fn implicit_writers_end_what_was_known() {
    // xchg moves the code; mul and cmpxchg overwrite eax.
    let cases: [(&[u8], bool); 3] = [
        (&[0x91], true),                                         // xchg eax, ecx
        (&[0x89, 0xc8, 0x41, 0xf7, 0xe3], false),                // mov eax, ecx; mul r11d
        (&[0x89, 0xc8, 0x44, 0x0f, 0xb1, 0x5c, 0x24, 8], false), // cmpxchg [rsp+8], r11d
    ];
    for (bytes, kept) in cases {
        let map = map(|asm, [a, _], default| {
            asm.bytes(bytes);
            asm.immediate(7, 0, 0x22_2003); // cmp eax, 222003h
            asm.jcc(4, a);
            asm.jmp(default);
        });
        assert_eq!(codes(&map), if kept { set([0x22_2003]) } else { set([]) }, "{bytes:x?}");
        assert!(kept || !map.complete, "{bytes:x?}: a test of the code was lost and nothing says so");
    }
}

#[test]
fn flags_do_not_survive_a_call() {
    let map = map(|asm, [a, _], default| {
        let callee = asm.label();
        asm.immediate(7, 1, 0x22_2003);
        asm.bytes(&[0x48, 0x8d, 0x64, 0x24, 0xd8]); // lea rsp, [rsp-28h]
        asm.call(callee);
        asm.bytes(&[0x48, 0x8d, 0x64, 0x24, 0x28]);
        asm.jcc(4, a);
        asm.jmp(default);
        asm.bind(callee);
        let again = asm.label();
        asm.bind(again);
        asm.bytes(&[0x41, 0xff, 0xcb]); // dec r11d
        asm.jcc(5, again);
        asm.bytes(&[0xc3]);
    });
    assert!(map.codes.is_empty(), "{map:?}");
}

#[test]
fn a_tail_jump_into_a_shared_error_epilogue_refuses() {
    let map = map(|asm, [a, _], default| {
        let (refuse, epilogue) = (asm.label(), asm.label());
        // Status is set before the switch and stored in a shared tail.
        asm.mov_immediate(11, 0xc000_0022);
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(4, refuse);
        asm.immediate(7, 1, 0x22_2007);
        asm.jcc(4, a);
        asm.jmp(default);
        asm.bind(refuse);
        asm.jmp(epilogue);
        asm.bind(epilogue);
        asm.bytes(&[0x44, 0x89, 0x5a, 0x30]); // mov [rdx+30h], r11d
        asm.bytes(&[0x31, 0xc0]); // xor eax, eax takes nothing back
        asm.bytes(&[0xc3]);
    });
    let refused = map.codes.iter().find(|row| row.code.0 == 0x22_2003).unwrap();
    assert_eq!(refused.accepted, Some(false), "{refused:?}");
    assert_eq!(refused.status.as_ref().unwrap().value.0, 0xc000_0022);
    let accepted = map.codes.iter().find(|row| row.code.0 == 0x22_2007).unwrap();
    assert_eq!(accepted.accepted, Some(true));
}

/// `sub ecx, 222000h; cmp ecx, count-1; ja default`, then `dispatch`, then a table of `entries`.
fn table(count: u32, dispatch: &[u8], entries: impl FnOnce(&mut Assembler, [Label; 2], Label)) -> IoctlMap {
    map(|asm, leaves, default| {
        asm.immediate(5, 1, 0x22_2000);
        asm.immediate(7, 1, count - 1);
        asm.jcc(7, default);
        let table = asm.label();
        asm.lea(8, table);
        asm.bytes(dispatch);
        asm.bind(table);
        entries(asm, leaves, table);
    })
}

// movsxd r11, [r8+rcx*4]; add r11, r8; jmp r11
const RELATIVE: [u8; 10] = [0x4d, 0x63, 0x1c, 0x88, 0x4d, 0x01, 0xc3, 0x41, 0xff, 0xe3];

#[test]
fn relative_entries_may_be_negative_and_go_to_the_default() {
    let map = table(3, &RELATIVE, |asm, [a, b], table| {
        asm.entry(a, table);
        asm.entry(b, table);
        asm.entry(a, table);
    });
    assert_eq!(codes(&map), set([0x22_2000, 0x22_2001, 0x22_2002]));
    assert!(map.complete, "{map:?}");
}

#[test]
fn a_table_read_eight_bytes_wide_is_refused() {
    // mov r11, [r8+rcx*4]: the entries are four bytes.
    let wide = [0x4d, 0x8b, 0x1c, 0x88, 0x4d, 0x01, 0xc3, 0x41, 0xff, 0xe3];
    let map = table(3, &wide, |asm, [a, b], table| {
        for leaf in [a, b, a, b] {
            asm.entry(leaf, table);
        }
    });
    assert!(map.codes.is_empty() && !map.unresolved.is_empty(), "{map:?}");
}

#[test]
fn an_entry_outside_the_image_refuses_the_table() {
    let map = table(3, &RELATIVE, |asm, [a, b], table| {
        asm.entry(a, table);
        asm.entry(b, table);
        asm.bytes(&0x7000_0000u32.to_le_bytes());
    });
    assert!(map.codes.is_empty() && !map.unresolved.is_empty(), "{map:?}");
}

#[test]
fn a_short_table_refuses_itself() {
    // 4,096 slots are asked for; the section ends after three.
    let map = table(4096, &RELATIVE, |asm, [a, b], table| {
        for leaf in [a, b, a] {
            asm.entry(leaf, table);
        }
    });
    assert!(map.codes.is_empty() && !map.complete, "{map:?}");
}

#[test]
fn two_image_bases_are_one_too_many() {
    // add r11, r8 twice.
    let twice = [0x4d, 0x63, 0x1c, 0x88, 0x4d, 0x01, 0xc3, 0x4d, 0x01, 0xc3, 0x41, 0xff, 0xe3];
    let map = table(2, &twice, |asm, [a, b], table| {
        asm.entry(a, table);
        asm.entry(b, table);
    });
    assert!(map.codes.is_empty() && !map.unresolved.is_empty(), "{map:?}");
}

#[test]
fn the_index_is_used_again_after_the_load() {
    let map = map(|asm, [a, b], default| {
        let (next, table) = (asm.label(), asm.label());
        asm.immediate(5, 1, 0x22_2000);
        asm.immediate(7, 1, 1);
        asm.jcc(7, next);
        asm.lea(8, table);
        asm.bytes(&[0x49, 0x63, 0x0c, 0x88]); // movsxd rcx, [r8+rcx*4]: the index itself
        asm.bytes(&[0x4c, 0x01, 0xc1]); // add rcx, r8
        asm.bytes(&[0xff, 0xe1]); // jmp rcx
        asm.bind(table);
        asm.entry(a, table);
        asm.entry(b, table);
        asm.bind(next);
        // On this path ecx is still the code, less the base.
        asm.immediate(7, 1, 0x10);
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2000, 0x22_2001, 0x22_2010]));
}

#[test]
fn a_base_register_assigned_again_is_not_the_base() {
    let map = map(|asm, [a, b], default| {
        let table = asm.label();
        asm.immediate(5, 1, 0x22_2000);
        asm.immediate(7, 1, 1);
        asm.jcc(7, default);
        asm.lea(8, table);
        asm.bytes(&[0x4d, 0x63, 0x1c, 0x88]); // movsxd r11, [r8+rcx*4]
        asm.bytes(&[0x4c, 0x8b, 0x42, 0x10]); // mov r8, [rdx+10h]
        asm.bytes(&[0x4d, 0x01, 0xc3, 0x41, 0xff, 0xe3]);
        asm.bind(table);
        asm.entry(a, table);
        asm.entry(b, table);
    });
    assert!(map.codes.is_empty() && !map.unresolved.is_empty(), "{map:?}");
}

/// Opaque predicates: conditions that always hold, over values nobody knows. Time is bounded, nothing is
/// invented, both sides are looked at.
#[test]
fn opaque_predicates_cost_nothing_and_hide_nothing() {
    let map = map(|asm, [a, _], default| {
        for _ in 0..2000 {
            let next = asm.label();
            asm.bytes(&[0x45, 0x89, 0xd9]); // mov r9d, r11d
            asm.bytes(&[0x45, 0x0f, 0xaf, 0xc9]); // imul r9d, r9d
            asm.shift(5, 9, 1);
            asm.jcc(5, next);
            asm.bind(next);
        }
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2003]));
}

/// An instruction inside another: both are seen, neither is believed alone.
#[test]
fn overlapping_instructions() {
    let map = map(|asm, [a, _], default| {
        // jmp +1; mov eax, imm32 whose immediate is a compare and a branch of its own.
        asm.bytes(&[0xeb, 0x01, 0xb8]);
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2003]));
}

/// A million cases behind one index: refused, said, quick.
#[test]
fn a_million_cases_are_refused() {
    let map = table(1_000_000, &RELATIVE, |asm, [a, _], table| {
        for _ in 0..1_000_000 {
            asm.entry(a, table);
        }
    });
    assert!(map.codes.is_empty() && !map.complete, "{} codes", map.code_count);
    assert!(!map.unresolved.is_empty());
}

/// A chain of compares longer than any function may be.
#[test]
fn a_chain_without_end_is_cut() {
    let map = map(|asm, [a, _], default| {
        for i in 0..20_000 {
            asm.immediate(7, 1, 0x22_0000 + i * 4);
            asm.jcc(4, a);
        }
        asm.jmp(default);
    });
    assert!(!map.complete, "{} codes", map.code_count);
    assert!(!map.coverage.caps.is_empty(), "{:?}", map.coverage);
}

/// Random bytes: no panic, bounded.
#[test]
fn random_code_is_harmless() {
    let mut seed = 0x1234_5678_9abc_def1u64;
    for _ in 0..60 {
        let mut code = Vec::new();
        for _ in 0..4096 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            code.push(seed as u8);
        }
        let map = map_image(image(&code), BASE + 0x1000);
        let proved = map.codes.iter().flat_map(|row| &row.sites).filter(|site| site.proved).count();
        assert_eq!(proved, 0, "{map:?}");
    }
}

/// Nothing is known of codes by a routine that was not seen to read one.
#[test]
fn a_routine_that_reads_no_code_is_no_complete_answer() {
    let mut asm = Assembler::default();
    let entry = asm.label();
    asm.bind(entry);
    asm.mov_immediate(0, 0);
    asm.bytes(&[0xc3]);
    let bytes = asm.finish();
    let entry = asm.address(entry);
    let map = map_image(bytes, entry);
    assert!(map.never_read() && !map.complete && map.codes.is_empty(), "{map:?}");
    let text = analysis_ioctl::map::render(&map);
    assert!(text.contains("no control code was seen being read") && !text.contains("complete"), "{text}");
}
