//! The second opinion: a concrete interpreter that shares nothing with the pass but the decoder runs
//! the routine with the code in place.

use std::cell::Cell;
use std::rc::Rc;

use code_flow::CodeImage;
use emulate::{Backing, Limits, Request, Routine, Verdict, WdfTable};
use target::Halt;

use crate::analysis::{Convention, Question};
use crate::names;

/// Most bytes of an image's constant sections that are copied for the interpreter.
const MAX_COPY: u64 = 64 << 20;

/// Instructions one map may spend on being checked; what is left then is not verified.
const MAX_STEPS: u64 = 2_000_000;

/// Runs requests through one routine.
pub struct Verifier<'i, 'a> {
    image: &'i CodeImage<'a>,
    routine: Routine,
    limits: Limits,
    follow: Vec<u64>,
    spent: Cell<u64>,
}

/// Constant sections of the image: what can be written is unknown at run time.
struct Copy(Vec<(u64, Vec<u8>)>);

impl Backing for Copy {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        for (start, bytes) in &self.0 {
            let offset = address.checked_sub(*start).and_then(|o| usize::try_from(o).ok());
            if let Some(rest) = offset.and_then(|o| bytes.get(o..)).filter(|rest| !rest.is_empty()) {
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                return count;
            }
        }
        0
    }
}

impl<'i, 'a> Verifier<'i, 'a> {
    /// For the routine of `question`; callees in `follow` are entered. `None` when the image is too
    /// large to copy.
    #[must_use]
    pub fn new(image: &'i CodeImage<'a>, question: &Question, follow: Vec<u64>) -> Option<Self> {
        let mut parts = Vec::new();
        let mut total = 0u64;
        for section in image.pe.sections.iter().filter(|s| !s.is_writable()) {
            let length = section.virtual_size.max(section.raw_size);
            let length = length.min(image.size.saturating_sub(section.rva));
            total += u64::from(length);
            if total > MAX_COPY {
                return None;
            }
            let start = image.checked_va(section.rva, length)?;
            let mut bytes = vec![0; length as usize];
            let read = image.read(start, &mut bytes);
            bytes.truncate(read);
            parts.push((start, bytes));
        }
        let convention = match question.convention {
            Convention::Wdm => emulate::Convention::Wdm,
            Convention::FastIo => emulate::Convention::FastIo,
            Convention::WdfDeviceControl => emulate::Convention::WdfDeviceControl,
            Convention::WdfDefault | Convention::WdfInCallerContext => emulate::Convention::WdfRequest,
        };
        let routine = Routine {
            machine: image.machine,
            entry: question.entry,
            convention,
            image: image.base..image.base + u64::from(image.size),
            bytes: Rc::new(Copy(parts)),
            wdf: question.framework.map(|f| WdfTable { table: f.table, pointer: f.pointer, count: f.count }),
        };
        Some(Self { image, routine, limits: Limits::default(), follow, spent: Cell::new(0) })
    }

    /// Whether a request with `code` reaches `landing`; `None` when that cannot be told.
    #[must_use]
    pub fn reaches(&self, code: u32, major: u8, landing: u64, halt: &Halt) -> Option<bool> {
        if self.spent.get() >= MAX_STEPS {
            return None;
        }
        let request = Request { code, major, input_length: None, output_length: None };
        let popped = |call: &emulate::Call| self.popped(call);
        let result =
            emulate::reaches(&self.routine, &request, landing, &self.follow, &popped, &self.limits, halt);
        self.spent.set(self.spent.get().saturating_add(result.steps));
        match result.verdict {
            Verdict::Reached => Some(true),
            Verdict::NotReached => Some(false),
            Verdict::Undecided => None,
        }
    }

    fn popped(&self, call: &emulate::Call) -> Option<u32> {
        let instruction =
            code_flow::decode_at(self.image, &mut code::Recorder::new(self.image.machine), call.at);
        match code_flow::callee(self.image, &instruction) {
            code_flow::Callee::Import(import) => import.name.as_deref().and_then(names::popped),
            _ => None,
        }
    }
}
