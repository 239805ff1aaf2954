//! References of an image, sorted: 8 bytes for one whose target lies in the image.

use crate::references::{Reference, XrefKind};
use crate::vocabulary::Standing;

/// Bits of an RVA in a packed reference: images up to 512 MiB.
const RVA_BITS: u32 = 29;
const KIND_BITS: u32 = 3;
const STANDING_BITS: u32 = 2;
const RVA_MASK: u64 = (1 << RVA_BITS) - 1;

const STANDINGS: [Standing; 1 << STANDING_BITS] =
    [Standing::InFunction, Standing::NoUnwindEntry, Standing::Unverified, Standing::Unverified];

/// By target, then site, kind and standing.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReferenceList {
    base: u64,
    /// RVAs below this are packed.
    limit: u64,
    /// Target's RVA, site's RVA, kind, standing, from the high bits down: they sort as references do.
    packed: Vec<u64>,
    /// The others, mostly transfers out of the image.
    wide: Vec<Reference>,
}

impl ReferenceList {
    pub(crate) fn new(base: u64, size: u32, expected: usize) -> Self {
        let limit = if u64::from(size) <= RVA_MASK + 1 { u64::from(size) } else { 0 };
        let packed = Vec::with_capacity(if limit == 0 { 0 } else { expected });
        Self { base, limit, packed, wide: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.packed.len() + self.wide.len()
    }

    pub(crate) fn push(&mut self, reference: Reference) {
        match self.pack(&reference) {
            Some(packed) => self.packed.push(packed),
            None => self.wide.push(reference),
        }
    }

    pub(crate) fn sort(&mut self) {
        self.packed.sort_unstable();
        self.packed.dedup();
        self.wide.sort_unstable();
        self.wide.dedup();
    }

    fn pack(&self, reference: &Reference) -> Option<u64> {
        let target = reference.target.wrapping_sub(self.base);
        let at = reference.at.wrapping_sub(self.base);
        let key = (target << RVA_BITS | at) << KIND_BITS | reference.kind as u64;
        (target < self.limit && at < self.limit).then_some(key << STANDING_BITS | reference.standing as u64)
    }

    fn unpack(&self, packed: u64) -> Reference {
        let kind = packed >> STANDING_BITS & ((1 << KIND_BITS) - 1);
        let at = packed >> (STANDING_BITS + KIND_BITS) & RVA_MASK;
        let target = packed >> (STANDING_BITS + KIND_BITS + RVA_BITS);
        Reference {
            target: self.base + target,
            at: self.base + at,
            kind: XrefKind::ALL[kind as usize],
            standing: STANDINGS[(packed & ((1 << STANDING_BITS) - 1)) as usize],
        }
    }

    /// Those whose target lies outside the image among them, by target.
    pub(crate) fn unpacked(&self) -> &[Reference] {
        &self.wide
    }

    /// Those whose target is in `[first, last]`, by target.
    pub(crate) fn between(&self, first: u64, last: u64) -> impl DoubleEndedIterator<Item = Reference> + '_ {
        let below =
            |address: u64| self.packed.partition_point(|packed| self.unpack(*packed).target < address);
        let up_to = self.packed.partition_point(|packed| self.unpack(*packed).target <= last);
        let inside = self.packed.get(below(first)..up_to).unwrap_or_default();
        let from = self.wide.partition_point(|reference| reference.target < first);
        let to = self.wide.partition_point(|reference| reference.target <= last);
        let wide = self.wide.get(from..to).unwrap_or_default();
        let (before, after) = wide.split_at(wide.partition_point(|reference| reference.target < self.base));
        let inside = inside.iter().map(|packed| self.unpack(*packed));
        before.iter().copied().chain(inside).chain(after.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_reference() -> impl Strategy<Value = Reference> {
        let target = prop_oneof![0x1000..0x1_2000_u64, Just(0), Just(u64::MAX), 0x3fff..0x4003_u64];
        (target, 0x4000..0x1_0000_u64, 0..8_usize, 0..3_usize).prop_map(|(target, at, kind, standing)| {
            Reference { target, at, kind: XrefKind::ALL[kind], standing: STANDINGS[standing] }
        })
    }

    proptest! {
        #[test]
        fn packed_or_not_they_come_as_a_sorted_list_would(
            all in prop::collection::vec(any_reference(), 0..60),
            first in 0x3ff0..0x1_1000_u64,
            length in 0..0x4000_u64,
            size in prop_oneof![Just(0xc000_u32), Just(u32::MAX)],
        ) {
            let mut list = ReferenceList::new(0x4000, size, all.len());
            all.iter().for_each(|reference| list.push(*reference));
            list.sort();
            let mut sorted = all;
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(list.len(), sorted.len());
            prop_assert_eq!(list.between(0, u64::MAX).collect::<Vec<_>>(), sorted.clone());
            let last = first + length;
            sorted.retain(|reference| (first..=last).contains(&reference.target));
            prop_assert_eq!(list.between(first, last).collect::<Vec<_>>(), sorted);
        }
    }
}
