//! Findings: what a caller controls, followed along paths to where it matters (spec 40 section 9.7).
//!
//! Each case of a map is walked path by path from the routine's entry with its code in place. A
//! finding is something that happens on a path on which nothing that would prevent it came before; it
//! is evidence at an address, never a claim of exploitability.

mod checks;
mod sinks;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use code_flow::CodeImage;
use target::Halt;

use crate::analysis::Question;
use crate::pass::Pass;

pub use walk::Walker;

/// Functions walked over all cases, how deep, and instructions of one case.
const MAX_FUNCTIONS: usize = 128;
const MAX_DEPTH: usize = 3;
const MAX_STEPS: usize = 16_384;
/// Instructions of all cases together.
const MAX_TOTAL_STEPS: usize = 262_144;
const MAX_PATHS: usize = 512;
/// Findings listed.
const MAX_FINDINGS: usize = 1024;

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    NeitherPointerUnprobed,
    UserPointerOutsideSeh,
    WriteWhatWhere,
    TaintedCallTarget,
    CopyLengthTainted,
    AllocSizeTainted,
    PhysicalMapTainted,
    MsrTainted,
    PortTainted,
    CrTainted,
    ProcessTargetTainted,
    HeaderLengthConfusion,
    AnyAccessSensitive,
    OutputOverclaim,
    DoubleFetch,
}

impl Class {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NeitherPointerUnprobed => "neither_pointer_unprobed",
            Self::UserPointerOutsideSeh => "user_pointer_outside_seh",
            Self::WriteWhatWhere => "write_what_where",
            Self::TaintedCallTarget => "tainted_call_target",
            Self::CopyLengthTainted => "copy_length_tainted",
            Self::AllocSizeTainted => "alloc_size_tainted",
            Self::PhysicalMapTainted => "physical_map_tainted",
            Self::MsrTainted => "msr_tainted",
            Self::PortTainted => "port_tainted",
            Self::CrTainted => "cr_tainted",
            Self::ProcessTargetTainted => "process_target_tainted",
            Self::HeaderLengthConfusion => "header_length_confusion",
            Self::AnyAccessSensitive => "any_access_sensitive",
            Self::OutputOverclaim => "output_overclaim",
            Self::DoubleFetch => "double_fetch",
        }
    }

    /// What it means, for a reader.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::NeitherPointerUnprobed => {
                "a user-mode pointer of a METHOD_NEITHER request is used on a path without ProbeForRead, \
                 ProbeForWrite or a locked MDL"
            }
            Self::UserPointerOutsideSeh => "a user-mode pointer is used outside any __try of its function",
            Self::WriteWhatWhere => "the caller chooses both where is written and what",
            Self::TaintedCallTarget => "the caller chooses the address that is called",
            Self::CopyLengthTainted => "a copy's length comes from the caller without an upper bound",
            Self::AllocSizeTainted => {
                "an allocation's size is computed from the caller's numbers without a bound"
            }
            Self::PhysicalMapTainted => "the caller chooses what physical memory or section is mapped",
            Self::MsrTainted => "the caller chooses a model-specific register or its value",
            Self::PortTainted => "the caller chooses an I/O port or what is written to it",
            Self::CrTainted => "the caller chooses the value of a control or debug register",
            Self::ProcessTargetTainted => {
                "the caller names a process, thread or handle and no access check comes before"
            }
            Self::HeaderLengthConfusion => {
                "the system buffer is read past what the input length was proven to be"
            }
            Self::AnyAccessSensitive => {
                "a code that any handle may send reaches physical memory, processes or privileged registers"
            }
            Self::OutputOverclaim => {
                "the output length is reported as written, but nothing of that length was written"
            }
            Self::DoubleFetch => "the same user memory is read, checked and read again",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub class: Class,
    pub at: u64,
    /// Entry of the function it is in.
    pub function: u64,
    pub codes: BTreeSet<u32>,
    /// `type3_input_buffer`, `system_buffer`, `input_length`, ...
    pub source: &'static str,
    /// The routine or instruction.
    pub sink: String,
    /// Checks on the way that do not prevent it: address and kind.
    pub guards: Vec<(u64, &'static str)>,
    /// Inside a `__try`; `None` where scope tables are not read (x86, ARM64).
    pub seh_covered: Option<bool>,
    /// What the address is based on: further accesses through it are the same finding.
    pub(crate) base: Option<crate::expr::Expr>,
    /// An add or multiply is between the caller's number and the size.
    pub overflowable: bool,
}

/// What was walked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub findings: Vec<Finding>,
    pub functions: BTreeSet<u64>,
    /// Callees not entered, and why.
    pub skipped: BTreeMap<u64, &'static str>,
    /// Bounds that ended something.
    pub caps: BTreeSet<&'static str>,
    pub stopped: bool,
}

/// A case to walk: codes that land together, one of which stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub representative: u32,
    pub codes: BTreeSet<u32>,
}

/// Cases of a map: codes with the same landing and handler, method and access.
#[must_use]
pub fn cases(map: &crate::map::IoctlMap) -> Vec<Case> {
    let mut groups: BTreeMap<_, Case> = BTreeMap::new();
    for row in map.codes.iter().filter(|row| row.sites.iter().any(|site| site.proved)) {
        let key = (row.case_rva, row.code.0 & 0xc003);
        groups
            .entry(key)
            .or_insert_with(|| Case { representative: row.code.0, codes: BTreeSet::new() })
            .codes
            .insert(row.code.0);
    }
    groups.into_values().collect()
}

/// Walks `cases` of the routine in `question`.
#[must_use]
pub fn find(image: &CodeImage<'_>, question: &Question, cases: &[Case], halt: &Halt) -> Findings {
    let constants = |address: u64, size: u8| image.constant(address, usize::from(size));
    let mut pass = Pass::new(image, &constants, question.major);
    pass.framework = question.framework;
    pass.tainting = true;
    let mut walker = Walker::new(&mut pass, question, halt);
    for case in cases {
        if halt.stop().is_some() {
            walker.found.stopped = true;
            break;
        }
        walker.case(case);
    }
    let mut found = walker.found;
    found.findings.sort_by_key(|finding| (finding.class, finding.at));
    found
}
