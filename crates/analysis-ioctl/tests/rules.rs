//! Rules of spec 40 sections 3.3 to 3.8 that no driver of the fixtures needs: each fails when its rule
//! is taken out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod assembled;

use assembled::{codes, map, set};

/// 3.3: the code is at an exact place. An index makes it some other structure's element.
#[test]
fn an_indexed_read_is_not_the_code() {
    let with = |load: &[u8]| {
        map(|asm, [a, _], default| {
            asm.bytes(&[0x4d, 0x8b, 0x1b]); // mov r11, [r11]
            asm.bytes(load);
            asm.immediate(7, 0, 0x22_2003);
            asm.jcc(4, a);
            asm.jmp(default);
        })
    };
    // mov eax, [r11+18h]: somebody's field at the code's offset, a code nothing proves.
    let plain = with(&[0x41, 0x8b, 0x43, 0x18]);
    assert_eq!((codes(&plain), plain.unproved_count), (set([0x22_2003]), 1), "{plain:?}");
    let indexed = with(&[0x43, 0x8b, 0x44, 0x8b, 0x18]); // mov eax, [r11+r9*4+18h]
    assert!(codes(&indexed).is_empty(), "{indexed:?}");
}

/// 3.3: a narrower read is so many bits of the code, never the code.
#[test]
fn half_a_field_is_half_the_code() {
    let map = map(|asm, [a, _], default| {
        asm.bytes(&[0x66, 0x41, 0x81, 0x7a, 0x18, 0x03, 0x20]); // cmp word [r10+18h], 2003h
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert!(map.codes.is_empty(), "{map:?}");
    assert_eq!((map.patterns[0].mask.0, map.patterns[0].value.0), (0xffff, 0x2003));
}

/// 3.3: a store through a pointer nobody knows may hit a slot whose address is known elsewhere, and
/// only such a slot.
#[test]
fn a_store_through_an_unknown_pointer_hits_what_escaped() {
    for escapes in [false, true] {
        let map = map(|asm, [a, _], default| {
            asm.bytes(&[0x89, 0x4c, 0x24, 0xf0]); // mov [rsp-10h], ecx
            asm.bytes(&[0x48, 0x8d, 0x44, 0x24, 0xf0]); // lea rax, [rsp-10h]
            if escapes {
                asm.bytes(&[0x49, 0x89, 0x03]); // mov [r11], rax
            }
            asm.bytes(&[0x4d, 0x89, 0x01]); // mov [r9], r8
            asm.bytes(&[0x8b, 0x44, 0x24, 0xf0]); // mov eax, [rsp-10h]
            asm.immediate(7, 0, 0x22_2003);
            asm.jcc(4, a);
            asm.jmp(default);
        });
        let wanted = if escapes { set([]) } else { set([0x22_2003]) };
        assert_eq!((codes(&map), map.complete), (wanted, !escapes), "{escapes}: {map:?}");
    }
}

// call r12: nobody knows what it does.
const UNKNOWN_CALL: [u8; 3] = [0x41, 0xff, 0xd4];

/// 3.3: a call takes the volatile registers, and no others.
#[test]
fn a_call_takes_the_volatile_registers() {
    for (register, kept) in [(0, false), (2, false), (8, false), (11, false), (3, true), (13, true)] {
        let map = map(|asm, [a, _], default| {
            asm.mov(register, 1);
            asm.bytes(&UNKNOWN_CALL);
            asm.immediate(7, register, 0x22_2003);
            asm.jcc(4, a);
            asm.jmp(default);
        });
        let wanted = if kept { set([0x22_2003]) } else { set([]) };
        assert_eq!(codes(&map), wanted, "register {register}: {map:?}");
    }
}

/// 3.3: flags do not survive a call whose callee nobody sees.
#[test]
fn flags_before_an_unknown_call_are_not_those_after() {
    let map = map(|asm, [a, _], default| {
        asm.immediate(7, 1, 0x22_2003);
        asm.bytes(&UNKNOWN_CALL);
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert!(map.codes.is_empty() && map.disputed.is_empty(), "{map:?}");
}

/// 3.3: where two paths of one compare meet again, both paths' codes are there.
#[test]
fn codes_of_paths_that_meet_are_united() {
    let map = map(|asm, [a, b], default| {
        let meet = asm.label();
        asm.immediate(7, 1, 0x30_0000);
        asm.jcc(7, meet);
        asm.bytes(&[0x90]); // nop
        asm.bind(meet);
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(4, a);
        asm.immediate(7, 1, 0x9c40_2007);
        asm.jcc(4, b);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2003, 0x9c40_2007]), "{map:?}");
    assert!(map.complete, "{map:?}");
}

/// 3.3: of several live compares each says something of its own path's codes only.
#[test]
fn a_compare_says_nothing_of_codes_that_never_came_to_it() {
    let map = map(|asm, [a, b], default| {
        let (high, shared) = (asm.label(), asm.label());
        asm.immediate(7, 1, 0x40_0000);
        asm.jcc(7, high);
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(4, a);
        asm.immediate(7, 1, 0x22_2007);
        asm.jmp(shared);
        asm.bind(high);
        // Codes are above 400000h here: this never holds.
        asm.immediate(7, 1, 0x22_200b);
        asm.bind(shared);
        asm.jcc(4, b);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2003, 0x22_2007]), "{map:?}");
    assert!(map.complete && map.disputed.is_empty(), "{map:?}");
}

/// 3.3: a decision on the code that is not modelled is said.
#[test]
fn a_test_of_what_became_of_the_code_is_untracked() {
    let map = map(|asm, [a, b], default| {
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(4, a);
        asm.mov(0, 1);
        asm.bytes(&[0x41, 0xf7, 0xe3]); // mul r11d
        asm.immediate(7, 0, 0x22_2007);
        asm.jcc(4, b);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2003]));
    assert!(!map.untracked.is_empty() && !map.complete, "{map:?}");
}

/// 3.3: a write of the low byte leaves the others.
#[test]
fn a_partial_write_composes() {
    let map = map(|asm, [a, _], default| {
        asm.mov(0, 1);
        asm.bytes(&[0xb0, 0x03]); // mov al, 3
        asm.immediate(7, 0, 0x22_2003);
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert_eq!(map.code_count, 256, "{map:?}");
    assert!(map.codes.iter().all(|row| row.code.0 & 0xffff_ff00 == 0x22_2000), "{map:?}");
}

/// 3.3: what the routine wrote into the stack location is not what the caller sent.
#[test]
fn a_written_stack_location_holds_no_code() {
    let map = map(|asm, [a, _], default| {
        asm.bytes(&[0x45, 0x89, 0x5a, 0x18]); // mov [r10+18h], r11d
        asm.bytes(&[0x41, 0x8b, 0x42, 0x18]); // mov eax, [r10+18h]
        asm.immediate(7, 0, 0x22_2003);
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert!(map.codes.iter().all(|row| row.sites.iter().all(|site| !site.proved)), "{map:?}");
}

/// 3.3: the routine is entered with one major function, and what it does for others is not of interest.
#[test]
fn other_majors_have_other_codes() {
    let map = map(|asm, [a, b], default| {
        let read = asm.label();
        asm.bytes(&[0x41, 0x80, 0x3a, 0x03]); // cmp byte [r10], 3
        asm.jcc(4, read);
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(4, a);
        asm.jmp(default);
        asm.bind(read);
        asm.immediate(7, 1, 0x22_2007);
        asm.jcc(4, b);
        asm.jmp(default);
    });
    assert_eq!(codes(&map), set([0x22_2003]), "{map:?}");
    assert!(map.complete, "{map:?}");
}

/// 3.3: a slot whose address a call was given may hold anything afterwards.
#[test]
fn a_slot_handed_to_a_call_is_the_callees() {
    for handed in [false, true] {
        let map = map(|asm, [a, _], default| {
            asm.stack(0x89, 1, 0x40); // mov [rsp+40h], ecx
            if handed {
                asm.bytes(&[0x48, 0x8d, 0x4c, 0x24, 0x40]); // lea rcx, [rsp+40h]
            }
            asm.bytes(&UNKNOWN_CALL);
            asm.stack(0x8b, 0, 0x40);
            asm.immediate(7, 0, 0x22_2003);
            asm.jcc(4, a);
            asm.jmp(default);
        });
        let wanted = if handed { set([]) } else { set([0x22_2003]) };
        assert_eq!(codes(&map), wanted, "{handed}: {map:?}");
    }
}

/// 3.3: once the code is known, what else is compared is no code of somebody's.
#[test]
fn a_field_compared_after_the_decision_is_no_code() {
    let map = map(|asm, [a, _], default| {
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(5, default);
        asm.bytes(&[0x4d, 0x8b, 0x1b]); // mov r11, [r11]
        asm.bytes(&[0x41, 0x81, 0x7b, 0x18, 0x07, 0x20, 0x22, 0]); // cmp dword [r11+18h], 222007h
        asm.jcc(4, a);
        asm.jmp(default);
    });
    assert_eq!((codes(&map), map.unproved_count), (set([0x22_2003]), 0), "{map:?}");
}

/// 3.4: a range is a list of cases up to 64 codes, a pattern beyond.
#[test]
fn short_ranges_are_cases_and_long_ones_are_not() {
    for (count, listed) in [(64, 64), (200, 0)] {
        let map = map(|asm, [a, _], default| {
            asm.immediate(5, 1, 0x22_2000);
            asm.immediate(7, 1, count);
            asm.jcc(2, a);
            asm.jmp(default);
        });
        assert_eq!(map.code_count, listed, "{count}: {map:?}");
        assert!(listed > 0 || !map.patterns.is_empty(), "{count}: {map:?}");
    }
}

/// 3.4: the default is where most of all codes go; four equal quarters have none.
#[test]
fn a_quarter_of_all_codes_is_no_default() {
    let map = map(|asm, [a, b], _| {
        let (third, fourth) = (asm.label(), asm.label());
        asm.immediate(7, 1, 0x4000_0000);
        asm.jcc(2, a);
        asm.immediate(7, 1, 0x8000_0000);
        asm.jcc(2, b);
        asm.immediate(7, 1, 0xc000_0000);
        asm.jcc(2, third);
        asm.jmp(fourth);
        for (leaf, status) in [(third, 0xc000_000d), (fourth, 0xc000_0022)] {
            asm.bind(leaf);
            asm.mov_immediate(0, status);
            asm.bytes(&[0xc3]);
        }
    });
    assert!(map.default.is_none(), "{map:?}");
}

// movsxd r11, [r8+rcx*4]; add r11, r8; jmp r11
const RELATIVE: [u8; 10] = [0x4d, 0x63, 0x1c, 0x88, 0x4d, 0x01, 0xc3, 0x41, 0xff, 0xe3];

/// 3.5: a slot that leads into the middle of an instruction, and one behind the end of the image,
/// each refuse the whole table.
#[test]
fn one_bad_slot_refuses_the_table() {
    for (count, inside) in [(3, false), (3, true), (1100, false)] {
        let map = map(|asm, [a, b], default| {
            let (table, middle) = (asm.label(), asm.label());
            asm.immediate(5, 1, 0x22_2000);
            asm.bytes(&[0xb8]); // mov eax, 0c3909090h: nop, nop, nop, ret from its second byte on
            asm.bind(middle);
            asm.bytes(&[0x90, 0x90, 0x90, 0xc3]);
            asm.immediate(7, 1, count - 1);
            asm.jcc(7, default);
            asm.lea(8, table);
            asm.bytes(&RELATIVE);
            asm.bind(table);
            for leaf in [a, if inside { middle } else { b }, a] {
                asm.entry(leaf, table);
            }
        });
        let good = count == 3 && !inside;
        let wanted = if good { set([0x22_2000, 0x22_2001, 0x22_2002]) } else { set([]) };
        assert_eq!((codes(&map), map.unresolved.is_empty()), (wanted, good), "{count} {inside}: {map:?}");
    }
}

/// 3.6: a request handed on deeper than is followed is said, whatever was found above.
#[test]
fn a_request_handed_on_too_deep_is_said() {
    for depth in [3, 6] {
        let map = map(|asm, [a, b], default| {
            let labels: Vec<_> = (0..depth).map(|_| asm.label()).collect();
            asm.immediate(7, 1, 0x22_2003);
            asm.jcc(4, a);
            asm.jmp(labels[0]);
            for pair in labels.windows(2) {
                asm.bind(pair[0]);
                asm.bytes(&[0x48, 0x83, 0xec, 0x28]); // sub rsp, 28h
                asm.call(pair[1]);
                asm.bytes(&[0x48, 0x83, 0xc4, 0x28, 0xc3]); // add rsp, 28h; ret
            }
            asm.bind(labels[depth - 1]);
            asm.immediate(7, 1, 0x22_2007);
            asm.jcc(4, b);
            // Too long to be run in place.
            for _ in 0..70 {
                asm.bytes(&[0x41, 0xff, 0xc1]); // inc r9d
            }
            asm.jmp(default);
        });
        let deep = depth > 4;
        let wanted = if deep { set([0x22_2003]) } else { set([0x22_2003, 0x22_2007]) };
        assert_eq!((codes(&map), map.untracked.is_empty()), (wanted, !deep), "{depth}: {map:?}");
        assert_eq!(map.complete, !deep, "{depth}");
    }
}

/// 3.6: what a decided code is handed to is its handler, and is not looked into for more codes.
#[test]
fn a_handler_is_not_searched_for_codes() {
    let map = map(|asm, [_, b], default| {
        let handler = asm.label();
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(5, default);
        asm.bytes(&[0x48, 0x83, 0xec, 0x28]);
        asm.call(handler);
        asm.bytes(&[0x48, 0x83, 0xc4, 0x28, 0xc3]);
        asm.bind(handler);
        asm.bytes(&[0x4c, 0x8b, 0x92, 0xb8, 0, 0, 0]); // mov r10, [rdx+0B8h]
        asm.bytes(&[0x41, 0x81, 0x7a, 0x18, 0x03, 0x20, 0x22, 0]); // cmp dword [r10+18h], 222003h
        asm.jcc(4, b);
        for _ in 0..70 {
            asm.bytes(&[0x41, 0xff, 0xc1]); // inc r9d
        }
        asm.bytes(&UNKNOWN_CALL);
        asm.bytes(&[0xc3]);
    });
    assert_eq!(codes(&map), set([0x22_2003]), "{map:?}");
    assert!(map.codes[0].sites.iter().all(|site| site.via.is_empty()), "{map:?}");
    assert!(map.codes[0].handler.is_some(), "{map:?}");
}

/// 3.7: only an error refuses; a warning is an answer.
#[test]
fn a_warning_is_no_refusal() {
    for (status, accepted) in [(0xc000_0022, false), (0x8000_0005, true), (0x4000_0000, true), (0x103, true)]
    {
        let map = map(|asm, _, default| {
            asm.immediate(7, 1, 0x22_2003);
            asm.jcc(5, default);
            asm.mov_immediate(0, status);
            asm.bytes(&[0xc3]);
        });
        assert_eq!(map.codes[0].accepted, Some(accepted), "{status:#x}: {map:?}");
        assert_eq!(map.codes[0].status.as_ref().unwrap().value.0, status);
    }
}

/// 3.7: refused is what every path refuses; the status counts at its own offset only, and one that is
/// stored and not known tells nothing.
#[test]
fn a_refusal_is_on_every_path_and_in_the_status() {
    let refused: &[u8] = &[0xb8, 0x22, 0, 0, 0xc0, 0xc3]; // mov eax, 0c0000022h; ret
    let unknown: &[u8] = &[0x44, 0x89, 0xc8, 0xc3]; // mov eax, r9d; ret
    let stored: &[u8] = &[0x44, 0x89, 0x4a, 0x30, 0x31, 0xc0, 0xc3]; // mov [rdx+30h], r9d; xor eax, eax; ret
    let beside: &[u8] = &[0xc7, 0x42, 0x38, 0x22, 0, 0, 0xc0, 0x31, 0xc0, 0xc3]; // mov [rdx+38h], ...
    let cases = [
        (refused, refused, Some(false)),
        (refused, unknown, None),
        (stored, stored, None),
        (beside, beside, Some(true)),
    ];
    for (one, other, accepted) in cases {
        let map = map(|asm, _, default| {
            let second = asm.label();
            asm.immediate(7, 1, 0x22_2003);
            asm.jcc(5, default);
            asm.immediate(7, 11, 0);
            asm.jcc(4, second);
            asm.bytes(one);
            asm.bind(second);
            asm.bytes(other);
        });
        assert_eq!(map.codes[0].accepted, accepted, "{one:x?} {other:x?}: {map:?}");
    }
}

/// 3.7: lengths are those of all accepted paths; a check whose other side is accepted too proves nothing.
#[test]
fn lengths_of_every_accepted_path() {
    let compare = |length: u8| [0x41, 0x83, 0x7a, 0x10, length]; // cmp dword [r10+10h], length
    let either = map(|asm, [a, _], default| {
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(5, default);
        asm.bytes(&compare(16));
        asm.jcc(4, a);
        asm.bytes(&compare(32));
        asm.jcc(4, a);
        asm.jmp(default);
    });
    let range = either.codes[0].in_range.unwrap_or_else(|| panic!("{either:?}"));
    assert_eq!((range.min, range.max, either.codes[0].in_size), (Some(16), Some(32), None));
    let free = map(|asm, [a, b], default| {
        asm.immediate(7, 1, 0x22_2003);
        asm.jcc(5, default);
        asm.bytes(&compare(16));
        asm.jcc(4, a);
        asm.jmp(b);
    });
    let row = &free.codes[0];
    assert!(row.evidence.is_empty() && row.in_size.is_none() && row.in_range.is_none(), "{free:?}");
}
