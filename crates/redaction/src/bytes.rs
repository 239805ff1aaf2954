//! Memory: matches in what bytes read as, ASCII or UTF-16LE, are blanked where they lie.

use std::ops::Range;

use crate::counts::Counts;
use crate::filter::Filter;

/// Fewer printable characters in a row are no text worth a look.
const RUN: usize = 5;

/// Blanks matches in `bytes`; where, in order.
pub(crate) fn blank(filter: &Filter, bytes: &mut [u8], counts: &mut Counts) -> Vec<Range<usize>> {
    let mut hits = Vec::new();
    let ascii: String = bytes.iter().map(|&byte| shown(byte)).collect();
    collect(filter, &ascii, |range| range, &mut hits);
    for first in [0, 1] {
        let pairs = bytes.get(first..).unwrap_or_default().chunks_exact(2);
        let wide: String = pairs.map(|pair| if pair[1] == 0 { shown(pair[0]) } else { '\n' }).collect();
        collect(filter, &wide, |range| first + range.start * 2..first + range.end * 2, &mut hits);
    }
    hits.sort_by_key(|(range, _)| range.start);
    let mut out: Vec<Range<usize>> = Vec::new();
    for (range, rule) in hits {
        filter.blanked(rule, counts);
        if let Some(area) = bytes.get_mut(range.clone()) {
            area.fill(0);
        }
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// One character a byte, so that places in the text are places in memory.
fn shown(byte: u8) -> char {
    if matches!(byte, 0x20..0x7f | b'\t' | b'\r') { char::from(byte) } else { '\n' }
}

fn collect(
    filter: &Filter,
    text: &str,
    place: impl Fn(Range<usize>) -> Range<usize>,
    hits: &mut Vec<(Range<usize>, usize)>,
) {
    let readable = text.as_bytes().split(|&b| b == b'\n').any(|run| run.len() >= RUN);
    if readable {
        hits.extend(filter.find(text).into_iter().map(|(range, rule)| (place(range), rule)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> Filter {
        Filter::parse("builtin = ['user_paths', 'mail', 'private_keys']").unwrap()
    }

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn ascii_and_both_alignments_of_utf16() {
        let mut memory = b"\x01\x02C:\\Users\\jane\\x\x00".to_vec();
        memory.push(0xff);
        let odd = memory.len();
        assert_eq!(odd % 2, 1);
        memory.extend(wide("a C:\\Users\\jane\\y"));
        memory.extend([0, 0, 0xff]);
        let even = memory.len();
        memory.extend(wide("bob@example.org"));
        let mut counts = Counts::default();
        let found = blank(&filter(), &mut memory, &mut counts);
        let expected = [11..15, odd + 22..odd + 30, even..even + 30];
        assert_eq!(found, expected);
        for range in expected {
            assert!(memory[range].iter().all(|&b| b == 0));
        }
        assert_eq!(counts.words(), "mail 1, user_paths 2");
    }

    #[test]
    fn a_key_over_several_lines() {
        let mut memory = b"..-----BEGIN PRIVATE KEY-----\nMIIE\nAAAA\n-----END PRIVATE KEY-----..".to_vec();
        let length = memory.len();
        let found = blank(&filter(), &mut memory, &mut Counts::default());
        assert_eq!((found.len(), found[0].clone()), (1, 2..length - 2));
    }

    proptest::proptest! {
        #[test]
        fn any_memory_keeps_its_length(mut memory in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let length = memory.len();
            let found = blank(&filter(), &mut memory, &mut Counts::default());
            proptest::prop_assert_eq!(memory.len(), length);
            proptest::prop_assert!(found.iter().all(|range| range.end <= length));
        }
    }
}
