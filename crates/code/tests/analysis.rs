//! Memory operands, calls before return addresses, backwards disassembly.
#![allow(clippy::unwrap_used)]

use code::{
    MemoryAccess, StackMotion, disassemble, disassemble_before, is_call_before, memory_operands, stack_motion,
};
use proptest::prelude::*;
use target::{Context, ContextSource, Flow, Machine, RegionMemory, reg};

fn context(machine: Machine) -> Context {
    let mut context = Context::new(machine, ContextSource::Exception);
    for number in 0..16 {
        context.set(number, 0x1000 * (number as u64 + 1));
    }
    if machine == Machine::Arm64 {
        for number in 16..31 {
            context.set(number, 0x1000 * (number as u64 + 1));
        }
    }
    context.set_sp(0x5_0000);
    context.set_ip(0x40_0000);
    context
}

#[test]
fn x64_operands_have_addresses() {
    let mut c = context(Machine::X64);
    // mov dword ptr [rcx+rdx*4+10h],eax
    let o = memory_operands(&c, &[0x89, 0x44, 0x91, 0x10]);
    assert_eq!((o.len(), o[0].address, o[0].size), (1, Some(0x2000 + 0x3000 * 4 + 0x10), 4));
    assert_eq!((o[0].access, o[0].registers.clone()), (MemoryAccess::Write, vec!["rcx", "rdx"]));
    assert!(!o[0].non_canonical && !o[0].implicit);
    // mov rax,qword ptr [rip+100h]
    let o = memory_operands(&c, &[0x48, 0x8b, 0x05, 0, 1, 0, 0]);
    assert_eq!((o[0].address, o[0].access), (Some(0x40_0107), MemoryAccess::Read));
    // push qword ptr [rax]: an operand and an implicit store
    let o = memory_operands(&c, &[0xff, 0x30]);
    assert_eq!((o[0].address, o[0].implicit), (Some(0x1000), false));
    assert_eq!((o[1].address, o[1].implicit, o[1].access), (Some(0x4_fff8), true, MemoryAccess::Write));
    // add qword ptr [rcx],rax with a pointer full of text
    c.set(reg::RCX, 0x6161_6161_6161_6161);
    let o = memory_operands(&c, &[0x48, 0x01, 0x01]);
    assert_eq!((o[0].access, o[0].non_canonical), (MemoryAccess::ReadWrite, true));
    // An unknown register: no address, and its name all the same.
    c.forget(reg::RCX);
    let o = memory_operands(&c, &[0x48, 0x01, 0x01]);
    assert_eq!((o[0].address, o[0].registers.clone()), (None, vec!["rcx"]));
    // mov rax,gs:[30h]: the base of gs is not known
    let o = memory_operands(&c, &[0x65, 0x48, 0x8b, 0x04, 0x25, 0x30, 0, 0, 0]);
    assert_eq!(o[0].address, None);
    assert!(memory_operands(&c, &[0x90]).is_empty());
    assert!(memory_operands(&c, &[]).is_empty());
}

#[test]
fn x86_and_arm64_operands_have_addresses() {
    let c = context(Machine::X86);
    // mov dword ptr ds:[45h],5
    let o = memory_operands(&c, &[0xc7, 0x05, 0x45, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!((o[0].address, o[0].access, o[0].size), (Some(0x45), MemoryAccess::Write, 4));
    // mov eax,dword ptr [ebp-4]
    let o = memory_operands(&c, &[0x8b, 0x45, 0xfc]);
    assert_eq!((o[0].address, o[0].displacement), (Some(0x5ffc), -4));
    let c = context(Machine::Arm64);
    let at = |word: u32| memory_operands(&c, &word.to_le_bytes());
    // ldr x0,[x1,#8]
    let o = at(0xf940_0420);
    assert_eq!((o[0].address, o[0].access, o[0].size), (Some(0x2008), MemoryAccess::Read, 8));
    // stp fp,lr,[sp,#-0x10]!
    let o = at(0xa9bf_7bfd);
    assert_eq!((o[0].address, o[0].size, o[0].registers.clone()), (Some(0x4_fff0), 16, vec!["sp"]));
    // ldr x0,[x1,w2,uxtw #3]
    let o = at(0xf862_5820);
    assert_eq!((o[0].address, o[0].registers.clone()), (Some(0x2000 + 0x3000 * 8), vec!["x1", "x2"]));
    // ldr x0,<literal +8>, strb w0,[x1], ldxr x0,[x1], add x0,x1,#1
    assert_eq!(at(0x5800_0040)[0].address, Some(0x40_0008));
    assert_eq!(at(0x3900_0020)[0].size, 1);
    assert_eq!(at(0xc85f_7c20)[0].access, MemoryAccess::Read);
    assert!(at(0x9100_0420).is_empty());
}

#[test]
fn calls_end_at_return_addresses() {
    let yes = |bytes: &[u8]| is_call_before(Machine::X64, bytes);
    assert!(yes(&[0x90, 0x90, 0x90, 0xe8, 1, 2, 3, 4]));
    assert!(yes(&[0, 0, 0xff, 0x15, 1, 2, 3, 4]));
    assert!(yes(&[0x90, 0x90, 0x41, 0xff, 0xd2]));
    assert!(yes(&[0x41, 0xff, 0x94, 0x24, 1, 2, 3, 4]));
    assert!(yes(&[0xff, 0xd0]));
    assert!(!yes(&[0x90; 8]) && !yes(&[]) && !yes(&[0xd0]));
    // jmp rax, call cut in the middle
    assert!(!yes(&[0x90, 0xff, 0xe0]) && !yes(&[0xe8, 1, 2, 3]));
    assert!(is_call_before(Machine::Arm64, &0x9400_0001u32.to_le_bytes()));
    assert!(is_call_before(Machine::Arm64, &0xd63f_0100u32.to_le_bytes()));
    // blraa x8,x9 and a plain br
    assert!(is_call_before(Machine::Arm64, &0xd73f_0909u32.to_le_bytes()));
    assert!(!is_call_before(Machine::Arm64, &0xd61f_0100u32.to_le_bytes()));
}

#[test]
fn instructions_move_the_stack_pointer() {
    let motion = |bytes: &[u8]| stack_motion(Machine::X64, bytes);
    for down in [&[0x53][..], &[0x48, 0x83, 0xec, 0x28], &[0x48, 0x83, 0xe4, 0xf0]] {
        assert_eq!(motion(down), StackMotion::Down);
    }
    for up in [&[0x5b][..], &[0x48, 0x83, 0xc4, 0x28], &[0x48, 0x8d, 0x65, 0x10], &[0xc9]] {
        assert_eq!(motion(up), StackMotion::Up);
    }
    for none in [&[0x90][..], &[0xc3], &[0x48, 0x8b, 0xc4], &[]] {
        assert_eq!(motion(none), StackMotion::None);
    }
}

#[test]
fn backwards_from_a_known_start_is_sure() {
    // push rbx; sub rsp,20h; mov rbx,rcx; call; test eax,eax
    let code = [0x40, 0x53, 0x48, 0x83, 0xec, 0x20, 0x48, 0x8b, 0xd9, 0xe8, 0, 0, 0, 0, 0x85, 0xc0];
    let mut memory = RegionMemory::new();
    memory.add(0x1000, code);
    let (all, sure) = disassemble_before(Machine::X64, &memory, Some(0x1000), 0x100e, 2, None);
    let texts: Vec<_> = all.iter().filter_map(|i| i.text.clone()).collect();
    assert_eq!(texts, ["mov rbx,rcx", "call 00000000`0000100e"]);
    assert!(sure);
    // An address inside an instruction lines up with nothing.
    assert!(disassemble_before(Machine::X64, &memory, Some(0x1000), 0x100b, 2, None).0.is_empty());
    let (guess, sure) = disassemble_before(Machine::X64, &memory, None, 0x100e, 2, None);
    assert_eq!((guess.len(), sure), (2, false));
    let end = disassemble(Machine::X64, 0x1000, &code[..11], 10, None);
    assert_eq!((end.len(), end[3].flow), (4, Flow::Invalid));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Decoding never fails, consumes what it shows, and its length is the machine's.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64), address in any::<u64>()) {
        for machine in [Machine::X64, Machine::X86, Machine::Arm64, Machine::Arm32] {
            let i = code::decode(machine, address, &bytes, Some(&|_| Some("name".into())));
            prop_assert!(bytes.starts_with(&i.bytes.0));
            prop_assert_eq!(i.text.is_none(), i.flow == Flow::Invalid);
            prop_assert!(i.bytes.0.len() <= code::MAX_INSTRUCTION);
            let total: usize = disassemble(machine, address, &bytes, 100, None).iter().map(|i| i.bytes.0.len()).sum();
            prop_assert!(total <= bytes.len());
            let mut c = context(if machine == Machine::Arm32 { Machine::X86 } else { machine });
            c.set_ip(address);
            let _ = (memory_operands(&c, &bytes), is_call_before(machine, &bytes));
        }
    }

    /// The own ARM64 decoder and the text agree on what a branch is and where it goes.
    #[test]
    fn arm64_flow_agrees_with_the_text(word in any::<u32>()) {
        let i = code::decode(Machine::Arm64, 0x1_0000_0000, &word.to_le_bytes(), None);
        if let Some(text) = &i.text {
            let mnemonic = text.split(' ').next().unwrap_or_default();
            let expected = match mnemonic {
                "b" => Flow::Branch,
                "bl" => Flow::Call,
                "blr" => Flow::IndirectCall,
                "br" => Flow::IndirectBranch,
                "ret" => Flow::Return,
                "cbz" | "cbnz" | "tbz" | "tbnz" => Flow::ConditionalBranch,
                m if m.starts_with("b.") => Flow::ConditionalBranch,
                _ => return Ok(()),
            };
            prop_assert_eq!(i.flow, expected, "{}", text);
            prop_assert_eq!(i.target.is_some(), text.contains('`'), "{}", text);
        }
    }
}
