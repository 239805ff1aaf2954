//! The engine's stack walk as frames. Inline frames come from the engine's own inline contexts.

use target::{Attribution, Context, Found, Frame, Halt, Machine, Result, Stack, TargetExt, WalkEnd};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_STACK_FRAME_EX, IDebugControl5, IDebugSymbols4,
};
use windows::core::Interface;

use crate::engine::{DbgEng, EngineResult};
use crate::names;

impl DbgEng {
    pub(crate) fn walk(&self, from: &Context, limit: usize, _halt: &Halt) -> Result<Stack> {
        let record = from.to_bytes();
        let control: IDebugControl5 = self.control.cast().said("walk a stack with inline frames")?;
        let mut raw = vec![DEBUG_STACK_FRAME_EX::default(); limit.clamp(1, 4096) + 1];
        let mut filled = 0;
        // SAFETY: the context record and the frames live for the call and are as long as said.
        unsafe {
            control.GetContextStackTraceEx(
                Some(record.as_ptr().cast()),
                u32::try_from(record.len()).unwrap_or(0),
                Some(&mut raw),
                None,
                0,
                0,
                Some(&mut filled),
            )
        }
        .said("walk the stack")?;
        raw.truncate(filled as usize);
        let more = raw.len() > limit;
        raw.truncate(limit);
        let frames: Vec<Frame> = raw.iter().enumerate().map(|(index, f)| self.frame(index, f)).collect();
        Ok(Stack {
            frames,
            end: if more { WalkEnd::Limit } else { WalkEnd::Outermost },
            limitations: Vec::new(),
        })
    }

    fn frame(&self, index: usize, raw: &DEBUG_STACK_FRAME_EX) -> Frame {
        let narrow = |value: u64| if self.facts.machine == Machine::X86 { value & 0xffff_ffff } else { value };
        let ip = narrow(raw.InstructionOffset);
        // The low bits of the inline context say what kind of frame it is: 1 is STACK_FRAME_TYPE_INLINE
        // shifted as `INLINE_FRAME_CONTEXT.FrameType` (dbghelp.h): 1 init, 2 inline.
        let inline = (raw.InlineFrameContext >> 8) & 0xff == 2;
        let attribution = self.attribute(ip);
        let symbol = self.frame_symbol(ip, raw.InlineFrameContext, &attribution);
        Frame {
            ip,
            sp: narrow(raw.StackOffset),
            found: if index == 0 { Found::Context } else { Found::Unwind },
            inline,
            attribution,
            symbol,
            source: None,
            context: None,
            return_address: narrow(raw.ReturnOffset),
        }
    }

    fn frame_symbol(&self, ip: u64, inline: u32, attribution: &Attribution) -> Option<target::SymbolHit> {
        let symbols: IDebugSymbols4 = self.symbols.cast().ok()?;
        let mut displacement = 0;
        // SAFETY: the buffers live for the call.
        let text = names::wide(|buffer, size| unsafe {
            symbols.GetNameByInlineContextWide(ip, inline, buffer, size, Some(&mut displacement.clone()))
        })
        .ok()?;
        // SAFETY: the pointer is to a local; asked again so that the displacement is kept.
        unsafe { symbols.GetNameByInlineContextWide(ip, inline, None, None, Some(&mut displacement)) }.ok()?;
        self.hit(&text, ip, displacement, attribution)
    }
}
