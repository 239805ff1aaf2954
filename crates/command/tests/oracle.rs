//! Commands over the real dumps of the test data, line by line against DbgEng's transcripts. Layout is
//! compared on purpose: it is what makes the output recognisable.
#![allow(clippy::unwrap_used)]

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use command::Session;
use engine_native::OpenOptions;
use target::{Halt, Target};

/// A dump opened with its folder as symbol path, packed PDBs unpacked.
struct Case {
    target: Box<dyn Target>,
    transcript: String,
    _unpacked: tempfile::TempDir,
}

fn open(data: &Path, dump: &str) -> Case {
    let path = data.join(dump);
    let folder = path.parent().unwrap();
    let unpacked = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if let Some(plain) = name.strip_suffix(".pdb.xz") {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(entry.path()).unwrap();
            liblzma::read::XzDecoder::new(file).read_to_end(&mut bytes).unwrap();
            std::fs::write(unpacked.path().join(format!("{plain}.pdb")), bytes).unwrap();
        }
    }
    let symbols = format!("{};{}", folder.display(), unpacked.path().display());
    let options = OpenOptions { symbol_path: Some(symbols), ..OpenOptions::default() };
    let transcript =
        std::fs::read_to_string(data.join("oracle").join(format!("{}.txt", dump.replace('/', "_")))).unwrap();
    Case { target: engine_native::open(&path, &options).unwrap(), transcript, _unpacked: unpacked }
}

impl Case {
    /// What DbgEng printed for the first run of a command, its chatter about symbols left out.
    fn theirs(&self, command: &str) -> Vec<String> {
        let start = format!("---- {command}");
        let lines = self.transcript.lines().skip_while(|l| *l != start).skip(1);
        lines
            .take_while(|l| !l.starts_with("=> "))
            .map(|l| l.trim_end().to_owned())
            .filter(|l| {
                !l.starts_with("***")
                    && !l.starts_with("No export ")
                    && !l.starts_with("Unable to ")
                    && !l.starts_with("Machine Name")
            })
            .collect()
    }
    fn ours(&self, command: &str) -> Vec<String> {
        let mut session = Session::new();
        let output = session.execute(&*self.target, command, &Halt::within(Duration::from_secs(30)));
        let text = output.map_or_else(|e| format!("ERROR {e}"), |o| o.text);
        text.lines().map(|l| l.trim_end().to_owned()).filter(|l| !l.starts_with("  debugger time")).collect()
    }
}

const DUMPS: [&str; 15] = [
    "user/bp_exec_av_on_stack.dmp",
    "user/bp_minidump2.dmp",
    "user/bp_null_read_av.dmp",
    "user/bp_stack_exhaustion.dmp.xz",
    "user/bp_tiny-exe-fastfail.dmp",
    "user/crash_x86/crash_x86.dmp",
    "user/cxx_eh_x64/cxx_eh_x64.dmp.xz",
    "user/forged_arm64/forged_arm64.dmp",
    "user/kd_x64_release/targetapp_stacktest_x64_release.cab",
    "user/llvm_sigsegv_x64.dmp",
    "user/rm_invalid_parameter_x64.dmp",
    "kernel/triage_x64_19041_7e.dmp",
    "kernel/triage_arm64_17134_e2.cab",
    "synthetic/syn_full_x64.dmp",
    "synthetic/syn_bmp5_x64.dmp",
];

/// DbgEng had the Wine images this dump was made with, and so the names of their exports.
const WITHOUT_IMAGES: &str = "user/cxx_eh_x64/cxx_eh_x64.dmp.xz";

/// Both sides of one command, reduced by `keep`, for every dump.
fn compare(command: &str, keep: impl Fn(&str, Vec<String>) -> Vec<String>, accepted: &[&str]) {
    let Some(data) = test_data::shared() else { return };
    let mut differences = String::new();
    for dump in DUMPS {
        let case = open(&data, dump);
        let theirs = keep(dump, case.theirs(command));
        if theirs.is_empty() || accepted.contains(&dump) {
            continue;
        }
        let ours = keep(dump, case.ours(command));
        if ours != theirs {
            differences.push_str(&format!(
                "{dump} {command}\n--- DbgEng\n{}\n--- ours\n{}\n",
                theirs.join("\n"),
                ours.join("\n")
            ));
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn last_event_reads_as_dbgengs() {
    compare(".lastevent", |_, lines| lines, &[]);
}

#[test]
fn exception_records_read_as_dbgengs() {
    compare(".exr -1", |_, lines| lines, &[WITHOUT_IMAGES]);
}

#[test]
fn bug_checks_and_machines_read_as_dbgengs() {
    compare(".bugcheck", |_, lines| lines, &[]);
    compare(".effmach", |_, lines| lines, &[]);
}

#[test]
fn the_target_reads_as_dbgengs() {
    // Suites, kernel32's version and processor times are not among a target's facts.
    let keep = |_: &str, lines: Vec<String>| {
        lines
            .into_iter()
            .filter(|l| !l.starts_with("  Kernel time") && !l.starts_with("  User time"))
            .filter(|l| !l.contains(".dll version:"))
            .map(|l| l.split(", suite:").next().unwrap().to_owned())
            .map(|l| l.split(" PsLoadedModuleList").next().unwrap().to_owned())
            .collect()
    };
    // A USERDU64 header holds no time, processors or product.
    compare("vertarget", keep, &["user/kd_x64_release/targetapp_stacktest_x64_release.cab"]);
}

#[test]
fn registers_of_the_exception_read_as_dbgengs() {
    // DbgEng's parity word follows other flags on x64: 246 is `po`, 206 is `pe`.
    let keep = |_: &str, lines: Vec<String>| {
        lines
            .into_iter()
            .map(|l| l.replace(" po ", " p? ").replace(" pe ", " p? "))
            // Between an instruction and its operand's value DbgEng leaves one blank or two.
            .map(|l| l.replace("]  ds:", "] ds:").replace(",eax  ds:", ",eax ds:"))
            .collect()
    };
    // yaxpeax writes immediates in lower case.
    compare(".ecxr", keep, &["user/forged_arm64/forged_arm64.dmp", WITHOUT_IMAGES]);
}

#[test]
fn modules_read_as_dbgengs() {
    // Which symbols are loaded at this moment differs by what was asked before.
    let keep = |_: &str, lines: Vec<String>| {
        lines.into_iter().map(|l| l.split(['(', ' ']).take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    compare("lm", keep, &[]);
}

/// Rows of a stack as `site -> the columns before it`, the first of each site.
fn columns(lines: &[String]) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for line in lines.iter().filter(|l| !l.starts_with([' ', 'W']) && !l.starts_with("Child")) {
        let Some((at, _)) = line.match_indices(' ').find(|(i, _)| line[..*i].contains(' ')) else {
            continue;
        };
        let (columns, site) = if line.starts_with("(Inline Function)") {
            line.split_at(line.rmatch_indices("-- ").next().map_or(at, |(i, _)| i + 2))
        } else {
            line.split_at(at)
        };
        if !rows.iter().any(|(known, _)| known == site.trim()) {
            rows.push((site.trim().to_owned(), columns.to_owned()));
        }
    }
    rows
}

#[test]
fn the_columns_of_a_stack_are_dbgengs() {
    let Some(data) = test_data::shared() else { return };
    let (mut compared, mut differences) = (0, String::new());
    // Its threads wait in x86 code without images, where both guess.
    for dump in DUMPS.iter().filter(|dump| **dump != "user/crash_x86/crash_x86.dmp") {
        let case = open(&data, dump);
        let stack: Vec<String> = case
            .transcript
            .lines()
            .skip_while(|l| !l.starts_with("---- .ecxr") && !l.starts_with("---- k"))
            .skip_while(|l| !l.starts_with("---- k"))
            .skip(1)
            .take_while(|l| !l.starts_with("=> "))
            .map(|l| l.trim_end().to_owned())
            .collect();
        let command = if case.transcript.contains("---- .ecxr") { ".ecxr; kL" } else { "kL" };
        let command = if stack.first().is_some_and(|l| l.starts_with("  ***")) { command } else { "kL" };
        let ours = columns(&case.ours(command));
        for (site, theirs) in columns(&stack) {
            let Some((_, ours)) = ours.iter().find(|(known, _)| *known == site) else { continue };
            compared += 1;
            // Where our walk ends, DbgEng follows stack words that are no code.
            let ended = ours.ends_with(" 00000000`00000000") || ours.ends_with(" 00000000");
            if *ours != theirs && !ended {
                differences.push_str(&format!("{dump} {site}\n  DbgEng {theirs}\n  ours   {ours}\n"));
            }
        }
    }
    assert!(differences.is_empty(), "{compared} compared\n{differences}");
    assert!(compared >= 30, "only {compared} rows compared");
}

/// Before `.ecxr` a thread's registers are those it was saved with, as in WinDbg.
#[test]
fn registers_before_ecxr_are_the_threads_own() {
    let Some(data) = test_data::shared() else { return };
    for dump in ["user/llvm_sigsegv_x64.dmp", "user/rm_invalid_parameter_x64.dmp", "user/bp_null_read_av.dmp"]
    {
        let case = open(&data, dump);
        let rows = |lines: Vec<String>| {
            lines.into_iter().filter(|l| l.contains("ip=") || l.contains("ax=")).collect::<Vec<_>>()
        };
        let (theirs, ours) = (rows(case.theirs("r")), rows(case.ours("r")));
        assert!(!theirs.is_empty());
        assert_eq!(ours, theirs, "{dump}");
    }
}

#[test]
fn a_stack_overflow_is_collapsed() {
    let Some(data) = test_data::shared() else { return };
    let case = open(&data, "user/bp_stack_exhaustion.dmp.xz");
    let text = case.ours(".ecxr; k 1000").join("\n");
    assert!(text.lines().count() < 30, "{text}");
    let collapsed = text.lines().find(|l| l.contains("repeated")).unwrap();
    let times: u32 = collapsed.split_whitespace().find_map(|w| w.parse().ok()).unwrap();
    assert!(times >= 200, "{text}");
    assert!(text.contains("crashme+0xa6a7"), "{text}");
}

#[test]
fn a_search_skips_what_holds_nothing() {
    let Some(data) = test_data::shared() else { return };
    let case = open(&data, "user/crash_x86/crash_x86.dmp");
    let started = std::time::Instant::now();
    let lines = case.ours("s -d 0 L?3ffffffc 002a2d97");
    assert!(lines.iter().any(|l| l.starts_with("010ff740  002a2d97 ")), "{lines:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// Dumps whose text is not compared above: DbgEng saw them through other eyes (WoW64) or not at all.
const OTHERS: [&str; 9] = [
    "user/bp_tiny-exe-with-cet-xsave-x86.dmp",
    "user/kd_allreg_amd64/targetapp_test_cv_allreg_amd64.cab",
    "user/kd_wow64_release/wow64_release_full_mdmp.dmp.xz",
    "user/kd_wow64_release/wow64_release_mini.dmp",
    "user/kt2/kt2_vector_oob_debugbreak_x64.dmp",
    "kernel/full_header_only_19045.dmp",
    "kernel/triage_arm32_17134.cab",
    "synthetic/syn_bmp6_x64.dmp",
    "synthetic/syn_rdmp8_x64.dmp",
];

#[test]
fn every_command_answers_on_every_dump() {
    let Some(data) = test_data::shared() else { return };
    for dump in DUMPS.iter().chain(&OTHERS) {
        let case = open(&data, dump);
        for command in [
            "k",
            "kvn 3",
            "~",
            "~*k",
            "r",
            "u @$ip L3",
            "ub @$ip L2",
            "uf @$ip",
            "dps @$csp L4",
            "db @$ip L4",
            "dv",
            ".frame 0",
            "ln @$ip",
            "x nt!Ke*",
            "dt nt!_EPROCESS",
            "!address @$ip",
            "lmv",
            ".time",
            "version",
            "|",
            ".sympath",
            "!process 0 0",
            "!thread",
            ".process",
            ".thread",
            "s -d @$csp L20 0",
        ] {
            let started = std::time::Instant::now();
            let lines = case.ours(command);
            assert!(!lines.is_empty() || command.starts_with("s "), "{dump} {command}: nothing");
            assert!(started.elapsed() < Duration::from_secs(10), "{dump} {command}: {:?}", started.elapsed());
        }
    }
}

/// `.` is the current instruction, alone and before a length.
#[test]
fn a_point_is_the_current_instruction() {
    let Some(data) = test_data::shared() else { return };
    let case = open(&data, "user/crash_x86/crash_x86.dmp");
    for (short, long) in [("u . L3", "u @eip L3"), ("ln .", "ln @eip"), ("db . L8", "db @eip L8")] {
        let both = (case.ours(&format!(".ecxr; {short}")), case.ours(&format!(".ecxr; {long}")));
        assert_eq!(both.0, both.1);
        assert!(!both.0.iter().any(|line| line.contains("ERROR")), "{:?}", both.0);
    }
}

/// `dt` of a variable needs neither its type nor its address.
#[test]
fn a_variable_is_seen_through_the_type_it_has() {
    let Some(data) = test_data::shared() else { return };
    let case = open(&data, "user/kd_x64_release/targetapp_stacktest_x64_release.cab");
    let global = case.ours("dt targetapp!g_structTest");
    assert_eq!(global, case.ours("dt targetapp!structTest targetapp!g_structTest"));
    assert_eq!(global, case.ours("dt g_structTest"));
    assert_eq!(global[2], "   +0x004 m_field1         : 0x1f4");
    let pointed = case.ours("dt targetapp!g_structTestPtr m_field1");
    assert_eq!(pointed[1..], ["targetapp!structTest", "   +0x004 m_field1         : 0x1f4"]);
    let characters = case.ours(".ecxr; dt localChars");
    assert_eq!(
        characters[characters.len() - 2..],
        ["Local var @ 0000008f`e1f2fb50 Type char [256]", "[256]  \"Bye\""]
    );
    let unknown = case.ours("dt nosuch");
    assert!(unknown[0].contains("no type named `nosuch`"), "{unknown:?}");
    let member = case.ours("dt targetapp!g_structTest m_none");
    assert_eq!(member, ["ERROR m_none is no member of targetapp!structTest"]);
}

/// The frames commands start from are not the fault's: who asks for locals there is told.
#[test]
fn locals_away_from_the_fault_say_where_it_is() {
    let Some(data) = test_data::shared() else { return };
    let case = open(&data, "user/crash_x86/crash_x86.dmp");
    let refused = case.ours("dv");
    assert!(refused[0].ends_with("`.ecxr` first goes to the fault, `.frame N` to a caller"), "{refused:?}");
}
