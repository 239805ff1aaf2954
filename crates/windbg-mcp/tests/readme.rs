//! The README shows what its first command prints, to the letter.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Command, Stdio};

/// The fenced blocks of a Markdown text.
fn blocks(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
            if inside {
                out.push(String::new());
            }
        } else if let Some(block) = out.last_mut().filter(|_| inside) {
            block.push_str(line);
            block.push('\n');
        }
    }
    out
}

#[test]
fn the_first_command_prints_what_the_readme_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let blocks = blocks(&readme);
    let at = blocks.iter().position(|block| block.starts_with("cargo run ")).expect("README: cargo run ...");
    let (_, arguments) = blocks[at].trim().split_once(" -- ").expect("README: cargo run ... -- arguments");
    let output = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
        .args(arguments.split_whitespace())
        .current_dir(&root)
        .env_remove("_NT_SYMBOL_PATH")
        .env_remove("_NT_EXECUTABLE_IMAGE_PATH")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        blocks[at + 1].trim_end(),
        printed.trim_end(),
        "put what the command prints in the block behind it in README.md:\n{printed}"
    );
}

/// Everything `wanted` has is in `found`, with the same value.
fn agrees(wanted: &serde_json::Value, found: &serde_json::Value, at: &str) {
    match wanted {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                agrees(value, &found[name], &format!("{at}.{name}"));
            }
        }
        serde_json::Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                agrees(value, &found[index], &format!("{at}[{index}]"));
            }
        }
        value => assert_eq!(value, found, "{at} in docs/command-line.md"),
    }
}

#[test]
fn the_documented_json_is_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/command-line.md")).unwrap();
    let block = blocks(&page).into_iter().find(|block| block.starts_with("{\n")).expect("a JSON block");
    let wanted: serde_json::Value = serde_json::from_str(&block).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
        .args(["triage", "--json", "fixtures/crash.dmp"])
        .current_dir(&root)
        .env_remove("_NT_SYMBOL_PATH")
        .env_remove("_NT_EXECUTABLE_IMAGE_PATH")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    agrees(&wanted, &found, "");
}
