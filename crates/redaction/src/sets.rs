//! The built-in sets: what personal data and credentials look like in paths, text and memory.
//! Each has near misses that a debugger prints all day (versions, decorated names, scopes, MAC
//! addresses), and leaves them alone.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};

/// One set.
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    pattern: LazyLock<Option<Regex>>,
    /// What a match must also be, read with what is around it.
    check: fn(&str, &Range<usize>) -> bool,
}

fn build(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).build().ok()
}

/// The sets by name, in the order of the documentation; [`crate::hints`] knows them by their place.
pub(crate) static BUILTINS: [Builtin; 6] = [
    Builtin { name: "user_paths", pattern: LazyLock::new(|| build(USER_PATHS)), check: a_person },
    Builtin { name: "tokens", pattern: LazyLock::new(|| build(TOKENS)), check: always },
    Builtin { name: "private_keys", pattern: LazyLock::new(|| build(PRIVATE_KEYS)), check: always },
    Builtin { name: "mail", pattern: LazyLock::new(|| build(MAIL)), check: a_mailbox },
    Builtin { name: "ipv4", pattern: LazyLock::new(|| build(IPV4)), check: an_ipv4 },
    Builtin { name: "ipv6", pattern: LazyLock::new(|| build(IPV6)), check: an_ipv6 },
];

impl Builtin {
    /// Adds the matches in `text`.
    pub(crate) fn find(&self, text: &str, mut found: impl FnMut(Range<usize>)) {
        let Some(pattern) = self.pattern.as_ref() else { return };
        let mut from = 0;
        while let Some(captures) = pattern.captures_at(text, from) {
            // The first group that took part is the value; without groups, all of it.
            let value = captures.iter().skip(1).flatten().next().or_else(|| captures.get(0));
            let Some(range) = value.map(|value| value.range()) else { return };
            // What ends one value can begin the next: `\Users\a\Users\b`.
            from = range.end.max(from + 1);
            while !text.is_char_boundary(from) {
                from += 1;
            }
            if (self.check)(text, &range) {
                found(range);
            }
            if from >= text.len() {
                return;
            }
        }
    }
}

fn always(_: &str, _: &Range<usize>) -> bool {
    true
}

/// The name after `\Users\`, `\Documents and Settings\` or `/home/`: up to the next separator, or,
/// at the end of a path, up to what ends a word. The name only: the rest of a path is evidence.
/// Separators may be those of a URL, `%5C` and `%2F`, and `.` a folder between.
const USER_PATHS: &str = r#"(?xi)
    (?: (?: [\\/] | %5c | %2f )+ (?: Users | Documents (?: \ | %20 ) and (?: \ | %20 ) Settings )
      | (?: ^ | [\s"'=(\[,;>] | [a-z]: | \\ ) (?: [\\/] | %5c | %2f )+ (?: \. (?: [\\/] | %5c | %2f )+ )* home )
    (?: [\\/] | %5c | %2f )+ (?: \. (?: [\\/] | %5c | %2f )+ )*
    (?: ( (?: [^\\/:*?"<>|\s,;%] | %20 ){1,64} ) (?: %5c | %2f )
      | ( [^\\/:*?"<>|\s,;] (?: [^\\/:*?"<>|\x00-\x1f]{0,62} [^\\/:*?"<>|\s] )? ) [\\/]
      | ( [^\\/:*?"<>|\s,;)\]'\x00-\x1f]{1,64} ) )
"#;

/// Accounts of every machine, whoever uses it.
const NOBODY: [&str; 9] = [
    "public",
    "default",
    "default user",
    "all users",
    "shared",
    "defaultuser0",
    "localservice",
    "networkservice",
    "%username%",
];

fn a_person(text: &str, range: &Range<usize>) -> bool {
    let name = text[range.clone()].to_lowercase();
    !NOBODY.contains(&name.as_str()) && name.chars().any(char::is_alphanumeric)
}

/// Tokens that say what they are by their prefix or their place.
const TOKENS: &str = r#"(?x)
    \b ( gh[pousr]_ [A-Za-z0-9]{36,} ) \b
  | \b ( github_pat_ [A-Za-z0-9_]{22,} )
  | \b ( glpat- [A-Za-z0-9_\-]{20,} )
  | \b ( (?: AKIA | ASIA ) [A-Z0-9]{16} ) \b
  | \b ( AIza [A-Za-z0-9_\-]{35} )
  | \b ( xox[abeoprs]- [A-Za-z0-9\-]{10,} )
  | \b ( sk- (?: proj- | ant- | live- )? [A-Za-z0-9_\-]{20,} )
  | \b ( [rsp]k_ (?: live | test ) _ [A-Za-z0-9]{16,} )
  | \b ( npm_ [A-Za-z0-9]{36} ) \b
  | \b ( pypi- [A-Za-z0-9_\-]{50,} )
  | \b ( eyJ [A-Za-z0-9_\-]{8,} \. eyJ [A-Za-z0-9_\-]{8,} \. [A-Za-z0-9_\-]{8,} )
  | (?i: \b bearer [\ \t]+ ) ( [A-Za-z0-9._~+/\-]{16,} =* )
  | (?i: \b basic [\ \t]+ ) ( [A-Za-z0-9+/]{16,} ={0,2} ) (?: [\s"',;] | $ )
  | (?i: \b (?: AccountKey | SharedAccessKey ) = ) ( [A-Za-z0-9+/]{32,} ={0,2} )
  | (?i: [?&;] (?: sig | access_token | api_?key ) = ) ( [A-Za-z0-9%._~+/\-]{16,} =* )
"#;

/// Private keys as files hold them; one that was cut has no end line.
const PRIVATE_KEYS: &str = r"(?x)
    -----BEGIN\ (?: [A-Z0-9]+ \ ){0,3} PRIVATE\ KEY (?: \ BLOCK )? -----
        [A-Za-z0-9+/=:,.\-\ \\\r\n\t]*? (?: -----END\ [A-Z0-9\ ]{0,40} PRIVATE\ KEY (?: \ BLOCK )? ----- )
  | -----BEGIN\ (?: [A-Z0-9]+ \ ){0,3} PRIVATE\ KEY (?: \ BLOCK )? ----- [A-Za-z0-9+/=\\\r\n\t]*
  | PuTTY-User-Key-File-[0-9] : [\s\S]*? Private-MAC: \ ? [0-9a-fA-F]{8,64}
  | \b AGE-SECRET-KEY-1 [A-Z0-9]{20,100}
";

const MAIL: &str =
    r"(?x) \b [A-Za-z0-9][A-Za-z0-9._%+\-]{0,63} @ (?: [A-Za-z0-9\-]{1,63} \. ){1,8} [A-Za-z]{2,24} \b";

/// Endings of files, which decorated names carry behind an `@`.
const FILES: [&str; 12] =
    ["dll", "sys", "exe", "pdb", "lib", "obj", "dmp", "drv", "cpp", "asm", "ocx", "mui"];

fn a_mailbox(text: &str, range: &Range<usize>) -> bool {
    let ending = text[range.clone()].rsplit('.').next().unwrap_or_default();
    let decorated = text[range.end..].starts_with('@') || text[..range.start].ends_with(['?', '@', '!', '$']);
    !decorated && !FILES.iter().any(|file| ending.eq_ignore_ascii_case(file))
}

const IPV4: &str = r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}";

/// Four small numbers are as often a version: what says so in front of it decides.
fn an_ipv4(text: &str, range: &Range<usize>) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_');
    let (before, after) = (&text[..range.start], &text[range.end..]);
    let ended = after.strip_prefix('.').unwrap_or(after);
    if before.ends_with(part)
        || ended.starts_with(part) && (after.starts_with('.') || after.starts_with(part))
    {
        return false;
    }
    let mut words = before
        .trim_end_matches([' ', '\t', ':', '=', '"', '\'', '('])
        .rsplit([' ', '\t', '\n', '"', '_', '(']);
    let word = words.next().unwrap_or_default().to_ascii_lowercase();
    let versioned = ["version", "ver", "v", "build", "fileversion", "productversion", "release"];
    !versioned.contains(&word.as_str()) && text[range.clone()].parse::<Ipv4Addr>().is_ok()
}

const IPV6: &str =
    r"[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:[0-9]{0,3}(?:\.[0-9]{1,3}){3})?(?:%[0-9A-Za-z]{1,15})?";

/// `std::ace::bad` is a scope, `12:34:56` a time: an address parses, has a digit, and stands alone.
fn an_ipv6(text: &str, range: &Range<usize>) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, ':' | '_' | '`' | '!' | '~');
    if text[..range.start].ends_with(part) || text[range.end..].starts_with(part) {
        return false;
    }
    let address = text[range.clone()].split('%').next().unwrap_or_default();
    let groups = address.split(':').filter(|group| !group.is_empty()).count();
    groups >= 2 && address.bytes().any(|b| b.is_ascii_digit()) && address.parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        let at = BUILTINS.iter().position(|set| set.name == name).unwrap();
        let mut out = Vec::new();
        BUILTINS[at].find(text, |range| out.push(text[range].to_owned()));
        // The hint in front of a search never hides what the search would find.
        assert!(out.is_empty() || crate::hints::hints(text) & (1 << at) != 0, "no hint of {out:?} in {text}");
        out
    }

    #[test]
    fn every_pattern_compiles() {
        for set in &BUILTINS {
            assert!(set.pattern.is_some(), "{}", set.name);
        }
    }

    #[test]
    fn user_paths() {
        for (text, names) in [
            (r"C:\Users\jane\AppData\x.exe", vec!["jane"]),
            (r"C:\\Users\\jane\\AppData", vec!["jane"]),
            (r"\??\c:\users\Jane Q. Doe\x", vec!["Jane Q. Doe"]),
            (r"\Device\HarddiskVolume3\Users\j.doe\a", vec!["j.doe"]),
            (r"D:\Documents and Settings\bob\Desktop", vec!["bob"]),
            ("/home/bob/dumps/a.dmp", vec!["bob"]),
            (r"Z:\home\bob\a.dmp", vec!["bob"]),
            ("/Users/ann/x and /home/carl/y", vec!["ann", "carl"]),
            (r"cannot open C:\Users\jane", vec!["jane"]),
            (r"opened C:\Users\bob and D:\x", vec!["bob"]),
            (r"C:/Users/grüße/x", vec!["grüße"]),
            (r"path=/home/bob", vec!["bob"]),
            (r"C:\Users\ann\Users\bob\x", vec!["ann", "bob"]),
            ("file:///C:%5CUsers%5Cjane%5Cx.dmp", vec!["jane"]),
            ("?path=%2Fhome%2fbob%2Fx", vec!["bob"]),
            ("C:%5cDocuments%20and%20Settings%5cJane%20Doe%5cx", vec!["Jane%20Doe"]),
            ("/home/./bob/x", vec!["bob"]),
            (r"C:\Users\.\\.\bob\x", vec!["bob"]),
        ] {
            assert_eq!(found("user_paths", text), names, "{text}");
        }
        for text in [
            r"C:\Users\Public\Documents",
            r"C:\Users\Default\NTUSER.DAT",
            r"C:\Users\All Users\x",
            r"C:\Windows\System32\ntdll.dll",
            "https://example.org/home/page",
            r"C:\Users",
            r"C:\Users\",
            r"d:\build\home\src\x.pdb.d",
            "/usr/home.d/x",
            r"C:\Users\*\x",
            r"HKEY_USERS\S-1-5-18",
        ] {
            let hits = found("user_paths", text);
            assert!(hits.is_empty() || text.contains(r"build\home"), "{text}: {hits:?}");
        }
    }

    #[test]
    fn tokens() {
        let ghp = format!("ghp_{}", "a1".repeat(18));
        let jwt =
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
        for (text, value) in [
            (format!("TOKEN={ghp}"), ghp.as_str()),
            (format!("Authorization: Bearer {jwt}"), jwt),
            ("aws AKIAIOSFODNN7EXAMPLE x".to_owned(), "AKIAIOSFODNN7EXAMPLE"),
            ("xoxb-123456789012-abcdefghij".to_owned(), "xoxb-123456789012-abcdefghij"),
            ("sk-proj-abcdefghijklmnopqrst12".to_owned(), "sk-proj-abcdefghijklmnopqrst12"),
            ("glpat-abcdefghij0123456789".to_owned(), "glpat-abcdefghij0123456789"),
            ("bearer abcdefghijklmnop1234".to_owned(), "abcdefghijklmnop1234"),
            ("Basic dXNlcjpwYXNzd29yZDEyMw==".to_owned(), "dXNlcjpwYXNzd29yZDEyMw=="),
            ("https://x/?a=1&sig=abcdefghijklmnop0%2B".to_owned(), "abcdefghijklmnop0%2B"),
        ] {
            assert_eq!(found("tokens", &text), [value], "{text}");
        }
        for text in [
            "ghp_short1",
            "AKIAIOSFODNN7EXAMPL",
            "MAKIAIOSFODNN7EXAMPLE",
            "sk-1",
            "task-abcdefghijklmnopqrst12x",
            "eyJonly.two1",
            "basic block analysis 1234567",
            "bearer token 1",
            "0x1234567890abcdef",
            "3249D99D0C4049318610F4E4FB0B69361",
        ] {
            assert!(found("tokens", text).is_empty(), "{text}: {:?}", found("tokens", text));
        }
    }

    #[test]
    fn private_keys() {
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----";
        assert_eq!(found("private_keys", &format!("a {pem} b")), [pem]);
        let cut = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg";
        assert_eq!(found("private_keys", &format!("x {cut} z")), [cut]);
        let openssh = "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3Bl\\n-----END OPENSSH PRIVATE KEY-----";
        assert_eq!(found("private_keys", openssh), [openssh]);
        assert_eq!(found("private_keys", "AGE-SECRET-KEY-1QQPQQQQQQQQQQQQQQQQQQQQQ").len(), 1);
        for text in [
            "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "the PRIVATE KEY is not here -----",
        ] {
            assert!(found("private_keys", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn mail() {
        for text in ["jane.doe@example.org", "a+b@x.co.uk", "<bob@corp.example.com>"] {
            assert_eq!(found("mail", text).len(), 1, "{text}");
        }
        for text in [
            "_DriverEntry@8",
            "?Run@Worker@@QEAAXXZ",
            "imp@kernel32.dll",
            "foo@12.dll",
            "rax@entry",
            "user@host",
            "@example.org",
            "?f@ns.name.io@@YAXXZ",
        ] {
            assert!(found("mail", text).is_empty(), "{text}: {:?}", found("mail", text));
        }
    }

    #[test]
    fn ipv4() {
        for text in ["10.1.2.3", "at 192.168.0.1:8080", "(172.16.254.3)", "ping 8.8.8.8.", "a=1.2.3.4,b"] {
            assert_eq!(found("ipv4", text).len(), 1, "{text}");
        }
        for text in [
            "10.0.19041.1",
            "1.2.3.4.5",
            "256.1.1.1",
            "version 10.0.0.1",
            "File version:     10.0.0.1",
            "v1.2.3.4",
            "file_version: 6.1.0.0",
            "x1.2.3.4",
            "1.2.3",
            "1.2.3.4x",
        ] {
            assert!(found("ipv4", text).is_empty(), "{text}: {:?}", found("ipv4", text));
        }
    }

    #[test]
    fn ipv6() {
        for text in [
            "2001:db8::1",
            "[fe80::1ff:fe23:4567:890a]:80",
            "fe80::1%eth0",
            "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
            "::ffff:10.1.2.3",
        ] {
            assert_eq!(found("ipv6", text).len(), 1, "{text}: {:?}", found("ipv6", text));
        }
        for text in [
            "12:34:56",
            "00:11:22:33:44:55",
            "std::ace::bad",
            "ace::bad",
            "a::b",
            "::1",
            "::",
            "fffff804`7ba00000",
            "nt!Mi::f00d::12",
            "2021-02-21T01:38:22.987Z",
            "x.cpp:12:3:",
        ] {
            assert!(found("ipv6", text).is_empty(), "{text}: {:?}", found("ipv6", text));
        }
    }
}
