//! Words of a sound file changed: what one mutation reaches is a field, not a byte of a table.

/// Where `base` is not zero, in words of eight bytes.
pub(crate) fn words(base: &[u8]) -> Vec<usize> {
    (0..base.len() / 8).map(|n| n * 8).filter(|at| base[*at..*at + 8] != [0; 8]).collect()
}

/// Applies the edits of `data` to a copy of `base`. An edit is seven bytes: a word, a way, a value.
pub(crate) fn edited(base: &[u8], words: &[usize], data: &[u8]) -> Vec<u8> {
    let mut out = base.to_vec();
    let get = |out: &[u8], at: usize| u64::from_le_bytes(out[at..at + 8].try_into().expect("eight bytes"));
    for edit in data.chunks_exact(7).take(64) {
        let word = |at: usize| words[at % words.len()];
        let at = word(usize::from(u16::from_le_bytes([edit[0], edit[1]])));
        let value = u32::from_le_bytes([edit[3], edit[4], edit[5], edit[6]]);
        let old = get(&out, at);
        let shift = u32::from(edit[2] >> 5) * 8;
        let new = match edit[2] % 8 {
            0 => old & !0xffff_ffff | u64::from(value),
            1 => old & 0xffff_ffff | u64::from(value) << 32,
            2 => old ^ u64::from(value),
            3 => 0xffff_f803_0000_0000 | u64::from(value),
            4 => old.wrapping_add_signed(i64::from(value.cast_signed())),
            5 => old & !(0xff << shift) | (u64::from(value) & 0xff) << shift,
            6 => old & !(0xffff << shift) | (u64::from(value) & 0xffff) << shift,
            _ => get(&out, word(value as usize)),
        };
        out[at..at + 8].copy_from_slice(&new.to_le_bytes());
    }
    out
}
