//! The engine's stack walk as frames. Inline frames come from the engine's own inline contexts.

use target::{
    Attribution, Context, ContextSource, Found, Frame, Halt, Machine, MemoryExt, Result, SourceLine, Stack,
    Stop, SymbolHit, TargetError, TargetExt, WalkEnd, reg,
};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_STACK_FRAME_EX, IDebugControl5, IDebugSymbols4,
};
use windows::core::Interface;

use crate::engine::{DbgEng, EngineResult};
use crate::names;
use crate::watchdog::Watched;

/// `STACK_FRAME_TYPE_INLINE` and the return-address bit beside it (dbghelp.h).
const INLINE: u32 = 2;
const TYPE_MASK: u32 = 0x7f;
/// Rows asked of the engine at once: walked frames and the functions inlined in them.
const MOST_ROWS: usize = 4096;

/// Registers a caller gets back from its callee; the rest are the callee's leftovers.
fn restored(machine: Machine) -> &'static [usize] {
    match machine {
        Machine::X64 => &[reg::RBX, reg::RSP, reg::RBP, reg::RSI, reg::RDI, 12, 13, 14, 15, reg::RIP],
        Machine::X86 => &[reg::RBX, reg::RSP, reg::RBP, reg::RSI, reg::RDI, reg::RIP],
        Machine::Arm64 => {
            &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, reg::A64_FP, reg::A64_LR, reg::A64_SP, reg::A64_PC]
        }
        Machine::Arm32 => &[],
    }
}

fn is_inline(frame: &DEBUG_STACK_FRAME_EX) -> bool {
    (frame.InlineFrameContext >> 8) & TYPE_MASK == INLINE
}

impl DbgEng {
    pub(crate) fn walk(&self, from: &Context, limit: usize, halt: &Halt) -> Result<Stack> {
        halt.check("walking the stack")?;
        let limit = limit.clamp(1, 1024);
        let record_size = Context::record_size(from.machine);
        let rows = ((limit + 1) * 3 + 32).min(MOST_ROWS);
        let mut raw = vec![DEBUG_STACK_FRAME_EX::default(); rows];
        let mut contexts = vec![0u8; rows * record_size];
        let (walked, raised) = self.watchdog.during(halt, None, Watched::Call, || {
            self.as_machine(from.machine, || self.raw_walk(from, &mut raw, &mut contexts))
        });
        let filled = match (walked, raised) {
            (_, Some(_)) => {
                self.watchdog.drain();
                return Err(interrupted(halt));
            }
            (walked, None) => walked?,
        };
        raw.truncate(filled);
        let mut stack = self.frames(from, &raw, &contexts, limit, halt)?;
        if stack.end == WalkEnd::Outermost && filled == rows {
            stack.end = WalkEnd::Limit;
        }
        Ok(stack)
    }

    fn raw_walk(
        &self,
        from: &Context,
        raw: &mut [DEBUG_STACK_FRAME_EX],
        contexts: &mut [u8],
    ) -> Result<usize> {
        let record = from.to_bytes();
        let size = u32::try_from(record.len()).unwrap_or(0);
        let control: IDebugControl5 = self.control.cast().said("walk a stack with inline frames")?;
        let mut filled = 0;
        // SAFETY: the context record, the frames and their contexts live for the call and are as long
        // as said.
        unsafe {
            control.GetContextStackTraceEx(
                Some(record.as_ptr().cast()),
                size,
                Some(raw),
                Some(contexts.as_mut_ptr().cast()),
                u32::try_from(contexts.len()).unwrap_or(0),
                size,
                Some(&mut filled),
            )
        }
        .said("walk the stack")?;
        Ok((filled as usize).min(raw.len()))
    }

    fn frames(
        &self,
        from: &Context,
        raw: &[DEBUG_STACK_FRAME_EX],
        contexts: &[u8],
        limit: usize,
        halt: &Halt,
    ) -> Result<Stack> {
        let record_size = Context::record_size(from.machine);
        let mut frames: Vec<Frame> = Vec::new();
        let mut physical = 0;
        let mut end = WalkEnd::Outermost;
        for (index, row) in raw.iter().enumerate() {
            if let Some(stop) = halt.stop() {
                end = if stop == Stop::Interrupted { WalkEnd::Interrupted } else { WalkEnd::Deadline };
                break;
            }
            if physical == limit {
                end = WalkEnd::Limit;
                break;
            }
            let bytes = contexts.get(index * record_size..(index + 1) * record_size).unwrap_or_default();
            let innermost = physical == 0;
            let context =
                if innermost { Some(from.clone()) } else { self.frame_context(from.machine, bytes, row) };
            let frame = self.frame(innermost, row, context, from);
            if !innermost && self.is_stack_word(&frame) {
                end = WalkEnd::Lost("the next return address is in no module");
                break;
            }
            physical += usize::from(!frame.inline);
            frames.push(frame);
        }
        // Inline rows whose function was cut off by the limit belong to a frame that is not there.
        while frames.last().is_some_and(|f| f.inline) {
            frames.pop();
        }
        Ok(Stack { frames, end, limitations: Vec::new() })
    }

    /// Where unwinding has lost its way the engine goes on with whatever words lie on the stack.
    fn is_stack_word(&self, frame: &Frame) -> bool {
        matches!(frame.attribution, Attribution::NoModule { .. })
            && (self.facts.dump.is_some() || self.read_u8(frame.ip).is_err() || !self.is_executable(frame.ip))
    }

    fn is_executable(&self, address: u64) -> bool {
        // PAGE_EXECUTE* (winnt.h).
        self.read_region(address).is_ok_and(|r| r.protect.is_some_and(|p| p & 0xf0 != 0))
    }

    fn frame_context(&self, machine: Machine, bytes: &[u8], row: &DEBUG_STACK_FRAME_EX) -> Option<Context> {
        let whole = Context::from_bytes(machine, bytes, ContextSource::Unwound)?;
        let mut context = Context::new(machine, ContextSource::Unwound);
        for &number in restored(machine) {
            if let Some(value) = whole.get(number) {
                context.set(number, value);
            }
        }
        context.set_ip(self.narrow(row.InstructionOffset));
        Some(context)
    }

    fn frame(
        &self,
        innermost: bool,
        raw: &DEBUG_STACK_FRAME_EX,
        context: Option<Context>,
        from: &Context,
    ) -> Frame {
        let narrow = |value: u64| if from.machine.pointer_size() == 4 { value & 0xffff_ffff } else { value };
        let ip = if innermost { from.ip() } else { narrow(raw.InstructionOffset) };
        let attribution = self.attribute(ip);
        let sp = context.as_ref().map(Context::sp).filter(|&sp| sp != 0);
        Frame {
            ip,
            sp: sp.unwrap_or_else(|| narrow(raw.StackOffset)),
            found: if innermost { Found::Context } else { Found::Unwind },
            inline: is_inline(raw),
            symbol: self.frame_symbol(ip, raw.InlineFrameContext, &attribution),
            source: self.frame_line(ip, raw.InlineFrameContext),
            attribution,
            context: context.map(Box::new),
            return_address: narrow(raw.ReturnOffset),
        }
    }

    fn frame_symbol(&self, ip: u64, inline: u32, attribution: &Attribution) -> Option<SymbolHit> {
        let symbols: IDebugSymbols4 = self.symbols.cast().ok()?;
        let at = self.widen(ip);
        let displacement = std::cell::Cell::new(0u64);
        let text = names::wide(|buffer, size| {
            // SAFETY: the buffers live for the call.
            unsafe {
                symbols.GetNameByInlineContextWide(at, inline, buffer, size, Some(displacement.as_ptr()))
            }
        })
        .ok()?;
        self.hit(&text, ip, displacement.get(), attribution)
    }

    fn frame_line(&self, ip: u64, inline: u32) -> Option<SourceLine> {
        let symbols: IDebugSymbols4 = self.symbols.cast().ok()?;
        let at = self.widen(ip);
        let (line, displacement) = (std::cell::Cell::new(0u32), std::cell::Cell::new(0u64));
        let file = names::wide(|buffer, size| {
            // SAFETY: the buffers live for the call.
            unsafe {
                symbols.GetLineByInlineContextWide(
                    at,
                    inline,
                    Some(line.as_ptr()),
                    buffer,
                    size,
                    Some(displacement.as_ptr()),
                )
            }
        })
        .ok()?;
        Some(SourceLine { file, line: line.get(), displacement: displacement.get() })
    }
}

fn interrupted(halt: &Halt) -> TargetError {
    match halt.stop() {
        Some(Stop::Deadline) => TargetError::Deadline("walking the stack"),
        _ => TargetError::Interrupted,
    }
}
