//! `cargo xtask compare`: one dump, both engines.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use differential::{Case, Client, Engines, Lab, compare_dump, render};

use crate::process::{cargo, root, run};

/// Prints where the native engine and DbgEng differ on `dump`.
pub(crate) fn print(dump: &Path, symbols: Option<&str>, images: Option<&str>, all: bool) -> Result<()> {
    let lab = Lab::of(&root()).map_err(|missing| anyhow!(missing))?;
    run(cargo().args(["build", "--quiet", "--locked", "--bin", "windbg-mcp"]))?;
    let mut case = Case::new(dump, &name(dump))?;
    if let Some(symbols) = symbols {
        case = case.and_symbols(symbols);
    }
    if let Some(images) = images {
        case = case.and_images(images);
    }
    let mut client = Client::start(&root().join("target/debug/windbg-mcp"), &lab.environment())?;
    let comparison = compare_dump(&mut client, &case, Engines::DBGENG)
        .with_context(|| format!("comparing {}", dump.display()))?;
    print!("{}", render(&comparison, all));
    Ok(())
}

/// What the table of accepted differences calls the dump: its folder and file.
fn name(dump: &Path) -> String {
    let parts: Vec<_> = dump.iter().map(|part| part.to_string_lossy()).collect();
    parts[parts.len().saturating_sub(3)..].join("/")
}
