//! `doctor`: what works here, what is missing, and the commands that get it.

use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};
use supervisor::Supervisor;
use symbol_store::{Element, SymbolPath};

use crate::call::call;
use crate::style::{Style, plain};
use crate::{Engines, FAILED, OK, output};

const MICROSOFT: &str = "https://msdl.microsoft.com/download/symbols";
/// A look-up and a connection together take no longer.
const REACH: Duration = Duration::from_secs(2);
/// Below this an unpacked dump may not fit.
const SPARE_DISK: u64 = 8 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Fine,
    /// Absent, and nothing is the worse for it.
    Note,
    /// Works, but less than it could.
    Less,
    Broken,
}

#[derive(Debug, PartialEq, Eq, serde::Serialize)]
struct Finding {
    state: State,
    what: &'static str,
    text: String,
    /// What to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

impl Finding {
    fn new(state: State, what: &'static str, text: impl Into<String>) -> Self {
        Self { state, what, text: text.into(), command: None }
    }
    fn fix(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }
}

fn set_symbol_path() -> String {
    let store = symbol_store::default_store().display().to_string();
    let path = format!("srv*{store}*{MICROSOFT}");
    if cfg!(windows) {
        format!("setx _NT_SYMBOL_PATH \"{path}\"")
    } else {
        format!("export _NT_SYMBOL_PATH='{path}'")
    }
}

fn engines(known: Engines) -> Vec<Finding> {
    let here = known.iter().filter(|(_, here)| *here);
    let row = |name: &str| {
        let opens = match name {
            "native" => "dumps and images of x86, x64 and ARM64",
            _ => "everything Microsoft's debugger opens",
        };
        Finding::new(State::Fine, "engine", format!("{name}: {opens}"))
    };
    here.map(|(name, _)| row(name)).collect()
}

/// What DbgEng needs where Wine runs it; then whether it starts.
async fn dbgeng(supervisor: &Arc<Supervisor>) -> Vec<Finding> {
    let facts = supervisor.dbgeng_facts();
    let default = supervisor.config().engine == tools::EngineChoice::Dbgeng;
    let complete = facts.iter().all(|fact| fact.present || !fact.needed);
    let row = |fact: supervisor::EngineFact| {
        let state = match (fact.present, fact.needed) {
            (true, _) => State::Fine,
            (false, true) if default => State::Broken,
            (false, true) => State::Less,
            (false, false) => State::Note,
        };
        Finding { state, what: "dbgeng", text: fact.text, command: fact.command }
    };
    let mut findings: Vec<Finding> = facts.into_iter().map(row).collect();
    if complete {
        findings.push(worker(supervisor, "dbgeng").await);
    } else {
        let text =
            "engine dbgeng (live Windows processes, DbgEng on dumps) is not served until the above is there";
        findings.push(Finding::new(State::Note, "dbgeng", text));
    }
    findings
}

/// Starts a worker the way every session does. What it is asked to open need not be a dump: that it
/// answers at all is the point.
async fn worker(supervisor: &Arc<Supervisor>, engine: &'static str) -> Finding {
    let own = std::env::current_exe().unwrap_or_default();
    let mut args = Map::new();
    args.insert("path".into(), json!(own.to_string_lossy()));
    args.insert("engine".into(), json!(engine));
    let began = std::time::Instant::now();
    let answer = call(&supervisor.client("doctor"), "open_dump", args).await;
    let broken = |why: String| {
        Finding::new(State::Broken, "worker", format!("{engine}: {why}"))
            .fix(format!("{} --engine-worker --engine={engine} < /dev/null", own.display()))
    };
    match answer {
        Ok(answer) if answer.structured.as_ref().is_some_and(|s| s["error"]["reason"] == "no_dbgeng") => {
            broken(answer.text)
        }
        Ok(_) => {
            let text = format!("{engine}: a worker starts and answers in {} ms", began.elapsed().as_millis());
            Finding::new(State::Fine, "worker", text)
        }
        Err(failure) => broken(failure.to_string()),
    }
}

fn symbol_path() -> (Vec<Finding>, Vec<String>) {
    let text = std::env::var("_NT_SYMBOL_PATH").unwrap_or_default();
    if text.trim().is_empty() {
        let finding = Finding::new(
            State::Less,
            "symbols",
            "_NT_SYMBOL_PATH is not set: only PDBs beside a dump are found, system modules stay without names",
        );
        return (vec![finding.fix(set_symbol_path())], Vec::new());
    }
    let path = SymbolPath::parse(&text);
    let mut findings = vec![Finding::new(State::Fine, "symbols", format!("_NT_SYMBOL_PATH is {text}"))];
    for folder in path.folders().iter().filter(|folder| !folder.is_dir()) {
        let state = if path.names_a_server() { State::Less } else { State::Broken };
        findings.push(
            Finding::new(state, "symbols", format!("{} is no folder", folder.display()))
                .fix(format!("mkdir -p '{}'", folder.display())),
        );
    }
    (findings, servers(&path))
}

/// URLs a path names.
fn servers(path: &SymbolPath) -> Vec<String> {
    let mut urls = Vec::new();
    for element in &path.elements {
        if let Element::Chain(stores) = element {
            urls.extend(stores.iter().filter_map(|store| match store {
                symbol_store::Store::Server(url) => Some(url.clone()),
                symbol_store::Store::Folder(_) => None,
            }));
        }
    }
    urls
}

/// `host:port` of a URL.
fn endpoint(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?']).next().filter(|host| !host.is_empty())?;
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let port = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
    Some(if has_port { host.to_owned() } else { format!("{host}:{port}") })
}

async fn reach(url: String) -> Finding {
    let Some(at) = endpoint(&url) else {
        return Finding::new(State::Broken, "network", format!("{url} is no URL"));
    };
    let name = at.clone();
    // The system's resolver knows no timeout of its own.
    let asked = tokio::task::spawn_blocking(move || {
        let address = at.to_socket_addrs().map_err(|error| error.to_string())?.next();
        let address = address.ok_or_else(|| "the name has no address".to_owned())?;
        std::net::TcpStream::connect_timeout(&address, REACH).map(|_| ()).map_err(|error| error.to_string())
    });
    match tokio::time::timeout(REACH, asked).await {
        Ok(Ok(Ok(()))) => Finding::new(State::Fine, "network", format!("{name} answers")),
        Ok(Ok(Err(error))) => {
            Finding::new(State::Less, "network", format!("{name} does not answer: {error}"))
        }
        _ => Finding::new(
            State::Less,
            "network",
            format!("{name} did not answer within {} s", REACH.as_secs()),
        ),
    }
}

fn disk(folder: &Path) -> Finding {
    let name = folder.display();
    if let Err(error) = write_something(folder) {
        return Finding::new(State::Broken, "disk", format!("{name} cannot be written ({error})"))
            .fix("export TMPDIR=/a/folder/with/room");
    }
    match fs4::available_space(folder) {
        Ok(bytes) if bytes < SPARE_DISK => Finding::new(
            State::Less,
            "disk",
            format!("{name} has {} MiB free; packed dumps may not fit", bytes >> 20),
        )
        .fix("export TMPDIR=/a/folder/with/room"),
        Ok(bytes) => Finding::new(State::Fine, "disk", format!("{name} has {} GiB free", bytes >> 30)),
        Err(error) => {
            Finding::new(State::Less, "disk", format!("how much of {name} is free is unknown ({error})"))
        }
    }
}

fn write_something(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!("windbg-mcp-doctor-{}", std::process::id()));
    std::fs::write(&path, b"x")?;
    std::fs::remove_file(&path)
}

fn text(findings: &[Finding], style: Style) -> String {
    let mut out = String::new();
    for finding in findings {
        let mark = match finding.state {
            State::Fine => style.green("ok     "),
            State::Note => style.dim("-      "),
            State::Less => style.yellow("missing"),
            State::Broken => style.red("broken "),
        };
        out.push_str(&format!("{mark}  {:<8} {}\n", finding.what, plain(&finding.text)));
        if let Some(command) = &finding.command {
            out.push_str(&format!("                  {}\n", style.cyan(&plain(command))));
        }
    }
    out
}

/// Runs the subcommand: 1 when something is broken.
pub(crate) async fn run(supervisor: &Arc<Supervisor>, known: Engines, build: &str, as_json: bool) -> i32 {
    let (system, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    if !as_json {
        output::line(&format!("windbg-mcp {build} on {system} {arch}"));
    }
    let mut findings = engines(known);
    findings.push(worker(supervisor, "native").await);
    findings.extend(dbgeng(supervisor).await);
    let (symbols, urls) = symbol_path();
    findings.extend(symbols);
    for url in urls {
        findings.push(reach(url).await);
    }
    findings.push(disk(&std::env::temp_dir()));
    if as_json {
        output::line(
            &json!({ "build": build, "os": system, "arch": arch, "findings": findings }).to_string(),
        );
    } else {
        output::print(&text(&findings, Style::of_stdout()));
    }
    if findings.iter().any(|finding| finding.state == State::Broken) { FAILED } else { OK }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        assert_eq!(endpoint(MICROSOFT).unwrap(), "msdl.microsoft.com:443");
        assert_eq!(endpoint("http://localhost:8080/x").unwrap(), "localhost:8080");
        assert_eq!(endpoint("http://h").unwrap(), "h:80");
        assert_eq!(endpoint("nonsense"), None);
    }

    #[test]
    fn findings_are_json_as_well() {
        let findings = [
            Finding::new(State::Fine, "engine", "native"),
            Finding::new(State::Less, "symbols", "not set").fix("export X=y"),
        ];
        let expected = json!([
            { "state": "fine", "what": "engine", "text": "native" },
            { "state": "less", "what": "symbols", "text": "not set", "command": "export X=y" },
        ]);
        assert_eq!(json!(findings), expected);
    }

    #[test]
    fn findings_say_what_to_type() {
        let findings = [
            Finding::new(State::Fine, "engine", "native"),
            Finding::new(State::Less, "symbols", "not set").fix("export X=y"),
            Finding::new(State::Broken, "disk", "full"),
        ];
        insta::assert_snapshot!(text(&findings, Style::PLAIN));
    }
}
