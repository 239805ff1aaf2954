//! Recovered code against Microsoft's disassembler, instruction for instruction: every listing of every
//! committed driver, the shared ones and Wine's own, beside what DbgEng disassembles of the same image.
//! Runs with `WINDBG_MCP_LAB=1`.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(unix)]

mod mcp;

use std::path::{Path, PathBuf};
use std::process::Command;

use code_flow::{CodeImage, ImageIndex, Standing, Structural, XrefKind, listing};
use differential::Lab;
use mcp::{Client, Era};
use serde_json::json;
use target::Halt;

/// Instructions asked for at once.
const MOST: usize = 128;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn drivers() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(test_data::fixture("drivers/bin")).unwrap().map(|e| e.unwrap().path()).collect();
    folders.extend(test_data::shared().map(|shared| shared.join("drivers")));
    folders.extend(test_data::wine_images());
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut out: Vec<PathBuf> = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sys"))
        .collect();
    out.sort();
    out
}

fn image_at(path: &Path, base: u64) -> CodeImage<'static> {
    let file = pe::FileImage::new(std::fs::read(path).unwrap()).unwrap();
    CodeImage::of_file("driver", file, base).unwrap()
}

/// Runs of instructions without a gap, over all functions, each instruction once.
fn runs(image: &CodeImage<'_>) -> Vec<Vec<(u64, Vec<u8>)>> {
    let halt = Halt::unbounded();
    let index = ImageIndex::build(image, &halt);
    let mut starts: Vec<u64> = index
        .references()
        .filter(|r| r.kind == XrefKind::Call && r.standing == Standing::InFunction)
        .map(|r| r.target)
        .filter(|target| image.is_executable(*target))
        .collect();
    starts.push(image.base + u64::from(image.pe.entry_point));
    starts.extend(index.starts.iter().copied());
    let mut all = std::collections::BTreeMap::new();
    for start in starts {
        for (address, instruction) in listing(image, start, &Structural, &halt).instructions {
            all.insert(address, instruction.bytes().to_vec());
        }
    }
    let mut out: Vec<Vec<(u64, Vec<u8>)>> = Vec::new();
    for (address, bytes) in all {
        match out.last_mut() {
            Some(run)
                if run.len() < MOST && run.last().is_some_and(|(at, b)| at + b.len() as u64 == address) =>
            {
                run.push((address, bytes));
            }
            _ => out.push(vec![(address, bytes)]),
        }
    }
    out
}

#[test]
fn every_listing_is_what_dbgeng_disassembles() {
    if std::env::var("WINDBG_MCP_LAB").is_err() {
        test_data::not_run("lab absent (cargo xtask lab, cargo xtask wine-worker, WINDBG_MCP_LAB=1)");
        return;
    }
    let lab = Lab::of(&root()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
    command.envs(lab.environment()).env_remove("WINDBG_MCP_ENGINE");
    let mut client = Client::of(command, Era::Handshake("2025-11-25"));
    client.greet();
    let (mut images, mut instructions) = (0, 0);
    let mut different = Vec::new();
    for path in drivers() {
        let opened = client.ok("open_dump", json!({ "path": path, "engine": "dbgeng" }));
        let session = opened["session_id"].as_str().unwrap().to_owned();
        let modules = client.ok("modules", json!({ "session_id": session }));
        let base = modules["modules"][0]["start"].as_str().unwrap();
        let base = u64::from_str_radix(&base[2..], 16).unwrap();
        let image = image_at(&path, base);
        let arm64 = image.machine == target::Machine::Arm64;
        for run in runs(&image) {
            let asked =
                json!({ "session_id": session, "address": format!("{:#x}", run[0].0), "count": run.len() });
            let answer = client.ok("disassemble", asked);
            let theirs = answer["instructions"].as_array().unwrap();
            for (index, (address, bytes)) in run.iter().enumerate() {
                let mut bytes = bytes.clone();
                if arm64 {
                    bytes.reverse();
                }
                let ours = (target::Address(*address).to_string(), target::HexBytes(bytes).to_string());
                let row = theirs.get(index);
                let theirs = row.map(|row| {
                    (row["address"].as_str().unwrap().to_owned(), row["bytes"].as_str().unwrap().to_owned())
                });
                if theirs.as_ref() != Some(&ours) {
                    different.push(format!("{} {ours:?} {theirs:?}", path.display()));
                    break;
                }
                instructions += 1;
            }
        }
        images += 1;
        client.ok("end_session", json!({ "session_id": session }));
    }
    println!("{instructions} instructions of {images} images, {} runs differ", different.len());
    assert!(images > 70 && instructions > 20_000, "{images} {instructions}");
    assert!(different.is_empty(), "{:#?}", &different[..different.len().min(20)]);
}

/// What engines may differ in: names of symbols, and where bytes came from.
fn comparable(mut value: serde_json::Value) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(map) => {
                for key in ["symbol", "displacement", "bytes_from", "images", "session_id", "text", "next"] {
                    map.remove(key);
                }
                map.values_mut().for_each(strip);
            }
            serde_json::Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    value
}

#[test]
fn both_engines_answer_alike() {
    if std::env::var("WINDBG_MCP_LAB").is_err() {
        test_data::not_run("lab absent (cargo xtask lab, cargo xtask wine-worker, WINDBG_MCP_LAB=1)");
        return;
    }
    let lab = Lab::of(&root()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
    command.envs(lab.environment()).env_remove("WINDBG_MCP_ENGINE");
    let mut client = Client::of(command, Era::Handshake("2025-11-25"));
    client.greet();
    for (id, target) in [("d25", 0x1000), ("d26", 0x10a0), ("d29", 0x10a0), ("d30", 0x10b0), ("d05", 0x1000)]
    {
        let path = test_data::fixture(&format!("drivers/bin/x64-clang/{id}.sys"));
        let mut answers = Vec::new();
        for engine in ["native", "dbgeng"] {
            let opened = client.ok("open_dump", json!({ "path": path, "engine": engine }));
            let session = opened["session_id"].as_str().unwrap().to_owned();
            let at = format!("{:#x}", 0x1_4000_0000u64 + target);
            let asked = json!({ "session_id": session, "address": at });
            let references = client.ok("xrefs_to", asked);
            let parts = json!({ "session_id": session, "module": id, "sections": ["sinks", "privileged", "mitigations"] });
            let hazards = client.ok("driver_hazards", parts);
            let way = json!({ "session_id": session, "from": "0x140001000", "address": at });
            let reach = client.ok("reachable_from_dispatch", way);
            answers.push([references, hazards, reach].map(comparable));
            client.ok("end_session", json!({ "session_id": session }));
        }
        assert_eq!(answers[0], answers[1], "{id}");
    }
}
