//! Mutated copies of small dumps and PDBs, each opened and questioned over MCP: the server must
//! survive, every call must answer within 10 s, no worker may pass 1 GiB.
//!
//! `WINDBG_MCP_MUTATIONS` sets how many (100 by default, 2,000 under `cargo xtask test`),
//! `WINDBG_MCP_MUTATION_SEED` which.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

mod stdio;

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
    for _ in 0..=random.below(8) {
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
            _ if random.below(4) == 0 => out.truncate(at.max(16)),
            _ => out[at] = 0xff,
        }
    }
    out
}

enum Subject {
    Dump(PathBuf),
    /// A PDB beside an untouched dump and image.
    Pdb {
        dump: PathBuf,
        image: PathBuf,
        pdb: PathBuf,
    },
}

fn subjects() -> Vec<Subject> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fixtures = root.join("fixtures");
    let pdb = || Subject::Pdb {
        dump: fixtures.join("crash.dmp"),
        image: fixtures.join("crash.exe"),
        pdb: fixtures.join("crash.pdb"),
    };
    let mut subjects = vec![
        Subject::Dump(fixtures.join("crash.dmp")),
        Subject::Dump(fixtures.join("kernel.dmp")),
        Subject::Dump(fixtures.join("crash.exe")),
        pdb(),
        pdb(),
    ];
    let data = std::env::var_os("WINDBG_MCP_DATA").map_or_else(|| root.join("../shared/data"), PathBuf::from);
    if !data.is_dir() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "../shared/data is absent");
        println!("not run: mutations of ../shared/data, which is absent");
        return subjects;
    }
    for name in [
        "user/bp_minidump2.dmp",
        "user/bp_null_read_av.dmp",
        "user/bp_tiny-exe-fastfail.dmp",
        "user/bp_tiny-exe-with-cet-xsave-x86.dmp",
        "user/crash_x86/crash_x86.dmp",
        "user/forged_arm64/forged_arm64.dmp",
        "user/kd_wow64_release/wow64_release_mini.dmp",
        "user/kd_allreg_amd64/targetapp_test_cv_allreg_amd64.cab",
        "user/llvm_sigsegv_x64.dmp",
        "user/rm_invalid_parameter_x64.dmp",
        "synthetic/syn_full_x64.dmp",
        "synthetic/syn_bmp5_x64.dmp",
        "synthetic/syn_rdmp8_x64.dmp",
        "kernel/triage_arm64_17134_e2.cab",
    ] {
        subjects.push(Subject::Dump(data.join(name)));
    }
    subjects
}

fn peak_kib(pid: u64) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn write_mutant(subject: &Subject, folder: &Path, random: &mut Random) -> PathBuf {
    match subject {
        Subject::Dump(path) => {
            let mutant = folder.join(path.file_name().unwrap());
            std::fs::write(&mutant, mutate(&std::fs::read(path).unwrap(), random)).unwrap();
            mutant
        }
        Subject::Pdb { dump, image, pdb } => {
            for whole in [dump, image] {
                std::fs::copy(whole, folder.join(whole.file_name().unwrap())).unwrap();
            }
            let mutant = mutate(&std::fs::read(pdb).unwrap(), random);
            std::fs::write(folder.join(pdb.file_name().unwrap()), mutant).unwrap();
            folder.join(dump.file_name().unwrap())
        }
    }
}

/// Opens one mutant and asks everything of it. Returns whether it opened.
fn question(server: &mut Server, path: &Path) -> bool {
    let opened = server.call("open_dump", json!({ "path": path }))["structuredContent"].clone();
    if opened["status"] == "ok" {
        let session = opened["session_id"].clone();
        for (tool, mut arguments) in [
            ("crash_triage", json!({})),
            ("exception_triage", json!({})),
            ("modules", json!({})),
            ("threads", json!({})),
            ("backtrace", json!({ "frames": 64 })),
            ("disassemble", json!({ "count": 8 })),
            ("execute", json!({ "command": "r; k; dv; lm; dt crash!Order; x crash!*Order*; ~*k" })),
        ] {
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
    let next = AtomicU32::new(0);
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
                        Err(panic) => {
                            let kept = folder.keep();
                            eprintln!("mutant {index} of seed {seed} is kept in {}", kept.display());
                            std::panic::resume_unwind(panic);
                        }
                    }
                }
            });
        }
    });
    let opened = opened.into_inner();
    println!("{count} mutants (seed {seed}): {opened} opened, {} refused, the server lived", count - opened);
    assert!(opened * 10 > count, "hardly any mutant opens: the mutations test nothing");
}
