//! Instructions that DbgEng printed in the transcripts: same bytes, same length, same text.
#![allow(clippy::unwrap_used)]

use target::Machine;

/// `address bytes text` of a disassembly line; its operand note (`ds:002b:...=`) is cut off.
fn line(text: &str) -> Option<(Machine, u64, Vec<u8>, String)> {
    let (address, rest) = text.split_once(' ')?;
    let (hex, rest) = rest.split_once(' ')?;
    let digits = address.replace('`', "");
    let number = u64::from_str_radix(&digits, 16).ok()?;
    let bytes: Option<Vec<u8>> = (0..hex.len() / 2)
        .map(|i| hex.get(i * 2..i * 2 + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect();
    let mut bytes = bytes.filter(|b| !b.is_empty() && hex.len() % 2 == 0 && hex.len() != 16)?;
    let mnemonic = rest.split_whitespace().next()?;
    if rest.contains('!')
        || rest.contains('+') && !rest.contains('[')
        || rest.contains('(')
        || mnemonic == "???"
    {
        return None;
    }
    let machine = match digits.len() {
        16 if mnemonic == "brk" || rest.contains(",x") => {
            // ARM64 words are printed as numbers.
            bytes.reverse();
            Machine::Arm64
        }
        16 => Machine::X64,
        8 => Machine::X86,
        _ => return None,
    };
    let words: Vec<&str> =
        rest.split_whitespace().take_while(|w| !w.contains('=') && !w.contains("::")).collect();
    let text = words.join(" ");
    let plain = rest.trim_start().starts_with(char::is_alphabetic) && !text.contains('{');
    plain.then_some((machine, number, bytes, text))
}

#[test]
fn instructions_of_the_transcripts() {
    let Some(data) = test_data::shared() else { return };
    let mut seen = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(data.join("oracle")).unwrap().flatten() {
        for text in String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).lines() {
            let Some((machine, address, bytes, expected)) = line(text) else { continue };
            let known = ["add", "mov", "int", "ret", "nop", "test", "inc", "brk"];
            if !known.contains(&expected.split(' ').next().unwrap_or_default()) {
                continue;
            }
            let decoded = code::decode(machine, address, &bytes, None);
            assert_eq!(decoded.bytes.0, bytes, "{text}");
            // WinDbg puts no space after an ARM64 comma and no `ds:` before an absolute x64 address.
            let ours = decoded.text.unwrap().replace(", ", ",").replace(" ds:[", " [").to_lowercase();
            let expected = expected.replace(" ds:[", " [").to_lowercase();
            assert_eq!(ours, expected, "{text}");
            seen.insert((address, bytes));
        }
    }
    println!("{} instructions", seen.len());
    assert!(seen.len() >= 15, "{seen:x?}");
}
