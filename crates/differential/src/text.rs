//! Facts in the text of raw commands: what `x`, `dt` and `?` say, whoever says it.

use serde_json::{Map, Value, json};

/// A number of a command's output, backticks in it or not.
fn number(text: &str) -> Option<u64> {
    let digits = text.replace('`', "");
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
}

/// `Evaluate expression: 5 = 00000000`00000005`.
pub(crate) fn value(text: &str) -> Value {
    let found = text.lines().find_map(|line| line.strip_prefix("Evaluate expression:")?.rsplit('=').next());
    match found.and_then(|text| number(text.trim())) {
        Some(value) => json!({ "value": format!("{value:#x}") }),
        // Why there is none is prose.
        None => nothing(),
    }
}

/// What a refusal and an output without any fact have in common.
pub(crate) fn nothing() -> Value {
    json!({ "nothing": true })
}

/// Between the names of one address.
pub(crate) const NAMES_BETWEEN: &str = "; ";

/// Rows `00007ff6`11e51000 module!name (arguments)` by address: names without what follows them.
pub(crate) fn symbols(text: &str) -> Value {
    let mut rows = Map::new();
    for line in text.lines() {
        let Some((address, name)) = line.trim().split_once(char::is_whitespace) else { continue };
        let (Some(address), true) = (number(address), name.contains('!')) else { continue };
        // DbgEng lists where a function is inlined, too.
        if name.contains("(inline caller)") {
            continue;
        }
        // Behind a name stand its arguments or its value.
        let name = name.trim().split(" (").next().unwrap_or(name);
        let name = name.split(" = ").next().unwrap_or(name).trim_end();
        let names = rows.entry(format!("{address:#x}")).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(names) = names
            && !names.iter().any(|known| known == name)
        {
            names.push(Value::from(name));
        }
    }
    for names in rows.values_mut() {
        // One value an address, so that names of the same place are judged together.
        let mut listed: Vec<&str> =
            names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        listed.sort_unstable();
        *names = Value::from(listed.join(NAMES_BETWEEN));
    }
    if rows.is_empty() { nothing() } else { Value::Object(rows) }
}

/// `n-12` or `x10000`: DbgEng shows large values in hexadecimal.
fn enumerator(value: &str) -> Option<i64> {
    match value.split_at_checked(1)? {
        ("n", decimal) => decimal.parse().ok(),
        ("x", digits) => i64::from_str_radix(digits, 16).ok(),
        _ => None,
    }
}

/// Rows `   +0x000 name : type`, of an enumeration `   name = 0n1`.
pub(crate) fn layout(text: &str) -> Value {
    let row = |line: &str| {
        let line = line.trim();
        if let Some((name, value)) = line.split_once(" = 0") {
            return Some((name.trim().to_owned(), enumerator(value)?.to_string()));
        }
        let (offset, rest) = line.strip_prefix("+0x")?.split_once(char::is_whitespace)?;
        let (name, kind) = rest.split_once(" : ").or_else(|| rest.split_once(':'))?;
        let field = format!("+{:#x} {}", number(offset)?, name.trim());
        Some((field, kind.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    let rows: Vec<(String, String)> = text.lines().filter_map(row).collect();
    if rows.is_empty() {
        return nothing();
    }
    let mut fields = Map::new();
    for (field, kind) in rows {
        fields.insert(field, Value::from(kind));
    }
    json!({ "fields": fields })
}

/// Names of a listing, one a line.
pub(crate) fn names(text: &str) -> Value {
    let mut names: Vec<&str> = text.lines().map(str::trim).filter(|line| line.contains('!')).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { nothing() } else { json!({ "names": names }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_with_and_without_backticks() {
        let text = "Evaluate expression: 140694838906880 = 00007ff6`11e50000\n";
        assert_eq!(value(text), json!({ "value": "0x7ff611e50000" }));
        assert_eq!(value("Couldn't resolve error at 'x'"), nothing());
    }

    #[test]
    fn symbols_are_read_by_address() {
        let text =
            "00007ff6`11e51000 m!main (int, char**)\n00007ff6`11e51000 m!alias = <no type information>\n";
        assert_eq!(symbols(text), json!({ "0x7ff611e51000": "m!alias; m!main" }));
    }

    #[test]
    fn layouts_are_read_field_by_field() {
        let text = "   +0x000 Header           : _DISPATCHER_HEADER\n   +0x018 Bits : Pos 3, 1 Bit\n";
        let values = json!({ "fields": { "A": "-1", "B": "65536" } });
        assert_eq!(layout("   A = 0n-1\n   B = 0x10000\n"), values);
        let fields = json!({ "+0x0 Header": "_DISPATCHER_HEADER", "+0x18 Bits": "Pos 3, 1 Bit" });
        assert_eq!(layout(text), json!({ "fields": fields }));
    }
}
