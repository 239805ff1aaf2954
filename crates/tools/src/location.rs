//! Where a tool is pointed: an expression, or a coordinate that names an image by its identity
//! (spec 10 section 4).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use target::{Guid, Halt, Module, Rva, Target, TargetError, TargetExt};

use crate::error::{Category, ToolError};

// Field names only: what a coordinate is for is said once, in the docs and in refusals.
/// A place in an image by its identity, as an answer gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Coordinate {
    pub module: String,
    pub image_name: String,
    pub identity: ImageIdentity,
    pub rva: Rva,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ImageIdentity {
    pub timestamp: u32,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdb: Option<PdbPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PdbPart {
    pub guid: Guid,
    pub age: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmatched: bool,
}

/// What the engine knows of a module's PDB, without loading anything.
pub(crate) fn pdb_part(target: &dyn Target, module: &Module) -> Option<PdbPart> {
    let status = target.symbol_status(module.base, false).ok();
    let unmatched = status.as_ref().is_some_and(|status| status.unmatched);
    let pdb = module.pdb.clone().or_else(|| status.and_then(|status| status.pdb))?;
    Some(PdbPart { guid: pdb.guid, age: pdb.age, unmatched })
}

/// The coordinate of an address inside `module`.
pub(crate) fn coordinate(target: &dyn Target, module: &Module, rva: u64) -> Coordinate {
    Coordinate {
        module: module.name.clone(),
        image_name: module.image_name.clone(),
        identity: ImageIdentity {
            timestamp: module.timestamp,
            size: module.size,
            pdb: pdb_part(target, module),
        },
        rva: Rva(rva),
    }
}

/// Problems of the pair (expression, coordinate): exactly one of them, the expression an operand,
/// the coordinate only beside an explicit session.
pub(crate) fn check(
    address: Option<&str>,
    coordinate: Option<&Coordinate>,
    session_named: bool,
) -> Result<(), Vec<String>> {
    check_as("address", address, coordinate, session_named)
}

/// The same where the expression's field is called `field`.
pub(crate) fn check_as(
    field: &str,
    expression: Option<&str>,
    coordinate: Option<&Coordinate>,
    session_named: bool,
) -> Result<(), Vec<String>> {
    match (expression, coordinate) {
        (Some(text), None) => check_expression(field, text),
        (None, Some(at)) if session_named => {
            let strings = [("coordinate.module", &at.module), ("coordinate.image_name", &at.image_name)];
            let problems: Vec<String> = strings
                .iter()
                .filter_map(|(field, text)| expression::guard(text, field).err())
                .map(|error| error.to_string())
                .collect();
            if problems.is_empty() { Ok(()) } else { Err(problems) }
        }
        (None, Some(_)) => Err(vec![
            "a coordinate needs an explicit session_id: it names an image of one session".to_owned(),
        ]),
        _ => Err(vec![format!("give exactly one of {field} and coordinate")]),
    }
}

/// Problems of one expression operand.
pub(crate) fn check_expression(field: &str, text: &str) -> Result<(), Vec<String>> {
    if text.trim().is_empty() {
        return Err(vec![format!("{field} must not be blank")]);
    }
    expression::guard(text, field).map_err(|error| vec![error.to_string()])
}

/// The address an expression means.
pub(crate) fn evaluate(target: &dyn Target, text: &str, halt: &Halt) -> Result<u64, ToolError> {
    target.evaluate(text, halt).map_err(|error| match error {
        TargetError::Deadline(_) => ToolError::new(
            Category::NotRun,
            format!("resolving {text} was cut short: the call's time ran out"),
        ),
        error => {
            let near = near_symbols(target, text, halt);
            let mut out = ToolError::from(error);
            if !near.is_empty() {
                out.message.push_str(&format!("; near names: {}", near.join(", ")));
            }
            out
        }
    })
}

/// Up to three symbols of the module an expression names that contain the name it asked for.
pub(crate) fn near_symbols(target: &dyn Target, text: &str, halt: &Halt) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '!' | '.' | ':' | '$' | '@' | '?');
    let Some((module, name)) = text.split(|c| !is_name(c)).find_map(|word| word.split_once('!')) else {
        return Vec::new();
    };
    if module.is_empty() || name.is_empty() {
        return Vec::new();
    }
    // Half the name finds slips at its end, which is where most are.
    let stem: String = name.chars().take(name.chars().count().div_ceil(2).max(3)).collect();
    [format!("{module}!*{name}*"), format!("{module}!*{stem}*")]
        .iter()
        .filter_map(|pattern| target.find_symbols(pattern, 3, halt).ok())
        .find(|hits| !hits.is_empty())
        .map(|hits| hits.iter().map(target::SymbolHit::qualified).collect())
        .unwrap_or_default()
}

fn mismatch(kind: &str, message: String) -> ToolError {
    ToolError::new(Category::Debugger, message).because(kind).with("coordinate", json!({ "problem": kind }))
}

/// The address of a coordinate, checked against the module loaded now. `span` is how many bytes
/// from the rva on are wanted.
pub(crate) fn resolve(target: &dyn Target, at: &Coordinate, span: u64) -> Result<u64, ToolError> {
    let modules = target.modules()?;
    let image = target::base_name(&at.image_name);
    let mut hits = modules.iter().filter(|module| {
        module.name.eq_ignore_ascii_case(&at.module)
            && target::base_name(&module.image_name).eq_ignore_ascii_case(image)
    });
    let Some(module) = hits.next() else {
        return Err(mismatch(
            "module_not_loaded",
            format!("no loaded module is called {} ({image})", at.module),
        ));
    };
    if hits.next().is_some() {
        return Err(mismatch(
            "module_ambiguous",
            format!("more than one loaded module is called {}", at.module),
        ));
    }
    same_image(target, at, module)?;
    let end = at.rva.0.checked_add(span);
    if end.is_none_or(|end| end > module.size) {
        return Err(mismatch(
            "out_of_range",
            format!("rva {} and {span} bytes reach past {} ({:#x} bytes)", at.rva, at.module, module.size),
        ));
    }
    module
        .base
        .checked_add(at.rva.0)
        .ok_or_else(|| mismatch("out_of_range", "the coordinate wraps past 2^64".to_owned()))
}

fn same_image(target: &dyn Target, at: &Coordinate, module: &Module) -> Result<(), ToolError> {
    if (module.timestamp, module.size) != (at.identity.timestamp, at.identity.size) {
        let mut error = mismatch(
            "image_mismatch",
            format!(
                "the loaded {} is another build: timestamp {:#010x}, size {:#x}",
                at.module, module.timestamp, module.size
            ),
        );
        error.extra.insert(
            "coordinate".into(),
            json!({ "problem": "image_mismatch", "timestamp": module.timestamp, "size": module.size }),
        );
        return Err(error);
    }
    let loaded = pdb_part(target, module);
    match (&at.identity.pdb, loaded) {
        (Some(asked), Some(loaded))
            if (asked.guid, asked.age) != (loaded.guid, loaded.age)
                || asked.unmatched
                || loaded.unmatched =>
        {
            Err(mismatch("pdb_mismatch", format!("the PDB of the loaded {} is another one", at.module)))
        }
        _ => Ok(()),
    }
}

/// `module` and `rva` of an address as rows carry them; the flag says that the look-up failed.
pub(crate) fn attribution(target: &dyn Target, address: u64) -> (Option<String>, Option<Rva>, bool) {
    match target.attribute(address) {
        target::Attribution::Module { name, rva, .. } => (Some(name), Some(Rva(rva)), false),
        target::Attribution::NoModule { .. } => (None, None, false),
        target::Attribution::LookupFailed => (None, None, true),
    }
}
