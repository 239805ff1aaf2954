//! x86 and x64 by iced-x86.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter, FormatterOutput, FormatterTextKind,
    Instruction as Iced, MasmFormatter, MemorySizeOptions, NumberKind, OpKind, PrefixKind, Register,
    SymbolResult,
};
use target::value::backticked;
use target::{Flow, HexBytes, Instruction};

use crate::{MAX_INSTRUCTION, Symbolizer, invalid};

/// Decodes without text. `None` when the bytes are no instruction or end inside one.
pub(crate) fn raw(bits: u32, address: u64, bytes: &[u8]) -> Option<Iced> {
    let bytes = &bytes[..bytes.len().min(MAX_INSTRUCTION)];
    let mut decoder = Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

pub(crate) fn decode(bits: u32, address: u64, bytes: &[u8], symbols: Option<Symbolizer<'_>>) -> Instruction {
    let Some(instruction) = raw(bits, address, bytes) else {
        return invalid(address, &bytes[..bytes.len().min(1)]);
    };
    Instruction {
        address,
        bytes: HexBytes(bytes[..instruction.len().min(bytes.len())].to_vec()),
        text: Some(text(bits, &instruction, symbols)),
        target: direct_target(&instruction),
        flow: flow(&instruction),
        data_address: data_address(&instruction),
    }
}

pub(crate) fn flow(instruction: &Iced) -> Flow {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Branch,
        FlowControl::IndirectBranch => Flow::IndirectBranch,
        FlowControl::ConditionalBranch => Flow::ConditionalBranch,
        FlowControl::Return => Flow::Return,
        // To the kernel and back: the debugger steps over it like any instruction.
        FlowControl::Call if matches!(instruction.code(), Code::Syscall | Code::Sysenter) => Flow::Next,
        FlowControl::Call => Flow::Call,
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::Interrupt
            if instruction.code() == Code::Int_imm8 && instruction.immediate8() == 0x2e =>
        {
            Flow::Next
        }
        FlowControl::Interrupt | FlowControl::Exception => Flow::Trap,
    }
}

fn direct_target(instruction: &Iced) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(instruction.near_branch_target())
        }
        _ => None,
    }
}

/// Address of a memory operand that needs no registers; fs and gs have bases nobody knows here.
fn data_address(instruction: &Iced) -> Option<u64> {
    if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
        return None;
    }
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    (memory && instruction.memory_base() == Register::None && instruction.memory_index() == Register::None)
        .then(|| instruction.memory_displacement64())
}

fn text(bits: u32, instruction: &Iced, symbols: Option<Symbolizer<'_>>) -> String {
    let mut formatter = MasmFormatter::new();
    let options = formatter.options_mut();
    options.set_show_branch_size(false);
    options.set_memory_size_options(MemorySizeOptions::Always);
    options.set_branch_leading_zeros(true);
    let mut output = Output { text: String::new(), bits, symbols, data: data_address(instruction) };
    formatter.format(instruction, &mut output);
    output.text
}

/// Collects the text and writes addresses the debugger's way.
struct Output<'a> {
    text: String,
    bits: u32,
    symbols: Option<Symbolizer<'a>>,
    data: Option<u64>,
}

impl Output<'_> {
    fn address(&mut self, value: u64) {
        let number = if self.bits == 64 { backticked(value) } else { format!("{value:08x}") };
        match self.symbols.and_then(|name| name(value)) {
            Some(name) => self.text.push_str(&format!("{name} ({number})")),
            None => self.text.push_str(&number),
        }
    }
}

impl FormatterOutput for Output<'_> {
    fn write(&mut self, text: &str, _: FormatterTextKind) {
        self.text.push_str(text);
    }
    fn write_prefix(&mut self, _: &Iced, text: &str, _: PrefixKind) {
        self.text.push_str(text);
    }
    fn write_number(
        &mut self,
        _: &Iced,
        _: u32,
        operand: Option<u32>,
        text: &str,
        value: u64,
        _: NumberKind,
        kind: FormatterTextKind,
    ) {
        let branch = matches!(kind, FormatterTextKind::LabelAddress | FormatterTextKind::FunctionAddress);
        // Small absolute addresses (`ds:[45h]`) read better as numbers.
        let data = self.data == Some(value) && operand.is_some() && value >= 0x1_0000;
        if branch || data {
            self.address(value);
        } else {
            self.text.push_str(text);
        }
    }
    fn write_symbol(&mut self, _: &Iced, _: u32, _: Option<u32>, address: u64, _: &SymbolResult<'_>) {
        self.address(address);
    }
}
