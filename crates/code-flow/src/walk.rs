//! Every instruction of an image once: known functions first, by descent; then what unwind records
//! cover; then the gaps, straight through.

use std::rc::Rc;

use code::record::Transfer;
use code::{Scanned, Scanner, scan};
use target::{Halt, Machine};

use crate::image::CodeImage;
use crate::listing::ResolvedTable;
use crate::no_return::scanned_never_returns;
use crate::spans::{Span, code_spans};
use crate::vocabulary::{Coverage, Standing};

/// Instructions between two looks at the halt.
const POLL: usize = 4096;
/// Instructions decoded to see whether bytes are code.
const TRIAL: usize = 96;
/// Marks of a byte: part of an instruction, its first, in an unwind record, queued as a root.
const COVERED: u8 = 1;
const START: u8 = 2;
const RECORDED: u8 = 4;
const QUEUED: u8 = 8;
/// `int3`, what compilers pad with: nothing refers to anything in a run of them.
const PADDING: u8 = 0xcc;

/// What a walk meets.
pub(crate) trait Visitor {
    /// An instruction. `bytes` are its own. Consecutive calls are consecutive instructions unless
    /// [`Visitor::interrupted`] came between.
    fn instruction(&mut self, instruction: &Scanned, bytes: &[u8], standing: Standing, span: &Span);
    /// What was carried from instruction to instruction no longer holds.
    fn interrupted(&mut self);
    /// An indirect jump of code that was reached: the table behind it, if it is known.
    fn table(&mut self, _walk: &Walk<'_, '_>, _jump: &Scanned) -> Option<ResolvedTable> {
        None
    }
    /// Addresses of code that reached code has computed since the last call.
    fn taken(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

/// A walk over one image's code.
pub(crate) struct Walk<'i, 'a> {
    pub(crate) image: &'i CodeImage<'a>,
    pub(crate) spans: Vec<Rc<Span>>,
    marks: Vec<Vec<u8>>,
    pub(crate) coverage: Coverage,
    halt: &'i Halt,
    count: usize,
    /// The count at which the halt is looked at next.
    poll_at: usize,
    /// Targets of direct calls since they were last taken, and all before, in order.
    called: Vec<u64>,
    all_called: Vec<u64>,
    /// `[start, end)` of resolved jump tables.
    tables: Vec<(u64, u64)>,
}

impl<'i, 'a> Walk<'i, 'a> {
    pub(crate) fn new(image: &'i CodeImage<'a>, halt: &'i Halt) -> Self {
        let (spans, coverage) = code_spans(image, halt);
        let spans: Vec<Rc<Span>> = spans.into_iter().map(Rc::new).collect();
        let marks = spans.iter().map(|span| vec![0; span.bytes.len()]).collect();
        let mut walk = Self {
            image,
            spans,
            marks,
            coverage,
            halt,
            count: 0,
            poll_at: 0,
            called: Vec::new(),
            all_called: Vec::new(),
            tables: Vec::new(),
        };
        for region in image.regions().all() {
            let start = image.base + u64::from(region.begin);
            walk.mark(start, image.base + u64::from(region.end), RECORDED);
        }
        walk
    }

    fn mark(&mut self, start: u64, end: u64, bit: u8) {
        let Some(index) = self.span_at(start) else { return };
        let span = &self.spans[index];
        let Some(from) = span.offset(start) else { return };
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let to = from.saturating_add(length).min(span.bytes.len());
        for mark in &mut self.marks[index][from..to] {
            *mark |= bit;
        }
    }

    fn span_at(&self, address: u64) -> Option<usize> {
        let after = self.spans.partition_point(|span| span.start <= address);
        let index = after.checked_sub(1)?;
        self.spans[index].offset(address).map(|_| index)
    }

    /// Up to `count` instructions that end, one after the other, exactly at `address`, in order.
    pub(crate) fn before(&self, address: u64, count: usize) -> Vec<Scanned> {
        let mut out = Vec::new();
        let Some(index) = self.span_at(address) else { return out };
        let (span, marks) = (&self.spans[index], &self.marks[index]);
        let Some(mut offset) = span.offset(address) else { return out };
        while out.len() < count {
            let previous =
                (1..=code::MAX_INSTRUCTION.min(offset)).find(|back| marks[offset - back] & START != 0);
            let Some(back) = previous else { break };
            let at = offset - back;
            let instruction = scan(self.image.machine, span.start + at as u64, &span.bytes[at..]);
            if usize::from(instruction.length) != back {
                break;
            }
            out.push(instruction);
            offset = at;
        }
        out.reverse();
        out
    }

    /// Whether an instruction that was decoded starts at `address`, or none covers it.
    pub(crate) fn may_start(&self, address: u64) -> bool {
        self.span_at(address).is_some_and(|index| {
            let offset = self.spans[index].offset(address).unwrap_or(0);
            self.marks[index].get(offset).is_some_and(|mark| mark & START != 0 || mark & COVERED == 0)
        })
    }

    /// Bytes from `address` to the end of its span.
    pub(crate) fn bytes_at(&self, address: u64) -> &[u8] {
        self.span_at(address).map_or(&[], |index| {
            let span = &self.spans[index];
            span.offset(address).map_or(&[][..], |offset| &span.bytes[offset..])
        })
    }

    fn stopped(&mut self) -> bool {
        if self.count >= self.poll_at && self.coverage.stopped.is_none() {
            self.poll_at = self.count + POLL;
            self.coverage.stopped = self.halt.stop().map(Into::into);
        }
        self.coverage.stopped.is_some()
    }

    /// Walks everything; the starts of functions the image knows from then on.
    pub(crate) fn run(&mut self, visitor: &mut dyn Visitor) -> Rc<[u64]> {
        let spans = self.spans.clone();
        let mut scanners: Vec<Scanner<'_>> =
            spans.iter().map(|span| Scanner::new(self.image.machine, span.start, &span.bytes)).collect();
        self.descend(self.roots(), &mut scanners, visitor);
        let called = self.sweep(RECORDED, Standing::InFunction, &mut scanners, visitor);
        self.descend(called, &mut scanners, visitor);
        self.sweep(RECORDED, Standing::InFunction, &mut scanners, visitor);
        let gaps = if self.image.machine == Machine::X86 || self.image.regions().is_empty() {
            Standing::Unverified
        } else {
            Standing::NoUnwindEntry
        };
        self.sweep(0, gaps, &mut scanners, visitor);
        self.take_called();
        self.image.settle_starts(&self.all_called)
    }

    /// Targets of direct calls since the last time that are in code, by address.
    fn take_called(&mut self) -> Vec<u64> {
        let mut called = std::mem::take(&mut self.called);
        called.sort_unstable();
        called.dedup();
        called.retain(|target| self.span_at(*target).is_some());
        self.all_called.extend_from_slice(&called);
        called
    }

    fn roots(&self) -> Vec<u64> {
        let image = self.image;
        let records = image.regions().all().iter().map(|region| image.base + u64::from(region.begin));
        let starts = image.starts();
        let pointed_at = starts.pointed_at.iter().filter(|address| !is_text(self.bytes_at(**address)));
        let mut out: Vec<u64> = starts.sure.iter().chain(pointed_at).copied().chain(records).collect();
        // Taken from the back: lowest address first, sure starts before pointers.
        out.reverse();
        out
    }

    fn descend(&mut self, roots: Vec<u64>, scanners: &mut [Scanner<'_>], visitor: &mut dyn Visitor) {
        let mut queue = roots;
        let mut jumps = Vec::new();
        loop {
            while let Some(start) = queue.pop() {
                self.path(start, &mut queue, &mut jumps, scanners, visitor);
                if self.coverage.stopped.is_some() {
                    return;
                }
            }
            // By address: one function after the other reads memory in order.
            for target in self.take_called().into_iter().rev() {
                if self.queue_once(target) {
                    queue.push(target);
                }
            }
            if !queue.is_empty() {
                continue;
            }
            for jump in std::mem::take(&mut jumps) {
                let Some(table) = visitor.table(self, &jump) else { continue };
                let bytes = table.targets.len() as u64 * u64::from(table.entry_size);
                self.tables.push((table.table, table.table.saturating_add(bytes)));
                queue.extend(table.targets.into_iter().filter(|target| self.queue_once(*target)));
            }
            if queue.is_empty() {
                self.computed(visitor.taken(), &mut queue);
            }
            if queue.is_empty() {
                return self.pointed_at();
            }
        }
    }

    /// Addresses that code computes start functions (dispatch routines are found so) unless they
    /// are tables or text.
    fn computed(&mut self, addresses: Vec<u64>, queue: &mut Vec<u64>) {
        for address in addresses {
            let covered = self.mark_at(address).is_none_or(|mark| mark & (COVERED | QUEUED) != 0);
            if covered || self.in_table(address) || !self.reads_like_code(address) {
                continue;
            }
            self.image.note_start(address);
            if self.queue_once(address) {
                queue.push(address);
            }
        }
    }

    /// Data pointers outside jump tables point at functions.
    fn pointed_at(&self) {
        let size = self.image.pointer_size();
        for rva in crate::starts::data_pointer_slots(self.image) {
            let Some(slot) = self.image.checked_va(rva, size as u32) else { continue };
            if let Some(value) = self.image.value(slot, size)
                && self.mark_at(value).is_some_and(|mark| mark & START != 0)
                && !self.in_table(slot)
            {
                self.image.note_start(value);
            }
        }
    }

    fn in_table(&self, address: u64) -> bool {
        self.tables.iter().any(|&(start, end)| address >= start && address < end)
    }

    fn mark_at(&self, address: u64) -> Option<u8> {
        let index = self.span_at(address)?;
        self.marks[index].get(self.spans[index].offset(address)?).copied()
    }

    /// Whether the bytes at `address` decode as far as anything ends, without what text looks like.
    fn reads_like_code(&self, address: u64) -> bool {
        if is_text(self.bytes_at(address)) {
            return false;
        }
        let mut seen = std::collections::HashSet::new();
        let mut queue = vec![address];
        let mut ends = false;
        while let Some(mut at) = queue.pop() {
            while seen.insert(at) {
                if seen.len() > TRIAL {
                    return true;
                }
                let bytes = self.bytes_at(at);
                let instruction = scan(self.image.machine, at, bytes);
                let own = bytes.get(..usize::from(instruction.length)).unwrap_or_default();
                let letters = matches!(own, [0x6c..=0x6f]);
                if instruction.transfer == Transfer::Undecodable || letters || own.iter().all(|b| *b == 0) {
                    return false;
                }
                match instruction.transfer {
                    Transfer::Branch(Some(target)) => queue.push(target),
                    Transfer::Jump(_) | Transfer::Return | Transfer::Trap => {
                        ends = true;
                        break;
                    }
                    _ => {}
                }
                at = instruction.end();
            }
        }
        ends
    }

    /// Whether `address` was not queued or decoded before.
    fn queue_once(&mut self, address: u64) -> bool {
        let Some(index) = self.span_at(address) else { return false };
        let Some(offset) = self.spans[index].offset(address) else { return false };
        let mark = &mut self.marks[index][offset];
        let first = *mark & (QUEUED | START) == 0;
        *mark |= QUEUED;
        first
    }

    fn path(
        &mut self,
        start: u64,
        queue: &mut Vec<u64>,
        jumps: &mut Vec<Scanned>,
        scanners: &mut [Scanner<'_>],
        visitor: &mut dyn Visitor,
    ) {
        let Some(index) = self.span_at(start) else {
            visitor.interrupted();
            self.coverage.blind += u64::from(self.image.is_executable(start));
            return;
        };
        let span = Rc::clone(&self.spans[index]);
        let Some(mut offset) = span.offset(start).filter(|at| self.marks[index][*at] & START == 0) else {
            return;
        };
        visitor.interrupted();
        let scanner = &mut scanners[index];
        while self.marks[index].get(offset).is_some_and(|mark| mark & START == 0) {
            if self.stopped() {
                return;
            }
            let instruction = scanner.at(offset, span.bytes.len());
            if instruction.transfer == Transfer::Undecodable {
                self.coverage.blind += 1;
                return;
            }
            self.take(index, &span, offset, &instruction, Standing::InFunction, visitor);
            match instruction.transfer {
                Transfer::Branch(Some(target)) if self.queue_once(target) => queue.push(target),
                Transfer::Call(target) => {
                    self.called.extend(target);
                    if self.is_last_call(index, &instruction) {
                        return;
                    }
                }
                Transfer::Jump(Some(target)) => {
                    if self.queue_once(target) {
                        queue.push(target);
                    }
                    return;
                }
                Transfer::Jump(None) => return jumps.push(instruction),
                Transfer::Return | Transfer::Trap => return,
                _ => {}
            }
            offset += usize::from(instruction.length);
        }
    }

    /// Whether control does not come back from a call. Where an unwind record says that the
    /// function goes on behind the call, what follows is code either way, and nobody asks.
    fn is_last_call(&self, index: usize, call: &Scanned) -> bool {
        let next = self.spans[index].offset(call.end()).and_then(|offset| self.marks[index].get(offset));
        if next.is_some_and(|mark| mark & RECORDED != 0) {
            return false;
        }
        scanned_never_returns(self.image, call)
    }

    fn take(
        &mut self,
        index: usize,
        span: &Span,
        offset: usize,
        instruction: &Scanned,
        standing: Standing,
        visitor: &mut dyn Visitor,
    ) {
        self.count += 1;
        let end = (offset + usize::from(instruction.length)).min(span.bytes.len());
        let marks = &mut self.marks[index][offset..end];
        for mark in marks.iter_mut() {
            *mark |= COVERED;
        }
        if let Some(first) = marks.first_mut() {
            *first |= START;
        }
        visitor.instruction(instruction, &span.bytes[offset..end], standing, span);
        if !matches!(instruction.transfer, Transfer::Fallthrough) {
            visitor.interrupted();
        }
    }

    /// Decodes bytes no instruction covers yet: those with `bit`, or all for 0. Direct targets of
    /// code that is in a function are returned, to be descended into.
    fn sweep(
        &mut self,
        bit: u8,
        standing: Standing,
        scanners: &mut [Scanner<'_>],
        visitor: &mut dyn Visitor,
    ) -> Vec<u64> {
        let mut targets = Vec::new();
        for (index, scanner) in scanners.iter_mut().enumerate() {
            let mut offset = 0;
            while let Some(start) = next_free(&self.marks[index], offset, bit) {
                offset = self.gap(index, start, (bit, standing), scanner, visitor, &mut targets);
                if self.coverage.stopped.is_some() {
                    return targets;
                }
            }
        }
        targets
    }

    /// One gap, up to the next covered byte; where to look on.
    fn gap(
        &mut self,
        index: usize,
        start: usize,
        (bit, standing): (u8, Standing),
        scanner: &mut Scanner<'_>,
        visitor: &mut dyn Visitor,
        targets: &mut Vec<u64>,
    ) -> usize {
        visitor.interrupted();
        let end = start + self.marks[index][start..].iter().take_while(|mark| is_free(**mark, bit)).count();
        let span = Rc::clone(&self.spans[index]);
        let pads = matches!(self.image.machine, Machine::X64 | Machine::X86);
        let mut offset = start;
        while offset < end {
            if self.stopped() {
                return end;
            }
            if pads && span.bytes[offset] == PADDING {
                offset += self.padding(index, &span.bytes[offset..end], offset);
                visitor.interrupted();
                continue;
            }
            let instruction = scanner.at(offset, end);
            if instruction.transfer == Transfer::Undecodable || instruction.length == 0 {
                // Bytes of a function that are no instruction are something that was not understood;
                // bytes of a gap are data.
                self.coverage.blind += u64::from(standing == Standing::InFunction);
                self.count += 1;
                visitor.interrupted();
                offset += usize::from(instruction.length.max(1));
                continue;
            }
            self.take(index, &span, offset, &instruction, standing, visitor);
            if let (Standing::InFunction, Some(target)) = (standing, instruction.transfer.target()) {
                if matches!(instruction.transfer, Transfer::Call(_)) {
                    self.called.push(target);
                }
                if self.queue_once(target) {
                    targets.push(target);
                }
            }
            offset += usize::from(instruction.length);
        }
        end
    }

    /// Takes the `int3`s that `bytes`, at `offset`, begin with; how many there are.
    fn padding(&mut self, index: usize, bytes: &[u8], offset: usize) -> usize {
        let length = bytes.iter().take_while(|byte| **byte == PADDING).count();
        for mark in &mut self.marks[index][offset..offset + length] {
            *mark |= START | COVERED;
        }
        self.count += length;
        length
    }
}

/// Whether no instruction covers a byte, and it has `bit`, unless that is 0.
fn is_free(mark: u8, bit: u8) -> bool {
    mark & (COVERED | bit) == bit
}

/// The first free byte from `from` on.
fn next_free(marks: &[u8], from: usize, bit: u8) -> Option<usize> {
    // Eight marks at a time: most are covered.
    const EACH: u64 = 0x0101_0101_0101_0101;
    let (mask, wanted) = (EACH * u64::from(COVERED | bit), EACH * u64::from(bit));
    let mut at = from;
    for eight in marks.get(from..)?.chunks_exact(8) {
        let Ok(word) = eight.try_into().map(u64::from_le_bytes) else { break };
        let differs = (word & mask) ^ wanted;
        // A byte of `differs` that is 0 is a free one; none is above 5, so none carries.
        if differs.wrapping_add(EACH * 0x7f) & (EACH * 0x80) != EACH * 0x80 {
            break;
        }
        at += 8;
    }
    marks[at..].iter().position(|mark| is_free(*mark, bit)).map(|ahead| at + ahead)
}

/// Whether bytes begin with a string, in ASCII or UTF-16, that ends: drivers keep some beside their
/// code. A prologue of pushes reads as letters, too, but nothing ends it.
fn is_text(bytes: &[u8]) -> bool {
    const SHORTEST: usize = 4;
    const LONG: usize = 32;
    let letter = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
    let narrow = bytes.iter().take_while(|byte| letter(**byte)).count();
    if narrow >= LONG || (narrow >= SHORTEST && bytes.get(narrow) == Some(&0)) {
        return true;
    }
    let wide = bytes.chunks_exact(2).take_while(|pair| letter(pair[0]) && pair[1] == 0).count();
    wide >= SHORTEST
}

#[cfg(test)]
mod tests {
    use super::{COVERED, QUEUED, RECORDED, START, is_free, is_text, next_free};

    #[test]
    fn free_bytes_are_found_wherever_they_lie() {
        let kinds = [0, COVERED, COVERED | START, RECORDED, RECORDED | COVERED | QUEUED, RECORDED | QUEUED];
        let marks: Vec<u8> = (0..600_usize).map(|i| kinds[(i * i / 7 + i / 40) % kinds.len()]).collect();
        let marks = [&marks[..], &[COVERED; 37], &[RECORDED], &[COVERED | RECORDED; 50]].concat();
        for bit in [0, RECORDED] {
            for from in 0..=marks.len() + 1 {
                let plain = (from..marks.len()).find(|at| is_free(marks[*at], bit));
                assert_eq!(next_free(&marks, from, bit), plain, "{from} {bit}");
            }
        }
    }

    #[test]
    fn strings_are_text_and_prologues_are_not() {
        for text in
            [&b"IOCTL_SIOCTL\0"[..], b"SIOCTL.SYS: \tData from User : \r\n......", b"D\0e\0v\0i\0c\0e\0"]
        {
            assert!(is_text(text), "{text:?}");
        }
        let pushes = b"@SUVWATAUAVAWH\x83\xec\x28";
        for code in [&pushes[..], b"H\x89\\$\x08", b"VWH\x83\xec\x28", b"\xc3", b""] {
            assert!(!is_text(code), "{code:02x?}");
        }
    }
}
