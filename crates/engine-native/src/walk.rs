//! Stacks: what the walker asks, and frames with their names and inline rows.

use std::rc::Rc;

use pe::{DirectoryIndex, ImageSource, ImageSourceExt};
use symbols::{FpoFrame, InlineFrame};
use target::{
    Attribution, Context, Frame, Halt, Machine, Memory, Result, Stack, SymbolHit, SymbolKind, TargetExt,
    Unreadable, WalkEnd,
};
use unwind::{FrameProgram, ProgramKind, RawFrame, UnwindImage, UnwindSource};

use crate::core::ModuleImage;
use crate::native_target::{NativeTarget, Side};
use crate::raw::RawMemory;

/// The walker's view of a session, for stacks of one machine.
struct Walker<'a> {
    target: &'a NativeTarget,
    machine: Machine,
}

impl UnwindSource for Walker<'_> {
    fn memory(&self) -> &dyn Memory {
        self.target
    }

    fn image_at(&self, address: u64) -> Option<UnwindImage> {
        let core = &self.target.core;
        let module = core.module_at(address)?;
        let pe = core.pe_of(&module);
        let source: Rc<dyn ImageSource> = Rc::new(ModuleImage { core: Rc::clone(core), base: module.base });
        let pe = match pe {
            Some(pe) => pe,
            // x86 needs no unwind data, so a module without headers is still one to walk through.
            None if self.machine == Machine::X86 => {
                return Some(UnwindImage {
                    base: module.base,
                    size: module.size,
                    machine: Machine::X86,
                    exception_directory: (0, 0),
                    source,
                });
            }
            None => return None,
        };
        Some(UnwindImage {
            base: module.base,
            size: module.size,
            machine: pe.machine?,
            exception_directory: pe.directory(DirectoryIndex::Exception).unwrap_or((0, 0)),
            source,
        })
    }

    fn is_executable(&self, address: u64) -> Option<bool> {
        let core = &self.target.core;
        if let Some(module) = core.module_at(address)
            && let Some(pe) = core.pe_of(&module)
        {
            let rva = u32::try_from(address - module.base).ok()?;
            return pe.is_executable(rva);
        }
        // Of a module whose headers nobody has, the address map knows the pages.
        match (&self.target.side, &core.raw) {
            (Side::User(process), _) => process.is_executable(address),
            (_, RawMemory::Paged(translator)) => {
                let root = if address >> 63 == 1 { translator.system_root() } else { core.user_root() };
                match translator.translate(root, address) {
                    Ok(mapping) => Some(mapping.executable),
                    Err(Unreadable::NotPresent | Unreadable::NonCanonical) => Some(false),
                    Err(_) => None,
                }
            }
            _ => None,
        }
    }

    fn in_module(&self, address: u64) -> bool {
        self.target.core.module_at(address).is_some()
    }

    fn frame_program(&self, address: u64) -> Option<FrameProgram> {
        self.target.symbols.with_file(address, |module, file, rva| {
            let program = file.frame_program(rva).ok()??;
            convert_program(module.base, program)
        })
    }

    fn function_start(&self, address: u64) -> Option<u64> {
        self.target.symbols.function_bounds(address).map(|(start, _)| start)
    }

    fn stack_bounds(&self, sp: u64) -> Option<(u64, u64)> {
        match &self.target.side {
            Side::User(process) => process.stack_bounds(sp),
            Side::Kernel(kernel) => kernel.stack_bounds(sp),
            Side::Image => None,
        }
    }

    fn dynamic_image_at(&self, address: u64) -> Option<UnwindImage> {
        crate::dynamic::image_at(&self.target.core, address)
    }
}

fn convert_program(base: u64, program: symbols::FrameProgram) -> Option<FrameProgram> {
    Some(match program {
        symbols::FrameProgram::Data(data) => FrameProgram {
            start: base.checked_add(data.start)?,
            end: base.checked_add(data.start)?.checked_add(u64::from(data.code_size))?,
            locals: data.locals,
            parameters: data.params,
            saved_registers: u32::from(data.saved_registers),
            prolog: u32::from(data.prolog),
            kind: ProgramKind::FrameData(data.program),
        },
        symbols::FrameProgram::Fpo(fpo) => FrameProgram {
            start: base.checked_add(fpo.start)?,
            end: base.checked_add(fpo.start)?.checked_add(u64::from(fpo.code_size))?,
            locals: fpo.locals,
            parameters: fpo.params,
            saved_registers: u32::from(fpo.saved_registers) * 4,
            prolog: u32::from(fpo.prolog),
            kind: ProgramKind::Fpo {
                saved_registers: fpo.saved_registers,
                uses_ebp: fpo.uses_base_pointer,
                frame_type: match fpo.frame {
                    FpoFrame::Fpo => 0,
                    FpoFrame::Trap => 1,
                    FpoFrame::Tss => 2,
                    FpoFrame::NonFpo => 3,
                },
            },
        },
    })
}

/// Walks from `from`; frames carry names, source lines and inline rows.
pub(crate) fn stack(target: &NativeTarget, from: &Context, limit: usize, halt: &Halt) -> Result<Stack> {
    if from.machine == Machine::Arm32 {
        return Err(target::TargetError::unsupported(
            "foreign_architecture",
            "stacks of arm32 are not walked",
        ));
    }
    let walker = Walker { target, machine: from.machine };
    let raw = unwind::walk(&walker, from, limit, halt);
    let mut frames = Vec::with_capacity(raw.frames.len());
    let mut end = raw.end;
    for frame in &raw.frames {
        if let Some(stop) = halt.stop()
            && !frames.is_empty()
        {
            end = match stop {
                target::Stop::Deadline => WalkEnd::Deadline,
                target::Stop::Interrupted => WalkEnd::Interrupted,
            };
            break;
        }
        push_rows(target, frame, &mut frames);
    }
    let mut limitations = limitations(target, &raw.limitations, end);
    if from.machine != Machine::X86 && target.machine_at(from.ip()) == Machine::X86 {
        limitations.push(
            "the thread was in 32-bit code; the 32-bit view (wow64) shows that code's callers".to_owned(),
        );
    }
    Ok(Stack { frames, end, limitations })
}

fn limitations(target: &NativeTarget, found: &[String], end: WalkEnd) -> Vec<String> {
    let mut out: Vec<String> = found.to_vec();
    if let WalkEnd::Lost(why) = end
        && out.is_empty()
    {
        out.push(format!("the stack goes on, but could not be followed: {why}"));
    }
    if target.side.is_triage(&target.core) && matches!(end, WalkEnd::Lost(_)) {
        out.push(
            "this dump holds code only near the fault; with the images on the image path the walk goes further"
                .to_owned(),
        );
    }
    out
}

/// Guesses above `from`.
pub(crate) fn scan(target: &NativeTarget, from: &Context, limit: usize, halt: &Halt) -> Vec<Frame> {
    let walker = Walker { target, machine: from.machine };
    let mut frames = Vec::new();
    for frame in unwind::scan(&walker, from, limit, halt) {
        let lookup = lookup_address(&frame);
        frames.push(physical(target, &frame, lookup));
    }
    frames
}

/// Symbols of an outer frame are looked up at the call, not behind it.
fn lookup_address(frame: &RawFrame) -> u64 {
    let ip = frame.context.ip();
    if frame.exact_ip { ip } else { ip.saturating_sub(1) }
}

fn push_rows(target: &NativeTarget, frame: &RawFrame, rows: &mut Vec<Frame>) {
    let lookup = lookup_address(frame);
    let physical = physical(target, frame, lookup);
    if let Attribution::Module { name, base, .. } = &physical.attribution {
        for inline in target.symbols.inline_chain(lookup) {
            let symbol = inline_symbol(name, *base, &inline, physical.ip);
            rows.push(Frame {
                inline: true,
                symbol: Some(symbol),
                source: inline.line,
                context: physical.context.clone(),
                attribution: physical.attribution.clone(),
                ..physical
            });
        }
    }
    rows.push(physical);
}

fn inline_symbol(module: &str, base: u64, inline: &InlineFrame, ip: u64) -> SymbolHit {
    let start = base.wrapping_add(inline.start);
    SymbolHit {
        module: module.to_owned(),
        name: inline.name.clone(),
        raw_name: None,
        address: start,
        displacement: ip.wrapping_sub(start),
        size: None,
        kind: SymbolKind::Function,
    }
}

fn physical(target: &NativeTarget, frame: &RawFrame, lookup: u64) -> Frame {
    let ip = frame.context.ip();
    let mut symbol = target.symbols.symbol_at(lookup).ok().flatten();
    if let Some(hit) = &mut symbol {
        hit.displacement = ip.wrapping_sub(hit.address);
    }
    let attribution = match target.core.module_at(lookup) {
        // A return address may be one past its module; it belongs to the call.
        Some(m) => Attribution::Module { name: m.name.clone(), base: m.base, rva: ip.wrapping_sub(m.base) },
        None => target.attribute(ip),
    };
    Frame {
        ip,
        sp: frame.context.sp(),
        found: frame.found,
        inline: false,
        attribution,
        symbol,
        source: target.symbols.line_at(lookup).ok().flatten(),
        context: Some(Box::new(frame.context.clone())),
        return_address: frame.return_address,
    }
}

/// Start and end of the function around `address` from the exception directory.
pub(crate) fn bounds_from_unwind_data(target: &NativeTarget, address: u64) -> Option<(u64, u64)> {
    let core = &target.core;
    let module = core.module_at(address)?;
    let pe = core.pe_of(&module)?;
    let source = ModuleImage { core: Rc::clone(core), base: module.base };
    let entry = pe.exception_table(&source)?.find(u32::try_from(address - module.base).ok()?).ok()??;
    let end = match pe.machine? {
        Machine::Arm64 => entry.begin.checked_add(arm64_length(&source, entry.unwind)?)?,
        _ => entry.end,
    };
    let end = module.base.checked_add(u64::from(end))?;
    (address < end).then_some((module.base + u64::from(entry.begin), end))
}

/// Bytes of an ARM64 function: in the packed word, or in its `.xdata` header (18 bits of words).
fn arm64_length(source: &ModuleImage, unwind: u32) -> Option<u32> {
    if unwind & 3 != 0 {
        return Some((unwind >> 2 & 0x7ff) * 4);
    }
    source.u32(unwind).map(|header| (header & 0x3_ffff) * 4)
}
