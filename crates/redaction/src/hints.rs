//! One look over a text that says which sets can have a match in it at all: most text has none, and
//! searching it six times would cost more than everything else done to a result.

/// Places in `sets::BUILTINS`.
const USER_PATHS: u8 = 1;
const TOKENS: u8 = 1 << 1;
const PRIVATE_KEYS: u8 = 1 << 2;
const MAIL: u8 = 1 << 3;
const IPV4: u8 = 1 << 4;
const IPV6: u8 = 1 << 5;

/// Bytes worth a look.
const LOOKED_AT: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"/\\%@.:_-JAa \t=";
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};

fn starts(bytes: &[u8], word: &[u8]) -> bool {
    bytes.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

fn ends(bytes: &[u8], words: &[&[u8]]) -> bool {
    let one = |word: &&[u8]| {
        bytes.len().checked_sub(word.len()).is_some_and(|from| bytes[from..].eq_ignore_ascii_case(word))
    };
    words.iter().any(one)
}

/// The sets, one bit each, that can have a match in `text`.
pub(crate) fn hints(text: &str) -> u8 {
    let bytes = text.as_bytes();
    let (mut found, mut numbers, mut colons) = (0, 0, 0);
    for (at, &byte) in bytes.iter().enumerate() {
        if !LOOKED_AT[usize::from(byte)] {
            continue;
        }
        let (before, after) = (&bytes[..at], &bytes[at + 1..]);
        found |= match byte {
            b'/' | b'\\' if folder_of_a_person(after) => USER_PATHS,
            b'%' if (starts(after, b"5c") || starts(after, b"2f")) && folder_of_a_person(&after[2..]) => {
                USER_PATHS
            }
            b'@' => MAIL,
            b'.' if before.last().is_some_and(u8::is_ascii_digit)
                && after.first().is_some_and(u8::is_ascii_digit) =>
            {
                numbers += 1;
                if numbers == 3 { IPV4 } else { 0 }
            }
            b':' => {
                colons += 1;
                if colons == 2 { IPV6 } else { 0 }
            }
            b'-' if after.starts_with(b"----") || ends(before, &[b"PuTTY", b"AGE"]) => PRIVATE_KEYS,
            _ if token(byte, before) => TOKENS,
            _ => 0,
        };
    }
    found
}

fn folder_of_a_person(after: &[u8]) -> bool {
    starts(after, b"users") || starts(after, b"home") || starts(after, b"documents")
}

/// The last byte of what tokens begin with, or of what stands before one.
fn token(byte: u8, before: &[u8]) -> bool {
    match byte {
        b'_' => ends(before, &[b"ghp", b"gho", b"ghu", b"ghs", b"ghr", b"pat", b"npm", b"sk", b"rk", b"pk"]),
        b'-' => {
            ends(before, &[b"pat", b"sk", b"pypi"])
                || before.len() >= 4 && ends(&before[..before.len() - 1], &[b"xox"])
        }
        b'J' => before.ends_with(b"ey"),
        b'A' => ends(before, &[b"AKI", b"ASI"]),
        b'a' => before.ends_with(b"AIz"),
        b' ' | b'\t' => ends(before, &[b"bearer", b"basic"]),
        b'=' => ends(before, &[b"key", b"sig", b"token"]),
        _ => false,
    }
}
