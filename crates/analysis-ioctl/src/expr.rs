//! Symbolic values: what a register or stack slot holds, as an expression over what the I/O manager
//! passed in.
//!
//! Every value is 64 bits wide and zero-extended from the register it lives in. Expressions are
//! hash-consed in [`Exprs`]; equal handles mean equal values, except for [`Node::Unknown`] and
//! [`Node::Lost`], which equal nothing.

mod build;
mod evaluate;

pub use evaluate::Constants;

use std::collections::HashMap;

use crate::set::{Quick, Set};

/// Largest expression; a bigger one is given up.
const MAX_SIZE: u16 = 32;
/// Most expressions of one analysis.
const MAX_NODES: usize = 1 << 20;

/// An expression, a handle into the [`Exprs`] that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expr(u32);

impl Expr {
    /// A value nothing is known about, and that does not come from the control code.
    pub const UNKNOWN: Self = Self(0);
    /// A value made from the control code in a way that is not modelled.
    pub const LOST: Self = Self(1);
}

/// A 32-bit quantity whose possible values are tracked as a [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variable(pub u16);

impl Variable {
    /// The control code, traced from the IRP or the framework's argument.
    pub const CODE: Self = Self(0);
    pub const INPUT_LENGTH: Self = Self(1);
    pub const OUTPUT_LENGTH: Self = Self(2);
    /// From here on: loads that look like the control code of a structure nobody identified.
    pub const FIRST_CANDIDATE: u16 = 3;

    #[must_use]
    pub fn is_candidate(self) -> bool {
        self.0 >= Self::FIRST_CANDIDATE
    }
    #[must_use]
    pub fn is_length(self) -> bool {
        self == Self::INPUT_LENGTH || self == Self::OUTPUT_LENGTH
    }
}

/// A value of the entry convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Symbol {
    /// `DriverEntry`'s first argument.
    DriverObject,
    Irp,
    DeviceObject,
    /// The current `IO_STACK_LOCATION`.
    StackLocation,
    Type3InputBuffer,
    UserBuffer,
    SystemBuffer,
    Mdl,
    /// The system address of the request's MDL.
    MdlBuffer,
    Queue,
    Request,
    /// The array of KMDF functions.
    FrameworkTable,
    /// One KMDF function.
    FrameworkFunction(u16),
    /// The function an import slot (its address) is bound to.
    Import(u64),
    ReturnAddress,
}

/// Binary operations, modulo 2^width. Shift counts are masked as the machine masks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    ShiftRightArithmetic,
    RotateLeft,
    RotateRight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unary {
    Not,
    Negate,
    ByteSwap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    Unknown,
    Lost,
    Const(u64),
    /// The stack pointer at entry plus this.
    Stack(i64),
    Symbol(Symbol),
    Variable(Variable),
    /// The low `width` bits of `a op b`, zero-extended; both operands are that wide.
    Binary {
        op: Op,
        width: u8,
        a: Expr,
        b: Expr,
    },
    Unary {
        op: Unary,
        width: u8,
        a: Expr,
    },
    /// The low `from` bits of `a`, sign-extended to `to`.
    SignExtend {
        from: u8,
        to: u8,
        a: Expr,
    },
    /// `size` bytes of constant memory at `a`, zero-extended.
    Load {
        size: u8,
        a: Expr,
    },
    /// `a` where the variable is in `set`, else `b`.
    Select {
        variable: Variable,
        set: Set,
        a: Expr,
        b: Expr,
    },
    /// `size` bytes that the caller controls, at `a`, zero-extended (taint analysis only).
    User {
        size: u8,
        a: Expr,
    },
    /// Only the low `bits` bits are known: those of `a`.
    Partial {
        bits: u8,
        a: Expr,
    },
}

/// What is known of a node without evaluating it.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Bits that may be set.
    may: u64,
    size: u16,
    depends: Option<Variable>,
    /// Bytes the caller controls went in.
    user: bool,
}

/// The arena all expressions of one analysis live in.
pub struct Exprs {
    nodes: Vec<(Node, Facts)>,
    unique: HashMap<Node, Expr, Quick>,
    /// Width of an address in bits, 32 or 64.
    pointer: u8,
}

/// All ones in the low `bits` bits.
#[must_use]
pub fn ones(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

impl Exprs {
    /// An empty arena for a machine whose addresses have `pointer` bits.
    #[must_use]
    pub fn new(pointer: u8) -> Self {
        let nothing = Facts { may: u64::MAX, size: 1, depends: None, user: false };
        Self {
            nodes: vec![(Node::Unknown, nothing), (Node::Lost, nothing)],
            unique: HashMap::default(),
            pointer,
        }
    }

    #[must_use]
    pub fn node(&self, expr: Expr) -> Node {
        self.nodes.get(expr.0 as usize).map_or(Node::Unknown, |n| n.0)
    }

    fn facts(&self, expr: Expr) -> Facts {
        self.nodes
            .get(expr.0 as usize)
            .map_or(Facts { may: u64::MAX, size: 1, depends: None, user: false }, |n| n.1)
    }

    /// Bits of the value that may be set.
    #[must_use]
    pub fn may(&self, expr: Expr) -> u64 {
        self.facts(expr).may
    }

    /// The variable the value is a function of.
    #[must_use]
    pub fn variable(&self, expr: Expr) -> Option<Variable> {
        self.facts(expr).depends
    }

    /// Whether bytes the caller controls went into the value.
    #[must_use]
    pub fn from_user(&self, expr: Expr) -> bool {
        self.facts(expr).user
    }

    /// Whether the value comes from the (traced) control code, modelled or not.
    #[must_use]
    pub fn from_code(&self, expr: Expr) -> bool {
        expr == Expr::LOST || self.variable(expr) == Some(Variable::CODE)
    }

    #[must_use]
    pub fn constant_value(&self, expr: Expr) -> Option<u64> {
        match self.node(expr) {
            Node::Const(value) => Some(value),
            _ => None,
        }
    }

    /// Whether equal handles of this expression mean equal values.
    #[must_use]
    pub fn is_definite(&self, expr: Expr) -> bool {
        !matches!(self.node(expr), Node::Unknown | Node::Lost | Node::Partial { .. })
    }

    /// The value as `base + displacement`, the sum of a symbol (or any opaque expression) and a
    /// constant.
    #[must_use]
    pub fn split(&self, expr: Expr) -> (Expr, i64) {
        if let Node::Binary { op: Op::Add, a, b, width } = self.node(expr)
            && let Node::Const(value) = self.node(b)
        {
            let value = if width == 32 { i64::from(value as u32 as i32) } else { value as i64 };
            return (a, value);
        }
        (expr, 0)
    }

    fn intern(&mut self, node: Node) -> Expr {
        if let Some(&known) = self.unique.get(&node) {
            return known;
        }
        let facts = self.derive(&node);
        if facts.size > MAX_SIZE || self.nodes.len() >= MAX_NODES {
            return if facts.depends == Some(Variable::CODE) { Expr::LOST } else { Expr::UNKNOWN };
        }
        let expr = Expr(self.nodes.len() as u32);
        self.nodes.push((node, facts));
        self.unique.insert(node, expr);
        expr
    }

    fn derive(&self, node: &Node) -> Facts {
        let leaf = |may| Facts { may, size: 1, depends: None, user: false };
        match *node {
            Node::Unknown | Node::Lost | Node::Stack(_) | Node::Symbol(_) => leaf(u64::MAX),
            Node::Const(value) => leaf(value),
            Node::Variable(v) => Facts { may: u64::from(u32::MAX), size: 1, depends: Some(v), user: false },
            // A leaf: its address is where it came from, not a part of its value.
            Node::User { size, .. } => {
                Facts { may: ones(size.saturating_mul(8)), size: 1, depends: None, user: true }
            }
            Node::Binary { op, width, a, b } => {
                let (fa, fb) = (self.facts(a), self.facts(b));
                Facts {
                    may: self.may_binary(op, width, a, b),
                    size: fa.size.saturating_add(fb.size).saturating_add(1),
                    depends: fa.depends.or(fb.depends),
                    user: fa.user || fb.user,
                }
            }
            Node::Unary { width, a, .. } => self.above(a, ones(width)),
            Node::SignExtend { from, to, a } => {
                let low = self.facts(a).may & ones(from);
                let signed = from == 0 || low & (1 << (from - 1)) != 0;
                self.above(a, if signed { ones(to) & (low | !ones(from)) } else { low })
            }
            Node::Load { size, a } => self.above(a, ones(size.saturating_mul(8))),
            Node::Select { variable, a, b, .. } => {
                let (fa, fb) = (self.facts(a), self.facts(b));
                Facts {
                    may: fa.may | fb.may,
                    size: fa.size.saturating_add(fb.size).saturating_add(1),
                    depends: Some(variable),
                    user: fa.user || fb.user,
                }
            }
            Node::Partial { a, .. } => self.above(a, u64::MAX),
        }
    }

    fn above(&self, a: Expr, may: u64) -> Facts {
        let facts = self.facts(a);
        Facts { may, size: facts.size.saturating_add(1), depends: facts.depends, user: facts.user }
    }

    fn may_binary(&self, op: Op, width: u8, a: Expr, b: Expr) -> u64 {
        let (may_a, may_b) = (self.may(a), self.may(b));
        let shift = self.constant_value(b).and_then(|n| u32::try_from(n).ok());
        let wide = ones(width);
        wide & match (op, shift) {
            (Op::And, _) => may_a & may_b,
            (Op::Or | Op::Xor, _) => may_a | may_b,
            (Op::ShiftLeft, Some(n)) => may_a.checked_shl(n).unwrap_or(0),
            (Op::ShiftRight, Some(n)) => (may_a & wide).checked_shr(n).unwrap_or(0),
            // A sum of values below 2^n is below 2^(n+1).
            (Op::Add, _) => {
                let top = 64 - (may_a | may_b).leading_zeros();
                ones(u8::try_from(top + 1).unwrap_or(64))
            }
            _ => u64::MAX,
        }
    }
}
