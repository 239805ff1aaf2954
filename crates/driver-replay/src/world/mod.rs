//! The made-up kernel a driver's entry runs in: memory, objects, stubs.

mod formatted;
mod io;
mod notify;
mod objects;
mod runtime;
mod security;
mod strings;
mod wdf;

use std::collections::HashMap;

use emulate::{Call, Emulator, Event, Memory, Outside, Stop, Value};
use target::{Address, Halt, Machine};

use crate::image::PlacedImage;
use crate::record::{Callback, Device, FrameworkCalls, Link, Phase, StoppedAt};

/// Bytes of the arena that allocations come from.
const ARENA: u64 = 16 << 20;
const STACK: u64 = 1 << 20;
/// Bytes between stubs.
const STUB: u64 = 16;
/// Most stubs: imports, framework functions, dynamic imports.
const MAX_STUBS: u64 = 0x1_0000;
/// Most stub calls of a run.
const MAX_STUB_CALLS: u32 = 10_000;
/// Instructions between looks at the halt.
const SLICE: u64 = 4096;
/// Most of any kind of finding kept.
const MAX_FINDINGS: usize = 4096;

/// What a stub stands for.
#[derive(Clone, Debug)]
pub(crate) enum Stub {
    Import(String),
    Wdf(u32),
    /// `IopInvalidDeviceRequest`: what the dispatch table is filled with.
    Sentinel,
    /// The end of the outermost call.
    Return,
}

/// What a model gives back.
pub(crate) enum Answer {
    Value(u64),
    /// The driver gave up on purpose: `KeBugCheckEx` and its like.
    End(&'static str),
}

/// Addresses of everything.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) arena: u64,
    stack_top: u64,
    stubs: u64,
    pub(crate) wdf: u64,
}

/// A call of an import that no model answers, for retries.
#[derive(Clone, Debug)]
pub(crate) struct Unmodelled {
    /// Number of the stub call.
    pub(crate) ordinal: u32,
    pub(crate) name: String,
    /// The caller looks at the result.
    pub(crate) tested: bool,
}

/// What was seen.
#[derive(Clone, Default)]
pub(crate) struct Findings {
    pub(crate) devices: Vec<(u64, Device)>,
    pub(crate) links: Vec<Link>,
    pub(crate) callbacks: Vec<Callback>,
    pub(crate) dynamic_imports: Vec<String>,
    pub(crate) framework: Option<FrameworkCalls>,
    /// `EvtDriverDeviceAdd` and the handle of the driver it is called with.
    pub(crate) wdf_device_add: Option<u64>,
}

/// How a call of the driver's code ended.
pub(crate) enum Ended {
    Returned(u64),
    Stopped(StoppedAt),
}

pub(crate) struct World {
    pub(crate) image: PlacedImage,
    pub(crate) emulator: Emulator,
    pub(crate) layout: Layout,
    next: u64,
    stubs: Vec<Stub>,
    by_name: HashMap<String, u64>,
    pub(crate) objects: objects::Objects,
    pub(crate) found: Findings,
    pub(crate) phase: Phase,
    pub(crate) stub_calls: u32,
    pub(crate) unmodelled: Vec<Unmodelled>,
    /// Stub calls whose result is to be other than 0.
    pub(crate) toggled: Vec<u32>,
    last_call: Option<Call>,
    /// Objects behind handles given out.
    pub(crate) handles: HashMap<u64, u64>,
}

impl World {
    /// A fresh kernel with the image in it, its imports bound.
    pub(crate) fn new(image: &PlacedImage, toggled: &[u32]) -> Option<Self> {
        let layout = layout_for(image)?;
        let mut memory = Memory::new(Outside::Stop);
        let source = std::rc::Rc::clone(&image.bytes);
        let base = image.base;
        let backing = move |address: u64, buffer: &mut [u8]| match u32::try_from(address - base) {
            Ok(rva) => source.read_rva(rva, buffer),
            Err(_) => 0,
        };
        let size = u64::from(image.pe.size_of_image).next_multiple_of(emulate::PAGE);
        memory.map_zero(layout.arena, ARENA);
        memory.map_zero(layout.stack_top - STACK, STACK + emulate::PAGE);
        memory.map_zero(layout.stubs, MAX_STUBS * STUB);
        memory.map_zero(layout.wdf, 0x4000);
        memory.map_backed(image.base, size, std::rc::Rc::new(backing));
        let mut emulator = Emulator::new(image.machine, memory);
        emulator.registers.general = [Value::ZERO; 32];
        emulator.registers.vector = [[Value::ZERO; 2]; 32];
        emulator.add_stubs(layout.stubs..layout.stubs + MAX_STUBS * STUB);
        emulator.add_stubs(layout.wdf..layout.wdf + 0x4000);
        let mut world = Self {
            image: image.clone(),
            emulator,
            layout,
            next: layout.arena,
            stubs: vec![Stub::Return, Stub::Sentinel],
            by_name: HashMap::new(),
            objects: objects::Objects::default(),
            found: Findings::default(),
            phase: Phase::Entry,
            stub_calls: 0,
            unmodelled: Vec::new(),
            toggled: toggled.to_vec(),
            last_call: None,
            handles: HashMap::new(),
        };
        world.make_objects();
        world.bind_imports();
        world.set_security_cookie();
        Some(world)
    }

    pub(crate) fn pointer(&self) -> u32 {
        self.image.pointer()
    }

    pub(crate) fn narrow(&self) -> bool {
        self.pointer() == 4
    }

    /// `wide` on 64-bit machines, `narrow` on x86.
    pub(crate) fn either(&self, wide: u64, narrow: u64) -> u64 {
        if self.narrow() { narrow } else { wide }
    }

    /// Zeroed memory; when the arena is used up, its start again (only hostile drivers get there).
    pub(crate) fn allocate(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.clamp(1, ARENA / 4).next_multiple_of(16);
        if self.next + bytes > self.layout.arena + ARENA {
            self.next = self.layout.arena + ARENA / 2;
        }
        let at = self.next;
        self.next += bytes;
        at
    }

    pub(crate) fn argument(&mut self, index: u32) -> u64 {
        self.emulator.argument(index).bits()
    }

    /// A 32-bit argument.
    pub(crate) fn argument32(&mut self, index: u32) -> u32 {
        self.argument(index) as u32
    }

    /// Known bytes, or 0 for what cannot be read.
    pub(crate) fn read(&mut self, address: u64, bytes: u32) -> u64 {
        self.emulator.memory.read(address, bytes).map_or(0, |value| value.bits())
    }

    pub(crate) fn read_pointer(&mut self, address: u64) -> u64 {
        let pointer = self.pointer();
        self.read(address, pointer)
    }

    /// Writes where something is mapped; a stub writes nowhere else.
    pub(crate) fn write(&mut self, address: u64, bytes: u32, value: u64) {
        let _ = self.emulator.memory.write(address, bytes, Value::known(value));
    }

    pub(crate) fn write_pointer(&mut self, address: u64, value: u64) {
        let pointer = self.pointer();
        if address != 0 {
            self.write(address, pointer, value);
        }
    }

    fn add_stub(&mut self, stub: Stub) -> u64 {
        if self.stubs.len() as u64 >= MAX_STUBS {
            return self.stub_address(1);
        }
        self.stubs.push(stub);
        self.stub_address(self.stubs.len() as u64 - 1)
    }

    fn stub_address(&self, index: u64) -> u64 {
        self.layout.stubs + index * STUB
    }

    pub(crate) fn sentinel(&self) -> u64 {
        self.stub_address(1)
    }

    /// The stub of the routine `name`; one for each name.
    pub(crate) fn routine(&mut self, name: &str) -> u64 {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        let at = self.add_stub(Stub::Import(name.to_owned()));
        self.by_name.insert(name.to_owned(), at);
        at
    }

    fn bind_imports(&mut self) {
        let dlls = self.image.pe.imports(self.image.bytes.as_ref());
        let pointer = self.pointer();
        for dll in dlls {
            for import in dll.imports {
                let name = match (&import.name, import.ordinal) {
                    (Some(name), _) => name.clone(),
                    (None, ordinal) => format!("{}#{}", dll.name, ordinal.unwrap_or(0)),
                };
                let value = match self.variable(&name) {
                    Some(address) => address,
                    None => self.routine(&name),
                };
                let slot = self.image.base.wrapping_add(u64::from(import.slot));
                self.write(slot, pointer, value);
            }
        }
    }

    /// Newer entry stubs fail fast on the cookie the linker put there.
    fn set_security_cookie(&mut self) {
        let config = self.image.pe.load_config(self.image.bytes.as_ref());
        let pointer = self.pointer();
        if let Some(cookie) = config.and_then(|c| c.security_cookie).filter(|&c| self.image.contains(c)) {
            let value = if self.narrow() { 0x5bd1_e995 } else { 0x0000_5bd1_e995_a3c7 };
            self.write(cookie, pointer, value);
        }
    }

    /// Calls the driver's code at `entry` and runs it to its return.
    pub(crate) fn call(&mut self, entry: u64, arguments: &[u64], budget: &mut Budget<'_>) -> Ended {
        let stopped =
            |reason: &str| Ended::Stopped(StoppedAt { address: Address(entry), reason: reason.to_owned() });
        let pointer = self.pointer();
        // Room above for the caller's arguments, 16-byte alignment as at any call.
        let top = self.layout.stack_top - 0x1000;
        let registers = &mut self.emulator.registers;
        if self.image.machine == Machine::Arm64 {
            registers.general[emulate::SP_ARM64] = Value::known(top);
            registers.general[30] = Value::known(self.layout.stubs);
        } else {
            let sp = top - u64::from(pointer);
            registers.general[emulate::RSP] = Value::known(sp);
            if self.emulator.memory.write(sp, pointer, Value::known(self.layout.stubs)).is_err() {
                return stopped("no stack");
            }
        }
        for (index, &value) in (0..).zip(arguments) {
            if self.emulator.set_argument(index, Value::known(value)).is_err() {
                return stopped("no stack");
            }
        }
        self.emulator.registers.ip = entry;
        self.run(budget)
    }

    fn run(&mut self, budget: &mut Budget<'_>) -> Ended {
        loop {
            let before = self.emulator.steps;
            let event = self.emulator.run(SLICE.min(budget.instructions.saturating_add(1)));
            budget.instructions = budget.instructions.saturating_sub(self.emulator.steps - before);
            let at = self.emulator.registers.ip;
            let stopped = |address: u64, reason: String| {
                Ended::Stopped(StoppedAt { address: Address(address), reason })
            };
            if budget.instructions == 0 {
                return stopped(at, "more instructions than a replay runs".to_owned());
            }
            match event {
                Event::Ran => {
                    if let Some(why) = budget.halt.stop() {
                        return stopped(at, format!("{why:?}").to_lowercase());
                    }
                }
                Event::Called(call) => {
                    self.last_call = Some(call);
                    if call.target.is_none() {
                        return stopped(call.at, Stop::UnknownTarget { at: call.at }.to_string());
                    }
                }
                Event::Fork(fork) => {
                    return stopped(fork.at, "a branch depends on a value nobody gave".to_owned());
                }
                Event::Stopped(stop) => return stopped(stop.at(), stop.to_string()),
                Event::Stub(address) => {
                    if let Some(ended) = self.stub(address, budget) {
                        return ended;
                    }
                }
            }
        }
    }

    /// Answers a stub that was reached; `Some` ends the run.
    fn stub(&mut self, address: u64, budget: &Budget<'_>) -> Option<Ended> {
        let caller = self.last_call.map_or(address, |call| call.at);
        let stopped = |reason: String| Some(Ended::Stopped(StoppedAt { address: Address(caller), reason }));
        let pointer = u64::from(self.pointer());
        let stub = if (self.layout.wdf..self.layout.wdf + 0x4000).contains(&address) {
            u32::try_from((address - self.layout.wdf) / pointer).ok().map(Stub::Wdf)
        } else {
            usize::try_from((address - self.layout.stubs) / STUB)
                .ok()
                .and_then(|i| self.stubs.get(i).cloned())
        };
        let Some(stub) = stub else {
            return stopped("a call into nothing".to_owned());
        };
        if matches!(stub, Stub::Return) {
            return Some(Ended::Returned(self.emulator.registers.general[0].bits()));
        }
        self.stub_calls += 1;
        if self.stub_calls > MAX_STUB_CALLS {
            return stopped("more calls of the kernel than a replay answers".to_owned());
        }
        if self.stub_calls.is_multiple_of(64)
            && let Some(why) = budget.halt.stop()
        {
            return stopped(format!("{why:?}").to_lowercase());
        }
        let (answer, popped) = match &stub {
            Stub::Import(name) => {
                let popped = crate::stack_bytes::stack_bytes(name);
                (self.import(name), popped)
            }
            Stub::Wdf(index) => (self.framework_call(*index), wdf::stack_bytes(*index)),
            Stub::Sentinel | Stub::Return => (Answer::Value(0xc000_0010), Some(8)),
        };
        match answer {
            Answer::End(why) => stopped(why.to_owned()),
            Answer::Value(value) => self.give_back(value, popped, &stopped),
        }
    }

    fn give_back(
        &mut self,
        value: u64,
        popped: Option<u32>,
        stopped: &dyn Fn(String) -> Option<Ended>,
    ) -> Option<Ended> {
        let popped = match (popped, self.last_call) {
            (Some(bytes), _) => bytes,
            (None, Some(call)) => emulate::stack_bytes::inferred(&mut self.emulator, &call),
            (None, None) => 0,
        };
        // A model may have needed volatile registers of the caller: they are gone as after any call,
        // but as zeros, since real code never looks and unpacked junk would only end the run.
        match self.emulator.return_from_call(Value::known(value), popped) {
            Ok(()) => None,
            Err(stop) => stopped(stop.to_string()),
        }
    }

    fn import(&mut self, name: &str) -> Answer {
        if let Some(answer) = self.model(name) {
            return answer;
        }
        let tested = self.result_is_tested();
        let ordinal = self.stub_calls;
        if self.unmodelled.len() < MAX_FINDINGS {
            self.unmodelled.push(Unmodelled { ordinal, name: name.to_owned(), tested });
        }
        if self.toggled.contains(&ordinal) {
            // Not null, and as a status a success.
            return Answer::Value(self.allocate(0x1000));
        }
        Answer::Value(0)
    }

    fn model(&mut self, name: &str) -> Option<Answer> {
        self.io_call(name)
            .or_else(|| self.string_call(name))
            .or_else(|| self.runtime_call(name))
            .or_else(|| self.notify_call(name))
            .or_else(|| self.security_call(name))
            .or_else(|| self.format_call(name))
    }

    /// Whether the caller compares the result before it overwrites it.
    fn result_is_tested(&mut self) -> bool {
        let Some(call) = self.last_call else { return false };
        if self.image.machine == Machine::Arm64 {
            return true;
        }
        let mut bytes = [0; 48];
        let source = std::rc::Rc::clone(&self.image.bytes);
        let Some(rva) = self.image.rva(call.return_address) else { return false };
        let read = source.read_rva(rva, &mut bytes).min(bytes.len());
        let bits = if self.narrow() { 32 } else { 64 };
        let decoder = iced_x86::Decoder::with_ip(
            bits,
            &bytes[..read],
            call.return_address,
            iced_x86::DecoderOptions::NONE,
        );
        for instruction in decoder.into_iter().take(5) {
            let first = instruction.op0_register().full_register();
            let on_result = matches!(first, iced_x86::Register::RAX | iced_x86::Register::EAX);
            match instruction.mnemonic() {
                iced_x86::Mnemonic::Test | iced_x86::Mnemonic::Cmp if on_result => return true,
                // Kept in another register: looked at later.
                iced_x86::Mnemonic::Mov
                    if matches!(
                        instruction.op1_register().full_register(),
                        iced_x86::Register::RAX | iced_x86::Register::EAX
                    ) =>
                {
                    return true;
                }
                iced_x86::Mnemonic::Call | iced_x86::Mnemonic::Ret => return false,
                _ if on_result => return false,
                _ => {}
            }
        }
        false
    }

    /// Keeps a finding, if there is room.
    pub(crate) fn callback(&mut self, kind: impl Into<String>, address: u64) {
        if self.image.contains(address) && self.found.callbacks.len() < MAX_FINDINGS {
            let (kind, from) = (kind.into(), self.phase);
            let callback = Callback { kind, address: Address(address), from };
            if !self.found.callbacks.contains(&callback) {
                self.found.callbacks.push(callback);
            }
        }
    }
}

/// What a replay may use, over all its runs.
pub(crate) struct Budget<'a> {
    pub(crate) instructions: u64,
    pub(crate) halt: &'a Halt,
}

/// Windows of addresses away from the image and, on x86, from `KUSER_SHARED_DATA`.
fn layout_for(image: &PlacedImage) -> Option<Layout> {
    let candidates: &[u64] = if image.pe.is_64 {
        // Low halves below 2 GiB: a pointer taken for a status is a success.
        &[0xffff_a000_1000_0000, 0xffff_a100_1000_0000]
    } else {
        &[0x6800_0000, 0x2800_0000, 0xa000_0000]
    };
    let end = image.base.checked_add(u64::from(image.pe.size_of_image))?;
    let base = candidates.iter().copied().find(|&b| end <= b || image.base >= b + 0x800_0000)?;
    Some(Layout {
        arena: base,
        stack_top: base + 0x300_0000,
        stubs: base + 0x400_0000,
        wdf: base + 0x500_0000,
    })
}
