//! What a client is told names no tool it is not served (spec 20 sections 5.4 and 5.7): over stdio,
//! on the tightest surface of every tool, and in the sources.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mcp::calls::calls;
use mcp::{Client, Era, fixture};
use serde_json::{Value, json};
use tools::{Group, Surface, prose};

fn serving(spec: &str) -> Client {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
    command.args(["--tools", spec]);
    let mut client = Client::of(command, Era::Handshake("2025-11-25"));
    client.greet();
    client
}

/// Every text in `value` that stands under `description`, and every other string beside those of
/// vocabularies.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner {
                    Value::String(text) if key == "description" => found.push(text.clone()),
                    _ if key == "enum" || key == "const" => {}
                    inner => texts(inner, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| texts(inner, found)),
        _ => {}
    }
}

/// What a server with `--tools spec` says of itself, each text with where it stands.
fn told(spec: &str) -> (Vec<String>, Vec<String>) {
    let mut client = serving(spec);
    let mut found = vec![client.greeting["instructions"].as_str().unwrap().to_owned()];
    let list = client.result("tools/list", json!({}));
    texts(&list, &mut found);
    texts(&client.result("prompts/list", json!({})), &mut found);
    texts(&client.result("resources/templates/list", json!({})), &mut found);
    let names = list["tools"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned());
    (names.collect(), found)
}

#[test]
fn no_surface_of_one_tool_names_another() {
    let mut leaks = Vec::new();
    let session: Vec<&str> =
        tools::all().iter().filter(|e| e.group == Group::Session).map(|entry| entry.name).collect();
    for entry in tools::all() {
        let (names, texts) = told(entry.name);
        let mut wanted: Vec<&str> = session.clone();
        if entry.group != Group::Session {
            wanted.push(entry.name);
        }
        assert_eq!(names, wanted);
        let surface = Surface::of(&wanted);
        assert!(texts.len() > session.len(), "{}", entry.name);
        for text in texts {
            leaks.extend(
                prose::leaks(&text, &surface).iter().map(|leak| format!("{}: {leak} in {text}", entry.name)),
            );
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn the_union_of_the_groups_is_everything_and_lists_are_the_same_bytes() {
    let mut union = Vec::new();
    for group in Group::ALL {
        if tools::all().iter().any(|entry| entry.group == group) {
            union.extend(told(group.name()).0);
        }
    }
    let (all, texts) = told("all");
    union.retain(|name| all.contains(name));
    let mut once: Vec<&String> = all.iter().filter(|name| union.contains(name)).collect();
    once.dedup();
    assert_eq!(once.len(), all.len());
    assert_eq!(all, tools::all().iter().map(|entry| entry.name.to_owned()).collect::<Vec<_>>());
    assert_eq!((all, texts), told("all"));
}

#[test]
fn failures_on_a_narrow_surface_name_what_is_served() {
    // Each tool's own bad call, and the wrong dump for it, where it is the only one there is.
    let mut leaks = Vec::new();
    for call in calls() {
        let mut client = serving(&call.tool);
        let session: Vec<&str> =
            tools::all().iter().filter(|e| e.group == Group::Session).map(|entry| entry.name).collect();
        let surface = Surface::of(&[session, vec![call.tool.as_str()]].concat());
        for dump in ["crash.dmp", "kernel.dmp", "crash.exe"] {
            client.open(&fixture(dump));
            for arguments in [&call.bad, &call.good] {
                if call.on == "end" && *arguments == call.good {
                    continue;
                }
                let result = client.call(&call.tool, arguments.clone());
                let mut found = vec![result["content"][0]["text"].as_str().unwrap().to_owned()];
                texts(&result["structuredContent"], &mut found);
                // A log shows what was logged, a batch its steps' names as they were given.
                for text in
                    found.iter().filter(|_| !["server_log", "debug_batch"].contains(&call.tool.as_str()))
                {
                    let named = prose::leaks(text, &surface);
                    leaks.extend(
                        named.iter().map(|leak| format!("{} on {dump}: {leak} in {text}", call.tool)),
                    );
                }
                let next = &result["structuredContent"]["error"]["next"];
                for name in next.as_array().unwrap_or(&Vec::new()) {
                    assert!(surface.serves(name.as_str().unwrap()), "{}: {next}", call.tool);
                }
            }
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn a_tool_that_is_not_served_is_refused_with_whose_choice_it_was() {
    let mut client = serving("crash");
    let error = client.err("registers", json!({}));
    assert_eq!((&error["category"], &error["reason"]), (&json!("not_served"), &json!("not_on_this_surface")));
    let message = error["message"].as_str().unwrap();
    for word in ["registers", "--tools", "(session, crash)"] {
        assert!(message.contains(word), "{message}");
    }
    let unknown = client.request("tools/call", json!({ "name": "crash_triages", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("crash_triage"), "{unknown}");
    // The nearest served name, not the nearest there is.
    let unknown = client.request("tools/call", json!({ "name": "registres", "arguments": {} }));
    assert!(!unknown["error"]["message"].as_str().unwrap().contains("registers"), "{unknown}");
}

#[test]
fn a_bad_specification_refuses_the_start_with_code_2() {
    let cases: [(&[&str], &str); 8] = [
        (&["--tools", "all,ttdd"], "--tools: \"ttdd\""),
        (&["--tools", "ttdd,all"], "--tools: \"ttdd\""),
        (&["--tools", "Crash"], "did you mean \"crash\""),
        (&["--tools", " ,,"], "--tools selects nothing"),
        (&["--tools"], "--tools"),
        (&["--tools", "crash", "--tools", "inspect"], "--tools"),
        (&["--tools", "crash", "doctor"], "windbg-mcp tools --tools"),
        (&["tools", "--tools", "nonesuch"], "--tools: \"nonesuch\""),
    ];
    for (arguments, words) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_windbg-mcp")).args(arguments).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(words), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_start_says_what_is_served() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"))
        .args(["--tools", "registers,crash"])
        .env("RUST_LOG", "info")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    std::thread::sleep(Duration::from_millis(10));
    let told = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let summary = Surface::parse("registers,crash", "--tools").unwrap().summary();
    assert!(summary.ends_with("tools (session, crash, registers)"));
    assert!(told.contains(&summary), "{told}");
}

#[test]
fn the_served_list_is_printed_as_a_server_would_list_it() {
    let printed = |arguments: &[&str]| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_windbg-mcp")).args(arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for (arguments, spec) in
        [(vec!["tools", "--json", "--tools", "crash"], "crash"), (vec!["tools", "--json"], "all")]
    {
        let printed = printed(&arguments);
        let served = serving(spec).result("tools/list", json!({}));
        let served = served["tools"].as_array().unwrap();
        assert_eq!(printed.as_array().unwrap().len(), served.len());
        for (printed, served) in printed.as_array().unwrap().iter().zip(served) {
            for key in ["name", "title", "description", "inputSchema", "outputSchema"] {
                assert_eq!(printed[key], served[key], "{key} of {}", served["name"]);
            }
        }
    }
}

/// The string literals of Rust source, each with the code before it (other literals left out).
/// Comments and everything from the first `#[cfg(test)]` on are skipped.
fn literals(source: &str) -> Vec<(String, String)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut code, mut found) = (String::new(), Vec::new());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if rest.starts_with("'\"'") || rest.starts_with("b'\"'") {
            rest = &rest[rest.find("'\"'").unwrap() + 3..];
        } else if c == '"' {
            let mut text = String::new();
            let mut inner = rest[1..].chars();
            while let Some(c) = inner.next() {
                match c {
                    '"' => break,
                    '\\' => match inner.next() {
                        Some('\n') => {
                            let after = inner.as_str().trim_start();
                            inner = after.chars();
                        }
                        Some(escaped) => text.push(escaped),
                        None => break,
                    },
                    c => text.push(c),
                }
            }
            found.push((text, code.trim_end().to_owned()));
            rest = inner.as_str();
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Literals that reach a result and name a tool outside a fragment that says so.
fn loose(path: &str, source: &str) -> Vec<String> {
    let stem = Path::new(path).file_stem().unwrap().to_str().unwrap().to_owned();
    let mut found = Vec::new();
    for (text, before) in literals(source) {
        let named: Vec<&str> = prose::named(&text)
            .into_iter()
            .filter(|name| *name != stem && *name != text)
            .filter(|name| tools::find(name).is_none_or(|entry| entry.group != Group::Session))
            .collect();
        let before = before.trim_end_matches("format!(").trim_end();
        let fragment = before.ends_with("text:") || {
            let call = before.rfind("when_served(").map(|at| &before[at..]);
            call.is_some_and(|call| !call.contains(';') && call.matches(')').count() == 0)
        };
        if !named.is_empty() && !fragment {
            found.push(format!("{path}: {named:?} in {text:?}"));
        }
    }
    found
}

#[test]
fn every_literal_that_names_a_tool_is_a_fragment() {
    // Crates whose strings can reach a result; the command line and the tests name what they like. Names
    // of a batch's steps are vocabulary.
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    for folder in std::fs::read_dir(&crates).unwrap().flatten() {
        let name = folder.file_name().into_string().unwrap();
        let silent = [
            "batch",
            "cli",
            "differential",
            "driver-harness",
            "dumpforge",
            "test-data",
            "windbg-mcp",
            "transcript",
        ];
        if !silent.contains(&name.as_str()) && folder.path().join("src").is_dir() {
            sources(&folder.path().join("src"), &mut paths);
        }
    }
    let mut found = Vec::new();
    for path in paths {
        let source = std::fs::read_to_string(&path).unwrap();
        found.extend(loose(&path.display().to_string(), &source));
    }
    assert!(found.is_empty(), "name a tool by ToolError::when_served, then or Tool::next: {found:#?}");
}

#[test]
fn the_scan_sees_what_it_should() {
    let leak = r#"fn f() { ToolError::new(Category::Debugger, "use read_memory instead") } // read_memory"#;
    assert_eq!(loose("src/x.rs", leak).len(), 1);
    for fine in [
        r#"Fragment::If { needs: &["read_memory"], text: "use read_memory instead" }"#,
        r#"error.when_served(&["read_memory"], "use read_memory instead")"#,
        r#"error.then(&["read_memory"])"#,
        r#"// "use read_memory instead""#,
        r#"let text = "call end_session";"#,
        "#[cfg(test)] mod tests { const A: &str = \"use read_memory\"; }",
    ] {
        assert_eq!(loose("src/x.rs", fine), Vec::<String>::new(), "{fine}");
    }
    assert_eq!(loose("src/read_memory.rs", r#""arguments of read_memory: x""#), Vec::<String>::new());
}
