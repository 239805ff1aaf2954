//! docs/driver-attack-surface.md shows what its commands print, and what they print leads from the
//! driver's own descriptor to the fault.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PAGE: &str = "docs/driver-attack-surface.md";
/// Set, the page is rewritten with what the commands print.
const UPDATE: &str = "WINDBG_MCP_UPDATE_DOCS";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The words of a command line; single quotes keep blanks and backslashes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn run(line: &str) -> String {
    let words = words(line);
    assert_eq!(words[0], "windbg-mcp", "{PAGE}: {line}");
    let output = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
        .args(&words[1..])
        .current_dir(root())
        .env_remove("_NT_SYMBOL_PATH")
        .env_remove("_NT_EXECUTABLE_IMAGE_PATH")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The page with every console block's output replaced by what its command prints now.
fn printed(page: &str) -> String {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        if line != "````console" {
            continue;
        }
        let command = lines.next().unwrap();
        let text = run(command.strip_prefix("$ ").expect("a console block begins with its command"));
        // Blanks at the end of a line are nothing a reader sees.
        let text: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        out.push_str(&format!("{command}\n{}\n````\n", text.join("\n")));
        lines.by_ref().find(|line| *line == "````").expect("a console block ends");
    }
    out
}

#[test]
fn the_worked_example_is_what_the_tools_say() {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let now = printed(&page);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    for (shown, said) in page.lines().zip(now.lines()) {
        assert_eq!(shown, said, "{PAGE} is not what its commands print; {UPDATE}=1 rewrites it");
    }
    assert_eq!(page.lines().count(), now.lines().count(), "{PAGE}; {UPDATE}=1 rewrites it");
}

/// The chain the page tells of, each link in what a command printed.
#[test]
fn the_example_leads_from_the_descriptor_to_the_fault() {
    let driver = "--dump fixtures/drivers/bin/x64-clang/open.sys";
    let has = |text: &str, wanted: &[&str]| {
        for wanted in wanted {
            assert!(text.contains(wanted), "no {wanted:?} in:\n{text}");
        }
    };
    has(
        &run(&format!("windbg-mcp call device_security 'device=\\Device\\OpenDoor' {driver}")),
        &["Everyone"],
    );
    let map = run(&format!("windbg-mcp call ioctl_map {driver}"));
    let line = map.lines().find(|line| line.contains("0x00222003")).expect("the code is found");
    has(line, &["neither", "any", "ReadCounter"]);
    let reach = "reachable_from_dispatch from=open!DispatchControl address=open!ReadCounter";
    has(
        &run(&format!("windbg-mcp call {reach} {driver}")),
        &["open!DispatchControl reaches open!ReadCounter", "222003h"],
    );
    has(
        &run(&format!("windbg-mcp call driver_hazards 'sections=[\"findings\"]' {driver}")),
        &["neither_pointer_unprobed", "0x00222003"],
    );
}
