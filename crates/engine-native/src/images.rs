//! Image files that stand behind modules: found along the paths, matched by PE identity, read as
//! the loader would have laid them out.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use dump::MappedFile;
use pe::FileImage;
use symbol_store::{Settings, SymbolPath, Verdict, Wanted, find};
use target::{Module, SymbolPaths};

use crate::bound::CallBound;
use crate::core::{ModuleKey, key_of};

/// Longest one look-up for an image may take, servers included.
const LOOKUP_BUDGET: Duration = Duration::from_secs(20);

/// A mapped file as [`FileImage`] wants its bytes.
#[derive(Debug)]
pub(crate) struct FileBytes(MappedFile);

impl FileBytes {
    pub(crate) fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        MappedFile::map(file, path).ok().map(Self)
    }
    pub(crate) fn new(file: MappedFile) -> Self {
        Self(file)
    }
}

impl AsRef<[u8]> for FileBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// An image file and where it was found.
pub(crate) struct LoadedImage {
    pub(crate) file: FileImage<FileBytes>,
    pub(crate) path: PathBuf,
}

/// Finds and keeps image files by module.
#[derive(Default)]
pub(crate) struct ImageFiles {
    search: RefCell<SymbolPath>,
    network: Cell<bool>,
    pub(crate) bound: CallBound,
    found: RefCell<HashMap<ModuleKey, Option<Rc<LoadedImage>>>>,
}

impl ImageFiles {
    /// Where to look: the image path, the symbol path, the dump's own folder. Modules without a
    /// file look again.
    pub(crate) fn set_paths(&self, paths: &SymbolPaths, own_folder: Option<&Path>) {
        let mut path = SymbolPath::parse(&paths.images);
        path.elements.extend(SymbolPath::parse(&paths.symbols).elements);
        if let Some(folder) = own_folder {
            path.push_folder(folder);
        }
        *self.search.borrow_mut() = path;
        self.network.set(paths.network);
        self.found.borrow_mut().retain(|_, image| image.is_some());
    }

    /// An image that is known without searching (the image a session was opened on).
    pub(crate) fn put(&self, module: &Module, image: Rc<LoadedImage>) {
        self.found.borrow_mut().insert(key_of(module), Some(image));
    }

    /// The file of `module`, if it was found before.
    pub(crate) fn known(&self, module: &Module) -> Option<Rc<LoadedImage>> {
        self.found.borrow().get(&key_of(module)).cloned().flatten()
    }

    /// The file of `module`, looked for once.
    pub(crate) fn of(&self, module: &Module) -> Option<Rc<LoadedImage>> {
        if let Some(known) = self.found.borrow().get(&key_of(module)) {
            return known.clone();
        }
        let (image, complete) = self.look_for(module);
        let image = image.map(Rc::new);
        if complete {
            self.found.borrow_mut().insert(key_of(module), image.clone());
        }
        image
    }

    /// The image, and whether the look-up ran to its end.
    fn look_for(&self, module: &Module) -> (Option<LoadedImage>, bool) {
        let size = u32::try_from(module.size).ok().filter(|&s| s != 0);
        let Some(size) = size.filter(|_| module.timestamp != 0 || module.pdb.is_some()) else {
            return (None, true);
        };
        let opened: RefCell<Option<LoadedImage>> = RefCell::default();
        let verify = |path: &Path| match open_image(path) {
            None => Verdict::NotThis,
            Some(image) => {
                let pe = image.file.pe();
                if pe.timestamp == module.timestamp && pe.size_of_image == size {
                    *opened.borrow_mut() = Some(image);
                    Verdict::Match
                } else {
                    Verdict::Mismatch(format!(
                        "the file is {:08X}{:x}, the module {:08X}{size:x}",
                        pe.timestamp, pe.size_of_image, module.timestamp
                    ))
                }
            }
        };
        let settings = Settings::with_network(self.network.get());
        let halt = self.bound.lookup(LOOKUP_BUDGET);
        for name in names_of(module) {
            let wanted = Wanted::Image { name, timestamp: module.timestamp, size };
            let search = find(&self.search.borrow(), &wanted, &settings, &halt, &verify);
            if search.found.is_some() || search.cut_short {
                return (opened.into_inner(), !search.cut_short);
            }
        }
        (None, true)
    }
}

/// File names an image may be stored under: the kernel is installed under another name than it
/// was built as, and stores file it under both.
fn names_of(module: &Module) -> Vec<String> {
    let mut names = vec![module.image_name.clone()];
    if module.name == "nt" {
        let built = ["ntoskrnl.exe", "ntkrnlmp.exe", "ntkrla57.exe"];
        names.extend(
            built.iter().filter(|n| !n.eq_ignore_ascii_case(&module.image_name)).map(|n| (*n).to_owned()),
        );
    }
    names
}

/// Maps and parses an image file.
pub(crate) fn open_image(path: &Path) -> Option<LoadedImage> {
    let file = FileImage::new(FileBytes::open(path)?).ok()?;
    Some(LoadedImage { file, path: path.to_owned() })
}
