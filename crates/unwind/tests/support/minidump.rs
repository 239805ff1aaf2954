//! A minidump as an [`UnwindSource`]: just enough of the format for the walks under test.

use std::path::Path;
use std::rc::Rc;

use pe::{DirectoryIndex, FileImage, ImageSource, MappedImage, Pe};
use target::{Context, ContextSource, Machine, Memory, ReadOutcome, Space, Unreadable};
use unwind::{FrameProgram, UnwindImage, UnwindSource};

pub struct Module {
    pub base: u64,
    pub size: u64,
    pub timestamp: u32,
    pub name: String,
}

/// Memory behind an `Rc`, so that images may hold it.
#[derive(Clone)]
pub struct Shared(pub Rc<Vec<(u64, Vec<u8>)>>);
impl Memory for Shared {
    fn read(&self, _: Space, address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.wrapping_add(done as u64);
            let piece = self.0.iter().find_map(|(start, bytes)| {
                bytes.get(usize::try_from(at.checked_sub(*start)?).ok()?..).filter(|p| !p.is_empty())
            });
            let Some(piece) = piece else { return ReadOutcome::stopped(done, Unreadable::NotInDump) };
            let count = piece.len().min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&piece[..count]);
            done += count;
        }
        ReadOutcome::complete(done)
    }
}

pub struct Dump {
    pub machine: Machine,
    pub memory: Shared,
    pub modules: Vec<Module>,
    pub threads: Vec<(u32, Option<Context>)>,
    pub exception: Option<Context>,
    /// Image files by module base.
    pub files: Vec<(u64, Rc<super::Image>)>,
    /// Frame records as RVAs of the module at the base.
    pub programs: Vec<(u64, Vec<FrameProgram>)>,
}

fn u32_at(d: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(d[at..at + 4].try_into().unwrap())
}
fn u64_at(d: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(d[at..at + 8].try_into().unwrap())
}

fn stream(d: &[u8], kind: u32) -> Option<usize> {
    let (count, directory) = (u32_at(d, 8) as usize, u32_at(d, 12) as usize);
    (0..count)
        .map(|i| directory + 12 * i)
        .find(|&at| u32_at(d, at) == kind)
        .map(|at| u32_at(d, at + 8) as usize)
}

impl Dump {
    pub fn open(path: &Path) -> Self {
        let mut bytes = std::fs::read(path).unwrap();
        if path.extension().is_some_and(|e| e == "xz") {
            let mut out = Vec::new();
            std::io::Read::read_to_end(&mut liblzma::read::XzDecoder::new(&bytes[..]), &mut out).unwrap();
            bytes = out;
        }
        Self::parse(&bytes)
    }

    fn parse(d: &[u8]) -> Self {
        let info = stream(d, 7).unwrap();
        let architecture = u16::from_le_bytes([d[info], d[info + 1]]);
        let machine = Machine::from_processor_architecture(architecture).unwrap();
        let context = |at: usize| {
            let (size, rva) = (u32_at(d, at) as usize, u32_at(d, at + 4) as usize);
            Context::from_bytes(machine, d.get(rva..rva + size)?, ContextSource::Thread)
        };
        let mut memory: Vec<(u64, Vec<u8>)> = Vec::new();
        if let Some(at) = stream(d, 5) {
            for i in 0..u32_at(d, at) as usize {
                let (size, rva) =
                    (u32_at(d, at + 12 + 16 * i) as usize, u32_at(d, at + 16 + 16 * i) as usize);
                memory.push((u64_at(d, at + 4 + 16 * i), d[rva..rva + size].to_vec()));
            }
        }
        if let Some(at) = stream(d, 9) {
            let mut rva = u64_at(d, at + 8) as usize;
            for i in 0..u64_at(d, at) as usize {
                let size = u64_at(d, at + 24 + 16 * i) as usize;
                memory.push((u64_at(d, at + 16 + 16 * i), d[rva..rva + size].to_vec()));
                rva += size;
            }
        }
        let threads = stream(d, 3).map_or_else(Vec::new, |at| {
            (0..u32_at(d, at) as usize)
                .map(|i| (u32_at(d, at + 4 + 48 * i), context(at + 4 + 48 * i + 40)))
                .collect()
        });
        let at = stream(d, 4).unwrap();
        let modules = (0..u32_at(d, at) as usize)
            .map(|i| {
                let m = at + 4 + 108 * i;
                let name = u32_at(d, m + 20) as usize;
                let text = &d[name + 4..name + 4 + u32_at(d, name) as usize];
                let units: Vec<u16> = text.chunks(2).map(|u| u16::from_le_bytes([u[0], u[1]])).collect();
                let name = String::from_utf16_lossy(&units);
                Module {
                    base: u64_at(d, m),
                    size: u64::from(u32_at(d, m + 8)),
                    timestamp: u32_at(d, m + 16),
                    name,
                }
            })
            .collect();
        Self {
            machine,
            memory: Shared(Rc::new(memory)),
            modules,
            threads,
            exception: stream(d, 6).and_then(|at| context(at + 160)),
            files: Vec::new(),
            programs: Vec::new(),
        }
    }

    pub fn module(&self, name: &str) -> u64 {
        self.modules.iter().find(|m| m.name.to_lowercase().ends_with(name)).unwrap().base
    }

    pub fn add_image(&mut self, name: &str, path: &Path) {
        let image = FileImage::new(std::fs::read(path).unwrap()).unwrap();
        self.files.push((self.module(name), Rc::new(super::Image(image))));
    }

    /// Adds the file if its time stamp and size are the module's.
    pub fn add_matching_image(&mut self, name: &str, path: &Path) -> bool {
        let base = self.module(name);
        let module = self.modules.iter().find(|m| m.base == base).unwrap();
        let pe = Pe::parse(FileImage::new(std::fs::read(path).unwrap()).as_ref().unwrap()).unwrap();
        let same = u64::from(pe.size_of_image) == module.size && pe.timestamp == module.timestamp;
        if same {
            self.add_image(name, path);
        }
        same
    }

    fn image_source(&self, base: u64) -> Rc<dyn ImageSource> {
        match self.files.iter().find(|(b, _)| *b == base) {
            Some((_, image)) => image.clone(),
            None => Rc::new(MappedImage::new(self.memory.clone(), base)),
        }
    }
}

impl UnwindSource for Dump {
    fn memory(&self) -> &dyn Memory {
        &self.memory
    }
    fn image_at(&self, address: u64) -> Option<UnwindImage> {
        let m = self.modules.iter().find(|m| address >= m.base && address - m.base < m.size)?;
        let source = self.image_source(m.base);
        let pe = Pe::parse(&*source).ok();
        Some(UnwindImage {
            base: m.base,
            size: m.size,
            machine: pe.as_ref().and_then(|p| p.machine).unwrap_or(self.machine),
            exception_directory: pe.and_then(|p| p.directory(DirectoryIndex::Exception)).unwrap_or((0, 0)),
            source,
        })
    }
    fn is_executable(&self, address: u64) -> Option<bool> {
        let image = self.image_at(address)?;
        Pe::parse(&*image.source).ok()?.is_executable(image.rva(address)?)
    }
    fn frame_program(&self, address: u64) -> Option<FrameProgram> {
        let m = self.modules.iter().find(|m| address >= m.base && address - m.base < m.size)?;
        let (_, programs) = self.programs.iter().find(|(base, _)| *base == m.base)?;
        let rva = address - m.base;
        let hit = programs.iter().filter(|p| rva >= p.start && rva < p.end).max_by_key(|p| p.start)?;
        let mut hit = hit.clone();
        hit.start += m.base;
        hit.end += m.base;
        Some(hit)
    }
}
