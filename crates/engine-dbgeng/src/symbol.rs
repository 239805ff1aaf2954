//! Names, lines, instructions and expressions.

use target::{
    Attribution, Flow, HexBytes, Instruction, Memory, MemoryExt, Module, PdbIdentity, Result, SourceLine, SymbolHit,
    SymbolKind, SymbolState, SymbolStatus, TargetError, TargetExt,
};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_MODNAME_IMAGE, DEBUG_MODNAME_MODULE, DEBUG_MODNAME_SYMBOL_FILE, DEBUG_MODULE_PARAMETERS, DEBUG_VALUE,
    DEBUG_VALUE_INT64,
};
use windows::core::HSTRING;

use crate::engine::{DbgEng, EngineResult, explain};
use crate::names;

/// `DEBUG_EXPR_MASM` (dbgeng.h).
const MASM: u32 = 0;

impl DbgEng {
    pub(crate) fn read_modules(&self) -> Result<Vec<Module>> {
        let (mut loaded, mut unloaded) = (0, 0);
        // SAFETY: both pointers are to locals.
        unsafe { self.symbols.GetNumberModules(&mut loaded, &mut unloaded) }.said("count modules")?;
        (0..loaded.min(100_000)).map(|index| self.module(index)).collect()
    }

    fn module(&self, index: u32) -> Result<Module> {
        let mut parameters = DEBUG_MODULE_PARAMETERS::default();
        // SAFETY: one entry is asked for and there is room for one.
        unsafe { self.symbols.GetModuleParameters(1, None, index, &mut parameters) }.said("read a module")?;
        let name = |which| {
            // SAFETY: the buffers live for the call.
            names::wide(|buffer, size| unsafe {
                self.symbols.GetModuleNameStringWide(which, index, 0, buffer, size)
            })
            .unwrap_or_default()
        };
        let path = name(DEBUG_MODNAME_IMAGE);
        Ok(Module {
            name: name(DEBUG_MODNAME_MODULE),
            image_name: target::base_name(&path).to_owned(),
            image_path: path,
            base: self.narrow(parameters.Base),
            size: u64::from(parameters.Size),
            timestamp: parameters.TimeDateStamp,
            checksum: parameters.Checksum,
            pdb: None,
            user_mode: self.facts.kind.is_kernel().then_some(parameters.Flags & 2 != 0),
            file_version: None,
        })
    }

    /// A 32-bit target's addresses come sign-extended.
    pub(crate) fn narrow(&self, address: u64) -> u64 {
        if self.facts.machine.pointer_size() == 4 { address & 0xffff_ffff } else { address }
    }

    /// An address as the engine wants it.
    pub(crate) fn widen(&self, address: u64) -> u64 {
        if self.facts.machine.pointer_size() == 4 && !self.facts.wow64 && address & 0x8000_0000 != 0 {
            address | 0xffff_ffff_0000_0000
        } else {
            address
        }
    }

    pub(crate) fn read_symbol_status(&self, base: u64, load: bool) -> Result<SymbolStatus> {
        if load {
            // Asking for a name at the base makes the engine look for symbols.
            let _ = self.read_symbol_at(base);
        }
        let wide_base = self.widen(base);
        let mut parameters = DEBUG_MODULE_PARAMETERS::default();
        // SAFETY: one base in, one entry out.
        unsafe { self.symbols.GetModuleParameters(1, Some(&wide_base), 0, &mut parameters) }
            .said("read a module's symbols")?;
        // SAFETY: the buffers live for the call.
        let file = names::wide(|buffer, size| unsafe {
            self.symbols.GetModuleNameStringWide(DEBUG_MODNAME_SYMBOL_FILE, u32::MAX, wide_base, buffer, size)
        })
        .ok()
        .filter(|file| !file.is_empty());
        // DEBUG_SYMTYPE_* (dbgeng.h) in order.
        let state = match parameters.SymbolType {
            0 => SymbolState::None,
            1 => SymbolState::Coff,
            2 => SymbolState::CodeView,
            3 => SymbolState::Pdb,
            4 => SymbolState::Export,
            5 => SymbolState::Deferred,
            6 => SymbolState::Sym,
            7 => SymbolState::Dia,
            _ => SymbolState::Other,
        };
        let pdb: Option<PdbIdentity> = None;
        Ok(SymbolStatus { state, pdb, file, unmatched: false, note: None })
    }

    pub(crate) fn read_symbol_at(&self, address: u64) -> Result<Option<SymbolHit>> {
        let wide_address = self.widen(address);
        let mut displacement = 0;
        // SAFETY: the pointer is to a local.
        if unsafe { self.symbols.GetNameByOffsetWide(wide_address, None, None, Some(&mut displacement)) }.is_err() {
            return Ok(None);
        }
        // SAFETY: the buffers live for the call.
        let text = names::wide(|buffer, size| unsafe {
            self.symbols.GetNameByOffsetWide(wide_address, buffer, size, None)
        })
        .said("read a symbol's name")?;
        Ok(self.hit(&text, address, displacement, &self.attribute(address)))
    }

    /// `module!name` split. A bare module name with a displacement is no symbol.
    pub(crate) fn hit(&self, text: &str, ip: u64, displacement: u64, at: &Attribution) -> Option<SymbolHit> {
        let (module, name) = text.split_once('!')?;
        let address = ip.wrapping_sub(displacement);
        if let Attribution::Module { base, .. } = at
            && address < *base
        {
            return None;
        }
        Some(SymbolHit {
            module: module.to_owned(),
            name: name.to_owned(),
            raw_name: None,
            address,
            displacement,
            size: None,
            kind: SymbolKind::Public,
        })
    }

    pub(crate) fn resolve_name(&self, name: &str) -> Result<Vec<SymbolHit>> {
        // SAFETY: the string lives for the call.
        match unsafe { self.symbols.GetOffsetByNameWide(&HSTRING::from(name)) } {
            Ok(address) => {
                let address = self.narrow(address);
                let module = self.module_at(address)?.map(|m| m.name).unwrap_or_default();
                let bare = name.split_once('!').map_or(name, |(_, bare)| bare).to_owned();
                Ok(vec![SymbolHit {
                    module,
                    name: bare,
                    raw_name: None,
                    address,
                    displacement: 0,
                    size: None,
                    kind: SymbolKind::Public,
                }])
            }
            Err(_) => Ok(Vec::new()),
        }
    }

    pub(crate) fn match_symbols(&self, pattern: &str, limit: usize) -> Result<Vec<SymbolHit>> {
        // SAFETY: the string lives for the call; the handle is ended below.
        let handle = unsafe { self.symbols.StartSymbolMatchWide(&HSTRING::from(pattern)) }.said("search symbols")?;
        let mut hits = Vec::new();
        while hits.len() < limit {
            let mut offset = 0;
            let mut buffer = vec![0u16; 4096];
            // SAFETY: the buffer and the pointer live for the call.
            let next =
                unsafe { self.symbols.GetNextSymbolMatchWide(handle, Some(&mut buffer), None, Some(&mut offset)) };
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
        Ok(hits)
    }

    pub(crate) fn read_line(&self, address: u64) -> Result<Option<SourceLine>> {
        let (mut line, mut displacement) = (0, 0);
        let at = self.widen(address);
        // SAFETY: the pointers are to locals.
        if unsafe { self.symbols.GetLineByOffsetWide(at, Some(&mut line), None, None, Some(&mut displacement)) }
            .is_err()
        {
            return Ok(None);
        }
        // SAFETY: the buffers live for the call.
        let file = names::wide(|buffer, size| unsafe {
            self.symbols.GetLineByOffsetWide(at, None, buffer, size, None)
        })
        .said("read a source line")?;
        Ok(Some(SourceLine { file, line, displacement }))
    }

    /// One instruction; `None` when nothing is readable there.
    pub(crate) fn decode(&self, address: u64) -> Result<Option<(Instruction, u64)>> {
        let at = self.widen(address);
        let mut end = 0;
        // SAFETY: the buffers live for the call.
        let text = names::wide(|buffer, size| unsafe {
            let mut next = 0;
            self.control.DisassembleWide(at, 0, buffer, size, &mut next)
        });
        // SAFETY: the pointer is to a local.
        let measured = unsafe { self.control.DisassembleWide(at, 0, None, None, &mut end) };
        let (Ok(text), Ok(())) = (text, measured) else { return Ok(None) };
        let length = usize::try_from(end.wrapping_sub(at)).unwrap_or(0).min(16);
        let mut bytes = vec![0; length];
        let got = self.read(target::Space::Virtual, address, &mut bytes);
        if got.read < length || length == 0 {
            return Ok(None);
        }
        let text = instruction_text(&text);
        let undecodable = text.starts_with("???");
        let instruction = Instruction {
            address,
            bytes: HexBytes(bytes),
            text: (!undecodable).then_some(text),
            target: None,
            flow: if undecodable { Flow::Invalid } else { Flow::Next },
            data_address: None,
        };
        Ok(Some((instruction, self.narrow(end))))
    }

    /// Accepts a value only when the whole text was consumed: the engine ignores trailing text, and
    /// answers S_FALSE when an alias was expanded.
    pub(crate) fn evaluate_masm(&self, expression: &str) -> Result<u64> {
        let wide = HSTRING::from(expression);
        let mut value = DEBUG_VALUE::default();
        let mut rest = 0;
        // SAFETY: every pointer is to a local or a string that lives for the call.
        unsafe {
            self.control.SetExpressionSyntax(MASM).said("set the expression syntax")?;
            self.control.EvaluateWide(&wide, DEBUG_VALUE_INT64, &mut value, Some(&mut rest)).map_err(|error| {
                TargetError::failed(format!("DbgEng cannot evaluate \"{expression}\": {}", explain(&error)))
            })?;
        }
        if (rest as usize) < wide.len() {
            return Err(TargetError::failed(format!(
                "DbgEng took only the first {rest} characters of \"{expression}\" as an expression"
            )));
        }
        // SAFETY: the engine was asked for a 64-bit integer and said it gave one.
        Ok(unsafe { value.Anonymous.Anonymous.I64 })
    }

    /// The readable prefix of `length` bytes: single reads fail whole at a hole.
    pub(crate) fn read_pages(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.wrapping_add(done as u64);
            let step = (0x1000 - (at & 0xfff) as usize).min(buffer.len() - done);
            let mut read = 0;
            // SAFETY: the slice is at least `step` long.
            let outcome = unsafe {
                self.spaces.ReadVirtual(
                    self.widen(at),
                    buffer[done..].as_mut_ptr().cast(),
                    u32::try_from(step).unwrap_or(0),
                    Some(&mut read),
                )
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

    pub(crate) fn first_bytes(&self, address: u64) -> Option<[u8; 2]> {
        self.read_array(address).ok()
    }
}

/// The engine's line is `address bytes text`; the text starts after the second run of spaces.
fn instruction_text(line: &str) -> String {
    let line = line.trim();
    let after_address = line.split_once(' ').map_or(line, |(_, rest)| rest).trim_start();
    let after_bytes = after_address.split_once(' ').map_or(after_address, |(_, rest)| rest).trim_start();
    let plain: String = after_bytes.chars().filter(|c| *c != '`').collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}
