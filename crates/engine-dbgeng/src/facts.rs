//! What holds for the life of the target.

use target::{DumpFacts, DumpFormat, Facts, Machine, OsVersion, ProcessFacts, TargetKind};
use windows::Win32::System::Diagnostics::Debug::Extensions::DEBUG_CLASS_KERNEL;

use crate::engine::{DbgEng, Origin, machine_of};
use crate::names;

/// `DEBUG_*_DUMP` qualifiers of both classes (dbgeng.h).
const SMALL_DUMP: u32 = 1024;
const DEFAULT_DUMP: u32 = 1025;
const FULL_DUMP: u32 = 1026;
/// The engine's process id where the dump does not say.
pub(crate) const NO_ID: u32 = 0xf0f0_f0f0;
/// `DEBUG_FORMAT_USER_SMALL_FULL_MEMORY` and its neighbours say what a small user dump holds.
const USER_SMALL_FULL_MEMORY: u32 = 1;

pub(crate) fn unknown() -> Facts {
    Facts {
        kind: TargetKind::UserDump,
        machine: Machine::X64,
        wow64: false,
        os: None,
        process: None,
        processors: None,
        dump: None,
        limitations: Vec::new(),
    }
}

/// Of a PE file opened as a dump: the engine makes a process of it that never was.
fn image_facts(image: &pe::FileImage<Vec<u8>>) -> Facts {
    Facts {
        kind: TargetKind::Image,
        machine: image.pe().machine.unwrap_or(Machine::X64),
        limitations: vec![
            "this is an image file, not a process: it has no threads, registers or stacks".to_owned(),
        ],
        ..unknown()
    }
}

impl DbgEng {
    pub(crate) fn read_facts(&self) -> Facts {
        if let Some(image) = &self.image {
            return image_facts(image);
        }
        let (mut class, mut qualifier) = (0, 0);
        // SAFETY: both pointers are to locals.
        let _ = unsafe { self.control.GetDebuggeeType(&mut class, &mut qualifier) };
        let kernel = class == DEBUG_CLASS_KERNEL;
        // SAFETY: no arguments.
        let (effective, actual) = unsafe {
            (self.control.GetEffectiveProcessorType().ok(), self.control.GetActualProcessorType().ok())
        };
        let actual = actual.and_then(machine_of);
        let machine = effective.and_then(machine_of).or(actual).unwrap_or(Machine::X64);
        let wow64 =
            !kernel && actual == Some(Machine::X64) && (machine == Machine::X86 || self.has_wow64_modules());
        let machine = if wow64 { Machine::X86 } else { machine };
        let dump = self.origin == Origin::Dump;
        let mut limitations = Vec::new();
        if wow64 && !dump {
            limitations.push(
                "this is a 32-bit process under the 64-bit engine: extensions that must match the process (SOS) cannot be loaded"
                    .to_owned(),
            );
        }
        Facts {
            kind: match (dump, kernel) {
                (true, true) => TargetKind::KernelDump,
                (true, false) => TargetKind::UserDump,
                (false, true) => TargetKind::Kernel,
                (false, false) => TargetKind::Process,
            },
            machine,
            wow64,
            os: self.os_version(),
            process: (!kernel).then(|| self.process_facts()),
            // SAFETY: no arguments.
            processors: if kernel { unsafe { self.control.GetNumberProcessors() }.ok() } else { None },
            dump: dump.then(|| self.dump_facts(kernel, qualifier)),
            limitations,
        }
    }

    /// A 64-bit dump of a 32-bit process whose 32-bit registers were not saved looks like any
    /// 64-bit process to the engine; the layer's own DLLs tell.
    fn has_wow64_modules(&self) -> bool {
        let named = |name: &str| {
            let mut base = 0;
            // SAFETY: the string and the pointer live for the call.
            unsafe {
                self.symbols.GetModuleByModuleNameWide(
                    &windows::core::HSTRING::from(name),
                    0,
                    None,
                    Some(&mut base),
                )
            }
            .is_ok()
        };
        named("wow64") && named("wow64cpu")
    }

    fn dump_facts(&self, kernel: bool, qualifier: u32) -> DumpFacts {
        let format = match (kernel, qualifier) {
            (true, SMALL_DUMP) => DumpFormat::KernelTriage,
            (true, FULL_DUMP) => DumpFormat::KernelFull,
            (true, _) => DumpFormat::KernelBitmap,
            (false, DEFAULT_DUMP | FULL_DUMP) => DumpFormat::UserFullLegacy,
            (false, _) => DumpFormat::UserMinidump,
        };
        // SAFETY: no arguments.
        let (seconds, uptime, flags) = unsafe {
            (
                self.control.GetCurrentTimeDate().ok(),
                self.control.GetCurrentSystemUpTime().ok(),
                self.control.GetDumpFormatFlags().unwrap_or(0),
            )
        };
        DumpFacts {
            format,
            container: None,
            time: seconds.filter(|&s| s != 0).and_then(|s| target::value::rfc3339(i64::from(s), 0)),
            // Zero is what it answers for a dump that does not say.
            uptime_ms: uptime.filter(|&s| s != 0).map(|s| u64::from(s) * 1000),
            full_memory: match kernel {
                true => qualifier == FULL_DUMP,
                false => qualifier != SMALL_DUMP || flags & USER_SMALL_FULL_MEMORY != 0,
            },
            truncated: false,
            comment: None,
        }
    }

    fn os_version(&self) -> Option<OsVersion> {
        let (mut platform, mut major, mut minor) = (0, 0, 0);
        // SAFETY: the out pointers are to locals, the optional ones absent.
        unsafe { self.control.GetSystemVersionValues(&mut platform, &mut major, &mut minor, None, None) }
            .ok()?;
        let (mut kd_major, mut kd_minor, mut service_pack) = (0, 0, 0);
        // GetSystemVersion reports the build number as the minor version (dbgeng.h).
        // SAFETY: as above.
        unsafe {
            let _ = self.control.GetSystemVersion(
                &mut platform,
                &mut kd_major,
                &mut kd_minor,
                None,
                None,
                &mut service_pack,
                None,
                None,
            );
        }
        Some(OsVersion { major, minor, build: kd_minor, ..OsVersion::default() })
    }

    fn process_facts(&self) -> ProcessFacts {
        // SAFETY: no pointers but the string buffers, which live for the call.
        unsafe {
            ProcessFacts {
                pid: self.system.GetCurrentProcessSystemId().ok().filter(|&id| id != NO_ID),
                name: names::wide(|buffer, size| {
                    self.system.GetCurrentProcessExecutableNameWide(buffer, size)
                })
                .ok()
                .map(|path| target::base_name(&path).to_owned()),
                created: None,
                peb: self.system.GetCurrentProcessPeb().ok(),
            }
        }
    }
}
