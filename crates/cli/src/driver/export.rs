//! What other programs read: codes as a C header, names of handlers for IDA and Ghidra.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::answer::{CodeRow, Map, hex};

/// A driver as the exports need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exported<'a> {
    /// The file's name.
    pub(crate) file: &'a str,
    pub(crate) sha256: Option<&'a str>,
    pub(crate) maps: &'a [Map],
}

/// Text that cannot end a comment or a string it is put into.
fn tame(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_graphic() && !"*\\\"'`".contains(c) || c == ' ' { c } else { '_' })
        .collect()
}

/// `text` as a C or Python identifier's part.
fn identifier(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn stem(file: &str) -> String {
    identifier(file.rsplit_once('.').map_or(file, |(stem, _)| stem))
}

fn origin(driver: &Exported<'_>) -> String {
    let hash = driver.sha256.map(|hash| format!(", SHA-256 {}", tame(hash))).unwrap_or_default();
    format!("{}{hash}", tame(driver.file))
}

/// Codes that are not refused on every path, each once, in order.
fn codes<'a>(driver: &Exported<'a>) -> BTreeMap<u32, &'a CodeRow> {
    let all = driver.maps.iter().flat_map(|map| &map.codes);
    all.filter(|row| row.accepted != Some(false) && !row.is_unproved())
        .map(|row| (row.number(), row))
        .collect()
}

fn is_complete(driver: &Exported<'_>) -> bool {
    let listed: usize = driver.maps.iter().map(|map| map.codes.len()).sum();
    let counted: usize = driver.maps.iter().map(|map| map.code_count).sum();
    !driver.maps.is_empty() && listed == counted && driver.maps.iter().all(|map| map.complete)
}

/// What a request's lengths have to be.
pub(crate) fn sizes(row: &CodeRow) -> String {
    let side = |name: &str, exact: Option<u32>, range: Option<super::answer::SizeRange>| match (exact, range)
    {
        (Some(size), _) => Some(format!("{name} {size}")),
        (None, Some(range)) => match (range.min, range.max) {
            (Some(min), Some(max)) => Some(format!("{name} {min} to {max}")),
            (Some(min), None) => Some(format!("{name} >= {min}")),
            (None, Some(max)) => Some(format!("{name} <= {max}")),
            (None, None) => None,
        },
        (None, None) => None,
    };
    let sides = [side("in", row.in_size, row.in_range), side("out", row.out_size, row.out_range)];
    sides.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn method(row: &CodeRow) -> &'static str {
    match row.method.as_str() {
        "buffered" => "METHOD_BUFFERED",
        "in_direct" => "METHOD_IN_DIRECT",
        "out_direct" => "METHOD_OUT_DIRECT",
        _ => "METHOD_NEITHER",
    }
}

fn access(row: &CodeRow) -> &'static str {
    match row.required_access.as_str() {
        "any" => "FILE_ANY_ACCESS",
        "read" => "FILE_READ_ACCESS",
        "write" => "FILE_WRITE_ACCESS",
        _ => "FILE_READ_ACCESS | FILE_WRITE_ACCESS",
    }
}

/// A C header with a `CTL_CODE` for each code.
pub(crate) fn header(driver: &Exported<'_>) -> String {
    let name = stem(driver.file).to_uppercase();
    let mut text = format!("// Control codes of {}.\n", origin(driver));
    if !is_complete(driver) {
        text += "// Not complete: the driver may accept more codes than these.\n";
    }
    text += "#pragma once\n\n#ifndef CTL_CODE\n#include <winioctl.h>\n#endif\n\n";
    for (code, row) in codes(driver) {
        let handler = row.handler.as_ref().map(|place| tame(&place.name()));
        let notes: Vec<String> =
            handler.into_iter().chain([sizes(row)]).filter(|note| !note.is_empty()).collect();
        if !notes.is_empty() {
            let _ = writeln!(text, "// {}", notes.join("; "));
        }
        let _ = writeln!(
            text,
            "#define IOCTL_{name}_{code:08X} CTL_CODE({:#06x}, {:#05x}, {}, {}) // {code:#010x}",
            row.device_type,
            row.function,
            method(row),
            access(row)
        );
    }
    text
}

/// A name and a comment for an address.
struct Label {
    name: String,
    comment: String,
}

/// Labels by RVA: dispatch routines, handlers, and the cases that have no handler.
fn labels(driver: &Exported<'_>) -> BTreeMap<u32, Label> {
    let mut labels = BTreeMap::new();
    let mut handled: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for map in driver.maps {
        if let Some(rva) = map.dispatch.rva.as_deref().and_then(hex) {
            let name = map
                .dispatch
                .symbol
                .as_deref()
                .map_or_else(|| format!("Dispatch_{}", identifier(&map.convention)), identifier);
            let comment = format!("{} of {} control codes", map.convention, map.code_count);
            labels.insert(rva, Label { name, comment });
        }
    }
    for (code, row) in codes(driver) {
        let place =
            row.handler.as_ref().and_then(|handler| handler.rva.as_deref()).or(row.case_rva.as_deref());
        if let Some(rva) = place.and_then(hex) {
            handled.entry(rva).or_default().push(code);
            let own = row.handler.as_ref().and_then(|handler| handler.symbol.as_deref()).map(identifier);
            labels.entry(rva).or_insert_with(|| Label {
                name: own.unwrap_or_else(|| format!("Ioctl_{code:08X}")),
                comment: String::new(),
            });
        }
    }
    for (rva, codes) in handled {
        const SHOWN: usize = 8;
        let shown: Vec<String> = codes.iter().take(SHOWN).map(|code| format!("{code:#010x}")).collect();
        let more = codes.len().checked_sub(SHOWN).filter(|&more| more > 0);
        let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
        if let Some(label) = labels.get_mut(&rva).filter(|label| label.comment.is_empty()) {
            label.comment = format!("control code {}{more}", shown.join(" "));
        }
    }
    labels
}

fn list(driver: &Exported<'_>) -> String {
    let mut text = String::from("LABELS = [\n");
    for (rva, label) in labels(driver) {
        let _ = writeln!(text, "    ({rva:#x}, \"{}\", \"{}\"),", tame(&label.name), tame(&label.comment));
    }
    text + "]\n"
}

/// A script for IDA: names and comments, relative to wherever the image lies.
pub(crate) fn ida(driver: &Exported<'_>) -> String {
    format!(
        "# Handlers of {}, for IDA: File, Script file.\n\
         import ida_name\nimport idaapi\nimport idc\n\n{}\n\
         base = idaapi.get_imagebase()\n\
         for rva, name, comment in LABELS:\n\
         \x20   ida_name.set_name(base + rva, name, ida_name.SN_NOWARN | ida_name.SN_FORCE)\n\
         \x20   idc.set_cmt(base + rva, comment, 1)\n",
        origin(driver),
        list(driver)
    )
}

/// The same for Ghidra.
pub(crate) fn ghidra(driver: &Exported<'_>) -> String {
    format!(
        "# Handlers of {}, for Ghidra: Script Manager.\n\
         # @category Drivers\n\
         from ghidra.program.model.symbol import SourceType\n\n{}\n\
         base = currentProgram.getImageBase()\n\
         for rva, name, comment in LABELS:\n\
         \x20   address = base.add(rva)\n\
         \x20   function = getFunctionAt(address)\n\
         \x20   if function is not None:\n\
         \x20       function.setName(name, SourceType.USER_DEFINED)\n\
         \x20   else:\n\
         \x20       createLabel(address, name, True)\n\
         \x20   setPlateComment(address, comment)\n",
        origin(driver),
        list(driver)
    )
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Place, SizeRange};
    use super::*;

    fn maps() -> Vec<Map> {
        let place = |rva: &str, symbol: Option<&str>| Place {
            rva: Some(rva.to_owned()),
            symbol: symbol.map(ToOwned::to_owned),
            ..Place::default()
        };
        let row = |code: u32, method: &str, access: &str, handler: Option<Place>| CodeRow {
            code: format!("{code:#010x}"),
            device_type: code >> 16,
            function: code >> 2 & 0xfff,
            method: method.to_owned(),
            required_access: access.to_owned(),
            case_rva: Some("0x1200".to_owned()),
            handler,
            ..CodeRow::default()
        };
        let mut read = row(0x22_2003, "neither", "any", Some(place("0x1000", Some("open!Read*/Counter\""))));
        read.in_range = Some(SizeRange { min: Some(8), max: None });
        let mut refused = row(0x22_2008, "buffered", "any", None);
        refused.accepted = Some(false);
        vec![Map {
            dispatch: place("0x1100", None),
            convention: "wdm".to_owned(),
            codes: vec![read, row(0x22_e00c, "buffered", "read_write", None), refused],
            code_count: 3,
            complete: false,
            ..Map::default()
        }]
    }

    #[test]
    fn exports() {
        let maps = maps();
        let driver = Exported { file: "open door.sys", sha256: Some("00ff"), maps: &maps };
        insta::assert_snapshot!([header(&driver), ida(&driver), ghidra(&driver)].join("\n--------\n"));
    }

    #[test]
    fn a_name_from_a_driver_stays_inside_its_string() {
        let evil = "x\"); import os #\n*/ int y; //\\";
        assert!(!tame(evil).contains(['"', '\n', '*', '\\']));
        assert_eq!(identifier("a!b::c"), "a_b__c");
    }
}
