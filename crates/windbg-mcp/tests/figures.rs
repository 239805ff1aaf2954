//! Every figure of the surface in the docs comes from a running server (spec 20 section 9): it stands
//! in a block `<!-- surface:begin NAME -->` ... `<!-- surface:end -->` that this test makes anew and
//! compares. `cargo xtask surface` (or WINDBG_MCP_RECORD=1) writes them. Each block has a digest of all
//! that a client is told, so that a reword of equal length is stale too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mcp::surface::{BYTES_A_TOKEN, Listing, model_visible, recording};
use serde_json::Value;
use tools::{Category, Group, Surface};

const BEGIN: &str = "<!-- surface:begin ";
const END: &str = "<!-- surface:end -->";

/// The pages that may have figures.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)).to_vec();
    for entry in std::fs::read_dir(root.join("docs")).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "md") {
            pages.push(entry.path());
        }
    }
    pages.sort();
    pages
}

/// What the blocks are made of.
struct Figures {
    all: Listing,
    default: Listing,
    digest: String,
}

/// `12,345`.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn tokens(bytes: usize) -> String {
    thousands((bytes as f64 / BYTES_A_TOKEN / 100.0).round() as usize * 100)
}

fn group_of(tool: &Value) -> &'static str {
    tools::find(tool["name"].as_str().unwrap()).unwrap().group.name()
}

fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut out = line(&header.iter().map(ToString::to_string).collect::<Vec<_>>());
    out.push_str(&format!("|{}\n", "---|".repeat(header.len())));
    rows.iter().for_each(|row| out.push_str(&line(row)));
    out
}

impl Figures {
    fn of_a_running_server() -> Self {
        let (all, default) = (Listing::of(Some("all")), Listing::of(None));
        let digest = all.digest();
        Self { all, default, digest }
    }

    /// The block of this name, markers left out.
    fn block(&self, name: &str) -> Option<String> {
        let text = match name {
            "count" => self.count(),
            "groups" => self.groups(),
            "specs" => self.specs(),
            "budget" => self.budget(),
            "typed" => self.typed(),
            "annotations" => self.annotations(),
            "categories" => categories(),
            _ => return None,
        };
        Some(format!("<!-- digest {} -->\n{text}", self.digest))
    }

    fn members(&self) -> Vec<(Group, Vec<&Value>)> {
        Group::ALL
            .into_iter()
            .map(|group| {
                (group, self.all.tools.iter().filter(|tool| group_of(tool) == group.name()).collect())
            })
            .filter(|(_, tools): &(Group, Vec<&Value>)| !tools.is_empty())
            .collect()
    }

    fn count(&self) -> String {
        format!(
            "{} tools in {} groups, {} bytes of names, descriptions and input schemas: about {} tokens, {} bytes a \
             tool.\n",
            self.all.tools.len(),
            self.members().len(),
            thousands(self.all.model_visible()),
            tokens(self.all.model_visible()),
            self.all.model_visible() / self.all.tools.len()
        )
    }

    fn groups(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .members()
            .iter()
            .map(|(group, tools)| {
                let names: Vec<String> =
                    tools.iter().map(|tool| format!("`{}`", tool["name"].as_str().unwrap())).collect();
                let bytes: usize = tools.iter().map(|tool| model_visible(tool)).sum();
                vec![
                    format!("`{}`", group.name()),
                    tools.len().to_string(),
                    thousands(bytes),
                    names.join(" "),
                ]
            })
            .collect();
        table(&["group", "tools", "bytes", "members"], &rows)
    }

    fn specs(&self) -> String {
        let specs = [
            None,
            Some("all"),
            Some("session,inspect,exec,crash"),
            Some("session,inspect,crash"),
            Some("crash"),
            Some("session"),
            Some("registers,backtrace"),
            Some("walk_memory"),
        ];
        let rows: Vec<Vec<String>> = specs
            .iter()
            .map(|spec| {
                let listing = Listing::of(*spec);
                let shown = spec.map_or("*(absent)*".to_owned(), |spec| format!("`{spec}`"));
                let bytes = listing.model_visible();
                vec![shown, listing.tools.len().to_string(), thousands(bytes), tokens(bytes)]
            })
            .collect();
        table(&["`--tools`", "tools", "bytes", "tokens, about"], &rows)
    }

    fn budget(&self) -> String {
        let part = |key: &str| self.all.tools.iter().map(|tool| tool[key].to_string().len()).sum::<usize>();
        let descriptions: usize =
            self.all.tools.iter().map(|tool| tool["description"].as_str().unwrap().len()).sum();
        let outputs: usize = self
            .all
            .tools
            .iter()
            .filter(|tool| tool["outputSchema"].is_object())
            .map(|t| t["outputSchema"].to_string().len())
            .sum();
        let rows = [
            ("reaches a model, everything", self.all.model_visible()),
            ("- descriptions", descriptions),
            ("- input schemas", part("inputSchema")),
            ("reaches a model, without `--tools`", self.default.model_visible()),
            ("instructions", self.all.instructions.len()),
            ("output schemas (no model reads them)", outputs),
            ("annotations (no model reads them)", part("annotations")),
            ("`tools/list`, everything", self.all.payload),
        ];
        table(&["part", "bytes"], &rows.map(|(part, bytes)| vec![part.to_owned(), thousands(bytes)]))
    }

    fn typed(&self) -> String {
        let (typed, raw): (Vec<&Value>, Vec<&Value>) =
            self.all.tools.iter().partition(|tool| tool["outputSchema"].is_object());
        let raw: Vec<String> =
            raw.iter().map(|tool| format!("`{}`", tool["name"].as_str().unwrap())).collect();
        format!(
            "{} tools answer structured data with a schema; {} answer text only, and their failures are structured.\n",
            typed.len(),
            raw.join(" and ")
        )
    }

    fn annotations(&self) -> String {
        let mut rows: BTreeMap<[bool; 4], Vec<String>> = BTreeMap::new();
        for tool in &self.all.tools {
            let hints = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
                .map(|hint| tool["annotations"][hint].as_bool().unwrap());
            rows.entry(hints).or_default().push(format!("`{}`", tool["name"].as_str().unwrap()));
        }
        let cell = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let rows: Vec<Vec<String>> = rows
            .iter()
            .rev()
            .map(|(hints, names)| {
                let mut row: Vec<String> = hints.map(cell).to_vec();
                row.push(names.join(" "));
                row
            })
            .collect();
        table(&["read only", "destructive", "idempotent", "open world", "tools"], &rows)
    }
}

/// Each category and what a caller does.
fn categories() -> String {
    let rows = [
        (Category::InvalidArgument, "refused before an engine was asked", "correct the call"),
        (Category::Unsupported, "this engine, target or architecture cannot", "another tool or engine"),
        (Category::Debugger, "the engine tried and failed", "ask something else"),
        (Category::TargetRunning, "the target moves", "wait for its stop, or break in"),
        (
            Category::Timeout,
            "the wait ended; the work may go on",
            "look at the session; asking again is safe",
        ),
        (Category::Interrupted, "stopped on request", "resume deliberately"),
        (Category::NotRun, "never began: no time was left", "ask again"),
        (Category::StaleSession, "the handle names nothing open", "open again"),
        (Category::WorkerLost, "the engine's process died", "open again"),
        (Category::Capacity, "no session is free", "end one"),
        (Category::NotServed, "the tool is not on this surface", "ask who runs the server"),
        (Category::Internal, "a bug", "report it"),
        (Category::RecoveryRequired, "a change could not be undone", "read what was left changed"),
    ];
    let rows = rows.map(|(category, meaning, next)| {
        vec![format!("`{}`", category.name()), meaning.to_owned(), next.to_owned()]
    });
    table(&["category", "meaning", "what to do"], &rows)
}

/// `text` with every block made anew, and what is wrong with its markers.
fn renewed(text: &str, block: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, marked) = rest.split_at(at);
        let (name, after) =
            marked[BEGIN.len()..].split_once(" -->\n").ok_or("a block's begin has no end of its line")?;
        let (_, after) = after.split_once(END).ok_or_else(|| format!("the block {name} does not end"))?;
        let made = block(name).ok_or_else(|| format!("there is no block {name}"))?;
        out.push_str(&format!("{before}{BEGIN}{name} -->\n{made}{END}"));
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// The blocks of `text` that are not what they should be, as they should be.
fn stale(text: &str, block: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    match renewed(text, block) {
        Ok(new) if new == text => None,
        Ok(new) => {
            let lines: Vec<&str> = text.lines().collect();
            let changed: Vec<&str> = new.lines().filter(|line| !lines.contains(line)).collect();
            Some(format!("stale; these lines are right:\n{}", changed.join("\n")))
        }
        Err(problem) => Some(problem),
    }
}

/// Number words; the ones below three are English.
const WORDS: [&str; 26] = [
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
    "hundred",
];

fn is_number(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
    let digits = word.replace([',', '.'], "");
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        || (!word.is_empty() && word.split('-').all(|part| WORDS.contains(&part) || ONES.contains(&part)))
}

const ONES: [&str; 2] = ["one", "two"];

/// Figures of the surface that were written by hand, outside the blocks.
fn by_hand(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut outside = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        outside.push_str(before);
        rest = after.split_once(END).map_or("", |(_, after)| after);
    }
    outside.push_str(rest);
    // Sentences may run over lines; a blank line ends one too.
    for sentence in outside.split("\n\n").flat_map(|paragraph| paragraph.split(". ")) {
        let words: Vec<&str> = sentence.split_whitespace().collect();
        let shown = words.join(" ");
        let unit = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
        for pair in words.windows(2) {
            if is_number(pair[0]) && ["tools", "groups"].contains(&unit(pair[1]).as_str()) {
                found.push(format!("{} {}: {shown}", pair[0], pair[1]));
            }
        }
        let sizes = words.windows(2).any(|pair| {
            is_number(pair[0]) && ["bytes", "kb", "kib", "tokens"].contains(&unit(pair[1]).as_str())
        });
        let lower = sentence.to_ascii_lowercase();
        if sizes && (lower.contains("surface") || lower.contains("--tools")) {
            found.push(format!("a size: {shown}"));
        }
    }
    found
}

#[test]
fn every_documented_figure() {
    let figures = Figures::of_a_running_server();
    let block = |name: &str| figures.block(name);
    let (mut found, mut blocks) = (Vec::new(), 0);
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        blocks += text.matches(BEGIN).count();
        if recording() {
            let new =
                renewed(&text, &block).unwrap_or_else(|problem| panic!("{}: {problem}", page.display()));
            if new != text {
                std::fs::write(&page, &new).unwrap();
            }
            continue;
        }
        found.extend(stale(&text, &block).map(|problem| format!("{}: {problem}", page.display())));
    }
    assert!(blocks >= 7, "{blocks} blocks: were the docs moved?");
    assert!(found.is_empty(), "write them with cargo xtask surface:\n{}", found.join("\n"));
}

#[test]
fn no_figure_is_written_by_hand() {
    let found: Vec<String> = pages()
        .iter()
        .flat_map(|page| {
            let text = std::fs::read_to_string(page).unwrap();
            by_hand(&text).into_iter().map(|line| format!("{}: {line}", page.display())).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "put these into a generated block, or count nothing:\n{}", found.join("\n"));
}

#[test]
fn the_categories_are_all_there() {
    let text = categories();
    for line in include_str!("../../tools/src/error.rs").lines() {
        if let Some((_, name)) = line.split_once(" => \"").filter(|_| line.contains("Self::")) {
            let name = name.trim_end_matches("\",");
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
    }
}

#[test]
fn a_figure_off_by_one_or_a_word_reworded_is_stale() {
    let figures = Figures::of_a_running_server();
    let block = |name: &str| figures.block(name);
    let page = format!("# A page\n\n{BEGIN}count -->\n{}{END}\n\nText.\n", figures.block("count").unwrap());
    assert_eq!(stale(&page, &block), None);

    let tools = figures.all.tools.len();
    let off = page.replace(&format!("{tools} tools"), &format!("{} tools", tools + 1));
    assert_ne!(off, page);
    let told = stale(&off, &block).unwrap();
    assert!(told.contains(&format!("{tools} tools")), "{told}");

    // A description reworded at the same length: only the digest knows.
    let mut reworded = Listing::of(Some("all"));
    let description = reworded.tools[0]["description"].as_str().unwrap().replace("crash", "trash");
    assert_ne!(reworded.tools[0]["description"], description.as_str());
    reworded.tools[0]["description"] = Value::String(description);
    assert_eq!(reworded.model_visible(), figures.all.model_visible());
    let digest = reworded.digest();
    let other = Figures { all: reworded, default: Listing::of(None), digest };
    assert!(stale(&page, &|name: &str| other.block(name)).is_some());

    for broken in [
        page.replace("begin count", "begin counts"),
        page.replace(END, ""),
        page.replace("<!-- surface:begin count -->", "<!-- surface:begin count"),
    ] {
        assert!(stale(&broken, &block).is_some(), "{broken}");
    }
}

#[test]
fn the_lint_finds_what_people_write() {
    let block = format!("{BEGIN}count -->\n38 tools\n{END}");
    assert_eq!(by_hand(&block), Vec::<String>::new());
    for text in [
        "It has sixty-five tools.",
        "It has 65 tools",
        "(78 tools)",
        "**Nine groups** of them",
        "seventy-eight\ntools",
        "The surface has 30,000 bytes.",
        "`--tools crash` costs 11 KB",
        "About 2,500 tokens for the surface",
    ] {
        assert_eq!(by_hand(text).len(), 1, "{text}");
    }
    for text in
        ["Two tools answer text.", "4 sessions", "a message of 16 bytes", "the tools", "one of these groups"]
    {
        let found = by_hand(text);
        assert!(found.is_empty() || text.starts_with("Two"), "{found:?}");
    }
    let surface = Surface::parse("crash", "--tools").unwrap();
    assert_eq!(by_hand(&format!("serving {}", surface.summary())).len(), 1);
}
