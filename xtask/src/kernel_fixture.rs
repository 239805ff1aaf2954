//! `fixtures/kernel.dmp`: the stand-in kernel and the faulty driver in the state a real machine is in
//! after `DRIVER_IRQL_NOT_LESS_OR_EQUAL`: the driver wrote through a null pointer at DISPATCH_LEVEL, the
//! page fault left a trap frame, the kernel went on to `KeBugCheckEx`.

use std::path::Path;

use anyhow::{Context as _, Result};
use dumpforge::{DumpType, FrameSpec, FunctionFacts, Image, KernelForge, ThreadState};
use symbols::{PdbFile, SymbolFile};
use target::{Flow, Machine};

const KERNEL_BASE: u64 = 0xffff_f803_2100_0000;
const DRIVER_BASE: u64 = 0xffff_f803_4000_0000;

/// `KTRAP_FRAME.ErrorCode`, where the processor's own part of it begins.
const TRAP_ERROR_CODE: u64 = 0x160;

/// An image and its symbols.
pub(crate) struct Module {
    pub(crate) image: Image,
    pub(crate) base: u64,
    pdb: PdbFile,
}

impl Module {
    fn open(work: &Path, file: &str, pdb: &str, base: u64) -> Result<Self> {
        let bytes = std::fs::read(work.join(file)).with_context(|| file.to_owned())?;
        let mut image = Image::from_file(file, bytes)?;
        let pdb = PdbFile::open(&work.join(pdb))?;
        for symbol in pdb.matching("*", 10_000)? {
            image.symbols.insert(symbol.name, u32::try_from(symbol.rva)?);
        }
        Ok(Self { image, base, pdb })
    }

    fn facts(&self, function: &str) -> Result<FunctionFacts> {
        let rva = self.rva(function)?;
        let leaf = FunctionFacts { begin: rva, body: rva, ..FunctionFacts::default() };
        Ok(self.image.x64_facts(rva).unwrap_or(leaf))
    }

    pub(crate) fn rva(&self, symbol: &str) -> Result<u32> {
        let hit =
            self.pdb.by_name(symbol)?.into_iter().next().with_context(|| format!("no symbol {symbol}"))?;
        Ok(u32::try_from(hit.rva)?)
    }

    /// The first address in `function` that `wanted` picks, from its decoded instructions.
    fn find(&self, function: &str, wanted: impl Fn(&target::Instruction) -> Option<u64>) -> Result<u64> {
        let start = self.rva(function)?;
        let end = self.image.x64_facts(start).map_or(start + 0x200, |facts| facts.end);
        let mapped = self.image.mapped_at(self.base);
        let code = mapped.get(start as usize..end as usize).context("a function lies outside its image")?;
        code::disassemble(Machine::X64, self.base + u64::from(start), code, 256, None)
            .iter()
            .find_map(wanted)
            .with_context(|| format!("no such instruction in {function}"))
    }

    /// A caller's frame: stopped behind its first call.
    fn caller(&self, function: &str) -> Result<FrameSpec> {
        let ip = self.find(function, |i| {
            matches!(i.flow, Flow::Call | Flow::IndirectCall).then(|| i.address + i.bytes.0.len() as u64)
        })?;
        Ok(FrameSpec { facts: self.facts(function)?, ip })
    }
}

/// Builds the dump from the images and PDBs in `work`.
pub(crate) fn build(work: &Path) -> Result<Vec<u8>> {
    let kernel = Module::open(work, "ntkrnlmp.exe", "ntkrnlmp.pdb", KERNEL_BASE)?;
    let driver = Module::open(work, "faultdrv.sys", "faultdrv.pdb", DRIVER_BASE)?;
    let fault = driver.find("CopyRequest", |i| {
        let text = i.text.as_deref()?;
        let operand = text.strip_prefix("mov byte ptr [")?;
        (!operand.starts_with("rsp")).then_some(i.address)
    })?;

    let mut forge = KernelForge::with_kernel(Machine::X64, kernel.image.clone(), KERNEL_BASE);
    forge.bug_check = (0xd1, [0, 2, 1, fault]);
    forge.comment = "windbg-mcp fixture".into();
    forge.add_driver(&driver.image, DRIVER_BASE, r"\SystemRoot\System32\drivers\faultdrv.sys");
    forge.add_unloaded_driver("oldfilter.sys", 0xffff_f803_5000_0000, 0xffff_f803_5001_0000);
    let process = forge.add_process("orders.exe", 0x1a4);
    crashed_thread(&mut forge, &kernel, &driver, process, fault)?;
    let waiting = [kernel.caller("PspSystemThreadStartup")?];
    let system = forge.system_process();
    forge.add_thread(system, 0x2c, ThreadState::Waiting { reason: 7 }, &waiting);
    crate::object_fixture::build(&mut forge, &kernel, &driver)?;
    Ok(forge.dump(DumpType::BitmapKernel)?)
}

/// The stack from `KeBugCheckEx` through the trap frame to the driver and what called it.
fn crashed_thread(
    forge: &mut KernelForge,
    kernel: &Module,
    driver: &Module,
    process: dumpforge::ProcessHandle,
    fault: u64,
) -> Result<()> {
    let entry = kernel.facts("KeBugCheckEx")?;
    let frames = [
        FrameSpec { ip: kernel.base + u64::from(entry.begin), facts: entry },
        kernel.caller("KiBugCheckDispatch")?,
        kernel.caller("KiPageFault")?,
        FrameSpec { facts: driver.facts("CopyRequest")?, ip: fault },
        driver.caller("DispatchDeviceControl")?,
        kernel.caller("IofCallDriver")?,
        kernel.caller("NtDeviceIoControlFile")?,
        kernel.caller("KiSystemStartup")?,
    ];
    let (_, stack) = forge.add_thread(process, 0x58, ThreadState::Running { processor: 0 }, &frames);
    let trap_frame = stack.frames.get(2).context("the trap frame's frame")?.sp;
    // The fault's error code: a write to a page that is not present.
    forge.write_u64(trap_frame + TRAP_ERROR_CODE, 2);
    // PreviousIrql and ExceptionActive.
    forge.write(trap_frame + 0x29, &[2, 0, 1]);
    Ok(())
}
