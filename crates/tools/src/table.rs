//! Text tables: fenced, columns padded, names that cannot break out of the fence.

/// A name from the target as text may carry it: no backticks, nothing that acts.
#[must_use]
pub fn quiet(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '`' => '\'',
            c if target::acts(c) => '.',
            c => c,
        })
        .collect()
}

/// Rows in a fenced block. The last column is not padded.
#[must_use]
pub fn fenced<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    columns(&header.map(ToOwned::to_owned), rows)
}

/// The same with as many columns as the header has.
#[must_use]
pub fn columns(header: &[String], rows: &[impl AsRef<[String]>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::from("```\n");
    line(&mut out, header, &widths);
    for row in rows {
        line(&mut out, row.as_ref(), &widths);
    }
    out.push_str("```");
    out
}

fn line(out: &mut String, cells: &[String], widths: &[usize]) {
    let start = out.len();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if index > 0 {
            out.push_str("  ");
        }
        out.push_str(&quiet(cell));
        let pad = width.saturating_sub(cell.chars().count());
        out.extend(std::iter::repeat_n(' ', pad));
    }
    out.truncate(start + out[start..].trim_end().len());
    out.push('\n');
}

/// The text of an optional value, empty when absent.
#[must_use]
pub fn cell<T: ToString>(value: Option<&T>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_fence() {
        let text = fenced(["name", "size"], &[["a```b\nc".into(), "1".into()], ["x".into(), "22".into()]]);
        assert_eq!(text, "```\nname     size\na'''b.c  1\nx        22\n```");
    }
}
