//! The image of an image session as a replay wants it: its bytes taken over once.

use std::rc::Rc;

use pe::{ImageSource, Pe};
use target::{MemoryExt as _, Module, Target, TargetKind};

use crate::image::PlacedImage;

/// Images above this are not replayed: no driver comes near.
const MAX_IMAGE: u64 = 64 << 20;
const PAGE: usize = 0x1000;

struct Pages {
    /// A page, or nothing where it did not read.
    pages: Vec<Option<Box<[u8]>>>,
}

impl ImageSource for Pages {
    fn read_rva(&self, rva: u32, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = usize::try_from(rva).ok().and_then(|rva| rva.checked_add(done)) else { break };
            let Some(Some(page)) = self.pages.get(at / PAGE) else { break };
            let piece = page.get(at % PAGE..).unwrap_or_default();
            let count = piece.len().min(buffer.len() - done);
            if count == 0 {
                break;
            }
            buffer[done..done + count].copy_from_slice(&piece[..count]);
            done += count;
        }
        done
    }
}

/// The image `module` of an image session, placed where the session has it. `None` for other kinds of
/// target (they have the objects themselves), for another machine, and for an image that does not parse.
#[must_use]
pub fn placed(target: &dyn Target, module: &Module) -> Option<PlacedImage> {
    if target.facts().kind != TargetKind::Image || module.size > MAX_IMAGE {
        return None;
    }
    let mut pages = Vec::new();
    for offset in (0..module.size).step_by(PAGE) {
        let left = usize::try_from(module.size - offset).unwrap_or(PAGE).min(PAGE);
        let (bytes, _) = target.read_prefix(module.base.wrapping_add(offset), left);
        pages.push((!bytes.is_empty()).then(|| bytes.into_boxed_slice()));
    }
    let bytes = Rc::new(Pages { pages });
    let pe = Rc::new(Pe::parse(bytes.as_ref()).ok()?);
    PlacedImage::new(pe, bytes, module.base, &module.image_name)
}

/// The framework the image `module` is written for, by its imports.
#[must_use]
pub fn framework_in(target: &dyn Target, module: &Module) -> Option<crate::Framework> {
    let source = pe::MappedImage::new(target, module.base);
    let headers = Pe::parse(&source).ok()?;
    crate::framework_of(&headers.imports(&source))
}
