//! Lists of addresses, arrays and chains of structures, read node by node: an unreadable node is a
//! row, not the end (spec 20 section 3). Pure: what to visit, over any [`Memory`].

use target::{Memory, ReadError, Space, Stop, Unreadable};

/// Nodes one walk visits at most.
pub const MOST_NODES: usize = 1024;
/// Fields of a node at most.
pub const MOST_FIELDS: usize = 16;
/// A node's values are read in one go when they lie within this many bytes.
const SPAN: i128 = 4096;

/// How the next node is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// These, in this order.
    List(Vec<u64>),
    /// `count` nodes from `start`, `stride` bytes apart.
    Array { start: u64, stride: i64, count: usize },
    /// From `start` along the pointer at `link`, at most `count` nodes.
    Chain {
        start: u64,
        link: i64,
        /// The walk ends before this node: a list's head.
        stop_at: Option<u64>,
        count: usize,
    },
}

/// A value of each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// From the node's address.
    pub offset: i64,
    /// 1, 2, 4 or 8 bytes.
    pub size: u8,
}

/// What to walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub nodes: Nodes,
    pub fields: Vec<Field>,
    /// 4 or 8: the width of links, and where addresses wrap.
    pub pointer_size: u8,
}

/// One visited node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub address: u64,
    /// Of a chain, its link; `None` when that did not read.
    pub next: Option<u64>,
    /// One a field, zero-extended; `None` for what did not read.
    pub values: Vec<Option<u64>>,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every node asked for was visited.
    Complete,
    /// The count was reached with a link in hand.
    Cap {
        next: u64,
    },
    NullLink,
    /// The next node was visited already.
    Loop {
        at: u64,
    },
    /// The next node is `stop_at`.
    StopAddress {
        at: u64,
    },
    /// The link of the node at this address did not read.
    UnreadableLink {
        at: u64,
    },
    /// Time ran out, or a break was asked for, before this node; its index.
    Halted {
        why: Stop,
        next: u64,
        index: usize,
    },
}

/// What a walk saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    pub nodes: Vec<Node>,
    /// Nodes of which nothing read.
    pub unreadable: usize,
    pub stopped: Stopped,
    /// Why the first read that failed did, when every node was unreadable.
    pub note: Option<ReadError>,
}

impl Plan {
    /// Nodes asked for.
    #[must_use]
    pub fn requested(&self) -> usize {
        match &self.nodes {
            Nodes::List(addresses) => addresses.len(),
            Nodes::Array { count, .. } | Nodes::Chain { count, .. } => *count,
        }
    }

    fn link(&self) -> Option<Field> {
        match self.nodes {
            Nodes::Chain { link, .. } => Some(Field { offset: link, size: self.pointer_size }),
            _ => None,
        }
    }

    /// `base + offset`, wrapped at the pointer's width. A base beyond 4 GiB is no 32-bit one.
    fn at(&self, base: u64, offset: i64) -> u64 {
        let sum = base.wrapping_add_signed(offset);
        if self.pointer_size == 4 && u32::try_from(base).is_ok() { sum & 0xffff_ffff } else { sum }
    }
}

/// Walks `plan`. `halt` is asked once before each node's reads.
pub fn walk(plan: &Plan, memory: &dyn Memory, halt: &dyn Fn() -> Option<Stop>) -> Walk {
    Walker { plan, memory, walk: Walk::begun(), failed: None, cut: None }.run(halt)
}

impl Walk {
    fn begun() -> Self {
        Self { nodes: Vec::new(), unreadable: 0, stopped: Stopped::Complete, note: None }
    }
}

struct Walker<'a> {
    plan: &'a Plan,
    memory: &'a dyn Memory,
    walk: Walk,
    failed: Option<ReadError>,
    /// A read ran into the bound of the whole walk.
    cut: Option<Stop>,
}

impl Walker<'_> {
    fn run(mut self, halt: &dyn Fn() -> Option<Stop>) -> Walk {
        self.walk.stopped = self.visit_all(halt);
        if self.walk.unreadable == self.walk.nodes.len() {
            self.walk.note = self.failed;
        }
        self.walk
    }

    fn visit_all(&mut self, halt: &dyn Fn() -> Option<Stop>) -> Stopped {
        let count = self.plan.requested().min(MOST_NODES);
        let mut chained = match self.begin() {
            Ok(start) => start,
            Err(stopped) => return stopped,
        };
        for index in 0..count {
            let Some(address) = chained.or_else(|| self.address(index)) else { break };
            if let Some(why) = halt() {
                return Stopped::Halted { why, next: address, index };
            }
            let link = match self.visit(address) {
                Ok(link) => link,
                Err(why) => return Stopped::Halted { why, next: address, index },
            };
            if let Nodes::Chain { stop_at, .. } = self.plan.nodes {
                match self.follow(address, link, stop_at, index + 1 == count) {
                    Ok(next) => chained = Some(next),
                    Err(stopped) => return stopped,
                }
            }
        }
        Stopped::Complete
    }

    /// A chain's first node, unless it has none: an empty list's head points at itself or nowhere.
    fn begin(&self) -> Result<Option<u64>, Stopped> {
        match self.plan.nodes {
            Nodes::Chain { start, stop_at, .. } if stop_at == Some(start) => {
                Err(Stopped::StopAddress { at: start })
            }
            Nodes::Chain { start: 0, .. } => Err(Stopped::NullLink),
            Nodes::Chain { start, .. } => Ok(Some(start)),
            _ => Ok(None),
        }
    }

    /// The address of a list's or array's node.
    fn address(&self, index: usize) -> Option<u64> {
        match &self.plan.nodes {
            Nodes::List(addresses) => addresses.get(index).copied(),
            Nodes::Array { start, stride, .. } => {
                Some(self.plan.at(*start, stride.wrapping_mul(i64::try_from(index).ok()?)))
            }
            Nodes::Chain { .. } => None,
        }
    }

    /// Reads a node and files its row; answers its link. A read that was cut short says nothing of the
    /// node, so there is no row.
    fn visit(&mut self, address: u64) -> Result<Option<u64>, Stop> {
        let link = self.plan.link();
        let wanted: Vec<Field> = self.plan.fields.iter().copied().chain(link).collect();
        let mut values = self.values(address, &wanted);
        if let Some(why) = self.cut {
            return Err(why);
        }
        let next = if link.is_some() { values.pop().flatten() } else { None };
        if next.is_none() && values.iter().all(Option::is_none) {
            self.walk.unreadable += 1;
        }
        self.walk.nodes.push(Node { address, next, values });
        Ok(next)
    }

    /// Where the chain goes on, or why it does not.
    fn follow(
        &self,
        address: u64,
        link: Option<u64>,
        stop_at: Option<u64>,
        last: bool,
    ) -> Result<u64, Stopped> {
        let Some(next) = link else { return Err(Stopped::UnreadableLink { at: address }) };
        if next == 0 {
            return Err(Stopped::NullLink);
        }
        if stop_at == Some(next) {
            return Err(Stopped::StopAddress { at: next });
        }
        // At most 1024 nodes: looking through them is cheaper than keeping a set.
        if self.walk.nodes.iter().any(|node| node.address == next) {
            return Err(Stopped::Loop { at: next });
        }
        if last { Err(Stopped::Cap { next }) } else { Ok(next) }
    }

    /// The values of a node: in one read where they lie close together, each alone where that fails,
    /// so that a node on the edge of a hole still answers.
    fn values(&mut self, address: u64, wanted: &[Field]) -> Vec<Option<u64>> {
        if wanted.len() > 1
            && let Some(values) = self.together(address, wanted)
        {
            return values;
        }
        wanted
            .iter()
            .map(|field| if self.cut.is_none() { self.alone(address, *field) } else { None })
            .collect()
    }

    fn together(&mut self, address: u64, wanted: &[Field]) -> Option<Vec<Option<u64>>> {
        let first = wanted.iter().map(|field| field.offset).min()?;
        let end = wanted.iter().map(|field| i128::from(field.offset) + i128::from(field.size)).max()?;
        let length = end - i128::from(first);
        if length > SPAN {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        if !self.read(self.plan.at(address, first), &mut bytes) {
            return None;
        }
        let value = |field: &Field| {
            let from = usize::try_from(i128::from(field.offset) - i128::from(first)).ok()?;
            bytes.get(from..from + usize::from(field.size)).map(little_endian)
        };
        Some(wanted.iter().map(value).collect())
    }

    fn alone(&mut self, address: u64, field: Field) -> Option<u64> {
        let mut bytes = [0; 8];
        let bytes = bytes.get_mut(..usize::from(field.size))?;
        self.read(self.plan.at(address, field.offset), bytes).then(|| little_endian(bytes))
    }

    /// All or nothing: fewer bytes than asked for are a failure.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let outcome = self.memory.read(Space::Virtual, address, bytes);
        if outcome.stopped.is_none() && outcome.read == bytes.len() {
            return true;
        }
        let why = outcome.stopped.unwrap_or(Unreadable::Refused);
        match why {
            Unreadable::Deadline => self.cut = Some(Stop::Deadline),
            Unreadable::Interrupted => self.cut = Some(Stop::Interrupted),
            _ => {}
        }
        let at = address.wrapping_add(outcome.read as u64);
        self.failed.get_or_insert(ReadError { address: at, why });
        false
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}
