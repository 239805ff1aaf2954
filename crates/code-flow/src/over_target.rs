//! An image of a target, whatever the target is: its memory first, the matching image file behind
//! holes in sections that cannot be written.

use std::cell::OnceCell;

use pe::{ImageSource, Pe};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::value::HexBytes;
use target::{Halt, Module, Rva, SymbolKind, Target, TargetExt, TargetKind};

use crate::image::{CodeImage, ImageError, Origin, PageRead, PageSource};
use crate::symbols::Names;

/// Most functions taken from symbols.
const MAX_FUNCTIONS: usize = 1 << 17;
/// Pages compared between the target and the file.
const SAMPLED_PAGES: u32 = 16;
/// Bytes compared at the start of each executable section.
const SECTION_START: usize = 64;
const PAGE: usize = 0x1000;

/// The image `module` of `target`. Loads the module's symbols if that was not tried yet.
///
/// # Errors
/// Its headers are nowhere to be read, or are no image of a machine whose code is read.
pub fn open<'t>(target: &'t dyn Target, module: &Module, halt: &Halt) -> Result<CodeImage<'t>, ImageError> {
    // Whatever comes of it, names are optional.
    let _ = target.symbol_status(module.base, true);
    let source = TargetPages {
        target,
        base: module.base,
        is_file: target.facts().kind == TargetKind::Image,
        pe: OnceCell::new(),
    };
    let names = TargetNames { target, module: module.clone(), halt: halt.clone() };
    Ok(CodeImage::open(module, Box::new(source))?.with_names(Box::new(names)))
}

struct TargetPages<'t> {
    target: &'t dyn Target,
    base: u64,
    is_file: bool,
    /// Headers, to know which sections may be taken from the file.
    pe: OnceCell<Option<Pe>>,
}

struct FileOnly<'s, 't>(&'s TargetPages<'t>);

impl ImageSource for FileOnly<'_, '_> {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        self.0.target.read_image_file(self.0.base, rva, buffer).unwrap_or(0).min(buffer.len())
    }
}

impl TargetPages<'_> {
    /// Whether the file's bytes at `rva` are what the target would have there.
    fn is_constant(&self, rva: u32) -> bool {
        let pe = self.pe.get_or_init(|| Pe::parse(&FileOnly(self)).ok());
        match pe {
            Some(pe) => pe.section_at(rva).map_or(rva < pe.size_of_headers, |section| !section.is_writable()),
            None => false,
        }
    }
}

impl PageSource for TargetPages<'_> {
    fn read_page(&self, rva: u32, buffer: &mut [u8]) -> PageRead {
        let address = self.base.wrapping_add(u64::from(rva));
        let own = self.target.read_own(address, buffer).read.min(buffer.len());
        if self.is_file {
            return PageRead { read: own, origin: Origin::ImageFile };
        }
        let rest = u32::try_from(own).ok().and_then(|own| rva.checked_add(own));
        let from_file = match rest {
            Some(rest) if own < buffer.len() && self.is_constant(rest) => {
                FileOnly(self).read_rva(rest, &mut buffer[own..])
            }
            _ => 0,
        };
        let origin = match (own, from_file) {
            (0, 1..) => Origin::ImageFile,
            (_, 1..) => Origin::Both,
            _ => Origin::Target,
        };
        PageRead { read: own + from_file, origin }
    }

    fn is_a_file(&self) -> bool {
        self.is_file
    }
}

struct TargetNames<'t> {
    target: &'t dyn Target,
    module: Module,
    halt: Halt,
}

impl Names for TargetNames<'_> {
    fn nearest(&self, address: u64) -> Option<(String, u64)> {
        let hit = self.target.symbol_at(address).ok().flatten()?;
        (hit.module == self.module.name || self.module.contains(hit.address))
            .then_some((hit.name, hit.displacement))
    }

    fn functions(&self, start: u64, end: u64) -> Vec<u64> {
        let pattern = format!("{}!*", self.module.name);
        let found = self.target.find_symbols(&pattern, MAX_FUNCTIONS, &self.halt).unwrap_or_default();
        found
            .into_iter()
            .filter(|hit| matches!(hit.kind, SymbolKind::Function | SymbolKind::Export | SymbolKind::Public))
            .map(|hit| hit.address)
            .filter(|address| (start..end).contains(address))
            .collect()
    }

    fn bound(&self, address: u64) -> Option<(String, String)> {
        let module = self.target.module_at(address).ok().flatten()?;
        let hit = self.target.symbol_at(address).ok().flatten().filter(|hit| hit.displacement == 0)?;
        Some((module.image_name, hit.name))
    }
}

/// A place where the target's code is not the file's: hooked, hot-patched or rewritten by the loader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Divergence {
    pub rva: Rva,
    /// The target's bytes there, at most 16.
    pub bytes: HexBytes,
}

/// Compares the start of each executable section and some pages of code with the image file.
/// Empty where only one of the two can be read.
#[must_use]
pub fn divergences(target: &dyn Target, image: &CodeImage<'_>) -> Vec<Divergence> {
    if target.facts().kind == TargetKind::Image {
        return Vec::new();
    }
    let code: Vec<_> = image.pe.sections.iter().filter(|section| section.is_executable()).collect();
    let mut places: Vec<(u32, usize)> = code.iter().map(|section| (section.rva, SECTION_START)).collect();
    let pages = |section: &&pe::Section| section.virtual_size.min(image.size) / PAGE as u32 + 1;
    let all: u32 = code.iter().map(pages).fold(0, u32::saturating_add);
    let step = all.div_ceil(SAMPLED_PAGES).max(1);
    for section in &code {
        let sampled = (0..pages(section)).step_by(step as usize).take(SAMPLED_PAGES as usize);
        places.extend(sampled.map(|page| (section.rva.saturating_add(page * PAGE as u32), PAGE)));
    }
    places.sort_unstable();
    let mut out: Vec<Divergence> = Vec::new();
    for (rva, length) in places {
        let (mut own, mut file) = (vec![0; length], vec![0; length]);
        let read = target.read_own(image.base.wrapping_add(u64::from(rva)), &mut own).read;
        let filed = target.read_image_file(image.base, rva, &mut file).unwrap_or(0);
        let length = read.min(filed).min(length);
        let differs = own[..length].iter().zip(&file[..length]).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let rva = Rva(u64::from(rva) + at as u64);
            let bytes = HexBytes(own[at..length.min(at + 16)].to_vec());
            if out.last().is_none_or(|last| last.rva != rva) {
                out.push(Divergence { rva, bytes });
            }
        }
    }
    out
}
