//! User minidumps.

use std::fs::File;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::path::Path;

use target::{Context, ExceptionRecord, Machine};

use crate::bytes::{low32, pad_to, put, put16, put32, put64, utf16};
use crate::image::{Function, Image, ImageBuilder};
use crate::stack::{BuiltStack, FrameSpec, StackBuilder};

/// Bytes of a memory range.
#[derive(Clone, Debug)]
pub enum Content {
    Bytes(Vec<u8>),
    /// This many zeros: they cost no disk where files may be sparse.
    Zeros(u64),
    /// This many bytes of a pattern without zeros, made while they are written.
    Pattern(u64),
}

impl Content {
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(size) | Self::Pattern(size) => *size,
        }
    }

    fn write<W: Write + Seek>(&self, out: &mut W) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => out.write_all(bytes),
            Self::Zeros(0) => Ok(()),
            Self::Zeros(size) => {
                out.seek(SeekFrom::Current(size.cast_signed() - 1))?;
                out.write_all(&[0])
            }
            Self::Pattern(size) => {
                let block: Vec<u8> = (0..0x1_0000u32).map(|i| (i % 251 + 1).to_le_bytes()[0]).collect();
                std::io::copy(&mut std::io::Read::take(Repeat(&block, 0), *size), out).map(|_| ())
            }
        }
    }
}

/// A block over and over.
struct Repeat<'a>(&'a [u8], usize);

impl std::io::Read for Repeat<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.0[self.1..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.1 = (self.1 + count) % self.0.len();
        Ok(count)
    }
}

#[derive(Clone, Debug)]
pub struct UserThread {
    pub id: u32,
    pub teb: u64,
    pub context: Context,
    /// Bytes behind the `CONTEXT` record, as XSAVE leaves them.
    pub extended: u32,
    /// Lowest address and bytes of the saved stack.
    pub stack: (u64, Vec<u8>),
    pub name: Option<String>,
    pub start_address: u64,
}

impl UserThread {
    /// A thread on a built stack.
    #[must_use]
    pub fn new(id: u32, stack: &BuiltStack) -> Self {
        Self {
            id,
            teb: 0x7f_0000 + 0x2000 * u64::from(id),
            context: stack.context.clone(),
            extended: 0,
            stack: (stack.low, stack.bytes.clone()),
            name: None,
            start_address: stack.frames.last().map_or(0, |f| f.ip),
        }
    }
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }
}

#[derive(Clone, Debug, Default)]
pub struct UserModule {
    pub base: u64,
    pub size: u32,
    pub name: String,
    pub timestamp: u32,
    pub checksum: u32,
    pub codeview: Vec<u8>,
    pub file_version: Option<[u16; 4]>,
}

impl UserModule {
    #[must_use]
    pub fn of(image: &Image, base: u64, path: &str) -> Self {
        Self {
            base,
            size: image.size,
            name: path.into(),
            timestamp: image.timestamp,
            checksum: image.checksum,
            codeview: image.codeview.clone(),
            file_version: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct UserException {
    pub thread: u32,
    pub record: ExceptionRecord,
    pub context: Option<Context>,
}

/// Where something was unloaded from, or a region of the address map.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionSpec {
    pub base: u64,
    pub allocation_base: u64,
    pub size: u64,
    /// `MEM_COMMIT` 0x1000, `MEM_RESERVE` 0x2000, `MEM_FREE` 0x10000.
    pub state: u32,
    pub protect: u32,
    /// `MEM_PRIVATE` 0x20000, `MEM_MAPPED` 0x40000, `MEM_IMAGE` 0x1000000.
    pub kind: u32,
}

/// A minidump to be written.
#[derive(Clone, Debug)]
pub struct UserDump {
    pub machine: Machine,
    pub build: u32,
    pub processors: u8,
    /// Seconds since 1970.
    pub time: u32,
    pub flags: u64,
    pub threads: Vec<UserThread>,
    pub modules: Vec<UserModule>,
    pub memory: Vec<(u64, Content)>,
    /// One Memory64List holds all memory; else a MemoryList, and stacks hang on their threads too.
    pub full_memory: bool,
    pub exception: Option<UserException>,
    /// The address map; empty for none.
    pub regions: Vec<RegionSpec>,
    pub process_id: u32,
    /// Seconds since 1970.
    pub process_created: u32,
    pub build_string: Option<String>,
    /// Name, base and size.
    pub unloaded: Vec<(String, u64, u32)>,
    /// Handle, type and object name.
    pub handles: Vec<(u64, String, String)>,
    pub comment: Option<String>,
    /// Further streams, verbatim.
    pub streams: Vec<(u32, Vec<u8>)>,
}

impl UserDump {
    /// A process with nothing in it, on Windows 10 build 19041.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            build: 19041,
            processors: 4,
            time: 0x6553_f100,
            flags: 0,
            threads: Vec::new(),
            modules: Vec::new(),
            memory: Vec::new(),
            full_memory: false,
            exception: None,
            regions: Vec::new(),
            process_id: 0x1234,
            process_created: 0x6553_f000,
            build_string: None,
            unloaded: Vec::new(),
            handles: Vec::new(),
            comment: None,
            streams: Vec::new(),
        }
    }

    /// Adds an image as a module, and its memory when `with_memory`.
    pub fn add_image(&mut self, image: &Image, base: u64, path: &str, with_memory: bool) {
        self.modules.push(UserModule::of(image, base, path));
        if with_memory {
            self.memory.push((base, Content::Bytes(image.mapped_at(base))));
        }
    }

    /// The dump in memory.
    pub fn dump(&self) -> io::Result<Vec<u8>> {
        let mut out = Cursor::new(Vec::new());
        self.write(&mut out)?;
        Ok(out.into_inner())
    }

    /// Streams the dump out; zeros are skipped over.
    pub fn write<W: Write + Seek>(&self, out: &mut W) -> io::Result<()> {
        let mut file = Streams::default();
        // At most twelve kinds of streams are made here.
        file.reserve(12 + self.streams.len());
        self.system_info(&mut file);
        let threads = self.thread_list(&mut file);
        self.module_list(&mut file);
        self.exception_stream(&mut file);
        self.misc_info(&mut file);
        self.small_lists(&mut file);
        for (kind, bytes) in &self.streams {
            file.add(*kind, bytes);
        }
        let list = self.memory_list(&mut file);
        pad_to(&mut file.bytes, 16);
        let base = file.bytes.len() as u64;
        self.place_memory(&mut file, list, base);
        self.place_stacks(&mut file, threads, base);
        file.finish(self);
        out.write_all(&file.bytes)?;
        for (_, content) in &self.memory {
            content.write(out)?;
        }
        Ok(())
    }

    fn system_info(&self, file: &mut Streams) {
        let mut out = vec![0; 56];
        let architecture = match self.machine {
            Machine::X86 => 0,
            Machine::Arm32 => 5,
            Machine::X64 => 9,
            Machine::Arm64 => 12,
        };
        put16(&mut out, 0, architecture);
        put16(&mut out, 2, 6);
        put(&mut out, 6, &[self.processors, 1]);
        put32(&mut out, 8, 10);
        put32(&mut out, 16, self.build);
        put32(&mut out, 20, 2);
        let service_pack = file.string("");
        put32(&mut out, 24, service_pack);
        put16(&mut out, 28, 0x100);
        file.add(7, &out);
    }

    /// Where the list's records begin.
    fn thread_list(&self, file: &mut Streams) -> usize {
        let mut out = low32(self.threads.len()).to_le_bytes().to_vec();
        for thread in &self.threads {
            let mut record = vec![0; 48];
            let mut context = thread.context.to_bytes();
            context.resize(context.len() + thread.extended as usize, 0xee);
            let rva = file.append(&context, 16);
            put32(&mut record, 0, thread.id);
            put32(&mut record, 8, 32);
            put64(&mut record, 16, thread.teb);
            put32(&mut record, 40, low32(context.len()));
            put32(&mut record, 44, rva);
            out.extend(record);
        }
        file.add(3, &out) as usize + 4
    }

    fn module_list(&self, file: &mut Streams) {
        let mut out = low32(self.modules.len()).to_le_bytes().to_vec();
        for module in &self.modules {
            let mut record = vec![0; 108];
            let name = file.string(&module.name);
            put64(&mut record, 0, module.base);
            put32(&mut record, 8, module.size);
            put32(&mut record, 12, module.checksum);
            put32(&mut record, 16, module.timestamp);
            put32(&mut record, 20, name);
            if let Some([a, b, c, d]) = module.file_version {
                put32(&mut record, 24, 0xfeef_04bd);
                put32(&mut record, 28, 0x1_0000);
                for offset in [32, 40] {
                    put32(&mut record, offset, u32::from(a) << 16 | u32::from(b));
                    put32(&mut record, offset + 4, u32::from(c) << 16 | u32::from(d));
                }
            }
            if !module.codeview.is_empty() {
                let rva = file.append(&module.codeview, 4);
                put32(&mut record, 76, low32(module.codeview.len()));
                put32(&mut record, 80, rva);
            }
            out.extend(record);
        }
        file.add(4, &out);
    }

    fn exception_stream(&self, file: &mut Streams) {
        let Some(exception) = &self.exception else { return };
        let mut out = vec![0; 168];
        put32(&mut out, 0, exception.thread);
        put32(&mut out, 8, exception.record.code);
        put32(&mut out, 12, exception.record.flags);
        put64(&mut out, 16, exception.record.nested);
        put64(&mut out, 24, exception.record.address);
        let parameters = &exception.record.parameters[..exception.record.parameters.len().min(15)];
        put32(&mut out, 32, low32(parameters.len()));
        for (index, parameter) in parameters.iter().enumerate() {
            put64(&mut out, 40 + 8 * index, *parameter);
        }
        if let Some(context) = &exception.context {
            let bytes = context.to_bytes();
            let rva = file.append(&bytes, 16);
            put32(&mut out, 160, low32(bytes.len()));
            put32(&mut out, 164, rva);
        }
        file.add(6, &out);
    }

    fn misc_info(&self, file: &mut Streams) {
        let mut out = vec![0; if self.build_string.is_some() { 832 } else { 24 }];
        let size = low32(out.len());
        put32(&mut out, 0, size);
        put32(&mut out, 4, if self.build_string.is_some() { 0x103 } else { 3 });
        put32(&mut out, 8, self.process_id);
        put32(&mut out, 12, self.process_created);
        if let Some(text) = &self.build_string {
            let characters = utf16(text);
            put(&mut out, 232, &characters[..characters.len().min(518)]);
        }
        file.add(15, &out);
    }

    /// The lists that are written only when there is something in them.
    fn small_lists(&self, file: &mut Streams) {
        let named: Vec<&UserThread> = self.threads.iter().filter(|t| t.name.is_some()).collect();
        if !named.is_empty() {
            let mut out = low32(named.len()).to_le_bytes().to_vec();
            for thread in named {
                let name = file.string(thread.name.as_deref().unwrap_or_default());
                out.extend(thread.id.to_le_bytes());
                out.extend(u64::from(name).to_le_bytes());
            }
            file.add(24, &out);
        }
        if self.threads.iter().any(|t| t.start_address != 0) {
            file.add(17, &self.thread_infos());
        }
        if !self.regions.is_empty() {
            file.add(16, &self.memory_infos());
        }
        if !self.unloaded.is_empty() {
            let mut out = list_header(12, 24, self.unloaded.len());
            for (name, base, size) in &self.unloaded {
                let name = file.string(name);
                let mut record = vec![0; 24];
                put64(&mut record, 0, *base);
                put32(&mut record, 8, *size);
                put32(&mut record, 20, name);
                out.extend(record);
            }
            file.add(14, &out);
        }
        if !self.handles.is_empty() {
            let mut out = list_header(16, 32, self.handles.len());
            out.extend([0; 4]);
            for (handle, kind, name) in &self.handles {
                let (kind, name) = (file.string(kind), if name.is_empty() { 0 } else { file.string(name) });
                let mut record = vec![0; 32];
                put64(&mut record, 0, *handle);
                put32(&mut record, 8, kind);
                put32(&mut record, 12, name);
                put32(&mut record, 20, 0x1f_0003);
                put32(&mut record, 24, 2);
                put32(&mut record, 28, 3);
                out.extend(record);
            }
            file.add(12, &out);
        }
        if let Some(comment) = &self.comment {
            let mut text = utf16(comment);
            text.extend([0, 0]);
            file.add(11, &text);
        }
    }

    fn thread_infos(&self) -> Vec<u8> {
        let mut out = list_header(12, 64, self.threads.len());
        for thread in &self.threads {
            let mut record = vec![0; 64];
            put32(&mut record, 0, thread.id);
            put32(&mut record, 12, 0x103);
            put64(&mut record, 48, thread.start_address);
            put64(&mut record, 56, 0xf);
            out.extend(record);
        }
        out
    }

    fn memory_infos(&self) -> Vec<u8> {
        let mut out = list_header(16, 48, self.regions.len());
        out.extend([0; 4]);
        for region in &self.regions {
            let mut record = vec![0; 48];
            put64(&mut record, 0, region.base);
            put64(&mut record, 8, region.allocation_base);
            put32(&mut record, 16, region.protect);
            put64(&mut record, 24, region.size);
            put32(&mut record, 32, region.state);
            put32(&mut record, 36, region.protect);
            put32(&mut record, 40, region.kind);
            out.extend(record);
        }
        out
    }

    /// All stacks' bytes go into the memory of a full dump, else behind the streams. Returns where
    /// the list's records begin.
    fn memory_list(&self, file: &mut Streams) -> usize {
        let count = self.memory.len() + self.threads.len();
        if self.full_memory {
            let mut out = vec![0; 16 + 16 * count];
            put64(&mut out, 0, count as u64);
            file.add(9, &out) as usize
        } else {
            let mut out = vec![0; 4 + 16 * count];
            put32(&mut out, 0, low32(count));
            file.add(5, &out) as usize
        }
    }

    /// Stack bytes lie first in the memory area: see [`Self::place_stacks`].
    fn place_memory(&self, file: &mut Streams, list: usize, base: u64) {
        let stacks = self.threads.iter().map(|t| (t.stack.0, t.stack.1.len() as u64));
        let all = stacks.chain(self.memory.iter().map(|(address, content)| (*address, content.size())));
        let mut offset = base;
        if self.full_memory {
            put64(&mut file.bytes, list + 8, base);
        }
        for (index, (address, size)) in all.enumerate() {
            if self.full_memory {
                put64(&mut file.bytes, list + 16 + 16 * index, address);
                put64(&mut file.bytes, list + 24 + 16 * index, size);
            } else {
                let at = list + 4 + 16 * index;
                put64(&mut file.bytes, at, address);
                put32(&mut file.bytes, at + 8, (size & 0xffff_ffff) as u32);
                put32(&mut file.bytes, at + 12, (offset & 0xffff_ffff) as u32);
            }
            offset += size;
        }
    }

    fn place_stacks(&self, file: &mut Streams, threads: usize, base: u64) {
        let mut offset = base;
        for (index, thread) in self.threads.iter().enumerate() {
            let (low, bytes) = &thread.stack;
            if !self.full_memory {
                let at = threads + 48 * index + 24;
                put64(&mut file.bytes, at, *low);
                put32(&mut file.bytes, at + 8, low32(bytes.len()));
                put32(&mut file.bytes, at + 12, (offset & 0xffff_ffff) as u32);
            }
            offset += bytes.len() as u64;
        }
        for thread in &self.threads {
            file.bytes.extend(&thread.stack.1);
        }
    }
}

/// Where [`large`] puts its memory.
pub const LARGE_MEMORY: u64 = 0x1000_0000;

/// Writes a full-memory x64 dump of a crashed process with `bytes` bytes of memory at
/// [`LARGE_MEMORY`], streamed to the file: for tests of size and speed.
pub fn large(path: &Path, bytes: u64) -> io::Result<()> {
    let base = 0x1_4000_0000;
    let image = ImageBuilder::new(Machine::X64, "large.exe")
        .program()
        .function(Function::new("crash"))
        .function(Function::new("main").saving(&[3, 6]))
        .build();
    let frames = [FrameSpec::inside(&image, base, "crash"), FrameSpec::calling(&image, base, "main")];
    let stack = StackBuilder::new(Machine::X64, 0x20_0000, 0x4000).build(&frames, 0);
    let mut dump = UserDump::new(Machine::X64);
    dump.full_memory = true;
    dump.add_image(&image, base, r"C:\fx\large.exe", true);
    dump.threads.push(UserThread::new(0x10, &stack));
    dump.exception = Some(UserException {
        thread: 0x10,
        record: ExceptionRecord {
            code: 0xc000_0005,
            address: frames[0].ip,
            parameters: vec![1, 0x45],
            ..ExceptionRecord::default()
        },
        context: Some(stack.context.clone()),
    });
    dump.memory.push((LARGE_MEMORY, Content::Pattern(bytes)));
    dump.write(&mut io::BufWriter::new(File::create(path)?))
}

fn list_header(header: u32, entry: u32, count: usize) -> Vec<u8> {
    [header, entry, low32(count)].into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The file up to its memory.
#[derive(Default)]
struct Streams {
    bytes: Vec<u8>,
    directory: Vec<(u32, u32, u32)>,
}

impl Streams {
    /// Room for the header and a directory of `count` entries.
    fn reserve(&mut self, count: usize) {
        self.bytes.resize(32 + 12 * count, 0);
    }
    fn append(&mut self, bytes: &[u8], align: usize) -> u32 {
        pad_to(&mut self.bytes, align);
        let at = low32(self.bytes.len());
        self.bytes.extend(bytes);
        at
    }
    fn add(&mut self, kind: u32, bytes: &[u8]) -> u32 {
        let at = self.append(bytes, 8);
        self.directory.push((kind, low32(bytes.len()), at));
        at
    }
    /// A `MINIDUMP_STRING`.
    fn string(&mut self, text: &str) -> u32 {
        let characters = utf16(text);
        let mut out = low32(characters.len()).to_le_bytes().to_vec();
        out.extend(characters);
        out.extend([0, 0]);
        self.append(&out, 4)
    }
    fn finish(&mut self, dump: &UserDump) {
        let mut head = b"MDMP\x93\xa7\0\0".to_vec();
        put32(&mut head, 8, low32(self.directory.len()));
        put32(&mut head, 12, 32);
        put32(&mut head, 20, dump.time);
        put64(&mut head, 24, dump.flags | if dump.full_memory { 2 } else { 0 });
        for (kind, size, rva) in &self.directory {
            for word in [kind, size, rva] {
                head.extend(word.to_le_bytes());
            }
        }
        put(&mut self.bytes, 0, &head);
    }
}
