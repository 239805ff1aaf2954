//! Which file range serves which address, when the ranges a dump lists overlap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
        let mut open: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut next = 0;
        for pair in bounds.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            while let Some(range) = ranges.get(next).filter(|r| r.start == from) {
                open.push(Reverse((range.rank, next)));
                next += 1;
            }
            let ended = |index: usize| ranges[index].start + ranges[index].size <= from;
            while open.peek().is_some_and(|Reverse((_, index))| ended(*index)) {
                open.pop();
            }
            let Some(&Reverse((_, winner))) = open.peek() else { continue };
            let place = |index: usize| ranges[index].offset + (from - ranges[index].start);
            out.push(Piece { start: from, size: to - from, offset: place(winner) });
            // The heap's second best is among its first three entries.
            let rival = open.iter().skip(1).take(2).map(|r| r.0).filter(|&(_, i)| !ended(i)).min();
            if let Some((_, rival)) = rival {
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
