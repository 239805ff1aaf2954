//! Worker operations behind resources and completions: names that are known already. Nothing is
//! downloaded and nothing waited for.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use target::{Address, SymbolState, Target};

use crate::error::{Category, ToolError};
use crate::location::{Coordinate, coordinate};
use crate::tool::Job;

/// Places of one name at most.
const MOST_PLACES: usize = 64;
/// Values of a completion at most.
pub const MOST_VALUES: usize = 100;
/// How long a completion may look.
const COMPLETION: Duration = Duration::from_millis(150);

#[derive(Debug, Deserialize)]
struct Name {
    name: String,
}

/// A place of a symbol, as `current_location` tells one.
#[derive(Debug, Serialize)]
struct Place {
    location_state: &'static str,
    address: Address,
    symbol: String,
    displacement: target::Rva,
    #[serde(skip_serializing_if = "Option::is_none")]
    coordinate: Option<Coordinate>,
}

fn arguments<T: serde::de::DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args)
        .map_err(|error| ToolError::invalid(format!("a look-up's arguments: {error}")))
}

/// Where `name` is: `{"places": [...]}`.
pub(crate) fn symbol(job: &mut Job<'_>, args: Value) -> Result<Value, ToolError> {
    let Name { name } = arguments(args)?;
    crate::location::check_expression("symbol", &name)
        .map_err(|problems| ToolError::invalid(problems.join("; ")))?;
    let hits = job.target.resolve(&name)?;
    if hits.is_empty() {
        let text = format!("no symbol is called {name}");
        return Err(ToolError::new(Category::Debugger, text).because("no_such_symbol"));
    }
    let modules = job.target.modules()?;
    let places: Vec<Place> = hits
        .iter()
        .take(MOST_PLACES)
        .map(|hit| {
            let module = modules.iter().find(|m| m.base <= hit.address && hit.address < m.end());
            Place {
                location_state: if module.is_some() { "mapped" } else { "unmapped" },
                address: Address(hit.address),
                symbol: hit.qualified(),
                displacement: target::Rva(0),
                coordinate: module.map(|m| coordinate(job.target, m, hit.address - m.base)),
            }
        })
        .collect();
    Ok(json!({ "places": places, "matched": hits.len() }))
}

#[derive(Debug, Deserialize)]
struct Prefix {
    prefix: String,
}

/// Loaded modules whose name begins with `prefix`: `{"values": [...]}`.
pub(crate) fn complete_module(job: &mut Job<'_>, args: Value) -> Result<Value, ToolError> {
    let Prefix { prefix } = arguments(args)?;
    let mut values: Vec<String> = job
        .target
        .modules()?
        .iter()
        .map(|module| module.name.clone())
        .filter(|name| begins(name, &prefix))
        .collect();
    values.sort_unstable();
    values.dedup();
    Ok(page(values))
}

/// Symbols that begin with `prefix`, of modules whose symbols are loaded; without a `!` in it, those
/// modules.
pub(crate) fn complete_symbol(job: &mut Job<'_>, args: Value) -> Result<Value, ToolError> {
    let Prefix { prefix } = arguments(args)?;
    let modules = job.target.modules()?;
    let loaded = modules.iter().filter(|module| is_loaded(job.target, module.base)).map(|m| m.name.clone());
    let Some((module, name)) = prefix.split_once('!') else {
        return Ok(page(
            loaded.map(|name| format!("{name}!")).filter(|name| begins(name, &prefix)).collect(),
        ));
    };
    let Some(module) = loaded.into_iter().find(|loaded| loaded.eq_ignore_ascii_case(module)) else {
        return Ok(page(Vec::new()));
    };
    // What is typed is a name's beginning, not a pattern.
    if name.contains(['*', '?']) {
        return Ok(page(Vec::new()));
    }
    let halt = job.halt.at_most(COMPLETION);
    let hits = job.target.find_symbols(&format!("{module}!{name}*"), MOST_VALUES + 1, &halt)?;
    Ok(page(hits.iter().map(target::SymbolHit::qualified).filter(|full| begins(full, &prefix)).collect()))
}

fn is_loaded(target: &dyn Target, base: u64) -> bool {
    let unknown = [SymbolState::Deferred, SymbolState::None];
    target.symbol_status(base, false).is_ok_and(|status| !unknown.contains(&status.state))
}

fn begins(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn page(mut values: Vec<String>) -> Value {
    let more = values.len() > MOST_VALUES;
    values.truncate(MOST_VALUES);
    json!({ "values": values, "more": more })
}
