//! What every part of one analysis shares.

use std::collections::HashMap;

use code::record::pointer_bits;
use code_flow::CodeImage;
use target::Machine;

use crate::expr::Variable;
use crate::layout::Layout;
use crate::solve::Solver;

/// Unproved variables of one analysis.
const MAX_CANDIDATES: usize = 256;

/// The framework's function table, as the driver binds it (`WDF_BIND_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameworkTable {
    /// Address of the array of functions, or of the variable that points to it.
    pub table: u64,
    /// `table` is such a variable.
    pub pointer: bool,
    pub count: u32,
}

/// One analysis: the image, the arenas, the machine.
pub struct Pass<'a> {
    pub image: &'a CodeImage<'a>,
    pub machine: Machine,
    pub layout: &'static Layout,
    pub solver: Solver<'a>,
    pub framework: Option<FrameworkTable>,
    /// `MajorFunction` of the stack location.
    pub major: u8,
    /// Slots through which CFG checks and makes calls (load config).
    pub guard: Guard,
    /// Reads of the caller's buffers give [`crate::expr::Node::User`] values.
    pub tainting: bool,
    /// Constants stored in the driver object: offset, value.
    pub installed: Vec<(i64, u64)>,
    candidates: HashMap<u64, Variable>,
    /// Listings of callees small enough to be run in place; `None` for others.
    pub(crate) small_callees: HashMap<u64, Option<std::rc::Rc<code_flow::Listing>>>,
}

/// Control-flow guard's slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    pub check: Option<u64>,
    pub dispatch: Option<u64>,
}

impl<'a> Pass<'a> {
    /// An analysis of code in `image`; `constants` reads its constant memory.
    #[must_use]
    pub fn new(image: &'a CodeImage<'a>, constants: crate::expr::Constants<'a>, major: u8) -> Self {
        let bits = pointer_bits(image.machine);
        let config = image.pe.load_config(image);
        let guard = config.map_or_else(Guard::default, |config| Guard {
            check: config.guard_check_function,
            dispatch: config.guard_dispatch_function,
        });
        Self {
            image,
            machine: image.machine,
            layout: Layout::of(bits),
            solver: Solver::new(bits as u8, constants),
            framework: None,
            major,
            guard,
            tainting: false,
            installed: Vec::new(),
            candidates: HashMap::new(),
            small_callees: HashMap::new(),
        }
    }

    #[must_use]
    pub fn arm(&self) -> bool {
        self.machine == Machine::Arm64
    }

    /// Bits of a pointer.
    #[must_use]
    pub fn pointer(&self) -> u8 {
        self.layout.pointer * 8
    }

    /// The variable of the load at `at`, which looks like a control code; `None` when there are too
    /// many.
    pub fn candidate(&mut self, at: u64) -> Option<Variable> {
        if let Some(&known) = self.candidates.get(&at) {
            return Some(known);
        }
        let number = u16::try_from(self.candidates.len()).ok()?;
        if self.candidates.len() >= MAX_CANDIDATES {
            return None;
        }
        let variable = Variable(Variable::FIRST_CANDIDATE + number);
        self.candidates.insert(at, variable);
        Some(variable)
    }
}
