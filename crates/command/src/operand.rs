//! Operands shared by commands: ranges, counts, quoted text.

use target::Result;

use crate::run::{Run, usage};

/// The largest number of units a range may span.
const UNITS_LIMIT: u64 = 1 << 20;

/// Where and how many units of `size` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) count: u64,
    /// The end was given as an address, so `count` counts bytes rather than units of code.
    pub(crate) by_end: bool,
}

impl Run<'_> {
    /// `[ADDRESS [L[?]COUNT | L-COUNT | END]]`; `None` and no address means `next`. Returns what
    /// follows, too.
    pub(crate) fn range<'t>(
        &self,
        text: &'t str,
        size: u64,
        next: Option<u64>,
        default_count: u64,
    ) -> Result<(Range, &'t str)> {
        let text = text.trim_start();
        if text.is_empty() {
            let start = match next {
                Some(next) => next,
                None => self.context()?.ip(),
            };
            return Ok((Range { start, count: default_count, by_end: false }, text));
        }
        let (start, rest) = self.evaluate_prefix(text)?;
        if rest.is_empty() || rest.starts_with('"') {
            return Ok((Range { start, count: default_count, by_end: false }, rest));
        }
        let (range, rest) = self.range_end(start, rest, size)?;
        if range.count > UNITS_LIMIT {
            return Err(usage(format!(
                "a range of {:#x} units is too long (at most {UNITS_LIMIT:#x})",
                range.count
            )));
        }
        Ok((range, rest))
    }

    /// The same without a bound on the count, for searches.
    pub(crate) fn long_range<'t>(&self, text: &'t str, size: u64) -> Result<(Range, &'t str)> {
        let (start, rest) = self.evaluate_prefix(text)?;
        if rest.is_empty() {
            return Err(usage("a range is needed: ADDRESS L LENGTH, or ADDRESS END"));
        }
        self.range_end(start, rest, size)
    }

    fn range_end<'t>(&self, start: u64, rest: &'t str, size: u64) -> Result<(Range, &'t str)> {
        let Some(length) = rest.strip_prefix(['L', 'l']).filter(|l| !l.is_empty()) else {
            let (end, rest) = self.evaluate_prefix(rest)?;
            let bytes = end.checked_sub(start).ok_or_else(|| usage("the range ends before it starts"))?;
            return Ok((Range { start, count: bytes / size + 1, by_end: true }, rest));
        };
        let length = length.strip_prefix('?').unwrap_or(length).trim_start();
        if let Some(back) = length.strip_prefix('-') {
            let (count, rest) = self.evaluate_prefix(back)?;
            let start = start.wrapping_sub(count.saturating_mul(size));
            return Ok((Range { start, count, by_end: false }, rest));
        }
        let (count, rest) = self.evaluate_prefix(length)?;
        Ok((Range { start, count, by_end: false }, rest))
    }

    /// Narrows an address to the target's pointer size.
    pub(crate) fn clip(&self, address: u64) -> u64 {
        if self.notation().is_32_bit() { address & 0xffff_ffff } else { address }
    }
}

/// Splits the first word off.
pub(crate) fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    match text.find(char::is_whitespace) {
        Some(end) => (&text[..end], text[end..].trim_start()),
        None => (text, ""),
    }
}

/// Words separated by blanks outside `<...>`, where C++ names have blanks of their own.
pub(crate) fn words(text: &str) -> Vec<&str> {
    let (mut words, mut depth, mut start) = (Vec::new(), 0usize, None);
    for (index, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c.is_whitespace() && depth == 0 {
            words.extend(start.take().map(|from| &text[from..index]));
        } else if start.is_none() {
            start = Some(index);
        }
    }
    words.extend(start.map(|from| &text[from..]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_inside_template_arguments_do_not_separate() {
        assert_eq!(words(" a!v<int,b<int> >  10 "), ["a!v<int,b<int> >", "10"]);
        assert_eq!(words("-r a 1>2"), ["-r", "a", "1>2"]);
        assert_eq!(words(""), Vec::<&str>::new());
        assert_eq!(word("x  y z"), ("x", "y z"));
    }
}
