//! Modules: the list, what identifies them, and the state of their symbols.

use target::{Module, PdbIdentity, Result, SymbolState, SymbolStatus, TargetError, UnloadedModule};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_MODNAME_IMAGE, DEBUG_MODNAME_LOADED_IMAGE, DEBUG_MODNAME_MODULE, DEBUG_MODNAME_SYMBOL_FILE,
    DEBUG_MODULE_PARAMETERS, DEBUG_SYMINFO_IMAGEHLP_MODULEW64,
};
use windows::Win32::System::Diagnostics::Debug::IMAGEHLP_MODULEW64;
use windows::core::w;

use crate::engine::{DbgEng, EngineResult};
use crate::names;

/// More than any process holds; the engine's own count sizes the arrays.
const MODULES: u32 = 100_000;
const UNLOADED: u32 = 10_000;
/// `VS_FIXEDFILEINFO.dwSignature` (verrsrc.h).
const FIXED_INFO_SIGNATURE: u32 = 0xfeef_04bd;

impl DbgEng {
    fn module_counts(&self) -> Result<(u32, u32)> {
        let (mut loaded, mut unloaded) = (0, 0);
        // SAFETY: both pointers are to locals.
        unsafe { self.symbols.GetNumberModules(&mut loaded, &mut unloaded) }.said("count modules")?;
        Ok((loaded, unloaded))
    }

    fn module_parameters(&self, index: u32) -> Result<DEBUG_MODULE_PARAMETERS> {
        let mut parameters = DEBUG_MODULE_PARAMETERS::default();
        // SAFETY: one entry is asked for and there is room for one.
        unsafe { self.symbols.GetModuleParameters(1, None, index, &mut parameters) }.said("read a module")?;
        Ok(parameters)
    }

    fn module_name(&self, which: u32, index: u32, base: u64) -> String {
        names::wide(|buffer, size| {
            // SAFETY: the buffers live for the call.
            unsafe { self.symbols.GetModuleNameStringWide(which, index, base, buffer, size) }
        })
        .unwrap_or_default()
    }

    pub(crate) fn read_modules(&self) -> Result<Vec<Module>> {
        let (loaded, _) = self.module_counts()?;
        let mut modules: Vec<Module> =
            (0..loaded.min(MODULES)).map(|index| self.module(index)).collect::<Result<_>>()?;
        name_apart(&mut modules);
        Ok(modules)
    }

    fn module(&self, index: u32) -> Result<Module> {
        let parameters = self.module_parameters(index)?;
        let base = self.narrow(parameters.Base);
        let path = self.module_name(DEBUG_MODNAME_IMAGE, index, 0);
        let (pdb, version) = self.image_identity(base, index);
        let size = u64::from(parameters.Size).min(u64::MAX - base);
        Ok(Module {
            name: qualifier(&self.module_name(DEBUG_MODNAME_MODULE, index, 0)),
            image_name: target::base_name(&path).to_owned(),
            image_path: path,
            base,
            size,
            timestamp: parameters.TimeDateStamp,
            checksum: parameters.Checksum,
            pdb,
            user_mode: self.facts.kind.is_kernel().then_some(parameters.Flags & 2 != 0),
            file_version: version,
        })
    }

    /// The CodeView record in the image's memory, and the file version.
    fn image_identity(&self, base: u64, index: u32) -> (Option<PdbIdentity>, Option<[u16; 4]>) {
        let image = pe::MappedImage::new(self, base);
        let header = pe::Pe::parse(&image).ok();
        let pdb = header.as_ref().and_then(|pe| pe.pdb(&image));
        let version = self
            .fixed_version(index, base)
            .or_else(|| header.and_then(|pe| pe.version(&image)).and_then(|v| v.file_version));
        (pdb, version)
    }

    /// `VS_FIXEDFILEINFO` as the engine has it: from the dump's record or the image.
    fn fixed_version(&self, index: u32, base: u64) -> Option<[u16; 4]> {
        let mut fixed = [0u32; 13];
        let mut size = 0;
        // SAFETY: the buffer is as long as said and lives for the call.
        unsafe {
            self.symbols.GetModuleVersionInformationWide(
                index,
                self.widen(base),
                w!("\\"),
                Some(fixed.as_mut_ptr().cast()),
                u32::try_from(size_of_val(&fixed)).unwrap_or(0),
                Some(&mut size),
            )
        }
        .ok()?;
        let (high, low) = (fixed[2], fixed[3]);
        let half = |value: u32, shift: u32| u16::try_from((value >> shift) & 0xffff).unwrap_or(0);
        let version = [half(high, 16), half(high, 0), half(low, 16), half(low, 0)];
        (fixed[0] == FIXED_INFO_SIGNATURE && version != [0; 4]).then_some(version)
    }

    pub(crate) fn read_unloaded(&self) -> Result<Vec<UnloadedModule>> {
        let (loaded, unloaded) = self.module_counts()?;
        let rows = loaded..loaded.saturating_add(unloaded.min(UNLOADED));
        rows.map(|index| {
            let parameters = self.module_parameters(index)?;
            let name = self.module_name(DEBUG_MODNAME_IMAGE, index, 0);
            Ok(UnloadedModule {
                image_name: target::base_name(&name).to_owned(),
                base: self.narrow(parameters.Base),
                size: u64::from(parameters.Size),
                timestamp: parameters.TimeDateStamp,
                checksum: parameters.Checksum,
            })
        })
        .collect()
    }

    pub(crate) fn read_symbol_status(&self, base: u64, load: bool) -> Result<SymbolStatus> {
        let wide_base = self.widen(base);
        if load {
            // Asking for a name at the base makes the engine look for symbols.
            // SAFETY: no buffers.
            let _ = unsafe { self.symbols.GetNameByOffsetWide(wide_base, None, None, None) };
        }
        let mut parameters = DEBUG_MODULE_PARAMETERS::default();
        // SAFETY: one base in, one entry out.
        unsafe { self.symbols.GetModuleParameters(1, Some(&wide_base), 0, &mut parameters) }
            .map_err(|_| TargetError::InvalidArgument(format!("no module is loaded at {base:#x}")))?;
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
        let named =
            |which| Some(self.module_name(which, u32::MAX, wide_base)).filter(|name| !name.is_empty());
        let (pdb, unmatched) = match state {
            SymbolState::Pdb | SymbolState::Dia => self.loaded_pdb(wide_base),
            // What the dump recorded of it, where the image itself is not there.
            SymbolState::None | SymbolState::Export => {
                (self.image_pdb(base).or_else(|| self.loaded_pdb(wide_base).0), false)
            }
            _ => (self.image_pdb(base), false),
        };
        let file = match state {
            SymbolState::None | SymbolState::Deferred => None,
            SymbolState::Export | SymbolState::Coff | SymbolState::CodeView => {
                named(DEBUG_MODNAME_SYMBOL_FILE)
                    .or_else(|| named(DEBUG_MODNAME_LOADED_IMAGE))
                    .or_else(|| named(DEBUG_MODNAME_IMAGE))
            }
            _ => named(DEBUG_MODNAME_SYMBOL_FILE),
        };
        Ok(SymbolStatus { state, pdb, file, unmatched, note: None })
    }

    fn image_pdb(&self, base: u64) -> Option<PdbIdentity> {
        let image = pe::MappedImage::new(self, base);
        pe::Pe::parse(&image).ok().and_then(|pe| pe.pdb(&image))
    }

    /// Identity of the PDB in use, and whether it is another build's.
    fn loaded_pdb(&self, wide_base: u64) -> (Option<PdbIdentity>, bool) {
        let mut info = IMAGEHLP_MODULEW64::default();
        let size = u32::try_from(size_of_val(&info)).unwrap_or(0);
        info.SizeOfStruct = size;
        // SAFETY: the record is as long as said and lives for the call.
        let read = unsafe {
            self.advanced.GetSymbolInformationWide(
                DEBUG_SYMINFO_IMAGEHLP_MODULEW64,
                wide_base,
                0,
                Some((&raw mut info).cast()),
                size,
                None,
                None,
                None,
            )
        };
        if read.is_err() || info.PdbSig70 == windows::core::GUID::zeroed() {
            return (None, false);
        }
        let guid = info.PdbSig70;
        let mut bytes = [0u8; 16];
        bytes[..4].copy_from_slice(&guid.data1.to_le_bytes());
        bytes[4..6].copy_from_slice(&guid.data2.to_le_bytes());
        bytes[6..8].copy_from_slice(&guid.data3.to_le_bytes());
        bytes[8..].copy_from_slice(&guid.data4);
        let text = |units: &[u16]| {
            let end = units.iter().position(|&u| u == 0).unwrap_or(units.len());
            String::from_utf16_lossy(&units[..end])
        };
        let recorded = text(&info.CVData);
        let name = if recorded.is_empty() { text(&info.LoadedPdbName) } else { recorded };
        (Some(PdbIdentity { guid: target::Guid(bytes), age: info.PdbAge, name }), info.PdbUnmatched.as_bool())
    }
}

/// Characters a symbol expression cannot hold become `_`, as the engine does for most of them.
fn qualifier(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || c == '_' || c == '$' { c } else { '_' }).collect()
}

/// Every module has a name of its own; a later one of the same name carries its base.
fn name_apart(modules: &mut [Module]) {
    let mut used = std::collections::HashSet::new();
    for module in modules {
        if module.name.is_empty() {
            module.name = format!("image{:x}", module.base);
        }
        if !used.insert(module.name.to_ascii_lowercase()) {
            module.name = format!("{}_{:x}", module.name, module.base);
            used.insert(module.name.to_ascii_lowercase());
        }
    }
}
