//! Addresses attributed to images, each image described once in a result.

use code_flow::{CodeLocation, ImageRecord};
use target::{Address, Module, Rva, Target};

/// Attributes addresses of one target and remembers the images it named.
pub struct Locations<'a> {
    target: &'a dyn Target,
    modules: Option<std::sync::Arc<[Module]>>,
    images: Vec<ImageRecord>,
}

impl<'a> Locations<'a> {
    #[must_use]
    pub fn new(target: &'a dyn Target) -> Self {
        Self { target, modules: target.modules().ok(), images: Vec::new() }
    }

    /// The module that holds `address`; `Err` when the look-up itself failed.
    pub(crate) fn module(&self, address: u64) -> Result<Option<&Module>, ()> {
        let modules = self.modules.as_ref().ok_or(())?;
        Ok(modules.iter().find(|module| module.contains(address)))
    }

    /// The location of an address.
    pub fn at(&mut self, address: u64) -> CodeLocation {
        let mut out = CodeLocation {
            address: Address(address),
            module: None,
            rva: None,
            symbol: None,
            displacement: None,
            section: None,
            attribution_failed: false,
        };
        let module = match self.module(address) {
            Ok(module) => module.cloned(),
            Err(()) => {
                out.attribution_failed = true;
                return out;
            }
        };
        let Some(module) = module else { return out };
        out.module = Some(module.name.clone());
        out.rva = Some(Rva(address - module.base));
        if let Ok(Some(hit)) = self.target.symbol_at(address) {
            out.symbol = Some(hit.name.clone());
            out.displacement = Some(Rva(hit.displacement));
        }
        self.note(&module);
        out
    }

    /// Describes an image in the result although no address named it.
    pub fn note(&mut self, module: &Module) {
        if !self.images.iter().any(|image| image.base.0 == module.base) {
            self.images.push(ImageRecord::of(module));
        }
    }

    #[must_use]
    pub fn images(self) -> Vec<ImageRecord> {
        self.images
    }
}
