//! Raw output, bounded.

/// Bytes of output one answer carries; the middle of a longer one is left out.
pub(super) const OUTPUT_LIMIT: usize = 256 * 1024;

/// Keeps the head and the tail of `text` within `limit` bytes; says how many bytes are left out.
pub(super) fn clip(text: String, limit: usize) -> (String, Option<usize>) {
    if text.len() <= limit {
        return (text, None);
    }
    let half = limit / 2;
    let head = (0..=half).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    let tail = (text.len() - half..=text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    let omitted = tail - head;
    (format!("{}\n[... {omitted} bytes left out ...]\n{}", &text[..head], &text[tail..]), Some(omitted))
}

#[cfg(test)]
mod tests {
    use super::clip;

    #[test]
    fn head_and_tail_are_kept() {
        let (text, omitted) = clip("é".repeat(100), 41);
        assert_eq!(omitted, Some(160));
        assert!(text.starts_with('é') && text.ends_with('é') && text.contains("160 bytes left out"));
        assert_eq!(clip("short".into(), 5), ("short".into(), None));
    }
}
