//! From a path to a target.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dump::{DumpFile, KernelDump, MappedFile, Minidump, UserFull};
use pe::FileImage;
use target::{
    BugCheck, DumpFacts, DumpFormat, Facts, Halt, Identity, Machine, MemoryExt, Module, OsVersion,
    ProcessFacts, StoredEvent, SymbolPaths, Target, TargetKind, base_name, value,
};

use crate::core::Core;
use crate::error::OpenError;
use crate::images::{FileBytes, LoadedImage};
use crate::kernel::KernelState;
use crate::module_names;
use crate::native_target::{HeaderOnly, NativeTarget, Side};
use crate::raw::{self, RawMemory};
use crate::shared_data;
use crate::symbolize::{KernelAnchors, Symbolizer};
use crate::user::UserProcess;

/// How to open a file. Defaults (environment variables, remembered paths) are the caller's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// `_NT_SYMBOL_PATH` grammar.
    pub symbol_path: Option<String>,
    /// `_NT_EXECUTABLE_IMAGE_PATH` grammar.
    pub image_path: Option<String>,
    /// Where to place a bare image; its preferred base otherwise.
    pub image_base: Option<u64>,
    /// Whether URL elements of the paths may be used.
    pub network: bool,
}

impl OpenOptions {
    pub(crate) fn paths(&self) -> SymbolPaths {
        SymbolPaths {
            symbols: self.symbol_path.clone().unwrap_or_default(),
            images: self.image_path.clone().unwrap_or_default(),
            network: self.network,
        }
    }
}

/// [`open_within`] without a bound.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Target>, OpenError> {
    open_within(path, options, &Halt::unbounded())
}

/// Opens a dump, a PE image, or a container of exactly one dump. `halt` ends the unpacking of a
/// container; nothing else at open takes long.
pub fn open_within(path: &Path, options: &OpenOptions, halt: &Halt) -> Result<Box<dyn Target>, OpenError> {
    let opened = dump::open_within(path, halt)?;
    let place = Place {
        path: path.to_owned(),
        container: opened.container.map(dump::Container::name),
        member: opened.member,
    };
    assemble_file(opened.file, &place, options)
}

/// Opens a dump or image whose bytes are in memory; `name` stands for its path. For tests and
/// fuzzing, and for what a caller unpacked itself.
pub fn open_bytes(bytes: Vec<u8>, name: &str, options: &OpenOptions) -> Result<Box<dyn Target>, OpenError> {
    let place = Place { path: PathBuf::from(name), container: None, member: None };
    assemble_file(dump::from_bytes(bytes)?, &place, options)
}

fn assemble_file(file: DumpFile, place: &Place, options: &OpenOptions) -> Result<Box<dyn Target>, OpenError> {
    let target = match file {
        DumpFile::Minidump(dump) => minidump(dump, place, options)?,
        DumpFile::UserFull(dump) => user_full(dump, place, options),
        DumpFile::Kernel(dump) => kernel(dump, place, options),
        DumpFile::Kernel32(dump) => kernel32(&dump, place, options),
        DumpFile::Image(file) => image(file, place, options)?,
    };
    target.select_initial();
    Ok(Box::new(target))
}

/// Where the file came from.
struct Place {
    path: PathBuf,
    container: Option<&'static str>,
    member: Option<String>,
}

impl Place {
    fn folder(&self) -> Option<PathBuf> {
        let folder = self.path.parent()?;
        // Bytes in memory have a name and no folder.
        if !self.path.exists() {
            return None;
        }
        Some(if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() })
    }
    fn identity(&self) -> Identity {
        let aim = match &self.member {
            Some(member) => format!("{} ({member})", self.path.display()),
            None => self.path.display().to_string(),
        };
        Identity { generation: 1, aim }
    }
}

fn assemble(facts: Facts, core: Rc<Core>, side: Side, place: &Place, options: &OpenOptions) -> NativeTarget {
    let symbols = Symbolizer::new(Rc::clone(&core), options.paths(), place.folder());
    NativeTarget {
        facts,
        identity: place.identity(),
        core,
        symbols,
        side,
        selection: Cell::default(),
        header_only: None,
        live: None,
    }
}

pub(crate) fn product(kind: u32) -> Option<&'static str> {
    match kind {
        1 => Some("workstation"),
        2 => Some("domain_controller"),
        3 => Some("server"),
        _ => None,
    }
}

fn minidump(dump: Minidump, place: &Place, options: &OpenOptions) -> Result<NativeTarget, OpenError> {
    let machine = dump.machine();
    if machine == Machine::Arm32 {
        return Err(OpenError::unsupported(
            "foreign_architecture",
            "this is a minidump of a 32-bit ARM process; x86, x64 and ARM64 are served",
        ));
    }
    let info = dump.system_info().clone();
    let misc = dump.misc_info().unwrap_or_default();
    let comment = dump.comments().join("\n");
    let truncated = dump.truncated();
    let dump_facts = DumpFacts {
        format: DumpFormat::UserMinidump,
        container: place.container,
        time: if dump.timestamp() == 0 { None } else { value::rfc3339(i64::from(dump.timestamp()), 0) },
        uptime_ms: None,
        full_memory: dump.has_full_memory(),
        truncated,
        comment: (!comment.is_empty()).then_some(comment),
    };
    let os = OsVersion {
        major: info.major,
        minor: info.minor,
        build: info.build,
        product: product(u32::from(info.product_type)),
        build_lab: misc.build_string.clone(),
        service_pack: (!info.service_pack.is_empty()).then(|| info.service_pack.clone()),
    };
    let facts = ProcessFacts {
        pid: misc.process_id,
        name: None,
        created: misc.times.map(|t| t.created).filter(|&t| t != 0),
        peb: None,
    };
    let core = Rc::new(Core::new(RawMemory::Minidump(dump), machine));
    Ok(user(core, os, Some(info.processors), facts, dump_facts, place, options))
}

fn user_full(dump: UserFull, place: &Place, options: &OpenOptions) -> NativeTarget {
    let machine = dump.machine();
    let build = dump.build();
    let dump_facts = DumpFacts {
        format: DumpFormat::UserFullLegacy,
        container: place.container,
        time: None,
        uptime_ms: None,
        full_memory: true,
        truncated: dump.truncated(),
        comment: None,
    };
    let facts = ProcessFacts { pid: dump.event().map(|e| e.process), ..ProcessFacts::default() };
    let (major, minor) = if build >= 10_000 { (10, 0) } else { (6, 0) };
    let os = OsVersion { major, minor, build, ..OsVersion::default() };
    let core = Rc::new(Core::new(RawMemory::UserFull(dump), machine));
    user(core, os, None, facts, dump_facts, place, options)
}

fn user(
    core: Rc<Core>,
    mut os: OsVersion,
    processors: Option<u32>,
    mut process_facts: ProcessFacts,
    mut dump_facts: DumpFacts,
    place: &Place,
    options: &OpenOptions,
) -> NativeTarget {
    // Image files must be findable before anything reads through them.
    core.images.set_paths(&options.paths(), place.folder().as_deref());
    let process = UserProcess::new(Rc::clone(&core));
    let shared = shared_data::read(&core);
    dump_facts.time = dump_facts.time.or(shared.time);
    dump_facts.uptime_ms = shared.uptime_ms;
    os.product = os.product.or(shared.product.and_then(product));
    if dump_facts.format == DumpFormat::UserFullLegacy
        && let Some((major, minor)) = shared.version
    {
        (os.major, os.minor) = (major, minor);
    }
    process_facts.peb = process.peb;
    process_facts.name = core.modules().first().map(|m| m.image_name.clone());
    let mut limitations = process.limitations();
    if dump_facts.truncated {
        limitations
            .push("the file ends before all the memory it declares; copy it again if you can".to_owned());
    }
    let facts = Facts {
        kind: TargetKind::UserDump,
        machine: process.machine(),
        wow64: process.wow64,
        os: Some(os),
        process: Some(process_facts),
        processors,
        dump: Some(dump_facts),
        limitations,
    };
    assemble(facts, core, Side::User(Box::new(process)), place, options)
}

fn kernel_dump_facts(dump: &KernelDump, place: &Place) -> DumpFacts {
    let header = dump.header();
    DumpFacts {
        format: dump.format(),
        container: place.container,
        time: header.system_time.and_then(value::rfc3339_from_filetime),
        uptime_ms: header.system_up_time.map(|t| t / 10_000),
        full_memory: matches!(header.dump_type, 1 | 5 | 0xa),
        truncated: dump.truncated(),
        comment: header.comment.clone(),
    }
}

fn kernel(dump: KernelDump, place: &Place, options: &OpenOptions) -> NativeTarget {
    let header = dump.header().clone();
    let format = dump.format();
    let dump_facts = kernel_dump_facts(&dump, place);
    let mut limitations: Vec<String> = dump.notes().to_vec();
    if dump_facts.truncated {
        limitations
            .push("the file ends before all the memory it declares; copy it again if you can".to_owned());
    }
    let raw = match format {
        DumpFormat::KernelTriage => RawMemory::Blocks(dump),
        DumpFormat::KernelHeaderOnly => {
            limitations.push("the dump is a header only: it holds no memory".to_owned());
            RawMemory::Blocks(dump)
        }
        _ => raw::translator(dump, header.machine, header.directory_table_base),
    };
    let core = Rc::new(Core::new(raw, header.machine));
    core.images.set_paths(&options.paths(), place.folder().as_deref());
    let state = KernelState::new(Rc::clone(&core));
    limitations.extend(state.limitations.iter().cloned());
    if format == DumpFormat::KernelTriage {
        limitations.push(
            "a small kernel dump holds the crashing stack and a few structures, no images and no user memory"
                .to_owned(),
        );
    }
    let lab = state.kdbg.as_ref().and_then(|k| k.nt_build_lab()).and_then(|at| core.read_c_string(at, 256));
    let (major, minor) = header.os_version();
    let facts = Facts {
        kind: TargetKind::KernelDump,
        machine: header.machine,
        wow64: false,
        os: Some(OsVersion {
            major,
            minor,
            build: header.build,
            product: header.product_type.and_then(product),
            build_lab: lab.map(|l| String::from_utf8_lossy(&l).into_owned()).filter(|l| !l.is_empty()),
            service_pack: None,
        }),
        process: None,
        processors: Some(header.processors),
        dump: Some(dump_facts),
        limitations,
    };
    let nt_base = state.nt_base;
    let target = assemble(facts, core, Side::Kernel(Box::new(state)), place, options);
    if let Some(base) = nt_base {
        let anchors = KernelAnchors {
            loaded_modules: header.ps_loaded_module_list.unwrap_or(0),
            debugger_data: header.kd_debugger_data_block.unwrap_or(0),
            active_processes: header.ps_active_process_head.unwrap_or(0),
        };
        target.symbols.set_kernel(base, anchors);
    }
    target
}

/// The driver list of a 32-bit triage dump; its first entry is the kernel.
fn drivers32(dump: &dump::Kernel32) -> Vec<Module> {
    let rows = dump.drivers.iter().map(|d| Module {
        name: String::new(),
        image_name: base_name(&d.name).to_owned(),
        image_path: d.name.clone(),
        base: u64::from(d.base),
        size: u64::from(d.size),
        timestamp: d.timestamp,
        checksum: d.checksum,
        pdb: None,
        user_mode: Some(false),
        file_version: None,
    });
    let mut modules: Vec<Module> = rows.collect();
    if let Some(first) = modules.first_mut() {
        first.name = "nt".to_owned();
    }
    module_names::assign(&mut modules);
    modules
}

fn kernel32(dump: &dump::Kernel32, place: &Place, options: &OpenOptions) -> NativeTarget {
    let header = &dump.header;
    let facts = Facts {
        kind: TargetKind::KernelDump,
        machine: header.machine,
        wow64: false,
        os: Some(OsVersion {
            major: if header.build >= 10_000 { 10 } else { 6 },
            minor: 0,
            build: header.build,
            product: header.product_type.and_then(product),
            build_lab: None,
            service_pack: None,
        }),
        process: None,
        processors: Some(header.processors),
        dump: Some(DumpFacts {
            format: DumpFormat::KernelHeaderOnly,
            container: place.container,
            time: header.system_time.and_then(value::rfc3339_from_filetime),
            uptime_ms: header.system_up_time.map(|t| t / 10_000),
            full_memory: false,
            truncated: false,
            comment: header.comment.clone(),
        }),
        limitations: vec![format!(
            "this is a kernel dump of a 32-bit system ({}): only its header and driver list are read, no memory, registers or stacks",
            header.machine.name()
        )],
    };
    let core = Rc::new(Core::new(RawMemory::Nothing, header.machine));
    core.set_modules(drivers32(dump));
    let mut target = assemble(facts, core, Side::Image, place, options);
    target.header_only = Some(HeaderOnly {
        bug_check: BugCheck {
            code: header.bug_check_code,
            parameters: header.bug_check_parameters.map(u64::from),
            driver: None,
        },
        event: header.exception.clone().map(|record| StoredEvent {
            thread: None,
            record,
            first_chance: None,
            context: None,
            context_invalid: false,
        }),
    });
    target
}

fn image(file: MappedFile, place: &Place, options: &OpenOptions) -> Result<NativeTarget, OpenError> {
    let malformed =
        |why: pe::PeError| OpenError::malformed(format!("{}: {why}; copy it again", place.path.display()));
    let parsed = FileImage::new(FileBytes::new(file.clone())).map_err(malformed)?;
    let headers = parsed.pe().clone();
    let machine = headers.machine.filter(|m| *m != Machine::Arm32).ok_or_else(|| {
        OpenError::unsupported(
            "foreign_architecture",
            format!("the image is for machine {:#x}; x86, x64 and ARM64 are served", headers.image_machine),
        )
    })?;
    let base = options.image_base.unwrap_or(headers.image_base);
    let end = base.checked_add(u64::from(headers.size_of_image));
    if !base.is_multiple_of(0x1000) || end.is_none() {
        return Err(OpenError {
            category: "invalid_argument",
            reason: None,
            message: format!(
                "an image cannot be placed at {base:#x}; give a multiple of 0x1000 that leaves room"
            ),
        });
    }
    let name = place.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut modules = vec![Module {
        name: String::new(),
        image_name: name,
        image_path: place.path.display().to_string(),
        base,
        size: u64::from(headers.size_of_image),
        timestamp: headers.timestamp,
        checksum: headers.checksum,
        pdb: headers.pdb(&parsed),
        user_mode: None,
        file_version: None,
    }];
    module_names::assign(&mut modules);
    let backing = FileImage::new(FileBytes::new(file)).map_err(malformed)?;
    let core = Rc::new(Core::new(RawMemory::Image { file: parsed, base }, machine));
    if let Some(module) = modules.first() {
        core.images.put(module, Rc::new(LoadedImage { file: backing, path: place.path.clone() }));
    }
    core.set_modules(modules);
    let facts = Facts {
        kind: TargetKind::Image,
        machine,
        wow64: false,
        os: None,
        process: None,
        processors: None,
        dump: None,
        limitations: vec![
            "this is an image file, not a process: it has no threads, registers or stacks".to_owned(),
        ],
    };
    Ok(assemble(facts, core, Side::Image, place, options))
}
