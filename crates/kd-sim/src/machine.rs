//! The machine as a backend of a KD target.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use dumpforge::{Function, ImageBuilder};
use kd_api::{
    Context, ControlReport, Exception, FileReply, FileRequest, FillSpace, LoadSymbols, SpecialRegisters,
    StateChange, StopReason, Version, selector, status,
};
use kd_target::{KdBackend, Refusal, Resume, TargetMessage};

use crate::events::{Occurrence, Scripted};
use crate::memory::Space;
use crate::processor::{Exceptional, Processor, Shared, Stepped};
use crate::scenario::{Scenario, ScenarioError};

/// Instructions of a processor between two looks at the link.
const SLICE: u32 = 64;
/// Handles are 1 to this.
const MOST_BREAKPOINTS: u32 = 32;
/// The most memory that one search or fill touches.
const MOST_TOUCHED: u64 = 16 << 20;

/// A machine. See [`Scenario`].
#[derive(Debug)]
pub struct Machine {
    version: Version,
    memory: Shared,
    processors: Vec<Processor>,
    /// As built, for a reboot.
    first: Vec<Processor>,
    current: usize,
    stop: Option<StopReason>,
    /// Handle to address and the byte that was there.
    breakpoints: BTreeMap<u32, (u64, u8)>,
    shows_breakpoints: bool,
    events: VecDeque<Scripted>,
    continues: u32,
    break_in: bool,
    stepping: bool,
    silent: bool,
    msrs: BTreeMap<u64, u64>,
    ports: BTreeMap<u64, u64>,
    /// A text to print: what was answered to a question.
    echo: Option<Vec<u8>>,
    files: Vec<FileReply>,
}

impl Machine {
    /// Builds the machine of a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn build(scenario: &Scenario) -> Result<Self, ScenarioError> {
        crate::assemble::machine(scenario)
    }

    pub(crate) fn new(
        scenario: &Scenario,
        version: Version,
        memory: Shared,
        processors: Vec<Processor>,
    ) -> Self {
        let numbers = |map: &BTreeMap<String, crate::Hex>| {
            let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0);
            map.iter().map(|(key, value)| (number(key), value.0)).collect()
        };
        let mut machine = Self {
            version,
            memory,
            first: processors.clone(),
            processors,
            current: 0,
            stop: None,
            breakpoints: BTreeMap::new(),
            shows_breakpoints: scenario.shows_breakpoints,
            events: scenario.events.iter().cloned().collect(),
            continues: 0,
            break_in: false,
            stepping: false,
            silent: false,
            msrs: numbers(&scenario.msrs),
            ports: numbers(&scenario.ports),
            echo: None,
            files: Vec::new(),
        };
        if !scenario.running {
            machine.stop_with(Exceptional::plain(status::BREAKPOINT, machine.rip()));
        }
        machine
    }

    /// A processor's CONTEXT, to compare with.
    #[must_use]
    pub fn registers(&self, processor: usize) -> Option<&Context> {
        self.processors.get(processor).map(|p| &p.context)
    }

    /// A processor's special registers.
    #[must_use]
    pub fn special_registers(&self, processor: usize) -> Option<&SpecialRegisters> {
        self.processors.get(processor).map(|p| &p.special)
    }

    /// Memory as it is, breakpoints included; as much as is readable.
    #[must_use]
    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0; length];
        let read = self.space().read(address, &mut buffer);
        buffer.truncate(read);
        buffer
    }

    /// Memory as a debugger sees it: what is under its breakpoints. DbgEng shows what it reads, and would
    /// show `int 3`.
    fn read_masked(&self, address: u64, buffer: &mut [u8]) -> usize {
        let read = self.space().read(address, buffer);
        if !self.shows_breakpoints {
            for (at, original) in self.breakpoints.values() {
                let offset = usize::try_from(at.wrapping_sub(address)).ok().filter(|o| *o < read);
                if let Some(byte) = offset.and_then(|o| buffer.get_mut(o)) {
                    *byte = *original;
                }
            }
        }
        read
    }

    fn masked(&self, address: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0; length];
        let read = self.read_masked(address, &mut buffer);
        buffer.truncate(read);
        buffer
    }

    /// The address of one of nt's variables or functions.
    #[must_use]
    pub fn symbol(&self, name: &str) -> u64 {
        self.space().forge.symbol(name)
    }

    /// Breakpoints that are inserted.
    #[must_use]
    pub fn breakpoints(&self) -> usize {
        self.breakpoints.len()
    }

    /// What the debugger answered to file requests.
    #[must_use]
    pub fn files(&self) -> &[FileReply] {
        &self.files
    }

    fn space(&self) -> std::sync::MutexGuard<'_, Space> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn processor(&mut self, number: u16) -> Result<&mut Processor, Refusal> {
        self.processors.get_mut(usize::from(number)).ok_or_else(Refusal::default)
    }

    fn rip(&self) -> u64 {
        self.processors.get(self.current).map_or(0, |p| p.context.rip())
    }

    fn stop_with(&mut self, stop: Exceptional) {
        let mut parameters = [0; 15];
        parameters[..2].copy_from_slice(&stop.parameters);
        self.stop = Some(StopReason::Exception(Exception {
            code: stop.code,
            flags: 0,
            record: 0,
            address: stop.address,
            parameter_count: stop.count,
            parameters,
            first_chance: true,
        }));
        self.stepping = false;
        if let Some(processor) = self.processors.get_mut(self.current) {
            processor.trace(false);
        }
    }

    /// One slice of every processor; of the current one alone while it steps.
    fn execute(&mut self) {
        let order: Vec<usize> = if self.stepping {
            vec![self.current]
        } else {
            (0..self.processors.len()).map(|n| (self.current + n) % self.processors.len()).collect()
        };
        for number in order {
            let Some(processor) = self.processors.get_mut(number) else { continue };
            for _ in 0..SLICE {
                match processor.step(&self.memory) {
                    Stepped::Ran => {}
                    Stepped::Halted => break,
                    Stepped::Stopped(stop) => {
                        self.current = number;
                        return self.stop_with(stop);
                    }
                }
            }
        }
    }

    /// The next scripted event that is due.
    fn due(&mut self) -> Option<Occurrence> {
        let at = self.events.iter().position(|event| event.at <= self.continues)?;
        self.events.remove(at).map(|event| event.what)
    }

    fn happen(&mut self, what: Occurrence) -> Option<TargetMessage> {
        match what {
            Occurrence::Print(text) => return Some(TargetMessage::Print(text.into_bytes())),
            Occurrence::GetString { prompt, most } => {
                return Some(TargetMessage::GetString { prompt: prompt.into_bytes(), most });
            }
            Occurrence::File(path) => {
                return Some(TargetMessage::File(FileRequest::Create {
                    access: 0x12_0089,
                    attributes: 0x80,
                    share: 1,
                    disposition: 1,
                    options: 0,
                    path: path.encode_utf16().collect(),
                }));
            }
            Occurrence::Load { path, base, size } => self.load(&path, base.0, size),
            Occurrence::Unload { path, base } => {
                self.stop = Some(StopReason::LoadSymbols(LoadSymbols {
                    path: path.into_bytes(),
                    base: base.0,
                    process: u64::MAX,
                    unload: true,
                    ..LoadSymbols::default()
                }));
            }
            Occurrence::CommandString(command) => {
                self.stop = Some(StopReason::CommandString {
                    flags: 0,
                    name: b"kd-sim".to_vec(),
                    command: command.into_bytes(),
                });
            }
            Occurrence::BugCheck { code, parameters } => self.crash(code, parameters.map(|p| p.0)),
            Occurrence::Reboot => self.go_down(),
            Occurrence::Silence => self.silent = true,
        }
        self.told()
    }

    fn told(&mut self) -> Option<TargetMessage> {
        self.stop().map(|stop| TargetMessage::Stopped(Box::new(stop)))
    }

    fn load(&mut self, path: &str, base: u64, size: u32) {
        let image = ImageBuilder::new(target::Machine::X64, target::base_name(path))
            .function(Function::new("DriverEntry").calling(1))
            .build();
        self.space().forge.add_driver(&image, base, path);
        self.stop = Some(StopReason::LoadSymbols(LoadSymbols {
            path: path.as_bytes().to_vec(),
            base,
            process: u64::MAX,
            checksum: image.checksum,
            size: size.max(image.size),
            unload: false,
        }));
    }

    fn crash(&mut self, code: u32, parameters: [u64; 4]) {
        let mut space = self.space();
        let data = space.forge.symbol("KiBugCheckData");
        for (at, value) in (0u64..).zip([u64::from(code)].into_iter().chain(parameters)) {
            space.forge.write_u64(data + 8 * at, value);
        }
        drop(space);
        self.stop_with(Exceptional::plain(status::BREAKPOINT, self.rip()));
    }

    /// Tells the debugger to forget every module; the next continue starts the machine again.
    fn go_down(&mut self) {
        self.stop = Some(StopReason::LoadSymbols(LoadSymbols {
            base: u64::MAX,
            unload: true,
            ..LoadSymbols::default()
        }));
        for (address, original) in std::mem::take(&mut self.breakpoints).into_values() {
            self.space().write(address, &[original]);
        }
        self.processors.clone_from(&self.first);
        self.current = 0;
        self.break_in = true;
    }
}

impl KdBackend for Machine {
    fn version(&mut self) -> Version {
        self.version
    }

    fn stop(&mut self) -> Option<StateChange> {
        let reason = self.stop.clone()?;
        let processor = self.processors.get(self.current)?;
        let [cs, ds, es, fs, ..] = processor.context.segments();
        let rip = processor.context.rip();
        Some(StateChange {
            processor_level: 6,
            processor: u16::try_from(self.current).unwrap_or(0),
            processors: u32::try_from(self.processors.len()).unwrap_or(1),
            thread: processor.thread,
            program_counter: rip,
            reason,
            control: ControlReport {
                dr6: processor.special.dr6,
                dr7: processor.special.dr7,
                eflags: processor.context.eflags(),
                flags: 3,
                instructions: self.masked(rip, 16),
                cs,
                ds,
                es,
                fs,
            },
            alternate: false,
        })
    }

    fn run(&mut self) -> Option<TargetMessage> {
        if self.silent || self.stop.is_some() {
            return None;
        }
        if let Some(text) = self.echo.take() {
            return Some(TargetMessage::Print(text));
        }
        if let Some(what) = self.due() {
            return self.happen(what);
        }
        if std::mem::take(&mut self.break_in) {
            self.current = 0;
            self.stop_with(Exceptional::plain(status::BREAKPOINT, self.rip()));
            return self.told();
        }
        self.execute();
        self.told()
    }

    fn break_in(&mut self) {
        self.break_in = true;
    }

    fn resume(&mut self, how: Resume) {
        self.stop = None;
        self.continues = self.continues.saturating_add(1);
        for processor in &mut self.processors {
            processor.resumed = true;
        }
        let Some(processor) = self.processors.get_mut(self.current) else { return };
        if let Resume::Controlled(go) = how {
            processor.set_debug(processor.special.dr, 0xffff_0ff0, go.dr7);
            processor.trace(go.trace);
            self.stepping = go.trace;
        }
    }

    fn read_virtual(&mut self, address: u64, buffer: &mut [u8]) -> Result<usize, Refusal> {
        some(self.read_masked(address, buffer))
    }

    /// What is written under a breakpoint is there when it goes.
    fn write_virtual(&mut self, address: u64, data: &[u8]) -> Result<usize, Refusal> {
        let written = some(self.space().write(address, data))?;
        for (at, original) in self.breakpoints.values_mut() {
            let offset = at.wrapping_sub(address);
            if let Some(&byte) =
                usize::try_from(offset).ok().filter(|o| *o < written).and_then(|o| data.get(o))
            {
                *original = byte;
                self.memory.lock().unwrap_or_else(PoisonError::into_inner).write(*at, &[0xCC]);
            }
        }
        Ok(written)
    }

    fn read_physical(&mut self, address: u64, buffer: &mut [u8]) -> Result<usize, Refusal> {
        self.space().read_physical(address, buffer)
    }

    fn write_physical(&mut self, address: u64, data: &[u8]) -> Result<usize, Refusal> {
        self.space().write_physical(address, data)
    }

    fn query_memory(&mut self, address: u64) -> Result<(u32, u32), Refusal> {
        self.space().translate(address).ok_or_else(Refusal::default)?;
        Ok(if address >> 63 == 0 { (0, 7) } else { (2, 7) })
    }

    fn context(&mut self, processor: u16) -> Result<Vec<u8>, Refusal> {
        Ok(self.processor(processor)?.context.as_bytes().to_vec())
    }

    fn set_context(&mut self, processor: u16, context: &[u8]) -> Result<(), Refusal> {
        let context = Context::decode(context).map_err(|_| Refusal::default())?;
        self.processor(processor)?.set_context(context);
        Ok(())
    }

    fn control_space(&mut self, processor: u16, number: u64) -> Result<Vec<u8>, Refusal> {
        let processor = self.processor(processor)?;
        match number {
            selector::PCR => Ok(processor.pcr.to_le_bytes().to_vec()),
            selector::PRCB => Ok(processor.prcb.to_le_bytes().to_vec()),
            selector::SPECIAL_REGISTERS => Ok(processor.special.encode()),
            selector::THREAD => Ok(processor.thread.to_le_bytes().to_vec()),
            _ => Err(Refusal::default()),
        }
    }

    fn set_control_space(&mut self, processor: u16, number: u64, data: &[u8]) -> Result<(), Refusal> {
        let processor = self.processor(processor)?;
        if number != selector::SPECIAL_REGISTERS {
            return Err(Refusal::default());
        }
        let special = SpecialRegisters::decode(data).map_err(|_| Refusal::default())?;
        processor.special = special;
        processor.set_debug(special.dr, special.dr6, special.dr7);
        Ok(())
    }

    fn insert_breakpoint(&mut self, address: u64) -> Result<u32, Refusal> {
        // A kernel's table: what is left behind is found by trying all handles.
        let mut handles = 1..=MOST_BREAKPOINTS;
        let handle = handles.find(|h| !self.breakpoints.contains_key(h)).ok_or_else(Refusal::default)?;
        let mut original = [0];
        some(self.space().read(address, &mut original))?;
        some(self.space().write(address, &[0xCC]))?;
        self.breakpoints.insert(handle, (address, original[0]));
        Ok(handle)
    }

    fn remove_breakpoint(&mut self, handle: u32) -> Result<(), Refusal> {
        let (address, original) = self.breakpoints.remove(&handle).ok_or_else(Refusal::default)?;
        // Another breakpoint at the same place keeps it patched, and inherits what was there.
        if let Some((_, below)) = self.breakpoints.values_mut().find(|(other, _)| *other == address) {
            *below = if *below == 0xCC { original } else { *below };
            return Ok(());
        }
        some(self.space().write(address, &[original])).map(drop)
    }

    fn switch_processor(&mut self, processor: u16) -> Result<(), Refusal> {
        self.processor(processor)?;
        self.current = usize::from(processor);
        Ok(())
    }

    fn msr(&mut self, msr: u32) -> Result<u64, Refusal> {
        self.msrs.get(&u64::from(msr)).copied().ok_or_else(Refusal::default)
    }

    fn set_msr(&mut self, msr: u32, value: u64) -> Result<(), Refusal> {
        *self.msrs.get_mut(&u64::from(msr)).ok_or_else(Refusal::default)? = value;
        Ok(())
    }

    fn port(&mut self, port: u64, size: u32) -> Result<u32, Refusal> {
        let value = self.ports.get(&port).copied().ok_or_else(Refusal::default)?;
        Ok((value & (u64::MAX >> (64 - 8 * size.clamp(1, 4)))) as u32)
    }

    fn set_port(&mut self, port: u64, _size: u32, value: u32) -> Result<(), Refusal> {
        *self.ports.get_mut(&port).ok_or_else(Refusal::default)? = value.into();
        Ok(())
    }

    fn search(&mut self, start: u64, length: u64, pattern: &[u8]) -> Result<u64, Refusal> {
        let length = usize::try_from(length.min(MOST_TOUCHED)).map_err(|_| Refusal::default())?;
        let bytes = self.masked(start, length);
        let at = bytes.windows(pattern.len().max(1)).position(|window| window == pattern);
        at.map(|at| start.wrapping_add(at as u64)).ok_or(Refusal(status::NO_MORE_ENTRIES))
    }

    fn fill(&mut self, space: FillSpace, address: u64, length: u32, pattern: &[u8]) -> Result<u32, Refusal> {
        let length = u64::from(length).min(MOST_TOUCHED) as usize;
        let data: Vec<u8> = pattern.iter().copied().cycle().take(length).collect();
        let filled = match space {
            FillSpace::Virtual => some(self.space().write(address, &data))?,
            FillSpace::Physical => self.space().write_physical(address, &data)?,
        };
        u32::try_from(filled).map_err(|_| Refusal::default())
    }

    fn bug_check(&mut self, code: u32) -> Result<(), Refusal> {
        self.crash(code, [0; 4]);
        self.stop = None;
        self.break_in = true;
        Ok(())
    }

    fn reboot(&mut self) -> Result<(), Refusal> {
        self.go_down();
        self.stop = None;
        Ok(())
    }

    fn string_answered(&mut self, text: &[u8]) {
        if !text.is_empty() {
            self.echo = Some(text.to_vec());
        }
    }

    fn file_answered(&mut self, reply: &FileReply) {
        self.files.push(reply.clone());
    }
}

fn some(count: usize) -> Result<usize, Refusal> {
    if count == 0 { Err(Refusal::default()) } else { Ok(count) }
}
