//! A scenario made into memory and processors.

use std::path::Path;
use std::sync::{Arc, Mutex};

use dumpforge::{FrameSpec, FunctionFacts, Image, KernelForge, ThreadState, image::stand_in_kernel};
use kd_api::{Context, SpecialRegisters, Version, context_flags, version_flags};
use symbols::{PdbFile, SymbolFile};
use target::Machine as Processors;

use crate::machine::Machine;
use crate::memory::Space;
use crate::processor::Processor;
use crate::scenario::{ImageFile, ProcessorState, Scenario, ScenarioError};

const MOST_PROCESSORS: usize = 16;
const MOST_SYMBOLS: usize = 10_000;
const STACK_BYTES: usize = 0x8000;
/// Where the first thread's id begins.
const FIRST_THREAD: u64 = 0x40;

pub(crate) fn machine(scenario: &Scenario) -> Result<Machine, ScenarioError> {
    let count = scenario.processors.len();
    if count == 0 || count > MOST_PROCESSORS {
        return Err(ScenarioError::Processors(count));
    }
    let (kernel, base) = match &scenario.kernel {
        Some(file) => (image(file)?, kernel_address(file.base.0)?),
        None => (stand_in_kernel(Processors::X64), Scenario::KERNEL_BASE),
    };
    let mut forge = KernelForge::with_kernel(Processors::X64, kernel, base);
    for driver in &scenario.drivers {
        forge.add_driver(&image(driver)?, kernel_address(driver.base.0)?, &driver.path);
    }
    forge.add_process("orders.exe", 0x1a4);
    let system = forge.system_process();
    for (number, state) in (0u32..).zip(&scenario.processors) {
        let facts = FunctionFacts::default();
        let frame = [FrameSpec { facts, ip: state.rip.0 }];
        forge.add_thread(
            system,
            FIRST_THREAD + u64::from(number),
            ThreadState::Running { processor: number },
            &frame,
        );
        if let Some(stack) = state.registers.get("rsp") {
            forge.write(kernel_address(stack.0 & !0xfff)?, &vec![0; STACK_BYTES / 2]);
            forge.write(stack.0 - STACK_BYTES as u64 / 2, &vec![0; STACK_BYTES / 2]);
        }
    }
    for code in &scenario.code {
        let bytes = hexadecimal(&code.bytes).ok_or(ScenarioError::Code { address: code.address.0 })?;
        forge.write(kernel_address(code.address.0 & !0xfff)?, &[]);
        forge.write(code.address.0, &bytes);
    }
    forge.finish();
    let processors = scenario
        .processors
        .iter()
        .enumerate()
        .map(|(number, state)| processor(&forge, number as u64, state, scenario.without_gdt))
        .collect::<Result<Vec<_>, _>>()?;
    let version = version(&mut forge, scenario);
    let space = Arc::new(Mutex::new(Space { forge }));
    Ok(Machine::new(scenario, version, space, processors))
}

/// An address of the kernel half, of a whole page.
fn kernel_address(base: u64) -> Result<u64, ScenarioError> {
    if (0xffff_8000_0000_0000..0xffff_ffff_ff00_0000).contains(&base) && base & 0xfff == 0 {
        Ok(base)
    } else {
        Err(ScenarioError::Base(base))
    }
}

fn image(file: &ImageFile) -> Result<Image, ScenarioError> {
    let failed = |path: &Path, reason: String| ScenarioError::File { path: path.to_owned(), reason };
    let bytes = std::fs::read(&file.image).map_err(|e| failed(&file.image, e.to_string()))?;
    let name = target::base_name(&file.path).to_owned();
    let mut image = Image::from_file(&name, bytes).map_err(|e| failed(&file.image, e.to_string()))?;
    if let Some(path) = &file.pdb {
        let symbols = PdbFile::open(path)
            .and_then(|pdb| pdb.matching("*", MOST_SYMBOLS))
            .map_err(|e| failed(path, e.to_string()))?;
        for symbol in symbols {
            image.symbols.insert(symbol.name, u32::try_from(symbol.rva).unwrap_or(0));
        }
    }
    Ok(image)
}

fn processor(
    forge: &KernelForge,
    number: u64,
    state: &ProcessorState,
    without_gdt: bool,
) -> Result<Processor, ScenarioError> {
    let layout = &forge.layout;
    let quad = |at: u64| forge.read(at, 8).try_into().map_or(0, u64::from_le_bytes);
    let prcb = quad(forge.symbol("KiProcessorBlock") + 8 * number);
    let record = forge.read(prcb + u64::from(layout.prcb_special_registers), SpecialRegisters::LENGTH);
    let mut special = SpecialRegisters::decode(&record).unwrap_or_default();
    if without_gdt {
        (special.gdt_base, special.gdt_limit) = (0, 0);
    }
    let parts = context_flags::CONTROL
        | context_flags::INTEGER
        | context_flags::SEGMENTS
        | context_flags::FLOATING_POINT
        | context_flags::DEBUG_REGISTERS;
    let mut context = Context::zeroed(parts);
    context.set_segments([0x10, 0x2b, 0x2b, 0x53, 0x2b, 0x18]);
    context.set_eflags(0x246);
    context.set_mxcsr(0x1f80);
    for register in 0..16 {
        context.set_general(register, 0x1111 * register as u64);
    }
    context.set_rip(state.rip.0);
    for (name, value) in &state.registers {
        match Context::GENERAL_NAMES.iter().position(|known| known == name) {
            Some(register) => context.set_general(register, value.0),
            None if name == "eflags" => context.set_eflags(value.0 as u32),
            None => return Err(ScenarioError::Register(name.clone())),
        }
    }
    let mut processor = Processor {
        context,
        special,
        pcr: prcb - u64::from(layout.pcr_contained_prcb),
        prcb,
        thread: quad(prcb + u64::from(layout.prcb_current_thread)),
        resumed: true,
    };
    processor.set_debug([0; 4], 0xffff_0ff0, 0x400);
    Ok(processor)
}

/// Links the debugger data into a list of its own, as a kernel does, and tells where everything is.
fn version(forge: &mut KernelForge, scenario: &Scenario) -> Version {
    let block = forge.symbol("KdDebuggerDataBlock");
    let head = forge.allocate(16);
    for (at, to) in [(head, block), (head + 8, block), (block, head), (block + 8, head)] {
        forge.write_u64(at, to);
    }
    let data = if scenario.without_debugger_data { 0 } else { version_flags::DATA };
    Version {
        major: 0x0f,
        minor: scenario.build,
        protocol: 6,
        secondary: 2,
        flags: version_flags::PTR64 | version_flags::MP | data,
        machine: 0x8664,
        max_packet_type: 12,
        max_state_change: 3,
        max_manipulate: 0x31,
        simulation: 0,
        kernel_base: forge.kernel_base,
        loaded_module_list: forge.symbol("PsLoadedModuleList"),
        debugger_data_list: head,
    }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}
