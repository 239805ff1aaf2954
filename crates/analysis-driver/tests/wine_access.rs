//! Our SDDL parser, descriptor reader and access model against Wine's own SDDL parser and
//! `AccessCheck`, on generated descriptors. File rights are compared: Wine's token also holds
//! privileges (taking ownership) and groups of the machine the model leaves out on purpose.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use analysis_driver::{Descriptor, TokenKind, access_of, parse_sddl};
use target::RegionMemory;

const DESCRIPTORS: usize = 400;
/// `FILE_READ_DATA` to `FILE_WRITE_ATTRIBUTES`.
const FILE_BITS: u32 = 0x1ff;

/// The program and Wine's prefix; without the lab the test says that it was not run.
fn lab() -> Option<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (program, prefix) = (root.join("target/live/access_check.exe"), root.join(".lab/prefix"));
    if std::env::var_os("WINDBG_MCP_LAB").is_none() {
        test_data::not_run("wine_access: WINDBG_MCP_LAB is not set (cargo xtask test)");
        return None;
    }
    assert!(program.is_file(), "no {}", program.display());
    Some((program, prefix))
}

fn ask(lines: &[String]) -> Option<Vec<String>> {
    let (program, prefix) = lab()?;
    let mut child = Command::new("wine")
        .arg(program)
        .env("WINEPREFIX", prefix)
        .env("WINEDEBUG", "-all")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = lines.iter().fold(String::new(), |text, line| text + line + "\n");
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answers = text.lines().filter(|line| line.starts_with("sd ") || line.starts_with("refused"));
    Some(answers.map(ToOwned::to_owned).collect())
}

/// A generator that gives the same descriptors on every machine.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const PRINCIPALS: [&str; 14] = [
    "WD",
    "BA",
    "BU",
    "AU",
    "IU",
    "SY",
    "LS",
    "NS",
    "AN",
    "SU",
    "CO",
    "S-1-2-0",
    "S-1-5-21-1-2-3-1000",
    "S-1-5-32-546",
];
const RIGHTS: [&str; 16] = [
    "GA", "GR", "GW", "GX", "GRGW", "FA", "FR", "FW", "FX", "0x1200a0", "0x3", "0x1", "0x2", "CCDC", "RCWD",
    "0x12019f",
];

fn descriptor(choices: &mut Choices) -> (String, bool) {
    let mut text = format!(
        "O:{}G:{}D:{}",
        choices.of(&["SY", "BA"]),
        choices.of(&["SY", "BA"]),
        choices.of(&["", "P", "AI", "PAI"])
    );
    let mut denies_administrators = false;
    for _ in 0..choices.below(7) {
        let kind = choices.of(&["A", "A", "A", "D"]);
        let flags = choices.of(&["", "", "", "IO", "OICI", "CIIO"]);
        let who = choices.of(&PRINCIPALS);
        denies_administrators |= kind == "D" && who == "BA";
        text.push_str(&format!("({kind};{flags};{};;;{who})", choices.of(&RIGHTS)));
    }
    (text, denies_administrators)
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn verdicts_equal_access_check_and_text_equals_binary() {
    let mut choices = Choices(40);
    let cases: Vec<(String, bool)> = (0..DESCRIPTORS).map(|_| descriptor(&mut choices)).collect();
    let lines: Vec<String> = cases.iter().map(|(text, _)| text.clone()).collect();
    let Some(answers) = ask(&lines) else { return };
    assert_eq!(answers.len(), cases.len());
    let (mut granted, mut refused) = (0, 0);
    for ((text, denies_administrators), answer) in cases.iter().zip(&answers) {
        let fields: Vec<&str> = answer.split(' ').collect();
        let ["sd", hex, admin, "0", user, "0"] = fields[..] else { panic!("{text}: {answer}") };
        let ours = parse_sddl(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut memory = RegionMemory::new();
        memory.add(0x1000, bytes(hex));
        let theirs = Descriptor::read(&memory, 0x1000).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(ours.dacl.as_ref().unwrap().entries, theirs.dacl.as_ref().unwrap().entries, "{text}");
        assert_eq!(
            (&ours.owner, &ours.group, ours.control, ours.dacl_state),
            (&theirs.owner, &theirs.group, theirs.control, theirs.dacl_state),
            "{text}"
        );
        let mask = |hex: &str| u32::from_str_radix(hex, 16).unwrap() & FILE_BITS;
        let model = |token| access_of(&ours, token).granted.0 & FILE_BITS;
        assert_eq!(model(TokenKind::Admin), mask(admin), "admin: {text}");
        // Wine's restricted token holds Administrators for denying only; the model's user is no member.
        if !denies_administrators {
            assert_eq!(model(TokenKind::StandardUser), mask(user), "user: {text}");
        }
        if mask(user) != 0 { granted += 1 } else { refused += 1 }
    }
    assert!(
        granted > 100 && refused > 50,
        "the descriptors say little: {granted} granted, {refused} refused"
    );
}
