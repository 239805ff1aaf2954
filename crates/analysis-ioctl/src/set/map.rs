//! Sets seen through a function: which inputs give an output in the set?

use std::collections::HashMap;

use super::{Quick, Set, Sets, TERMINAL};

/// Where one bit of a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitSource {
    Constant(bool),
    /// Bit `index` (0 = least significant) of the input, perhaps inverted.
    Input {
        index: u8,
        inverted: bool,
    },
}

/// What [`Sets::before_add`] remembers: (set, level, carry out of this level and below).
type Carries = HashMap<(Set, u8, bool), Set, Quick>;

impl Sets {
    /// All `x` with `x + addend` (modulo 2^32) in `set`.
    pub fn before_add(&mut self, set: Set, addend: u32) -> Set {
        if addend == 0 {
            return set;
        }
        let mut memo = HashMap::default();
        let without = self.add_level(set, addend, 0, false, &mut memo);
        let with = self.add_level(set, addend, 0, true, &mut memo);
        self.or(without, with)
    }

    fn add_level(&mut self, set: Set, addend: u32, level: u8, carry: bool, memo: &mut Carries) -> Set {
        if set.is_empty() {
            return Set::EMPTY;
        }
        if level == TERMINAL {
            return if carry { Set::EMPTY } else { set };
        }
        if let Some(&known) = memo.get(&(set, level, carry)) {
            return known;
        }
        let added = addend & (0x8000_0000 >> level) != 0;
        let (low, high) = self.children(set, level);
        let mut halves = [Set::EMPTY; 2];
        for (half, bit) in halves.iter_mut().zip([false, true]) {
            for carried in [false, true] {
                let ones = u8::from(bit) + u8::from(added) + u8::from(carried);
                if (ones >= 2) == carry {
                    let child = if ones & 1 == 1 { high } else { low };
                    let part = self.add_level(child, addend, level + 1, carried, memo);
                    *half = self.or(*half, part);
                }
            }
        }
        let result = self.make(level, halves[0], halves[1]);
        memo.insert((set, level, carry), result);
        result
    }

    /// All `x` that agree with some member of `set` in the bits of `kept`.
    pub fn project(&mut self, set: Set, kept: u32) -> Set {
        if kept == u32::MAX {
            return set;
        }
        let mut memo = HashMap::default();
        self.project_level(set, kept, &mut memo)
    }

    fn project_level(&mut self, set: Set, kept: u32, memo: &mut HashMap<Set, Set, Quick>) -> Set {
        let node = self.node(set);
        if node.level == TERMINAL {
            return set;
        }
        if let Some(&known) = memo.get(&set) {
            return known;
        }
        let low = self.project_level(node.low, kept, memo);
        let high = self.project_level(node.high, kept, memo);
        let result = if kept & (0x8000_0000 >> node.level) == 0 {
            self.or(low, high)
        } else {
            self.make(node.level, low, high)
        };
        memo.insert(set, result);
        result
    }

    /// All `x` whose image is in `set`, where bit `i` of the image is `sources[i]`.
    pub fn before_bits(&mut self, set: Set, sources: &[BitSource; 32]) -> Set {
        let mut memo = HashMap::default();
        self.substitute(set, sources, &mut memo)
    }

    fn substitute(
        &mut self,
        set: Set,
        sources: &[BitSource; 32],
        memo: &mut HashMap<Set, Set, Quick>,
    ) -> Set {
        let node = self.node(set);
        if node.level == TERMINAL || self.overflowed {
            return set;
        }
        if let Some(&known) = memo.get(&set) {
            return known;
        }
        let low = self.substitute(node.low, sources, memo);
        let high = self.substitute(node.high, sources, memo);
        let source = sources.get(usize::from(31 - node.level)).copied();
        let result = match source.unwrap_or(BitSource::Constant(false)) {
            BitSource::Constant(one) => {
                if one {
                    high
                } else {
                    low
                }
            }
            BitSource::Input { index, inverted } => {
                let bit = 1u32 << (index & 31);
                let ones = self.pattern(bit, bit);
                let (then, otherwise) = if inverted { (low, high) } else { (high, low) };
                self.choose(ones, then, otherwise)
            }
        };
        memo.insert(set, result);
        result
    }
}
