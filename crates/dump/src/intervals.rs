//! Which file range serves which address, when the ranges a dump lists overlap.

use std::collections::BTreeSet;

use target::{ReadOutcome, Unreadable};

/// A range as a dump lists it. Where several cover a byte, the lowest `rank` serves it; callers give
/// each range a rank of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) offset: u64,
    pub(crate) rank: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    size: u64,
    offset: u64,
}

/// Sorted, disjoint pieces of address space and where their bytes are in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intervals {
    pieces: Vec<Piece>,
    /// Elementary stretches covered by more than one range.
    pub(crate) overlaps: u32,
    /// Of those, how many hold different bytes in the runner-up (counted up to a budget of work).
    pub(crate) disagreements: u32,
}

/// Bytes compared at most while counting disagreements.
const COMPARE_BUDGET: u64 = 16 << 20;

impl Intervals {
    /// Builds the map in O(n log n). `file` clips: bytes past its end rank behind all that exist.
    pub(crate) fn build(listed: &[Range], file: &[u8]) -> Self {
        let mut ranges = clip(listed, file.len() as u64);
        ranges.sort_by_key(|r| r.start);
        let mut bounds: Vec<u64> = Vec::with_capacity(ranges.len() * 2);
        for range in &ranges {
            bounds.push(range.start);
            bounds.push(range.start + range.size);
        }
        bounds.sort_unstable();
        bounds.dedup();
        let mut out = Self::default();
        let mut budget = COMPARE_BUDGET;
        let mut ends: Vec<usize> = (0..ranges.len()).collect();
        ends.sort_by_key(|&index| ranges[index].start + ranges[index].size);
        let mut ends = ends.into_iter().peekable();
        let mut open: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut next = 0;
        for pair in bounds.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            while let Some(index) = ends.next_if(|&i| ranges[i].start + ranges[i].size <= from) {
                open.remove(&(ranges[index].rank, index));
            }
            while let Some(range) = ranges.get(next).filter(|r| r.start == from) {
                open.insert((range.rank, next));
                next += 1;
            }
            let place = |index: usize| ranges[index].offset + (from - ranges[index].start);
            let mut best = open.iter().map(|&(_, index)| index);
            let Some(winner) = best.next() else { continue };
            out.push(Piece { start: from, size: to - from, offset: place(winner) });
            if let Some(rival) = best.next() {
                out.count_overlap(file, place(winner), place(rival), to - from, &mut budget);
            }
        }
        out
    }

    fn push(&mut self, piece: Piece) {
        if let Some(last) = self.pieces.last_mut()
            && last.start + last.size == piece.start
            && last.offset + last.size == piece.offset
        {
            last.size += piece.size;
        } else {
            self.pieces.push(piece);
        }
    }

    fn count_overlap(&mut self, file: &[u8], a: u64, b: u64, size: u64, budget: &mut u64) {
        self.overlaps = self.overlaps.saturating_add(1);
        if a == b || *budget < size {
            return;
        }
        *budget -= size;
        let (a, b) = (crate::fields::slice_at(file, a, size), crate::fields::slice_at(file, b, size));
        if let (Some(a), Some(b)) = (a, b)
            && a != b
        {
            self.disagreements = self.disagreements.saturating_add(1);
        }
    }

    fn find(&self, address: u64) -> Option<&Piece> {
        let after = self.pieces.partition_point(|p| p.start <= address);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        (address - piece.start < piece.size).then_some(piece)
    }

    /// Fills `buffer` from its start as far as the pieces reach.
    pub(crate) fn read(&self, file: &[u8], address: u64, buffer: &mut [u8]) -> ReadOutcome {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else {
                return ReadOutcome::stopped(done, Unreadable::NonCanonical);
            };
            let Some(piece) = self.find(at) else {
                return ReadOutcome::stopped(done, Unreadable::NotInDump);
            };
            let skip = at - piece.start;
            let wanted = (piece.size - skip).min((buffer.len() - done) as u64);
            let start = usize::try_from(piece.offset + skip).unwrap_or(usize::MAX).min(file.len());
            let have = (file.len() - start).min(usize::try_from(wanted).unwrap_or(usize::MAX));
            buffer[done..done + have].copy_from_slice(&file[start..start + have]);
            done += have;
            if (have as u64) < wanted {
                return ReadOutcome::stopped(done, Unreadable::TruncatedFile);
            }
        }
        ReadOutcome::complete(done)
    }

    /// `(start, size)` of each maximal stretch of covered addresses, ascending.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut pieces = self.pieces.iter().peekable();
        std::iter::from_fn(move || {
            let first = pieces.next()?;
            let mut size = first.size;
            while let Some(piece) = pieces.next_if(|p| p.start == first.start + size) {
                size += piece.size;
            }
            Some((first.start, size))
        })
    }

    /// Bytes of address space covered.
    pub(crate) fn total(&self) -> u64 {
        self.pieces.iter().map(|p| p.size).sum()
    }
}

/// Drops empty ranges, cuts those that wrap, and splits off what lies past the end of the file.
fn clip(listed: &[Range], length: u64) -> Vec<Range> {
    let mut out = Vec::with_capacity(listed.len());
    for range in listed {
        let size = range.size.min(u64::MAX - range.start).min(u64::MAX - range.offset);
        let here = size.min(length.saturating_sub(range.offset));
        if here > 0 {
            out.push(Range { size: here, ..*range });
        }
        if size > here {
            let (start, offset) = (range.start + here, range.offset + here);
            out.push(Range { start, size: size - here, offset, rank: u64::MAX });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, size: u64, offset: u64, rank: u64) -> Range {
        Range { start, size, offset, rank }
    }

    fn read(map: &Intervals, file: &[u8], address: u64, length: usize) -> (Vec<u8>, Option<Unreadable>) {
        let mut buffer = vec![0; length];
        let outcome = map.read(file, address, &mut buffer);
        buffer.truncate(outcome.read);
        (buffer, outcome.stopped)
    }

    #[test]
    fn lower_ranks_win_and_others_fill_the_gaps() {
        let file = b"aaaabbbbbbbbcc";
        let map = Intervals::build(&[range(2, 4, 0, 0), range(0, 8, 4, 1), range(9, 2, 12, 2)], file);
        assert_eq!(read(&map, file, 0, 20), (b"bbaaaabb".to_vec(), Some(Unreadable::NotInDump)));
        assert_eq!(read(&map, file, 9, 2), (b"cc".to_vec(), None));
        assert_eq!(map.regions().collect::<Vec<_>>(), [(0, 8), (9, 2)]);
        assert_eq!((map.total(), map.overlaps, map.disagreements), (10, 1, 1));
    }

    #[test]
    fn bytes_past_the_end_of_the_file_yield_to_any_that_exist() {
        let file = b"aaaabb";
        let map = Intervals::build(&[range(0, 8, 4, 0), range(4, 2, 0, 1)], file);
        assert_eq!(read(&map, file, 0, 8), (b"bb".to_vec(), Some(Unreadable::TruncatedFile)));
        assert_eq!(read(&map, file, 4, 2), (b"aa".to_vec(), None));
        assert_eq!(read(&map, file, 6, 1).1, Some(Unreadable::TruncatedFile));
        assert_eq!(read(&map, file, 8, 1).1, Some(Unreadable::NotInDump));
    }

    #[test]
    fn the_top_of_the_address_space_does_not_wrap() {
        let file = [7; 16];
        let map = Intervals::build(&[range(u64::MAX - 7, 16, 0, 0), range(0, u64::MAX, u64::MAX, 1)], &file);
        assert_eq!(read(&map, &file, u64::MAX - 7, 4), (vec![7; 4], None));
        assert!(read(&map, &file, u64::MAX - 3, 16).1.is_some());
    }

    #[test]
    fn many_nested_ranges_take_no_time() {
        let file = vec![1; 1 << 16];
        let nested: Vec<_> = (0..40_000).map(|i| range(i, 100_000 - 2 * i, 0, i)).collect();
        let before = std::time::Instant::now();
        let map = Intervals::build(&nested, &file);
        assert!(before.elapsed().as_secs() < 5, "{:?}", before.elapsed());
        assert_eq!(map.regions().next(), Some((0, 100_000)));
    }

    proptest::proptest! {
        #[test]
        fn every_byte_is_the_best_ranked_one(
            list in proptest::collection::vec((0u64..64, 0u64..32, 0u64..80), 0..12),
        ) {
            let file: Vec<u8> = (0..64).collect();
            let ranges: Vec<Range> =
                list.iter().enumerate().map(|(i, &(start, size, offset))| range(start, size, offset, i as u64)).collect();
            let map = Intervals::build(&ranges, &file);
            for address in 0..100u64 {
                let covering = ranges.iter().filter(|r| r.start <= address && address - r.start < r.size);
                let byte = |r: &Range| file.get(usize::try_from(r.offset + address - r.start).unwrap());
                let (some, best) = (covering.clone().count() > 0, covering.filter_map(byte).next());
                let (got, stopped) = read(&map, &file, address, 1);
                match best {
                    Some(byte) => proptest::prop_assert_eq!((got, stopped), (vec![*byte], None)),
                    None if some => proptest::prop_assert_eq!(stopped, Some(Unreadable::TruncatedFile)),
                    None => proptest::prop_assert_eq!(stopped, Some(Unreadable::NotInDump)),
                }
            }
        }
    }
}
