//! Two stacks, frame by frame. Guesses are no frames: rows found by a scan are left out.

use serde_json::Value;

use crate::fields::Walk;

/// Whether these rows are frames.
pub(crate) fn is_stack(rows: &[Value]) -> bool {
    rows.first().is_some_and(|row| row.get("found").is_some() && row.get("address").is_some())
}

/// Fields of a frame that say where it is; where these differ the rest would be noise.
const PLACE: [&str; 3] = ["address", "inline", "sp"];

pub(crate) fn compare(walk: &mut Walk<'_>, field: &str, native: &[Value], other: &[Value]) {
    let (native, other) = (walked(native), walked(other));
    for (index, (ours, theirs)) in native.iter().zip(&other).enumerate() {
        let at = format!("{field}[{index}]");
        if PLACE.iter().any(|place| ours.get(place) != theirs.get(place)) {
            return rest(walk, &at, &native[index..], &other[index..]);
        }
        walk.object(&at, Some(ours), Some(theirs));
    }
    let both = native.len().min(other.len());
    if native.len() != other.len() {
        rest(walk, &format!("{field}[{both}]"), &native[both..], &other[both..]);
    }
}

fn walked(rows: &[Value]) -> Vec<Value> {
    let mut rows: Vec<Value> = rows.iter().filter(|row| row["found"] != "scan").cloned().collect();
    // An inline row lies on the stack of the frame it is part of.
    for row in &mut rows {
        if row["inline"] == true
            && let Some(row) = row.as_object_mut()
        {
            row.remove("sp");
        }
    }
    rows
}

/// One difference for all that follows: from the first frame that is another on, all are.
fn rest(walk: &mut Walk<'_>, at: &str, native: &[Value], other: &[Value]) {
    let places = |rows: &[Value]| {
        let rows: Vec<Value> = rows.iter().map(|row| Value::from(place(row))).collect();
        (!rows.is_empty()).then_some(Value::Array(rows))
    };
    walk.out.looked_at += 1;
    walk.differ(&format!("{at}.."), places(native).as_ref(), places(other).as_ref());
}

fn place(row: &Value) -> String {
    let text = |field: &str| row[field].as_str().unwrap_or("-");
    let inline = if row["inline"] == true { " inline" } else { "" };
    let name = row["symbol"].as_str().or(row["module"].as_str()).unwrap_or("nowhere");
    format!("{} sp {} {name}{inline}", text("address"), text("sp"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Answer, compare};

    fn frame(address: &str, found: &str) -> Value {
        json!({ "address": address, "sp": "0x10", "found": found })
    }

    fn fields(native: &[Value], other: &[Value]) -> Vec<String> {
        let answer = |rows: &[Value]| Answer::Served(json!({ "frames": rows }));
        let compared = compare("q", &answer(native), &answer(other));
        compared.differences.into_iter().map(|d| d.field).collect()
    }

    #[test]
    fn guesses_are_no_frames() {
        let native = [frame("0x1", "unwind"), frame("0x9", "scan")];
        assert!(fields(&native, &[frame("0x1", "unwind")]).is_empty());
    }

    #[test]
    fn a_lost_frame_is_one_difference_whatever_follows() {
        let native = [frame("0x1", "unwind"), frame("0x2", "unwind"), frame("0x3", "unwind")];
        assert_eq!(fields(&native, &[frame("0x1", "unwind"), frame("0x3", "unwind")]), ["frames[1].."]);
        assert_eq!(fields(&native, &native[..2]), ["frames[2].."]);
    }
}
