//! Sets of 32-bit values: which control codes (or buffer lengths) can be here.
//!
//! A set is a reduced ordered binary decision diagram over the value's bits, most significant bit
//! first, hash-consed in [`Sets`]. Intervals, mask patterns, thousands of single values and the
//! complements of all of them are exact in it, and equal sets have equal handles; nothing is ever
//! widened. What does not fit the node budget raises [`Sets::overflowed`], after which no set may be
//! believed.

mod map;
mod read;

pub use map::BitSource;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Most nodes of one arena: about 40 MB.
const MAX_NODES: usize = 1 << 20;
/// Cached results are forgotten beyond this many.
const MAX_CACHED: usize = 1 << 19;

/// A set of `u32`, a handle into the [`Sets`] that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set(u32);

impl Set {
    pub const EMPTY: Self = Self(0);
    pub const ALL: Self = Self(1);

    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

/// Tests one bit; `level` 0 is bit 31, 32 marks a terminal.
#[derive(Clone, Copy)]
struct Node {
    level: u8,
    low: Set,
    high: Set,
}

const TERMINAL: u8 = 32;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    And,
    Or,
    Minus,
}

/// The arena all sets of one analysis live in.
pub struct Sets {
    nodes: Vec<Node>,
    unique: HashMap<(u8, Set, Set), Set, Quick>,
    cache: HashMap<(Operation, Set, Set), Set, Quick>,
    counts: HashMap<Set, u64, Quick>,
    overflowed: bool,
}

impl Default for Sets {
    fn default() -> Self {
        let terminal = |set| Node { level: TERMINAL, low: set, high: set };
        Self {
            nodes: vec![terminal(Set::EMPTY), terminal(Set::ALL)],
            unique: HashMap::default(),
            cache: HashMap::default(),
            counts: HashMap::default(),
            overflowed: false,
        }
    }
}

impl Sets {
    /// Whether the node budget ran out. Sets made since are wrong: discard every result.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    fn node(&self, set: Set) -> Node {
        self.nodes.get(set.0 as usize).copied().unwrap_or(Node {
            level: TERMINAL,
            low: Set::ALL,
            high: Set::ALL,
        })
    }

    /// Children of `set` seen from `level`, at or above its own.
    fn children(&self, set: Set, level: u8) -> (Set, Set) {
        let node = self.node(set);
        if node.level == level { (node.low, node.high) } else { (set, set) }
    }

    fn make(&mut self, level: u8, low: Set, high: Set) -> Set {
        if low == high {
            return low;
        }
        if let Some(&known) = self.unique.get(&(level, low, high)) {
            return known;
        }
        if self.nodes.len() >= MAX_NODES {
            self.overflowed = true;
            return Set::ALL;
        }
        let set = Set(self.nodes.len() as u32);
        self.nodes.push(Node { level, low, high });
        self.unique.insert((level, low, high), set);
        set
    }

    /// `{value}`.
    pub fn value(&mut self, value: u32) -> Set {
        self.pattern(u32::MAX, value)
    }

    /// All `x` with `x & mask == value`; empty when `value` has bits outside `mask`.
    pub fn pattern(&mut self, mask: u32, value: u32) -> Set {
        if value & !mask != 0 {
            return Set::EMPTY;
        }
        let mut set = Set::ALL;
        for level in (0..TERMINAL).rev() {
            let bit = 0x8000_0000u32 >> level;
            if mask & bit != 0 {
                set = if value & bit != 0 {
                    self.make(level, Set::EMPTY, set)
                } else {
                    self.make(level, set, Set::EMPTY)
                };
            }
        }
        set
    }

    /// All values from `low` to `high`, both included; empty when `low > high`.
    pub fn interval(&mut self, low: u32, high: u32) -> Set {
        if low > high {
            return Set::EMPTY;
        }
        let at_least = self.bound(low, false);
        let at_most = self.bound(high, true);
        self.and(at_least, at_most)
    }

    /// `x <= limit` (`below`) or `x >= limit`.
    fn bound(&mut self, limit: u32, below: bool) -> Set {
        let mut set = Set::ALL;
        for level in (0..TERMINAL).rev() {
            let one = limit & (0x8000_0000u32 >> level) != 0;
            set = match (below, one) {
                (true, true) => self.make(level, Set::ALL, set),
                (true, false) => self.make(level, set, Set::EMPTY),
                (false, true) => self.make(level, Set::EMPTY, set),
                (false, false) => self.make(level, set, Set::ALL),
            };
        }
        set
    }

    /// The union of `values`.
    pub fn values_of(&mut self, values: &[u32]) -> Set {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        self.sorted(&sorted, 0)
    }

    fn sorted(&mut self, values: &[u32], level: u8) -> Set {
        if values.is_empty() {
            return Set::EMPTY;
        }
        if level == TERMINAL {
            return Set::ALL;
        }
        let bit = 0x8000_0000u32 >> level;
        let split = values.partition_point(|v| v & bit == 0);
        let low = self.sorted(&values[..split], level + 1);
        let high = self.sorted(&values[split..], level + 1);
        self.make(level, low, high)
    }

    pub fn and(&mut self, a: Set, b: Set) -> Set {
        self.apply(Operation::And, a, b)
    }

    pub fn or(&mut self, a: Set, b: Set) -> Set {
        self.apply(Operation::Or, a, b)
    }

    /// What is in `a` and not in `b`.
    pub fn minus(&mut self, a: Set, b: Set) -> Set {
        self.apply(Operation::Minus, a, b)
    }

    pub fn not(&mut self, a: Set) -> Set {
        self.minus(Set::ALL, a)
    }

    /// Members of `then` where `condition` holds, of `otherwise` where it does not.
    pub fn choose(&mut self, condition: Set, then: Set, otherwise: Set) -> Set {
        let yes = self.and(condition, then);
        let no = self.minus(otherwise, condition);
        self.or(yes, no)
    }

    pub fn is_subset(&mut self, a: Set, b: Set) -> bool {
        self.minus(a, b).is_empty()
    }

    fn apply(&mut self, operation: Operation, a: Set, b: Set) -> Set {
        use Operation::{And, Minus, Or};
        match (operation, a, b) {
            (And, Set::EMPTY, _) | (And, _, Set::EMPTY) => return Set::EMPTY,
            (And, Set::ALL, x) | (And, x, Set::ALL) | (Or, Set::EMPTY, x) | (Or, x, Set::EMPTY) => return x,
            (Or, Set::ALL, _) | (Or, _, Set::ALL) => return Set::ALL,
            (Minus, x, Set::EMPTY) => return x,
            (Minus, Set::EMPTY, _) | (Minus, _, Set::ALL) => return Set::EMPTY,
            (And | Or, x, y) if x == y => return x,
            (Minus, x, y) if x == y => return Set::EMPTY,
            _ => {}
        }
        let key = if operation != Minus && b < a { (operation, b, a) } else { (operation, a, b) };
        if let Some(&known) = self.cache.get(&key) {
            return known;
        }
        let level = self.node(a).level.min(self.node(b).level);
        let (a_low, a_high) = self.children(a, level);
        let (b_low, b_high) = self.children(b, level);
        let low = self.apply(operation, a_low, b_low);
        let high = self.apply(operation, a_high, b_high);
        let result = self.make(level, low, high);
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        self.cache.insert(key, result);
        result
    }
}

/// A multiplicative hash: handles are small numbers from our own arena, not hostile keys.
#[derive(Clone, Default)]
pub(crate) struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

pub(crate) type Quick = BuildHasherDefault<QuickHasher>;
