//! Secrets and personal data: planted in every channel, found in none.

use std::process::Command;

use serde_json::{Value, json};

use crate::channels::{self, PLANTED};
use crate::mcp::fixture;
use crate::{Watched, around, events, leave, said};

const RULES: &str =
    "builtin = [\"user_paths\", \"tokens\", \"private_keys\", \"mail\", \"ipv4\", \"ipv6\"]\n";

#[test]
fn a_key_in_a_connection_is_nowhere() {
    let watched = Watched::new();
    let mut client = watched.server("true", &[]);
    let session = client.open(&fixture("crash.dmp"));
    let key = "7a.b2.c.d4.e.f6x";
    let connection = format!("net:port=50000,key={key}");
    let mut answers = vec![
        client.request(
            "tools/call",
            json!({ "name": "attach_kernel", "arguments": { "connection": connection } }),
        ),
        // Refused with an echo of what was not understood.
        client.request("tools/call", json!({ "name": "modules", "arguments": { key: 1, "filter": key } })),
        client.request("tools/call", json!({ "name": key, "arguments": { "password": "its-own-secret" } })),
        client.request(
            "tools/call",
            json!({ "name": "execute", "arguments": { "command": format!(".echo {key}") } }),
        ),
        client.request("tools/call", json!({ "name": "read_memory", "arguments": { "address": key } })),
        client.request("tools/call", json!({ "name": "registers", "arguments": { "session_id": key } })),
        client.request("tools/call", json!({ "name": "server_log", "arguments": { "level": "debug" } })),
        client.request("resources/read", json!({ "uri": "windbg://transcript" })),
    ];
    answers.extend(client.notifications.iter().cloned());
    client.ok("registers", json!({ "session_id": session }));
    leave(client);
    for secret in [key, "its-own-secret"] {
        let said = said(&answers, secret);
        assert_eq!(said, Vec::<String>::new());
        assert_eq!(watched.grep(secret), Vec::<String>::new());
    }
    let lines = watched.lines();
    assert_eq!(events(&lines, "tool_request")[1]["args"]["connection"], "net:port=50000,key=<redacted>");
}

#[test]
fn planted_values_are_in_no_channel_and_what_is_shown_says_so() {
    let watched = Watched::new();
    let dumps = tempfile::tempdir().unwrap();
    let dump = channels::dump(dumps.path(), PLANTED);
    let rules = watched.write("rules.toml", RULES);
    let mut client = watched.server("true", &[("WINDBG_MCP_REDACT", &rules)]);
    let answers = channels::look_everywhere(&mut client, &dump);
    leave(client);
    for value in PLANTED {
        let said = said(&answers, value);
        assert_eq!(said, Vec::<String>::new(), "{value}");
        assert_eq!(watched.grep(value), Vec::<String>::new(), "{value}");
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!answers.iter().any(|answer| answer.to_string().contains(&hex)), "{value} as bytes");
    }
    let structured = |index: usize| &answers[index]["result"]["structuredContent"];
    let text = |index: usize| answers[index]["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text(0).contains("Users/<user_paths:1>/a.dmp") && text(0).contains("[redacted: "), "{}", text(0));
    assert_eq!(structured(1)["error"]["message"], text(1), "both halves agree");
    assert_eq!(structured(1)["redactions"], json!({ "user_paths": 1 }));
    let module = &structured(3)["modules"][0];
    assert_eq!(
        module["loaded_image_name"], r"C:\Users\<user_paths:1>\app\crashme.exe",
        "one user, one number"
    );
    assert_eq!(module["name"], "crashme", "a module's name is vocabulary");
    let memory = structured(6);
    assert_eq!(memory["redacted"][0], json!({ "offset": 9, "size": 11 }), "{}", memory["redacted"]);
    assert_eq!(memory["data"].as_str().unwrap().len(), 0x2000, "every byte has its place");
    // Six in ASCII, six in UTF-16, one more mail.
    assert_eq!(memory["redactions"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>(), 13);
    assert!(structured(11)["redacted_in_run"]["user_paths"].as_u64().unwrap() > 3);
    assert!(watched.grep("redacted in this run: ").len() == 1, "one line at the end");
}

#[test]
fn the_shape_of_every_answer_is_the_same_with_rules_and_without() {
    fn shape(value: &Value, path: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                // What the filter reports is its own.
                let own = ["redactions", "redacted", "redacted_in_run"];
                for (name, inner) in members.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
                    shape(inner, &format!("{path}.{name}"), out);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| shape(item, &format!("{path}[]"), out)),
            Value::String(_) => out.push(format!("{path} text")),
            Value::Number(_) => out.push(format!("{path} number")),
            Value::Bool(_) | Value::Null => out.push(format!("{path} {value}")),
        }
    }
    let shapes = |rules: Option<&str>| {
        let watched = Watched::new();
        let dumps = tempfile::tempdir().unwrap();
        let dump = channels::dump(dumps.path(), PLANTED);
        let path = watched.write("rules.toml", rules.unwrap_or_default());
        let rules: Vec<(&str, &std::path::Path)> =
            rules.iter().map(|_| ("WINDBG_MCP_REDACT", path.as_path())).collect();
        let mut client = watched.server("true", &rules);
        let answers = channels::look_everywhere(&mut client, &dump);
        leave(client);
        // The log and the transcript hold as many records as there were moments.
        let typed = answers[..12].iter().map(|answer| &answer["result"]["structuredContent"]);
        typed
            .map(|value| {
                let mut out = Vec::new();
                shape(value, "", &mut out);
                out
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(shapes(Some(RULES)), shapes(None));
}

#[test]
fn a_token_is_no_argument() {
    let watched = Watched::new();
    let rules = watched.write("rules.toml", RULES);
    let mut client = watched.server("true", &[("WINDBG_MCP_REDACT", &rules)]);
    let refused = client.err("open_dump", json!({ "path": "/home/<user_paths:1>/a.dmp" }));
    assert_eq!(
        (&refused["category"], &refused["reason"]),
        (&json!("invalid_argument"), &json!("redacted_value"))
    );
    let other = client.err("open_dump", json!({ "path": "/nonesuch/<ticket:1>/a.dmp" }));
    assert_eq!(other["reason"], "not_found", "of no rule here");
    leave(client);
}

#[test]
fn a_bad_file_refuses_the_start() {
    let watched = Watched::new();
    for (text, why) in [
        ("builtin = [\"mails\"]", "no set of redaction rules"),
        ("[[pattern]]\nname='a'\nregex='x*'", "match nothing"),
    ] {
        let rules = watched.write("bad.toml", text);
        let output =
            Command::new(env!("CARGO_BIN_EXE_windbg-mcp")).arg("--redact").arg(&rules).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains(why));
    }
}

#[test]
fn the_command_line_keeps_the_rules_too() {
    let watched = Watched::new();
    let dumps = tempfile::tempdir().unwrap();
    let dump = channels::dump(dumps.path(), PLANTED);
    let rules = watched.write("rules.toml", RULES);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
        command.arg("--redact").arg(&rules).args(arguments).env("RUST_LOG", "debug");
        let output = command.env("WINDBG_MCP_TRANSCRIPT", watched.transcript()).output().unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    };
    let path = dump.to_str().unwrap();
    let missing = dump.with_file_name("none.dmp");
    let mut said = run(&["triage", path]);
    assert!(said.contains("<user_paths:1>"), "{said}");
    said += &run(&["triage", "--json", path, missing.to_str().unwrap()]);
    said += &run(&["call", "modules", "--structured", "--dump", path]);
    said += &run(&["call", "execute", "command=da 0x500f00", "--dump", path]);
    for value in PLANTED {
        assert!(!said.contains(value), "{value}: {}", around(&said, value));
        assert_eq!(watched.grep(value), Vec::<String>::new(), "{value}");
    }
}

#[test]
fn a_transcript_kept_without_rules_is_rendered_with_them() {
    let watched = Watched::new();
    let dumps = tempfile::tempdir().unwrap();
    let dump = channels::dump(dumps.path(), PLANTED);
    let mut client = watched.server("true", &[]);
    channels::look_everywhere(&mut client, &dump);
    leave(client);
    assert!(!watched.grep("planteduser").is_empty(), "without rules it is all there");
    let rules = watched.write("rules.toml", RULES);
    for format in ["cast", "html"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
        command.args(["transcript", "render", "--format", format, "-o", "-"]).arg(watched.transcript());
        let output = command.arg("--redact").arg(&rules).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && shown.contains("user_paths:1"));
        for value in ["planteduser", "planted.person"] {
            assert!(!shown.contains(value), "{value} in {format}");
        }
    }
}
