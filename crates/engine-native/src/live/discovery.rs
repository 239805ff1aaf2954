//! From a connection to a target.

use std::cell::Cell;
use std::rc::Rc;

use target::{Facts, Identity, MemoryExt, OsVersion, Target, TargetKind};

use super::{Live, LiveKernel, LivePages};
use crate::core::Core;
use crate::error::OpenError;
use crate::kernel::KernelState;
use crate::native_target::{NativeTarget, Side};
use crate::open::OpenOptions;
use crate::raw::{self, RawMemory};
use crate::symbolize::{KernelAnchors, Symbolizer};

/// `KUSER_SHARED_DATA` as the kernel sees it (ntddk.h, `KI_USER_SHARED_DATA`), and what it says there.
const SHARED_DATA: u64 = 0xffff_f780_0000_0000;
const PRODUCT_TYPE: u64 = 0x264;
const MAJOR_VERSION: u64 = 0x26c;
const MINOR_VERSION: u64 = 0x270;

pub(super) fn assemble(
    kernel: Rc<dyn LiveKernel>,
    options: &OpenOptions,
) -> Result<Box<dyn Target>, OpenError> {
    let origin = kernel.origin().clone();
    let machine = origin.machine.ok_or_else(|| {
        OpenError::unsupported(
            "foreign_architecture",
            "the target is no x64 or ARM64 kernel; engine dbgeng may serve it",
        )
    })?;
    let stop =
        kernel.stop().ok_or_else(|| OpenError::failed("the target runs, and nothing can be read of it"))?;
    let core = Rc::new(Core::new(raw::live_memory(LivePages::new(Rc::clone(&kernel)), machine), machine));
    let mut limitations = origin.limitations.clone();
    match kernel.translation_root(stop.processor) {
        Ok((root, five_levels)) => {
            if let RawMemory::Paged(translator) = &core.raw {
                translator.set_root(root, five_levels);
            }
        }
        Err(error) => limitations.push(format!(
            "the root of the page tables is not known ({error}): page states and other processes' memory are not read"
        )),
    }
    let symbols = Symbolizer::new(Rc::clone(&core), options.paths(), None);
    let state = KernelState::new(Rc::clone(&core));
    limitations.extend(state.limitations.iter().cloned());
    limitations.extend(state.thread_disagrees());
    let facts = Facts {
        kind: TargetKind::Kernel,
        machine,
        wow64: false,
        os: Some(version(&core, &state, origin.build)),
        process: None,
        processors: Some(stop.processors),
        dump: None,
        limitations,
    };
    if let Some(base) = state.nt_base {
        let anchors = KernelAnchors {
            loaded_modules: origin.loaded_modules,
            debugger_data: core.read_u64(origin.debugger_data_list).unwrap_or(0),
            active_processes: state.process_list_head().unwrap_or(0),
        };
        symbols.set_kernel(base, anchors);
    }
    let target = NativeTarget {
        facts,
        identity: Identity { generation: 1, aim: origin.aim },
        core,
        symbols,
        side: Side::Kernel(Box::new(state)),
        selection: Cell::default(),
        header_only: None,
        live: Some(Live::new(kernel)),
    };
    target.select_initial();
    Ok(Box::new(target))
}

fn version(core: &Core, state: &KernelState, build: u32) -> OsVersion {
    let word = |offset: u64| core.read_u32(SHARED_DATA + offset).ok();
    let said = word(MAJOR_VERSION).zip(word(MINOR_VERSION));
    let said = said.filter(|&(major, minor)| (4..=20).contains(&major) && minor <= 10);
    let (major, minor) = said.unwrap_or(if build >= 10_000 { (10, 0) } else { (6, 0) });
    let lab = state.kdbg.as_ref().and_then(|k| k.nt_build_lab()).and_then(|at| core.read_c_string(at, 256));
    OsVersion {
        major,
        minor,
        build,
        product: said.and(word(PRODUCT_TYPE)).and_then(crate::open::product),
        build_lab: lab.map(|l| String::from_utf8_lossy(&l).into_owned()).filter(|l| !l.is_empty()),
        service_pack: None,
    }
}
