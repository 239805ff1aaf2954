//! Just enough of an x64 assembler, and a PE image around its output.

use std::collections::BTreeMap;

pub const BASE: u64 = 0x1_4000_0000;
pub const TEXT: u32 = 0x1000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Label(usize);

enum Fixup {
    /// rel32 that ends at the patched field's end.
    Relative,
    /// Difference to another label.
    Difference(Label),
}

#[derive(Default)]
pub struct Assembler {
    pub code: Vec<u8>,
    labels: Vec<Option<usize>>,
    fixups: Vec<(usize, Label, Fixup)>,
}

/// Condition nibbles of jcc.
pub const CONDITIONS: [(u8, &str); 12] = [
    (0x2, "b"),
    (0x3, "ae"),
    (0x4, "e"),
    (0x5, "ne"),
    (0x6, "be"),
    (0x7, "a"),
    (0x8, "s"),
    (0x9, "ns"),
    (0xc, "l"),
    (0xd, "ge"),
    (0xe, "le"),
    (0xf, "g"),
];

impl Assembler {
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    pub fn address(&self, label: Label) -> u64 {
        BASE + u64::from(TEXT) + self.labels[label.0].expect("bound") as u64
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    fn dword(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// `op r/m32, r32` or the like, both operands registers.
    pub fn rr(&mut self, opcode: &[u8], rm: u8, reg: u8) {
        let rex = 0x40 | (reg >> 3) << 2 | rm >> 3;
        if rex != 0x40 {
            self.bytes(&[rex]);
        }
        self.bytes(opcode);
        self.bytes(&[0xc0 | (reg & 7) << 3 | rm & 7]);
    }

    /// Group 81 /n: add 0, or 1, and 4, sub 5, xor 6, cmp 7.
    pub fn immediate(&mut self, extension: u8, register: u8, value: u32) {
        self.rr(&[0x81], register, extension);
        self.dword(value);
    }

    /// Group C1 /n: rol 0, ror 1, shl 4, shr 5.
    pub fn shift(&mut self, extension: u8, register: u8, count: u8) {
        self.rr(&[0xc1], register, extension);
        self.bytes(&[count]);
    }

    pub fn mov_immediate(&mut self, register: u8, value: u32) {
        if register > 7 {
            self.bytes(&[0x41]);
        }
        self.bytes(&[0xb8 | register & 7]);
        self.dword(value);
    }

    pub fn mov(&mut self, to: u8, from: u8) {
        self.rr(&[0x89], to, from);
    }

    /// `mov [rsp+disp], r32` (0x89) or `mov r32, [rsp+disp]` (0x8b).
    pub fn stack(&mut self, opcode: u8, register: u8, displacement: u8) {
        if register > 7 {
            self.bytes(&[0x44]);
        }
        self.bytes(&[opcode, 0x44 | (register & 7) << 3, 0x24, displacement]);
    }

    pub fn jcc(&mut self, condition: u8, to: Label) {
        self.bytes(&[0x0f, 0x80 | condition]);
        self.reference(to);
    }

    pub fn jmp(&mut self, to: Label) {
        self.bytes(&[0xe9]);
        self.reference(to);
    }

    pub fn call(&mut self, to: Label) {
        self.bytes(&[0xe8]);
        self.reference(to);
    }

    fn reference(&mut self, to: Label) {
        self.fixups.push((self.code.len(), to, Fixup::Relative));
        self.dword(0);
    }

    /// `lea r64, [rip+label]`.
    pub fn lea(&mut self, register: u8, to: Label) {
        self.bytes(&[0x48 | (register >> 3) << 2, 0x8d, 0x05 | (register & 7) << 3]);
        self.reference(to);
    }

    /// A table entry: `to - table`.
    pub fn entry(&mut self, to: Label, table: Label) {
        self.fixups.push((self.code.len(), to, Fixup::Difference(table)));
        self.dword(0);
    }

    /// The image.
    pub fn finish(&mut self) -> Vec<u8> {
        for (at, label, fixup) in &self.fixups {
            let to = self.labels[label.0].expect("bound") as i64;
            let from = match fixup {
                Fixup::Relative => *at as i64 + 4,
                Fixup::Difference(table) => self.labels[table.0].expect("bound") as i64,
            };
            self.code[*at..*at + 4].copy_from_slice(&((to - from) as i32).to_le_bytes());
        }
        image(&self.code)
    }

    pub fn known(&self) -> BTreeMap<u64, Label> {
        (0..self.labels.len())
            .filter(|i| self.labels[*i].is_some())
            .map(|i| (self.address(Label(i)), Label(i)))
            .collect()
    }
}

/// A native x64 image with one executable section.
pub fn image(code: &[u8]) -> Vec<u8> {
    let raw = code.len().next_multiple_of(0x200);
    let mut out = vec![0u8; 0x200 + raw];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &0x40u32.to_le_bytes());
    put(0x40, b"PE\0\0");
    put(0x44, &0x8664u16.to_le_bytes());
    put(0x46, &1u16.to_le_bytes());
    put(0x54, &0xf0u16.to_le_bytes());
    put(0x56, &0x22u16.to_le_bytes());
    let optional = 0x58;
    put(optional, &0x20bu16.to_le_bytes());
    put(optional + 0x10, &TEXT.to_le_bytes());
    put(optional + 0x14, &TEXT.to_le_bytes());
    put(optional + 0x18, &BASE.to_le_bytes());
    put(optional + 0x20, &0x1000u32.to_le_bytes());
    put(optional + 0x24, &0x200u32.to_le_bytes());
    let size = TEXT + (code.len() as u32).next_multiple_of(0x1000);
    put(optional + 0x38, &size.to_le_bytes());
    put(optional + 0x3c, &0x200u32.to_le_bytes());
    put(optional + 0x44, &1u16.to_le_bytes());
    put(optional + 0x6c, &16u32.to_le_bytes());
    let section = optional + 0xf0;
    put(section, b".text\0\0\0");
    put(section + 8, &(code.len() as u32).to_le_bytes());
    put(section + 12, &TEXT.to_le_bytes());
    put(section + 16, &(raw as u32).to_le_bytes());
    put(section + 20, &0x200u32.to_le_bytes());
    put(section + 36, &0x6000_0020u32.to_le_bytes());
    put(0x200, code);
    out
}
