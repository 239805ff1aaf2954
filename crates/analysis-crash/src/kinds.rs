//! Exception codes to kinds (spec 60 section 3.4).

use target::ExceptionRecord;

use crate::result::ExceptionKind;

pub(crate) const CPP_THROW: u32 = 0xe06d_7363;
pub(crate) const FAIL_FAST: u32 = 0xc000_0409;

/// The kind of a record. An access violation without its two parameters says nothing: `other`.
pub(crate) fn kind_of(record: &ExceptionRecord) -> ExceptionKind {
    use ExceptionKind as K;
    match record.code {
        0xc000_0005 if record.parameters.len() < 2 => K::Other,
        0xc000_0005 => K::AccessViolation,
        0xc000_0006 => K::InPageError,
        0x8000_0001 => K::GuardPage,
        0xc000_00fd => K::StackOverflow,
        FAIL_FAST | 0xc000_0602 => K::FailFast,
        0xc000_0374 => K::HeapCorruption,
        0xc000_027b => K::Stowed,
        CPP_THROW => K::CppThrow,
        0xe043_4352 | 0xe043_4f4d => K::ClrException,
        0x8000_0003 | 0x4000_001f => K::Breakpoint,
        0x8000_0004 | 0x4000_001e => K::SingleStep,
        0xc000_001d => K::IllegalInstruction,
        // Floating point up to 0x93, then integer division and overflow.
        0xc000_008d..=0xc000_0095 => K::Arithmetic,
        0xc000_0420 => K::Assertion,
        0xc000_0421 => K::VerifierStop,
        0xc000_0008 => K::InvalidHandle,
        0xc06d_007e | 0xc06d_007f => K::DelayLoad,
        0x4008_0201 | 0x4008_0202 => K::WinrtOriginate,
        0x406d_1388 => K::ThreadName,
        0x4001_0006 | 0x4001_000a => K::DebugString,
        0x2047_4343 | 0x2147_4343 | 0x2247_4343 => K::GccThrow,
        0xcfff_ffff => K::Hang,
        _ => K::Other,
    }
}
