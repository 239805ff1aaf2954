//! Indexes of images kept between questions.

use std::rc::Rc;

use target::{Halt, Target};

use crate::image::CodeImage;
use crate::references::ImageIndex;

/// Images kept.
const MAX_IMAGES: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    generation: u64,
    aim: String,
    base: u64,
    size: u64,
    timestamp: u32,
    checksum: u32,
}

/// Keeps the indexes of the images asked about last. Of targets that move nothing is kept.
#[derive(Debug, Default)]
pub struct IndexCache {
    kept: Vec<(Key, Rc<ImageIndex>)>,
}

impl IndexCache {
    /// The index of `image`, built if it is not kept. The image learns the starts of functions it found.
    pub fn index(&mut self, target: &dyn Target, image: &CodeImage<'_>, halt: &Halt) -> Rc<ImageIndex> {
        if target.facts().kind.is_live() {
            return Rc::new(ImageIndex::build(image, halt));
        }
        let identity = target.identity();
        let key = Key {
            generation: identity.generation,
            aim: identity.aim,
            base: image.base,
            size: image.record.size,
            timestamp: image.record.timestamp,
            checksum: image.record.checksum,
        };
        if let Some(at) = self.kept.iter().position(|(have, _)| *have == key) {
            let kept = self.kept.remove(at);
            let index = Rc::clone(&kept.1);
            self.kept.push(kept);
            image.learn(&index);
            return index;
        }
        let index = Rc::new(ImageIndex::build(image, halt));
        // What was cut short, or lacked pages another symbol path may bring, is worth another try.
        if index.coverage.stopped.is_none() && index.coverage.unreadable_bytes == 0 {
            if self.kept.len() >= MAX_IMAGES {
                self.kept.remove(0);
            }
            self.kept.push((key, Rc::clone(&index)));
        }
        index
    }
}
