//! Entry points found by reading `DriverEntry`'s stores into the driver object: the fallback where
//! running it is not possible. Loops, vector stores and tables copied in are not seen.

use code::record::Family;
use code_flow::CodeImage;
use target::Halt;

use crate::analysis::Convention;
use crate::expr::{Expr, Symbol};
use crate::flow::{Flow, MAX_SWEEPS, Tables};
use crate::pass::Pass;
use crate::state::{Place, State};

/// `IRP_MJ_DEVICE_CONTROL`, `IRP_MJ_INTERNAL_DEVICE_CONTROL` (wdm.h).
const DEVICE_CONTROL: [u8; 2] = [0x0e, 0x0f];

/// A routine that receives control codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPoint {
    pub address: u64,
    pub convention: Convention,
    pub major: u8,
}

/// What `DriverEntry` is seen to install.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    pub entries: Vec<EntryPoint>,
    /// Every major function seen: index and routine.
    pub majors: Vec<(u8, u64)>,
}

/// Reads the image's entry point as a `DriverEntry`.
#[must_use]
pub fn static_entries(image: &CodeImage<'_>, halt: &Halt) -> Installed {
    let constants = |address: u64, size: u8| image.constant(address, usize::from(size));
    let mut pass = Pass::new(image, &constants, 0);
    let Some(entry) = image.checked_va(image.pe.entry_point, 1).filter(|_| image.pe.entry_point != 0) else {
        return Installed::default();
    };
    let mut state = State::unknown(&mut pass.solver);
    let driver = pass.solver.exprs.symbol(Symbol::DriverObject);
    let pointer = pass.layout.pointer;
    match image.machine {
        target::Machine::X64 => state.set_register(Family::General(1), driver),
        target::Machine::Arm64 => state.set_register(Family::General(0), driver),
        _ => state.store(Place::Stack(4), pointer, driver),
    }
    let mut queue = vec![(entry, state)];
    let mut seen = vec![entry];
    while let Some((address, state)) = queue.pop() {
        let listing = {
            let tables = Tables::new(&mut pass, state.clone(), halt);
            code_flow::listing(image, address, &tables, halt)
        };
        let flow = Flow::solve(&mut pass, listing, &state, MAX_SWEEPS, halt);
        let mut calls = Callees { driver, found: Vec::new() };
        flow.visit(&mut pass, &mut calls);
        for (callee, mut inner, is_jump) in calls.found {
            if !seen.contains(&callee) && seen.len() < 16 {
                seen.push(callee);
                if !is_jump {
                    pass.enter_callee(&mut inner);
                }
                queue.push((callee, inner));
            }
        }
    }
    installed(&pass, image)
}

fn installed(pass: &Pass<'_>, image: &CodeImage<'_>) -> Installed {
    let mut out = Installed::default();
    let pointer = i64::from(pass.layout.pointer);
    for &(offset, value) in &pass.installed {
        let index =
            (offset - pass.layout.major_functions).checked_div(pointer).and_then(|i| u8::try_from(i).ok());
        if let Some(index) =
            index.filter(|_| offset >= pass.layout.major_functions && image.is_executable(value))
        {
            out.majors.push((index, value));
            if DEVICE_CONTROL.contains(&index) {
                out.entries.push(EntryPoint { address: value, convention: Convention::Wdm, major: index });
            }
        }
        if offset == pass.layout.fast_io {
            let slot = value.wrapping_add(pass.layout.fast_io_device_control);
            let routine = image.value(slot, usize::from(pass.layout.pointer)).unwrap_or(0);
            if image.is_executable(routine) {
                out.entries.push(EntryPoint {
                    address: routine,
                    convention: Convention::FastIo,
                    major: 0x0e,
                });
            }
        }
    }
    // A routine for both majors is one entry.
    out.entries.sort_by_key(|entry| (entry.address, entry.convention, entry.major));
    out.entries.dedup_by_key(|entry| (entry.address, entry.convention));
    out
}

/// Callees that are given the driver object.
struct Callees {
    driver: Expr,
    found: Vec<(u64, State, bool)>,
}

impl Callees {
    fn note(&mut self, pass: &mut Pass<'_>, callee: crate::semantics::Callee, state: &State, is_jump: bool) {
        let crate::semantics::Callee::Local(address) = callee else { return };
        let given = (0..4).any(|index| crate::semantics::argument(pass, index, state) == self.driver);
        if given && self.found.len() < 16 {
            self.found.push((address, state.clone(), is_jump));
        }
    }
}

impl crate::flow::Visitor for Callees {
    fn call(
        &mut self,
        pass: &mut Pass<'_>,
        _: &code::Decoded,
        callee: crate::semantics::Callee,
        state: &State,
    ) {
        self.note(pass, callee, state, false);
    }
    fn tail(
        &mut self,
        pass: &mut Pass<'_>,
        _: &code::Decoded,
        callee: crate::semantics::Callee,
        state: &State,
    ) {
        self.note(pass, callee, state, true);
    }
}
