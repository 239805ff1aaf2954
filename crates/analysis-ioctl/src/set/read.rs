//! What is in a set: counts, values, intervals, patterns.

use super::{Set, Sets, TERMINAL};

impl Sets {
    /// How many values, 0 to 2^32.
    pub fn count(&mut self, set: Set) -> u64 {
        let level = self.node(set).level;
        self.count_below(set) << level
    }

    /// Values of the bits from the set's own level down.
    fn count_below(&mut self, set: Set) -> u64 {
        match set {
            Set::EMPTY => return 0,
            Set::ALL => return 1,
            _ => {}
        }
        if let Some(&known) = self.counts.get(&set) {
            return known;
        }
        let node = self.node(set);
        let mut total = 0;
        for child in [node.low, node.high] {
            let skipped = self.node(child).level.saturating_sub(node.level + 1);
            total += self.count_below(child) << skipped;
        }
        self.counts.insert(set, total);
        total
    }

    #[must_use]
    pub fn contains(&self, set: Set, value: u32) -> bool {
        let mut at = set;
        loop {
            let node = self.node(at);
            if node.level == TERMINAL {
                return at == Set::ALL;
            }
            at = if value & (0x8000_0000 >> node.level) != 0 { node.high } else { node.low };
        }
    }

    #[must_use]
    pub fn min(&self, set: Set) -> Option<u32> {
        self.extreme(set, false)
    }

    #[must_use]
    pub fn max(&self, set: Set) -> Option<u32> {
        self.extreme(set, true)
    }

    fn extreme(&self, set: Set, highest: bool) -> Option<u32> {
        if set.is_empty() {
            return None;
        }
        let (mut at, mut value) = (set, 0);
        for level in 0..TERMINAL {
            let (low, high) = self.children(at, level);
            let (first, second) = if highest { (high, low) } else { (low, high) };
            let take_high = if first.is_empty() { !highest } else { highest };
            at = if first.is_empty() { second } else { first };
            if take_high {
                value |= 0x8000_0000 >> level;
            }
        }
        Some(value)
    }

    /// The values in ascending order, `None` when there are more than `limit`.
    pub fn values(&mut self, set: Set, limit: usize) -> Option<Vec<u32>> {
        if self.count(set) > limit as u64 {
            return None;
        }
        let mut out = Vec::new();
        self.collect(set, 0, 0, &mut out);
        Some(out)
    }

    fn collect(&self, set: Set, level: u8, prefix: u32, out: &mut Vec<u32>) {
        if set.is_empty() {
            return;
        }
        if level == TERMINAL {
            out.push(prefix);
            return;
        }
        let (low, high) = self.children(set, level);
        self.collect(low, level + 1, prefix, out);
        self.collect(high, level + 1, prefix | 0x8000_0000 >> level, out);
    }

    /// The one value of a set of one.
    pub fn single(&mut self, set: Set) -> Option<u32> {
        (self.count(set) == 1).then(|| self.min(set)).flatten()
    }

    /// Sorted disjoint inclusive intervals, `None` when there are more than `limit`.
    #[must_use]
    pub fn intervals(&self, set: Set, limit: usize) -> Option<Vec<(u32, u32)>> {
        let mut out: Vec<(u32, u32)> = Vec::new();
        self.collect_intervals(set, 0, 0, limit, &mut out).then_some(out)
    }

    fn collect_intervals(
        &self,
        set: Set,
        level: u8,
        prefix: u32,
        limit: usize,
        out: &mut Vec<(u32, u32)>,
    ) -> bool {
        if set.is_empty() {
            return true;
        }
        if set == Set::ALL {
            let last = prefix | (u32::MAX as u64 >> level) as u32;
            match out.last_mut() {
                Some(before) if before.1.checked_add(1) == Some(prefix) => before.1 = last,
                _ => out.push((prefix, last)),
            }
            return out.len() <= limit;
        }
        let (low, high) = self.children(set, level);
        self.collect_intervals(low, level + 1, prefix, limit, out)
            && self.collect_intervals(high, level + 1, prefix | 0x8000_0000 >> level, limit, out)
    }

    /// Disjoint patterns `(mask, value)` whose union is the set, `None` when there are more than
    /// `limit`.
    #[must_use]
    pub fn patterns(&self, set: Set, limit: usize) -> Option<Vec<(u32, u32)>> {
        let mut out = Vec::new();
        self.collect_patterns(set, 0, 0, limit, &mut out).then_some(out)
    }

    fn collect_patterns(
        &self,
        set: Set,
        mask: u32,
        value: u32,
        limit: usize,
        out: &mut Vec<(u32, u32)>,
    ) -> bool {
        if set.is_empty() {
            return true;
        }
        if set == Set::ALL {
            out.push((mask, value));
            return out.len() <= limit;
        }
        let node = self.node(set);
        let bit = 0x8000_0000 >> node.level;
        self.collect_patterns(node.low, mask | bit, value, limit, out)
            && self.collect_patterns(node.high, mask | bit, value | bit, limit, out)
    }

    /// Bits that have the same value in every member, as `(mask, value)`. All bits for the empty set.
    #[must_use]
    pub fn fixed_bits(&self, set: Set) -> (u32, u32) {
        let (Some(lowest), Some(_)) = (self.min(set), self.max(set)) else { return (u32::MAX, 0) };
        // Per level, whether a member goes low and whether one goes high.
        let mut seen = std::collections::HashSet::new();
        let mut stack = vec![(set, 0u8)];
        let mut varying = 0u32;
        while let Some((at, level)) = stack.pop() {
            if at.is_empty() || !seen.insert((at, level)) {
                continue;
            }
            let node = self.node(at);
            for skipped in level..node.level {
                varying |= 0x8000_0000 >> skipped;
            }
            if node.level == TERMINAL {
                continue;
            }
            let bit = 0x8000_0000 >> node.level;
            if !node.low.is_empty() && lowest & bit != 0 || !node.high.is_empty() && lowest & bit == 0 {
                varying |= bit;
            }
            stack.push((node.low, node.level + 1));
            stack.push((node.high, node.level + 1));
        }
        (!varying, lowest & !varying)
    }

    /// Bits the membership depends on at all.
    #[must_use]
    pub fn support(&self, set: Set) -> u32 {
        let mut seen = std::collections::HashSet::new();
        let mut stack = vec![set];
        let mut bits = 0;
        while let Some(at) = stack.pop() {
            let node = self.node(at);
            if node.level == TERMINAL || !seen.insert(at) {
                continue;
            }
            bits |= 0x8000_0000 >> node.level;
            stack.push(node.low);
            stack.push(node.high);
        }
        bits
    }
}
