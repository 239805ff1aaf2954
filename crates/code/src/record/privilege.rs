//! What needs ring 0, told by the encoding.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Why an instruction needs CPL 0 (port I/O and `cli`: I/O privilege; ARM64: EL1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privilege {
    PortIo,
    ModelSpecificRegister,
    ControlRegister,
    DescriptorTable,
    InterruptFlag,
    CacheOrTlb,
    Virtualization,
    Other,
}

impl Privilege {
    /// The snake_case word for results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PortIo => "port_io",
            Self::ModelSpecificRegister => "model_specific_register",
            Self::ControlRegister => "control_register",
            Self::DescriptorTable => "descriptor_table",
            Self::InterruptFlag => "interrupt_flag",
            Self::CacheOrTlb => "cache_or_tlb",
            Self::Virtualization => "virtualization",
            Self::Other => "other",
        }
    }
}

/// Whether an instruction is privileged comes from its encoding's own property (iced's
/// `is_privileged`: every CPL 0 and IOPL instruction; `vmcall` and its like from user mode too);
/// only the kind is told by name, with `Other` for the rest.
pub(crate) fn of_x86(instruction: &Instruction) -> Option<Privilege> {
    let mnemonic = instruction.mnemonic();
    if !instruction.is_privileged() {
        return matches!(mnemonic, Mnemonic::Vmcall | Mnemonic::Vmmcall | Mnemonic::Vmfunc)
            .then_some(Privilege::Virtualization);
    }
    Some(match mnemonic {
        Mnemonic::In
        | Mnemonic::Out
        | Mnemonic::Insb
        | Mnemonic::Insw
        | Mnemonic::Insd
        | Mnemonic::Outsb
        | Mnemonic::Outsw
        | Mnemonic::Outsd => Privilege::PortIo,
        Mnemonic::Rdmsr | Mnemonic::Wrmsr | Mnemonic::Wrmsrns | Mnemonic::Rdmsrlist | Mnemonic::Wrmsrlist => {
            Privilege::ModelSpecificRegister
        }
        Mnemonic::Clts | Mnemonic::Lmsw | Mnemonic::Xsetbv => Privilege::ControlRegister,
        Mnemonic::Mov if moves_system_register(instruction) => Privilege::ControlRegister,
        Mnemonic::Lgdt | Mnemonic::Lidt | Mnemonic::Lldt | Mnemonic::Ltr => Privilege::DescriptorTable,
        Mnemonic::Cli | Mnemonic::Sti => Privilege::InterruptFlag,
        Mnemonic::Invd
        | Mnemonic::Wbinvd
        | Mnemonic::Wbnoinvd
        | Mnemonic::Invlpg
        | Mnemonic::Invlpga
        | Mnemonic::Invlpgb
        | Mnemonic::Tlbsync
        | Mnemonic::Invpcid => Privilege::CacheOrTlb,
        Mnemonic::Vmlaunch
        | Mnemonic::Vmresume
        | Mnemonic::Vmxon
        | Mnemonic::Vmxoff
        | Mnemonic::Vmclear
        | Mnemonic::Vmptrld
        | Mnemonic::Vmptrst
        | Mnemonic::Vmread
        | Mnemonic::Vmwrite
        | Mnemonic::Invept
        | Mnemonic::Invvpid
        | Mnemonic::Vmrun
        | Mnemonic::Vmload
        | Mnemonic::Vmsave
        | Mnemonic::Stgi
        | Mnemonic::Clgi
        | Mnemonic::Skinit => Privilege::Virtualization,
        _ => Privilege::Other,
    })
}

fn moves_system_register(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|index| {
        let register = instruction.op_register(index);
        instruction.op_kind(index) == OpKind::Register
            && (register.is_cr() || register.is_dr() || register.is_tr())
            && register != Register::None
    })
}

/// ARM64 words that need EL1 or higher: accesses of system registers above EL0 (op1 other than 3;
/// op0 2 are the debug registers), PSTATE fields, maintenance below EL1, `eret`, `hvc`, `smc`.
/// DDI 0487, C5.1 and C4.1.
pub(crate) fn of_arm64(word: u32) -> Option<Privilege> {
    let bits = |high: u32, low: u32| word >> low & (u32::MAX >> (31 - (high - low)));
    if word == 0xd69f_03e0 || word & 0xffff_fbff == 0xd69f_0bff || word == 0xd6bf_03e0 {
        return Some(Privilege::Other); // eret, eretaa, eretab, drps
    }
    if word & 0xffe0_001f == 0xd400_0002 || word & 0xffe0_001f == 0xd400_0003 {
        return Some(Privilege::Virtualization); // hvc, smc
    }
    if bits(31, 22) != 0b11_0101_0100 {
        return None;
    }
    let (op0, op1, crn, crm, op2) = (bits(20, 19), bits(18, 16), bits(15, 12), bits(11, 8), bits(7, 5));
    match op0 {
        0 if crn == 4 && bits(4, 0) == 31 => pstate(op1, op2),
        1 if op1 != 3 => Some(match crn {
            7 if crm == 8 => Privilege::Other, // at: address translation
            7..=9 => Privilege::CacheOrTlb,
            _ => Privilege::Other,
        }),
        2 | 3 if op1 != 3 => Some(match (op0, crn) {
            (3, 1 | 2 | 10 | 12) => Privilege::ControlRegister,
            (3, _) => Privilege::ModelSpecificRegister,
            _ => Privilege::ControlRegister,
        }),
        // DAIF may be kept from EL0 (SCTLR_EL1.UMA): NZCV, FPCR, TPIDR and counters may not.
        3 if crn == 4 && crm == 2 && op2 == 1 => Some(Privilege::InterruptFlag),
        _ => None,
    }
}

fn pstate(op1: u32, op2: u32) -> Option<Privilege> {
    match (op1, op2) {
        (3, 6 | 7) => Some(Privilege::InterruptFlag), // daifset, daifclr
        (0, 3..=5) => Some(Privilege::ControlRegister), // uao, pan, spsel
        // cfinv, xaflag, axflag; dit, ssbs, tco may be set from EL0.
        _ => None,
    }
}
