//! A target made of noise: one image whose bytes are the input, and a stack of it. Shared by the
//! property tests and the fuzz targets.
#![allow(dead_code, unreachable_pub)]

use std::rc::Rc;

use pe::ImageSource;
use target::{Context, ContextSource, Halt, Machine, Memory, RegionMemory, reg};
use unwind::{FrameProgram, ProgramKind, UnwindImage, UnwindSource, scan, walk};

const BASE: u64 = 0x10_0000;
const STACK: u64 = 0x80_0000;
const IMAGE_SIZE: u64 = 0x1_0000;

struct Bytes(Vec<u8>);
impl ImageSource for Bytes {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        let rest = self.0.get(rva as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }
}

pub struct AnyImage {
    memory: RegionMemory,
    image: Rc<Bytes>,
    machine: Machine,
    directory: (u32, u32),
    program: Option<FrameProgram>,
}

impl UnwindSource for AnyImage {
    fn memory(&self) -> &dyn Memory {
        &self.memory
    }
    fn image_at(&self, address: u64) -> Option<UnwindImage> {
        (address >= BASE && address - BASE < IMAGE_SIZE).then(|| UnwindImage {
            base: BASE,
            size: IMAGE_SIZE,
            machine: self.machine,
            exception_directory: self.directory,
            source: self.image.clone(),
        })
    }
    fn is_executable(&self, address: u64) -> Option<bool> {
        self.image_at(address).map(|_| true)
    }
    fn frame_program(&self, _: u64) -> Option<FrameProgram> {
        self.program.clone()
    }
}

/// Walks and scans a target of `machine` made of `data`: its first bytes choose the ip, the next
/// half is the image (its exception directory first), the rest the stack.
pub fn exercise(machine: Machine, data: &[u8]) {
    let Some((head, rest)) = data.split_at_checked(4) else { return };
    let ip = BASE + u64::from(u16::from_le_bytes([head[0], head[1]]));
    let (image, stack) = rest.split_at(rest.len() / 2);
    let program = (machine == Machine::X86 && head[2] & 1 == 1).then(|| FrameProgram {
        start: BASE,
        end: BASE + IMAGE_SIZE,
        locals: u32::from(head[3]),
        parameters: 8,
        saved_registers: 4,
        prolog: 0,
        kind: if head[2] & 2 == 0 {
            ProgramKind::FrameData(String::from_utf8_lossy(image).into_owned())
        } else {
            ProgramKind::Fpo {
                saved_registers: head[3],
                uses_ebp: head[3] & 1 == 1,
                frame_type: head[2] >> 6,
            }
        },
    });
    let mut memory = RegionMemory::new();
    memory.add(BASE, image).add(STACK, stack);
    let entry = if machine == Machine::Arm64 { 8 } else { 12 };
    let target = AnyImage {
        memory,
        image: Rc::new(Bytes(image.to_vec())),
        machine,
        directory: (0, (u32::from(head[3]) % 16 + 1) * entry),
        program,
    };
    let mut context = Context::new(machine, ContextSource::Thread);
    for number in 0..reg::COUNT {
        context.set(number, STACK + number as u64 * 16);
    }
    context.set_ip(ip);
    context.set_sp(STACK);
    let _ = walk(&target, &context, 1024, &Halt::unbounded());
    let _ = scan(&target, &context, 64, &Halt::unbounded());
}
