//! Names, lines, instructions and expressions.

use symbols::SymbolFile;
use target::{
    Attribution, Flow, Halt, HexBytes, Instruction, Machine, MemoryExt, Region, RegionState, Result,
    SourceLine, Stop, SymbolHit, SymbolKind, SymbolState, TargetError, TargetExt,
};
use windows::Win32::System::Diagnostics::Debug::Extensions::{DEBUG_VALUE, DEBUG_VALUE_INT64};
use windows::Win32::System::Memory::MEMORY_BASIC_INFORMATION64;
use windows::core::{HRESULT, HSTRING, Interface};

use crate::engine::{DbgEng, EngineResult, explain};
use crate::names;
use crate::watchdog::Watched;

/// `DEBUG_EXPR_MASM` (dbgeng.h).
const MASM: u32 = 0;
/// Longest symbol name a search gives.
const NAME: usize = 4096;

impl DbgEng {
    /// A 32-bit target's addresses come sign-extended.
    pub(crate) fn narrow(&self, address: u64) -> u64 {
        let sign_extended = address >> 31 == 0x1_ffff_ffff;
        if self.facts.machine.pointer_size() == 4 && (!self.facts.wow64 || sign_extended) {
            address & 0xffff_ffff
        } else {
            address
        }
    }

    /// An address as the engine wants it.
    pub(crate) fn widen(&self, address: u64) -> u64 {
        if self.facts.machine.pointer_size() == 4 && !self.facts.wow64 && address & 0x8000_0000 != 0 {
            address | 0xffff_ffff_0000_0000
        } else {
            address
        }
    }

    pub(crate) fn read_symbol_at(&self, address: u64) -> Result<Option<SymbolHit>> {
        let wide_address = self.widen(address);
        let displacement = std::cell::Cell::new(0u64);
        let text = names::wide(|buffer, size| {
            // SAFETY: the buffers live for the call.
            unsafe {
                self.symbols.GetNameByOffsetWide(wide_address, buffer, size, Some(displacement.as_ptr()))
            }
        });
        let Ok(text) = text else { return Ok(None) };
        Ok(self.hit(&text, address, displacement.get(), &self.attribute(address)))
    }

    /// `module!name` split. A bare module name with a displacement is no symbol.
    pub(crate) fn hit(&self, text: &str, ip: u64, displacement: u64, at: &Attribution) -> Option<SymbolHit> {
        let (module, name) = text.split_once('!')?;
        let address = ip.wrapping_sub(displacement);
        let mut hit = SymbolHit {
            module: module.to_owned(),
            name: name.to_owned(),
            raw_name: None,
            address,
            displacement,
            size: None,
            kind: SymbolKind::Public,
        };
        if let Attribution::Module { base, name, .. } = at {
            if address < *base {
                return None;
            }
            hit.module.clone_from(name);
            self.complete(&mut hit, *base);
        }
        Some(hit)
    }

    /// Size and kind, which the engine does not say with a name.
    fn complete(&self, hit: &mut SymbolHit, base: u64) {
        match self.read_symbol_status(base, false).map(|s| s.state) {
            Ok(SymbolState::Export) => hit.kind = SymbolKind::Export,
            Ok(SymbolState::Pdb | SymbolState::Dia) => {
                let found =
                    self.pdb_of(base).and_then(|pdb| pdb.symbol_at(hit.address.wrapping_sub(base)).ok()?);
                if let Some(sym) = found.filter(|s| base.wrapping_add(s.rva) == hit.address) {
                    hit.size = sym.size;
                    hit.kind = sym.kind;
                    hit.raw_name = sym.raw_name;
                }
            }
            _ => {}
        }
    }

    /// A miss is an empty answer.
    pub(crate) fn resolve_name(&self, name: &str) -> Result<Vec<SymbolHit>> {
        let (module, bare) = name.split_once('!').map_or((None, name), |(module, bare)| (Some(module), bare));
        let mut hits: Vec<SymbolHit> = Vec::new();
        if bare.is_empty() || bare.contains(['*', '?']) {
            return Ok(hits);
        }
        let mut offset = 0;
        // SAFETY: the string and the pointer live for the call.
        let found = unsafe { self.symbols.GetOffsetByNameWide(&HSTRING::from(name)).map(|o| offset = o) };
        if found.is_ok() {
            let address = self.narrow(offset);
            if let Some(module) = self.module_at(address)? {
                let mut hit = SymbolHit {
                    module: module.name,
                    name: bare.to_owned(),
                    raw_name: None,
                    address,
                    displacement: 0,
                    size: None,
                    kind: SymbolKind::Public,
                };
                self.complete(&mut hit, module.base);
                hits.push(hit);
            }
        }
        // Names the engine's own syntax cannot say (templates), and the other functions of this name.
        if let Some(module) = module.and_then(|m| self.module_named(m).ok().flatten())
            && let Some(pdb) = self.pdb_of(module.base)
        {
            for sym in pdb.by_name(bare).unwrap_or_default() {
                let address = module.base.wrapping_add(sym.rva);
                if hits.iter().any(|h| h.address == address) {
                    continue;
                }
                hits.push(SymbolHit {
                    module: module.name.clone(),
                    name: sym.name,
                    raw_name: sym.raw_name,
                    address,
                    displacement: 0,
                    size: sym.size,
                    kind: sym.kind,
                });
            }
        }
        Ok(hits)
    }

    pub(crate) fn match_symbols(&self, pattern: &str, limit: usize, halt: &Halt) -> Result<Vec<SymbolHit>> {
        halt.check("searching symbols")?;
        let (hits, raised) =
            self.watchdog.during(halt, None, Watched::Call, || self.matches(pattern, limit, halt));
        self.watchdog.drain();
        match (hits, raised.and(halt.stop())) {
            (Err(_), Some(Stop::Deadline)) => Err(TargetError::Deadline("searching symbols")),
            (Err(_), Some(Stop::Interrupted)) => Err(TargetError::Interrupted),
            (hits, _) => hits,
        }
    }

    fn matches(&self, pattern: &str, limit: usize, halt: &Halt) -> Result<Vec<SymbolHit>> {
        // SAFETY: the string lives for the call; the handle is ended below.
        let handle = unsafe { self.symbols.StartSymbolMatchWide(&HSTRING::from(pattern)) };
        let handle = match handle {
            Ok(handle) => handle,
            // E_NOINTERFACE: nothing of that name.
            Err(error) if error.code() == HRESULT(0x8000_4002_u32.cast_signed()) => return Ok(Vec::new()),
            Err(error) => return Err(error).said("search symbols"),
        };
        let mut hits = Vec::new();
        let mut stopped = None;
        while hits.len() < limit {
            stopped = halt.stop();
            if stopped.is_some() {
                break;
            }
            let mut offset = 0;
            let mut buffer = vec![0u16; NAME];
            // SAFETY: the buffer and the pointer live for the call.
            let next = unsafe {
                self.symbols.GetNextSymbolMatchWide(handle, Some(&mut buffer), None, Some(&mut offset))
            };
            if next.is_err() {
                break;
            }
            let end = buffer.iter().position(|&unit| unit == 0).unwrap_or(buffer.len());
            let text = String::from_utf16_lossy(&buffer[..end]);
            let address = self.narrow(offset);
            hits.extend(self.hit(&text, address, 0, &self.attribute(address)));
        }
        // SAFETY: the handle is the one started above.
        let _ = unsafe { self.symbols.EndSymbolMatch(handle) };
        match stopped {
            Some(Stop::Deadline) => Err(TargetError::Deadline("searching symbols")),
            Some(Stop::Interrupted) => Err(TargetError::Interrupted),
            None => Ok(hits),
        }
    }

    pub(crate) fn read_line(&self, address: u64) -> Result<Option<SourceLine>> {
        let at = self.widen(address);
        let (line, displacement) = (std::cell::Cell::new(0u32), std::cell::Cell::new(0u64));
        let file = names::wide(|buffer, size| {
            // SAFETY: the buffers and pointers live for the call.
            unsafe {
                self.symbols.GetLineByOffsetWide(
                    at,
                    Some(line.as_ptr()),
                    buffer,
                    size,
                    Some(displacement.as_ptr()),
                )
            }
        });
        Ok(file.ok().map(|file| SourceLine { file, line: line.get(), displacement: displacement.get() }))
    }

    /// The machine code at `address` is of: a WoW64 process runs both.
    fn machine_at(&self, address: u64) -> Machine {
        if !self.facts.wow64 {
            return self.facts.machine;
        }
        let module = self.module_at(address).ok().flatten();
        let image = module.and_then(|m| pe::Pe::parse(&pe::MappedImage::new(self, m.base)).ok()?.machine);
        image.unwrap_or(if address >> 32 != 0 { Machine::X64 } else { Machine::X86 })
    }

    pub(crate) fn instructions(&self, address: u64, count: usize) -> Result<Vec<Instruction>> {
        let machine = self.machine_at(address);
        self.as_machine(machine, || {
            let mut at = address;
            let mut rows = Vec::new();
            while rows.len() < count.min(4096) {
                let Some((instruction, next)) = self.decode(machine, at) else { break };
                let stop = instruction.text.is_none();
                rows.push(instruction);
                if stop {
                    break;
                }
                at = next;
            }
            Ok(rows)
        })
    }

    /// One instruction: the engine's text and length, our own decoder's reading of the same bytes.
    fn decode(&self, machine: Machine, address: u64) -> Option<(Instruction, u64)> {
        let at = self.widen(address);
        let end = std::cell::Cell::new(0u64);
        let text = names::wide(|buffer, size| {
            // SAFETY: the buffers live for the call.
            unsafe { self.control.DisassembleWide(at, 0, buffer, size, end.as_ptr()) }
        })
        .ok()?;
        let length = usize::try_from(end.get().wrapping_sub(at)).unwrap_or(0).min(code::MAX_INSTRUCTION);
        let (bytes, stopped) = self.read_prefix(address, length);
        if length == 0 || stopped.is_some() {
            return None;
        }
        let text = instruction_text(&text);
        let read = code::decode(machine, address, &bytes, None);
        let undecodable = text.starts_with("???") || text.is_empty();
        let flow = if undecodable { Flow::Invalid } else { read.flow };
        let instruction = Instruction {
            address,
            bytes: HexBytes(bytes),
            text: (!undecodable).then_some(text),
            target: read.target.filter(|_| !undecodable),
            flow,
            data_address: read.data_address.filter(|_| !undecodable),
        };
        Some((instruction, self.narrow(end.get())))
    }

    pub(crate) fn bounds(&self, address: u64) -> Option<(u64, u64)> {
        if let Some((module, pdb, rva)) = self.pdb_at(address)
            && let Ok(Some((start, end))) = pdb.function_bounds(rva)
        {
            return Some((module.base.checked_add(start)?, module.base.checked_add(end)?));
        }
        if self.machine_at(address) != Machine::X64 {
            return None;
        }
        let module = self.module_at(address).ok().flatten()?;
        let mut entry = [0u32; 3];
        // SAFETY: the buffer is as long as said and lives for the call.
        unsafe {
            self.symbols.GetFunctionEntryByOffset(
                address,
                0,
                Some(entry.as_mut_ptr().cast()),
                u32::try_from(size_of_val(&entry)).unwrap_or(0),
                None,
            )
        }
        .ok()?;
        let (start, end) = (module.base + u64::from(entry[0]), module.base + u64::from(entry[1]));
        (start <= address && address < end).then_some((start, end))
    }

    pub(crate) fn evaluate_bounded(&self, expression: &str, halt: &Halt) -> Result<u64> {
        halt.check("evaluating")?;
        let (value, raised) = self
            .watchdog
            .during(halt, None, Watched::Call, || self.in_event_scope(|| self.evaluate_masm(expression)));
        self.watchdog.drain();
        match (value, raised) {
            (Err(_), Some(_)) if halt.stop() == Some(Stop::Deadline) => {
                Err(TargetError::Deadline("evaluating"))
            }
            (Err(_), Some(_)) => Err(TargetError::Interrupted),
            (value, _) => value,
        }
    }

    /// Registers in expressions are those [`Self::read_context`] shows.
    fn in_event_scope<T>(&self, action: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: no arguments.
        let thread = unsafe { self.system.GetCurrentThreadId() }.ok();
        let shown = self.event_context(thread, target::View::Default)?;
        // A WoW64 record would be put in scope as the other machine's.
        let differs = shown.is_some_and(|shown| {
            self.current_context(target::View::Default)
                .is_ok_and(|own| own.is_none_or(|own| own.machine == shown.machine && own.ip() != shown.ip()))
        });
        // SAFETY: no arguments.
        let scoped = differs && unsafe { self.symbols.SetScopeFromStoredEvent() }.is_ok();
        let result = action();
        if scoped {
            // SAFETY: no arguments.
            let _ = unsafe { self.symbols.ResetScope() };
        }
        result
    }

    /// Accepts a value only when the whole text was consumed: the engine ignores trailing text, and
    /// answers S_FALSE when an alias was expanded.
    pub(crate) fn evaluate_masm(&self, expression: &str) -> Result<u64> {
        let failed =
            |why: String| TargetError::failed(format!("DbgEng cannot evaluate \"{expression}\": {why}"));
        if expression.trim().is_empty() {
            return Err(TargetError::InvalidArgument("there is nothing to evaluate".to_owned()));
        }
        let wide = HSTRING::from(expression);
        let mut value = DEBUG_VALUE::default();
        let mut rest = 0;
        // SAFETY: integers only.
        let syntax = unsafe { self.control.GetExpressionSyntax() }.unwrap_or(MASM);
        // SAFETY: every pointer is to a local or a string that lives for the call.
        let answer = unsafe {
            self.control.SetExpressionSyntax(MASM).said("set the expression syntax")?;
            // `windows` folds S_FALSE (an alias was expanded) into success.
            let answer = (Interface::vtable(&self.control).EvaluateWide)(
                Interface::as_raw(&self.control),
                windows::core::PCWSTR(wide.as_ptr()),
                DEBUG_VALUE_INT64,
                &mut value,
                &mut rest,
            );
            let _ = self.control.SetExpressionSyntax(syntax);
            answer
        };
        if answer.is_err() {
            return Err(failed(explain(&answer.into())));
        }
        if answer != HRESULT(0) {
            return Err(failed("it holds a word that is an alias".to_owned()));
        }
        if (rest as usize) < wide.len() {
            return Err(failed(format!("only its first {rest} characters are an expression")));
        }
        // SAFETY: the engine was asked for a 64-bit integer and said it gave one.
        Ok(unsafe { value.Anonymous.Anonymous.I64 })
    }

    pub(crate) fn read_region(&self, address: u64) -> Result<Region> {
        let unknown = Region {
            base: address & !0xfff,
            size: 0x1000,
            allocation_base: None,
            state: RegionState::Unknown,
            protect: None,
            usage: None,
        };
        if self.facts.kind.is_kernel() {
            let there = self.read_u8(address).is_ok();
            return Ok(Region {
                state: if there { RegionState::Valid } else { RegionState::Unknown },
                ..unknown
            });
        }
        let mut info = MEMORY_BASIC_INFORMATION64::default();
        // SAFETY: the pointer is to a local.
        let read = unsafe { self.spaces.QueryVirtual(self.widen(address), &mut info) };
        let base = self.narrow(info.BaseAddress);
        if read.is_err() || info.RegionSize == 0 || base > address {
            return Ok(unknown);
        }
        let state = match info.State.0 {
            0x1000 => RegionState::Committed,
            0x2000 => RegionState::Reserved,
            0x10000 => RegionState::Free,
            _ => RegionState::Unknown,
        };
        Ok(Region {
            base,
            size: info.RegionSize,
            allocation_base: (state != RegionState::Free).then(|| self.narrow(info.AllocationBase)),
            state,
            protect: (state == RegionState::Committed).then_some(info.Protect.0),
            usage: self.module_at(address)?.map(|m| format!("Image {}", m.name)),
        })
    }

    /// The readable prefix of `buffer`: single reads fail whole at a hole.
    pub(crate) fn read_pages(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let step = (0x1000 - (at & 0xfff) as usize).min(buffer.len() - done);
            let wide = self.widen(at);
            if self.facts.machine.pointer_size() == 4 && !self.facts.wow64 && at >> 32 != 0 {
                break;
            }
            let mut read = 0;
            let mut page = || {
                // SAFETY: the slice is at least `step` long.
                unsafe {
                    self.spaces.ReadVirtual(
                        wide,
                        buffer[done..].as_mut_ptr().cast(),
                        u32::try_from(step).unwrap_or(0),
                        Some(&mut read),
                    )
                }
                .said("read memory")
            };
            // As x86 the engine cuts addresses to 32 bits.
            let outcome = if self.facts.wow64 && wide >> 32 != 0 {
                self.as_machine(Machine::X64, page)
            } else {
                page()
            };
            if outcome.is_err() {
                break;
            }
            done += (read as usize).min(step);
            if (read as usize) < step {
                break;
            }
        }
        done
    }
}

/// The engine's line is `address bytes text`; the text starts after the second run of spaces.
fn instruction_text(line: &str) -> String {
    let line = line.trim();
    let after_address = line.split_once(' ').map_or(line, |(_, rest)| rest).trim_start();
    let after_bytes = after_address.split_once(' ').map_or("", |(_, rest)| rest).trim_start();
    let plain: String = after_bytes.chars().filter(|c| *c != '`').collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::instruction_text;

    #[test]
    fn the_text_of_an_instruction_is_its_third_column() {
        assert_eq!(instruction_text("00007ff6`5a1b1010 4883ec28        sub     rsp,28h\n"), "sub rsp,28h");
        assert_eq!(instruction_text("0040100c cc int 3"), "int 3");
        assert_eq!(
            instruction_text("00000001`40001000 e8fb0f0000 call victim!poke (00000001`40002000)"),
            "call victim!poke (0000000140002000)"
        );
        assert_eq!(instruction_text("00000000`00000000 ??              ???"), "???");
        assert_eq!(instruction_text(""), "");
    }
}
