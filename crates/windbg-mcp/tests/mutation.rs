//! Mutated copies of small dumps and PDBs, each opened and questioned over MCP: the server must
//! survive, every call must answer within 10 s, no worker may pass 1 GiB.
//!
//! `WINDBG_MCP_MUTATIONS` sets how many (100 by default, 2,000 under `cargo xtask test`),
//! `WINDBG_MCP_MUTATION_SEED` which.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

mod stdio;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use stdio::Server;

const MEMORY_BOUND_KIB: u64 = 1024 * 1024;

/// xorshift64*: the same mutants on every machine.
struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.next() >> 16) % bound.max(1) as u64).unwrap()
    }
}

/// Flips bytes, plants extreme values, moves blocks, cuts the end.
fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    // Half of all edits go to the first 8 KiB, where the headers and directories are.
    // Few edits leave most structures whole; many of them meet each other.
    let most = if random.below(4) == 0 { 256 } else { 8 };
    for _ in 0..=random.below(most) {
        let reach = if random.below(2) == 0 { out.len().min(8192) } else { out.len() };
        let at = random.below(reach);
        match random.below(5) {
            0 => out[at] ^= 1 << random.below(8),
            1 => {
                let extreme = [0u32, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff0][random.below(6)];
                for (target, byte) in out[at..].iter_mut().zip(extreme.to_le_bytes()) {
                    *target = byte;
                }
            }
            2 => {
                let length = random.below(256).min(out.len() - at);
                let from = random.below(out.len() - length + 1);
                out.copy_within(from..from + length, at);
            }
            3 => out[at] = random.below(256) as u8,
            _ if random.below(most) == 0 => out.truncate(at.max(16)),
            _ => out[at] = 0xff,
        }
    }
    out
}

/// Files side by side in a folder, one of them mutated, the first one opened.
struct Subject {
    /// Source and the name it gets.
    files: Vec<(PathBuf, String)>,
    mutated: usize,
}

impl Subject {
    fn alone(path: PathBuf) -> Self {
        Self::beside(&[path], 0)
    }
    fn beside(paths: &[PathBuf], mutated: usize) -> Self {
        let name = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            // The one PDB of `data/` that does not have its own name.
            if name == "llvm_sigsegv_x64.pdb" { "sigsegv.pdb".to_owned() } else { name.to_owned() }
        };
        Self { files: paths.iter().map(|path| (path.clone(), name(path))).collect(), mutated }
    }
}

const ISF: &str = "isf/ntkrnlmp_10.0.19041.804_5278AFF86C341677D7D7835C85B7B844-1.json.xz";

/// Dumps that are mutated themselves, and images that are.
const ALONE: &[&str] = &[
    "user/bp_exec_av_on_stack.dmp",
    "user/bp_minidump2.dmp",
    "user/bp_null_read_av.dmp",
    "user/bp_stack_exhaustion.dmp.xz",
    "user/bp_tiny-exe-fastfail.dmp",
    "user/bp_tiny-exe-with-cet-xsave-x86.dmp",
    "user/crash_x86/crash_x86.dmp",
    "user/forged_arm64/forged_arm64.dmp",
    "user/kd_wow64_release/wow64_release_mini.dmp",
    "user/kd_allreg_amd64/targetapp_test_cv_allreg_amd64.cab",
    "user/kt2/kt2_vector_oob_debugbreak_x64.dmp",
    "user/llvm_sigsegv_x64.dmp",
    "user/rm_invalid_parameter_x64.dmp",
    "synthetic/syn_full_x64.dmp",
    "synthetic/syn_bmp5_x64.dmp",
    "synthetic/syn_rdmp8_x64.dmp",
    "kernel/full_header_only_19045.dmp",
    "kernel/triage_arm32_17134.cab",
    "kernel/triage_arm64_17134_e2.cab",
    "kernel/triage_x64_19041_7e.dmp",
    "pe/cfi_chained_loop.exe",
    "pe/fpo_x86/basic32-min.dll",
];

/// A dump or image and what lies beside it, each of which is mutated in turn.
const BESIDE: &[&[&str]] = &[
    &["user/crash_x86/crash_x86.dmp", "user/crash_x86/crash.exe", "user/crash_x86/crash.pdb"],
    &["user/forged_arm64/forged_arm64.dmp", "user/forged_arm64/xcpt4.exe", "user/forged_arm64/xcpt4.pdb"],
    &["user/kd_allreg_amd64/targetapp_test_cv_allreg_amd64.cab", "user/kd_allreg_amd64/targetapp.pdb"],
    &["user/llvm_sigsegv_x64.dmp", "user/llvm_sigsegv_x64.pdb"],
    &[
        "user/cxx_eh_x64/cxx_eh_x64.dmp.xz",
        "user/cxx_eh_x64/CrashWithException.exe",
        "user/cxx_eh_x64/CrashWithException.pdb",
    ],
    &[
        "synthetic/syn_bmp6_x64.dmp",
        "synthetic/ntkrnlmp.exe",
        "synthetic/ntkrnlmp.pdb",
        "synthetic/myfault.sys",
        "synthetic/myfault.pdb",
    ],
    &["kernel/triage_x64_19041_7e.dmp", ISF],
    &["pe/ms_seh/x86/xcpt4.exe", "pe/ms_seh/x86/xcpt4.pdb"],
    &["pe/ms_seh/x64/nested_collided.exe", "pe/ms_seh/x64/nested_collided.pdb"],
    &["pe/llvm_types/test-pdb-types.exe", "pe/llvm_types/test-pdb-types.pdb"],
    &["pe/fpo_x86/basic32-min.dll", "pe/fpo_x86/basic32-min.pdb"],
];

fn subjects() -> Vec<Subject> {
    let own = |names: &[&str]| names.iter().map(|name| test_data::fixture(name)).collect::<Vec<_>>();
    let (user, kernel) =
        (own(&["crash.dmp", "crash.exe", "crash.pdb"]), own(&["kernel.dmp", "ntkrnlmp.exe", "ntkrnlmp.pdb"]));
    let mut subjects = vec![Subject::alone(test_data::fixture("crash.exe"))];
    for files in [&user, &kernel] {
        subjects.extend((0..files.len()).map(|mutated| Subject::beside(files, mutated)));
    }
    let Some(data) = test_data::shared() else { return subjects };
    subjects.extend(ALONE.iter().map(|name| Subject::alone(data.join(name))));
    for names in BESIDE {
        let files: Vec<PathBuf> = names.iter().map(|name| data.join(name)).collect();
        subjects.extend((1..files.len()).map(|mutated| Subject::beside(&files, mutated)));
    }
    subjects
}

fn peak_kib(pid: u64) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// A file's bytes; those of an `.xz` unpacked, so that what is inside is mutated too.
fn source(path: &Path, random: &mut Random) -> (Vec<u8>, bool) {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_none_or(|e| e != "xz") || random.below(4) == 0 {
        return (bytes, false);
    }
    let mut unpacked = Vec::new();
    liblzma::read::XzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).unwrap();
    (unpacked, true)
}

fn write_mutant(subject: &Subject, folder: &Path, random: &mut Random) -> PathBuf {
    let mut opened = None;
    for (index, (path, name)) in subject.files.iter().enumerate() {
        let mut to = folder.join(name);
        if index == subject.mutated {
            let (bytes, unpacked) = source(path, random);
            if unpacked {
                to.set_extension("");
            }
            std::fs::write(&to, mutate(&bytes, random)).unwrap();
        } else {
            std::fs::copy(path, &to).unwrap();
        }
        opened.get_or_insert(to);
    }
    opened.unwrap()
}

/// What a WinDbg user types next; each may fail, none may take long or be a fault of ours.
const COMMANDS: &[&str] = &[
    "vertarget",
    ".exr -1",
    "r",
    "lmv",
    "~*k",
    ".ecxr; k; dv",
    ".frame 1; dv; r",
    ".frame 3; dv",
    "!address @$ip",
    "!address",
    "ln @$ip; u @$ip",
    "dps @$csp L40",
    "x *!*",
    "x nt!*Process*",
    "x /D /f crash!*",
    "dt *!*",
    "dt crash!Order @$csp",
    "dt -r3 nt!_EPROCESS @$csp",
    "dt -r2 nt!_KTHREAD",
    "dt -r9 ntdll!_PEB @$peb",
    "dt xcpt4!_iobuf; dt xcpt4!*; dt -r4 xcpt4!_tiddata 0",
    "!process 0 0",
    "!thread",
    "s -a @$csp L1000 \"MZ\"",
    "? crash!ShipOrder+4",
];

/// Opens one mutant and asks everything of it. Returns whether it opened.
fn question(server: &mut Server, path: &Path) -> bool {
    let arguments = json!({ "path": path, "symbol_path": path.parent() });
    let opened = server.call("open_dump", arguments)["structuredContent"].clone();
    if opened["status"] == "ok" {
        let session = opened["session_id"].clone();
        let commands = COMMANDS.iter().map(|command| ("execute", json!({ "command": command })));
        let tools = [
            ("crash_triage", json!({})),
            ("exception_triage", json!({})),
            ("modules", json!({})),
            ("threads", json!({})),
            ("backtrace", json!({ "frames": 64 })),
            ("disassemble", json!({ "count": 8 })),
        ];
        for (tool, mut arguments) in tools.into_iter().chain(commands) {
            arguments["session_id"] = session.clone();
            let answer = server.call(tool, arguments);
            let category = &answer["structuredContent"]["error"]["category"];
            assert_ne!(category, "internal", "{tool} on {}: {answer}", path.display());
        }
        let status = server.call("session_status", json!({ "session_id": session }));
        let pid = status["structuredContent"]["sessions"][0]["engine_pid"].as_u64();
        if let Some(peak) = pid.and_then(peak_kib) {
            assert!(peak <= MEMORY_BOUND_KIB, "{} took {peak} KiB", path.display());
        }
        server.call("end_session", json!({ "session_id": session }));
        return true;
    }
    assert!(opened["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{opened}");
    false
}

#[test]
fn mutants_cost_a_call_or_a_session_never_the_server() {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|t| t.parse().ok()).unwrap_or(default);
    let count = number("WINDBG_MCP_MUTATIONS", 100) as u32;
    let seed = number("WINDBG_MCP_MUTATION_SEED", 1);
    let subjects = subjects();
    let opened = AtomicU32::new(0);
    let (next, failed) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut server = Server::start();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let mixed = (seed << 32 | u64::from(index)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let folder = tempfile::tempdir().unwrap();
                    let subject = &subjects[index as usize % subjects.len()];
                    let path = write_mutant(subject, folder.path(), &mut Random(mixed | 1));
                    let ask = std::panic::AssertUnwindSafe(|| question(&mut server, &path));
                    match std::panic::catch_unwind(ask) {
                        Ok(true) => drop(opened.fetch_add(1, Ordering::Relaxed)),
                        Ok(false) => {}
                        Err(_) => {
                            let kept = folder.keep();
                            eprintln!("mutant {index} of seed {seed} is kept in {}", kept.display());
                            failed.fetch_add(1, Ordering::Relaxed);
                            server = Server::start();
                        }
                    }
                }
            });
        }
    });
    let (opened, failed) = (opened.into_inner(), failed.into_inner());
    assert_eq!(failed, 0, "mutants of {count} (seed {seed}) that failed; see above");
    println!("{count} mutants (seed {seed}): {opened} opened, {} refused, the server lived", count - opened);
    assert!(opened * 10 > count, "hardly any mutant opens: the mutations test nothing");
}
