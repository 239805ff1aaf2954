//! Unwind codes that no test image has, each on a function made for it.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;

use pe::ImageSource;
use target::{Context, ContextSource, Found, Halt, Machine, Memory, RegionMemory, WalkEnd, reg};
use unwind::arm64::{Operation, Packed, decode_codes, packed_operations, strip_authentication};
use unwind::{StepError, UnwindImage, UnwindSource, step, walk};

const BASE: u64 = 0x1_4000_0000;
const STACK: u64 = 0x9_0000;
/// A function of the image without unwind entry, where callers are.
const CALLER: u64 = BASE + 0x3000;

struct Bytes(Vec<u8>);
impl ImageSource for Bytes {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        let rest = self.0.get(rva as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }
}

/// One function at 0x1000..0x1100 whose unwind data is at 0x2000; the directory at 0x2800.
struct Made {
    machine: Machine,
    image: Rc<Bytes>,
    memory: RegionMemory,
    entries: u32,
}

impl UnwindSource for Made {
    fn memory(&self) -> &dyn Memory {
        &self.memory
    }
    fn image_at(&self, address: u64) -> Option<UnwindImage> {
        (address >= BASE && address - BASE < 0x4000).then(|| UnwindImage {
            base: BASE,
            size: 0x4000,
            machine: self.machine,
            exception_directory: (0x2800, self.entries * if self.machine == Machine::X64 { 12 } else { 8 }),
            source: self.image.clone(),
        })
    }
    fn is_executable(&self, address: u64) -> Option<bool> {
        self.image_at(address).map(|_| true)
    }
}

fn made(machine: Machine, code: &[u8], unwind: &[u8], directory: &[u32], stack: &[u64]) -> Made {
    let mut image = vec![0xcc; 0x4000];
    image[0x1000..0x1000 + code.len()].copy_from_slice(code);
    image[0x2000..0x2000 + unwind.len()].copy_from_slice(unwind);
    for (index, word) in directory.iter().enumerate() {
        image[0x2800 + 4 * index..0x2804 + 4 * index].copy_from_slice(&word.to_le_bytes());
    }
    let mut memory = RegionMemory::new();
    memory.add(BASE, image.clone());
    memory.add(STACK, stack.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>());
    let width = if machine == Machine::X64 { 3 } else { 2 };
    Made { machine, image: Rc::new(Bytes(image)), memory, entries: directory.len() as u32 / width }
}

fn x64(code: &[u8], unwind: &[u8], stack: &[u64]) -> Made {
    made(Machine::X64, code, unwind, &[0x1000, 0x1100, 0x2000], stack)
}

fn at(machine: Machine, offset: u64) -> Context {
    let mut context = Context::new(machine, ContextSource::Thread);
    for number in 0..29 {
        context.set(number, 0xaa00 + number as u64);
    }
    context.set_ip(BASE + 0x1000 + offset);
    context.set_sp(STACK);
    context
}

#[test]
fn x64_saves_allocations_and_frame_register() {
    // version 1, prolog 20: save far r15 at 0x18, save r14 at 0x10, fpreg rbp+0x10, alloc 0x20, push rbp
    let unwind = [
        1, 20, 9, 0x15, // rbp, offset 0x10
        20, 0xf5, 0x18, 0, 0, 0, // far save of r15
        16, 0xe4, 2, 0, // r14 at 2*8
        12, 0x03, // set frame
        8, 0x01, 4, 0, // alloc large, 4*8
        1, 0x50, // push rbp
    ];
    let stack = [0, 0, 0xe0e0, 0xf0f0, 0xb0b0, CALLER];
    let source = x64(&[0x90; 64], &unwind, &stack);
    let mut context = at(Machine::X64, 40);
    // rsp has moved (alloca), rbp has not.
    context.set_fp(STACK + 0x10);
    context.set_sp(STACK - 0x100);
    let found = step(&source, &context, 0, true).unwrap();
    assert_eq!((found.context.ip(), found.context.sp()), (CALLER, STACK + 0x30));
    assert_eq!([reg::RBP, 14, 15].map(|n| found.context.get(n)), [0xb0b0, 0xe0e0, 0xf0f0].map(Some));
    assert_eq!(found.bounds, Some((BASE + 0x1000, BASE + 0x1100)));
    assert_eq!((found.found, found.machine_frame), (Found::Unwind, false));
    // After `push rbp` only: the codes behind it have not run.
    let mut context = at(Machine::X64, 1);
    context.set_sp(STACK + 0x20);
    let found = step(&source, &context, 0, true).unwrap();
    assert_eq!((found.context.ip(), found.context.sp()), (CALLER, STACK + 0x30));
    assert_eq!(found.context.get(15), Some(0xaa00 + 15));
    // A 32-bit allocation: 0x11, three slots.
    let unwind = [1, 7, 3, 0, 7, 0x11, 0x28, 0, 0, 0];
    let source = x64(&[0x90; 64], &unwind, &stack);
    let found = step(&source, &at(Machine::X64, 16), 0, true).unwrap();
    assert_eq!((found.context.ip(), found.context.sp()), (CALLER, STACK + 0x30));
}

#[test]
fn x64_machine_frames_are_exact() {
    for error_code in [false, true] {
        let unwind = [1, 0, 1, 0, 0, if error_code { 0x1a } else { 0x0a }];
        let mut stack = if error_code { vec![0x1234] } else { vec![] };
        // rip in a leaf function, cs, eflags, rsp, ss; the leaf's return address on the old stack
        stack.extend([BASE + 0x3800, 0x33, 0x246, STACK + 0x60, 0x2b]);
        stack.resize(12, 0);
        stack.extend([CALLER]);
        let source = x64(&[0x90; 64], &unwind, &stack);
        let found = step(&source, &at(Machine::X64, 8), 0, true).unwrap();
        assert!(found.machine_frame);
        assert_eq!((found.context.ip(), found.context.sp()), (BASE + 0x3800, STACK + 0x60));
        assert_eq!(found.context.get(reg::CS), Some(0x33));
        assert_eq!(found.context.get(reg::EFLAGS), Some(0x246));
        let stack = walk(&source, &at(Machine::X64, 8), 16, &Halt::unbounded());
        let found: Vec<_> = stack.frames.iter().map(|f| (f.context.ip(), f.found, f.exact_ip)).collect();
        assert_eq!(found[1], (BASE + 0x3800, Found::Unwind, true));
        assert_eq!(found[2], (CALLER, Found::Leaf, false));
        // The caller has no entry and is not exact: nothing is guessed.
        assert_eq!((found.len(), stack.end), (3, WalkEnd::Lost("no unwind data")));
    }
}

#[test]
fn x64_jumps_end_an_epilog_only_behind_an_undone_frame() {
    // push rbx; sub rsp,20h ... jmp to another function ... add rsp,20h; pop rbx; jmp rax
    let mut code = vec![0x90; 0x100];
    code[0x40..0x45].copy_from_slice(&[0xe9, 0xbb, 0x0f, 0, 0]);
    code[0x80..0x87].copy_from_slice(&[0x48, 0x83, 0xc4, 0x20, 0x5b, 0xff, 0xe0]);
    let unwind = [1, 5, 2, 0, 5, 0x32, 1, 0x30];
    let mut stack = [0u64; 8];
    (stack[0], stack[4], stack[5]) = (CALLER + 0x10, 0xb0b0, CALLER);
    let source = x64(&code, &unwind, &stack);
    // GCC's jump to the cold part of the function: the frame is whole.
    let cold = step(&source, &at(Machine::X64, 0x40), 0, true).unwrap();
    assert_eq!((cold.context.ip(), cold.context.get(reg::RBX)), (CALLER, Some(0xb0b0)));
    let before = step(&source, &at(Machine::X64, 0x80), 0, true).unwrap();
    assert_eq!((before.context.ip(), before.context.sp()), (CALLER, STACK + 0x30));
    // On the tail call the frame is gone.
    let tail = step(&source, &at(Machine::X64, 0x85), 0, true).unwrap();
    assert_eq!((tail.context.ip(), tail.context.get(reg::RBX)), (CALLER + 0x10, Some(0xaa03)));
}

#[test]
fn x64_version_2_lists_its_epilogs() {
    // sub rsp,28h ... add rsp,28h; ret at the end of the function, epilog of 5 bytes
    let mut code = vec![0x90; 0x100];
    code[0xfb..].copy_from_slice(&[0x48, 0x83, 0xc4, 0x28, 0xc3]);
    // A lone ret in the middle that no epilog code covers.
    code[0x40] = 0xc3;
    let unwind = [2, 4, 3, 0, 5, 0x16, 0, 0x06, 4, 0x42];
    let mut stack = [0u64; 8];
    (stack[0], stack[5]) = (CALLER + 0x10, CALLER);
    let source = x64(&code, &unwind, &stack);
    let in_body = step(&source, &at(Machine::X64, 0x40), 0, true).unwrap();
    assert_eq!(in_body.context.ip(), CALLER);
    let before_add = step(&source, &at(Machine::X64, 0xfb), 0, true).unwrap();
    assert_eq!((before_add.context.ip(), before_add.context.sp()), (CALLER, STACK + 0x30));
    let at_ret = step(&source, &at(Machine::X64, 0xff), 0, true).unwrap();
    assert_eq!((at_ret.context.ip(), at_ret.context.sp()), (CALLER + 0x10, STACK + 8));
}

#[test]
fn x64_indirect_entries_leaves_and_ends() {
    let unwind = [1, 0, 1, 0, 4, 0x42, 0, 0];
    let directory = [0x1000, 0x1100, 0x2800 + 12 + 1, 0x1200, 0x1300, 0x2000];
    let mut stack = [0u64; 8];
    stack[5] = CALLER;
    let source = made(Machine::X64, &[0x90; 64], &unwind, &directory, &stack);
    assert_eq!(step(&source, &at(Machine::X64, 8), 0, true).unwrap().context.ip(), CALLER);
    // Null return address; one outside everything.
    let source = x64(&[0x90; 64], &unwind, &[0; 8]);
    assert_eq!(step(&source, &at(Machine::X64, 8), 0, true), Err(StepError::Outermost));
    stack[5] = 0x1234;
    let source = x64(&[0x90; 64], &unwind, &stack);
    assert_eq!(step(&source, &at(Machine::X64, 8), 0, true), Err(StepError::NotCode { address: 0x1234 }));
    let mut context = at(Machine::X64, 8);
    context.set_sp(0xdead_0000);
    let unreadable = StepError::StackUnreadable { address: 0xdead_0028 };
    assert_eq!(step(&source, &context, 0, true), Err(unreadable));
    // Version 3 is refused, not guessed at.
    let source = x64(&[0x90; 64], &[3, 0, 0, 0], &stack);
    assert!(matches!(step(&source, &at(Machine::X64, 8), 0, true), Err(StepError::Damaged { .. })));
}

fn arm64(unwind: &[u8], stack: &[u64]) -> Made {
    // .xdata: length 0x40 words, no epilogs, the given codes.
    let mut codes = unwind.to_vec();
    codes.resize(unwind.len().next_multiple_of(4), 0xe4);
    let header = 0x40u32 | (codes.len() as u32 / 4) << 27;
    let mut xdata = header.to_le_bytes().to_vec();
    xdata.extend_from_slice(&codes);
    made(Machine::Arm64, &[0; 64], &xdata, &[0x1000, 0x2000], stack)
}

#[test]
fn arm64_save_next_continues_a_pair() {
    // stp x19,x20,[sp,#-0x40]!; stp x21,x22,[sp,#0x10]; stp x23,x24,[sp,#0x20]; stp fp,lr,[sp,#0x30]
    let unwind = [0x46, 0xe6, 0xe6, 0xcc, 0x07, 0xe4];
    let stack = [19, 20, 21, 22, 23, 24, 29, CALLER];
    let source = arm64(&unwind, &stack);
    let found = step(&source, &at(Machine::Arm64, 0x20), 0, true).unwrap();
    assert_eq!((found.context.ip(), found.context.sp()), (CALLER, STACK + 0x40));
    for number in 19..=24 {
        assert_eq!(found.context.get(number), Some(number as u64));
    }
    assert_eq!(found.context.fp(), Some(29));
    assert_eq!(found.context.get(25), Some(0xaa00 + 25));
    assert_eq!(found.context.get(0), None);
    // After two of four instructions.
    let mut context = at(Machine::Arm64, 8);
    context.set(reg::A64_LR, CALLER);
    let found = step(&source, &context, 0, true).unwrap();
    assert_eq!([19, 22, 23].map(|n| found.context.get(n)), [Some(19), Some(22), Some(0xaa00 + 23)]);
}

#[test]
fn arm64_codes_decode_as_documented() {
    let one = |bytes: &[u8]| decode_codes(bytes)[0].1;
    let save = |first, second, offset, release| Operation::Save { first, second, offset, release };
    assert_eq!(one(&[0xc2, 0x01]), Operation::Allocate(0x2010));
    assert_eq!(one(&[0xe0, 0x01, 0x02, 0x03]), Operation::Allocate(0x10203 * 16));
    assert_eq!(one(&[0xd0, 0x82]), save(21, None, 0x10, 0));
    assert_eq!(one(&[0xd4, 0x43]), save(21, None, 0, 0x20));
    assert_eq!(one(&[0xd6, 0x42]), save(21, Some(30), 0x10, 0));
    assert_eq!(one(&[0x24]), save(19, Some(20), 0, 0x20));
    assert_eq!(one(&[0xe2, 0x03]), Operation::AddFrame(0x18));
    // save_any_reg x3, pre-indexed by 0x20; pair x1,x2 at 0x30
    assert_eq!(one(&[0xe7, 0x23, 0x01]), save(3, None, 0, 0x20));
    assert_eq!(one(&[0xe7, 0x41, 0x03]), save(1, Some(2), 0x30, 0));
    assert!(matches!(one(&[0xe6]), Operation::Unsupported(_)));
    assert!(matches!(one(&[0xfd]), Operation::Unsupported(_)));
    assert!(decode_codes(&[0xc8]).is_empty());
}

#[test]
fn arm64_packed_prologs_follow_the_table() {
    let packed = |reg_i, reg_f, homed, cr, frame_size| {
        packed_operations(&Packed { length: 0x40, reg_f, reg_i, homed, cr, frame_size, fragment: false })
    };
    let save = |first, second, offset, release| Operation::Save { first, second, offset, release };
    // stp x19,lr,[sp,#-0x10]!; sub sp,sp,#0x20
    assert_eq!(
        packed(1, 0, false, 1, 0x30).unwrap(),
        [Operation::Allocate(0x20), save(19, Some(30), 0, 0x10)]
    );
    // str lr,[sp,#-0x10]!
    assert_eq!(packed(0, 0, false, 1, 0x10).unwrap(), [save(30, None, 0, 0x10)]);
    // pacibsp; stp x19,x20,[sp,#-0x10]!; sub sp,sp,#0x210; stp fp,lr,[sp]; mov fp,sp
    assert_eq!(
        packed(2, 0, false, 2, 0x220).unwrap(),
        [
            Operation::SetFrame,
            save(29, Some(30), 0, 0),
            Operation::Allocate(0x210),
            save(19, Some(20), 0, 0x10),
            Operation::Authenticate,
        ]
    );
    // stp d8,d9,[sp,#-0x20]!; str d10,[sp,#0x10]; sub sp,sp,#4080; sub sp,sp,#0x20
    assert_eq!(
        packed(0, 2, false, 0, 4080 + 0x40).unwrap(),
        [
            Operation::Allocate(0x20),
            Operation::Allocate(4080),
            Operation::SaveVector { first: 10, second: None, offset: 0x10, release: 0 },
            Operation::SaveVector { first: 8, second: Some(9), offset: 0, release: 0x20 },
        ]
    );
    // stp x0,x1,[sp,#-0x40]! and three more
    assert_eq!(
        packed(0, 0, true, 0, 0x40).unwrap(),
        [Operation::Nothing, Operation::Nothing, Operation::Nothing, Operation::Allocate(0x40),]
    );
    assert!(packed(11, 0, false, 0, 0x100).is_err());
    assert!(packed(4, 0, false, 0, 0x10).is_err());
}

#[test]
fn arm64_signed_return_addresses_machine_frames_and_chains() {
    assert_eq!(strip_authentication(0xff25_0000_1234_5678), 0x1234_5678);
    assert_eq!(strip_authentication(0x5a80_f801_bcb3_0000), 0xffff_f801_bcb3_0000);
    // stp fp,lr,[sp,#-0x10]! under pacibsp
    let source = arm64(&[0x81, 0xfc, 0xe4], &[29, CALLER | 0x0031 << 48]);
    let found = step(&source, &at(Machine::Arm64, 0x20), 0, true).unwrap();
    assert_eq!((found.context.ip(), found.context.get(reg::A64_LR)), (CALLER, Some(CALLER)));
    let source = arm64(&[0xe9, 0xe4], &[STACK + 0x100, CALLER]);
    let found = step(&source, &at(Machine::Arm64, 0x20), 0, true).unwrap();
    assert_eq!((found.context.ip(), found.context.sp(), found.machine_frame), (CALLER, STACK + 0x100, true));
    // A fragment: end_c, then the parent's prolog; all of it is undone from its first instruction on.
    let source = arm64(&[0xe5, 0x81, 0xe4], &[29, CALLER]);
    assert_eq!(step(&source, &at(Machine::Arm64, 0), 0, true).unwrap().context.sp(), STACK + 0x10);
    // A leaf returns to lr; a caller that has no entry ends the walk.
    let mut context = at(Machine::Arm64, 0x2000);
    context.set(reg::A64_LR, CALLER + 4);
    let stack = walk(&source, &context, 8, &Halt::unbounded());
    assert_eq!((stack.frames.len(), stack.frames[1].found), (2, Found::Leaf));
    assert_eq!(stack.end, WalkEnd::Lost("no unwind data"));
    // Without any directory: the frame chain, said to be one.
    let mut bare = arm64(&[0xe4], &[STACK + 0x20, CALLER + 8, 0, 0, 0, 0]);
    bare.entries = 0;
    let mut context = at(Machine::Arm64, 0x20);
    context.set_fp(STACK);
    let stack = walk(&bare, &context, 8, &Halt::unbounded());
    let found: Vec<_> = stack.frames.iter().map(|f| (f.context.ip(), f.found)).collect();
    assert_eq!(found[1], (CALLER + 8, Found::FramePointer));
    assert_eq!((found.len(), stack.end), (2, WalkEnd::Outermost));
}

#[test]
fn an_x64_indirection_to_an_entry_that_ends_before_it_begins_is_no_entry() {
    // The function's entry points (bit 0) at the second one, which is turned round.
    let directory = [0x1000, 0x1100, 0x280c | 1, 0x1050, 0x1010, 0x2000];
    let source = made(Machine::X64, &[0x90; 64], &[1, 0, 0, 0], &directory, &[CALLER]);
    assert!(step(&source, &at(Machine::X64, 8), 0, true).is_err());
    let directory = [0x1000, 0x1100, 0x280c | 1, 0x1000, 0x1100, 0x2000];
    let source = made(Machine::X64, &[0x90; 64], &[1, 0, 0, 0], &directory, &[CALLER]);
    assert_eq!(step(&source, &at(Machine::X64, 8), 0, true).unwrap().context.ip(), CALLER);
}
