//! `modules`: what is loaded, what was unloaded, and which symbols each has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::{Address, Guid, Module, SymbolState, Target, UnloadedModule};

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::table::{fenced, quiet};
use crate::tool::{Hints, Job, Tool, WorkerTool};
use crate::wildcard::Wildcard;

pub(crate) struct Modules;

const MOST: usize = 2000;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Module name; `*` and `?` are wild, without them a part of the name.
    #[serde(default)]
    filter: Option<String>,
    /// Rows at most, default 64; a quarter is kept for unloaded modules.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2000))]
    limit: Option<u32>,
    /// First look at the target's module list again.
    #[serde(default)]
    refresh: Option<bool>,
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Pdb {
    /// File name, as the image records it.
    name: String,
    guid: Guid,
    age: u32,
    /// Symbol-store key.
    key: String,
    /// A file of that name was found whose identity differs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unmatched: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Row {
    #[schemars(extend("x-verbatim" = true))]
    name: String,
    image_name: String,
    /// As recorded, when that is more than `image_name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loaded_image_name: Option<String>,
    start: Address,
    end: Address,
    size: u64,
    symbols: SymbolState,
    /// Why there are no better symbols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    symbols_note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_mode: Option<bool>,
    timestamp: u32,
    checksum: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pdb: Option<Pdb>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct UnloadedRow {
    image_name: String,
    start: Address,
    end: Address,
    size: u64,
    timestamp: u32,
    checksum: u32,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Refreshed {
    synchronized: bool,
    /// Modules known before.
    before: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    modules: Vec<Row>,
    unloaded: Vec<UnloadedRow>,
    /// Loaded modules in all.
    loaded: usize,
    matched: usize,
    unloaded_matched: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh: Option<Refreshed>,
}

/// How many of each kind are listed: a quarter is kept for unloaded rows, and what one half leaves
/// goes to the other.
fn share(loaded: usize, unloaded: usize, limit: usize) -> (usize, usize) {
    if loaded + unloaded <= limit {
        return (loaded, unloaded);
    }
    let reserve = if limit == 1 && loaded > 0 { 0 } else { unloaded.min((limit / 4).max(1)) };
    let rows = loaded.min(limit - reserve);
    (rows, unloaded.min(limit - rows))
}

fn row(target: &dyn Target, module: &Module) -> Row {
    let status = target.symbol_status(module.base, false).ok();
    let unmatched = status.as_ref().is_some_and(|status| status.unmatched);
    let state = status.as_ref().map_or(SymbolState::Deferred, |status| status.state);
    let note = status.as_ref().and_then(|status| status.note.clone());
    let pdb = module.pdb.clone().or_else(|| status.and_then(|status| status.pdb));
    Row {
        name: module.name.clone(),
        image_name: module.image_name.clone(),
        loaded_image_name: (module.image_path != module.image_name && !module.image_path.is_empty())
            .then(|| module.image_path.clone()),
        start: Address(module.base),
        end: Address(module.end()),
        size: module.size,
        symbols: state,
        symbols_note: note,
        user_mode: module.user_mode,
        timestamp: module.timestamp,
        checksum: module.checksum,
        version: module.file_version.map(|[a, b, c, d]| format!("{a}.{b}.{c}.{d}")),
        pdb: pdb.map(|pdb| Pdb {
            name: pdb.file_name().to_owned(),
            guid: pdb.guid,
            age: pdb.age,
            key: pdb.key(),
            unmatched,
        }),
    }
}

fn unloaded_row(module: &UnloadedModule) -> UnloadedRow {
    UnloadedRow {
        image_name: module.image_name.clone(),
        start: Address(module.base),
        end: Address(module.base.saturating_add(module.size)),
        size: module.size,
        timestamp: module.timestamp,
        checksum: module.checksum,
    }
}

fn state_name(state: SymbolState) -> String {
    serde_json::to_value(state).ok().and_then(|v| v.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}

impl Tool for Modules {
    const NAME: &'static str = "modules";
    const TITLE: &'static str = "Modules";
    const HINTS: Hints = Hints::READ;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Loaded and unloaded modules: range, timestamp, PDB identity and symbol state (`deferred`: not looked \
         for yet, not none).",
    )];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        match &params.filter {
            Some(filter) if filter.trim().is_empty() => {
                Err(vec!["filter must not be blank; leave it out to list all".to_owned()])
            }
            _ => Ok(()),
        }
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = String::new();
        if let Some(Refreshed { synchronized: false, error, .. }) = &output.refresh {
            let why = error.as_deref().unwrap_or("no reason given");
            text.push_str(&format!("The list could not be refreshed ({why}); it may be old.\n"));
        }
        text.push_str(&counts(output));
        if !output.modules.is_empty() {
            let rows: Vec<[String; 6]> = output
                .modules
                .iter()
                .map(|row| {
                    [
                        row.start.to_string(),
                        row.end.to_string(),
                        row.name.clone(),
                        state_name(row.symbols),
                        format!("{:08x}", row.timestamp),
                        row.loaded_image_name.as_ref().unwrap_or(&row.image_name).clone(),
                    ]
                })
                .collect();
            text.push('\n');
            text.push_str(&fenced(["start", "end", "name", "symbols", "timestamp", "image"], &rows));
        }
        if !output.unloaded.is_empty() {
            let rows: Vec<[String; 4]> = output
                .unloaded
                .iter()
                .map(|row| {
                    [
                        row.start.to_string(),
                        row.end.to_string(),
                        if row.timestamp == 0 { "-".to_owned() } else { format!("{:08x}", row.timestamp) },
                        row.image_name.clone(),
                    ]
                })
                .collect();
            text.push_str("\nUnloaded:\n");
            text.push_str(&fenced(["start", "end", "timestamp", "image"], &rows));
        }
        text
    }
}

fn counts(output: &Output) -> String {
    let mut text = match &output.filter {
        None => format!("{} loaded modules, {} unloaded", output.loaded, output.unloaded_matched),
        Some(filter) => format!(
            "{} of {} loaded modules and {} unloaded match {}",
            output.matched,
            output.loaded,
            output.unloaded_matched,
            quiet(filter)
        ),
    };
    let all = output.matched + output.unloaded_matched;
    let listed = output.modules.len() + output.unloaded.len();
    if all == 0 && output.filter.is_some() {
        text.push_str(
            ". The pattern is matched with the name symbols are qualified by; only * and ? are wild",
        );
    } else if listed < all {
        text.push_str(&format!(", {listed} listed; "));
        text.push_str(&if all <= MOST {
            format!("limit {all} returns all")
        } else {
            "filter is the only way to the rest".to_owned()
        });
    }
    text.push('.');
    text
}

impl WorkerTool for Modules {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Output, ToolError> {
        let target = job.target;
        let refresh = if params.refresh.unwrap_or(false) {
            let before = target.modules()?.len();
            let error = target.resync().err().map(|error| error.to_string());
            Some(Refreshed { synchronized: error.is_none(), before, error })
        } else {
            None
        };
        let wildcard = params.filter.as_deref().map(Wildcard::new);
        let wanted = |name: &str| wildcard.as_ref().is_none_or(|wildcard| wildcard.matches(name));
        let loaded = target.modules()?;
        let unloaded = target.unloaded_modules()?;
        let hits: Vec<&Module> = loaded.iter().filter(|module| wanted(&module.name)).collect();
        let gone: Vec<&UnloadedModule> =
            unloaded.iter().filter(|module| wanted(&module.image_name)).collect();
        let (rows, unloaded_rows) = share(hits.len(), gone.len(), params.limit.unwrap_or(64) as usize);
        Ok(Output {
            modules: hits.iter().take(rows).map(|module| row(target, module)).collect(),
            unloaded: gone.iter().take(unloaded_rows).map(|module| unloaded_row(module)).collect(),
            loaded: loaded.len(),
            matched: hits.len(),
            unloaded_matched: gone.len(),
            filter: wildcard.map(|wildcard| wildcard.as_text()),
            refresh,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn the_budget_is_shared() {
        assert_eq!(share(200, 50, 227), (177, 50));
        assert_eq!(share(200, 50, 250), (200, 50));
        assert_eq!(share(5, 5, 1), (1, 0));
        assert_eq!(share(0, 5, 1), (0, 1));
        assert_eq!(share(3, 100, 64), (3, 61));
        assert_eq!(share(100, 1, 2), (1, 1));
    }
}
