//! `driver`: what a driver accepts, from whom, and what it does with it; many drivers ranked.

mod answer;
mod export;
mod rank;
mod report;
mod surface;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::ProgressBar;
use serde_json::{Value, json};
use supervisor::{Client, Supervisor};

use crate::arguments::Driver;
use crate::call::opening;
use crate::progress::bar;
use crate::style::{Style, plain};
use crate::triage::{Asker, Failure, at_once, routed};
use crate::{FAILED, OK, USAGE, dumps, output};
use export::Exported;
use surface::Surfaced;

type Outcome = Result<Surfaced, Failure>;

/// Opens the image, asks for its surface, ends the session.
async fn one(asker: Asker, args: serde_json::Map<String, Value>) -> Outcome {
    let opened = asker.ask("open_dump", args).await?;
    let session = opened["session_id"].as_str().unwrap_or_default().to_owned();
    let surface = match opened["kind"].as_str() {
        Some("image") => asker.ask("driver_surface", routed(&session)).await,
        _ => Err(asker.failure("this is no driver; windbg-mcp triage reads dumps", None)),
    };
    // The slot is wanted by the next driver, whatever came of this one.
    if let Err(failure) = asker.call("end_session", routed(&session)).await {
        let what = format!("ending the session of {}: {}", asker.path.display(), failure.message);
        output::problem(&plain(&what));
    }
    Ok(Surfaced::of(asker.path, opened, surface?))
}

/// One JSON object of a driver.
fn object(outcome: &Outcome) -> Value {
    match outcome {
        Ok(driver) => json!({
            "path": output::shown_path(&driver.path).to_string_lossy(),
            "status": "ok",
            "open": driver.opened,
            "surface": driver.surface,
        }),
        Err(failure) => json!({
            "path": failure.path.to_string_lossy(),
            "status": "error",
            "error": failure.error.clone().unwrap_or_else(|| json!({ "message": failure.message })),
        }),
    }
}

fn start(
    client: &Arc<Client>,
    bar: &ProgressBar,
    path: &Path,
    asked: &Driver,
) -> tokio::task::JoinHandle<Outcome> {
    let asker = Asker {
        client: Arc::clone(client),
        bar: bar.clone(),
        path: path.to_owned(),
        symbols: asked.search.symbols.clone(),
        images: asked.search.images.clone(),
    };
    tokio::spawn(one(asker, opening(path, &asked.search)))
}

/// Writes what `--header`, `--ida` and `--ghidra` ask for.
fn export(asked: &Driver, driver: &Surfaced) -> Result<(), String> {
    let file = driver.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let exported = Exported { file: &file, sha256: driver.sha256(), maps: &driver.maps };
    type Writer = fn(&Exported<'_>) -> String;
    let wanted: [(&Option<PathBuf>, Writer); 3] =
        [(&asked.header, export::header), (&asked.ida, export::ida), (&asked.ghidra, export::ghidra)];
    for (path, write) in wanted {
        if let Some(path) = path {
            std::fs::write(path, write(&exported))
                .map_err(|error| format!("{} was not written: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Runs the subcommand: 0 when every driver was read, 1 when some were not.
pub(crate) async fn run(asked: &Driver, supervisor: &Arc<Supervisor>) -> i32 {
    let (paths, trouble) = dumps::find_drivers(&asked.paths);
    let exports = [&asked.header, &asked.ida, &asked.ghidra].iter().any(|path| path.is_some());
    if exports && paths.len() != 1 {
        output::problem("--header, --ida and --ghidra go with one driver; name the file itself");
        return USAGE;
    }
    trouble.iter().for_each(|text| output::problem(&plain(text)));
    let outcomes = all(asked, supervisor, &paths).await;
    let failed = outcomes.iter().any(Result::is_err) || !trouble.is_empty();
    if let (true, Some(Ok(driver))) = (exports, outcomes.first())
        && let Err(problem) = export(asked, driver)
    {
        output::problem(&problem);
        return FAILED;
    }
    if failed { FAILED } else { OK }
}

/// Every driver, a few at once; one is reported whole, several are ranked.
async fn all(asked: &Driver, supervisor: &Arc<Supervisor>, paths: &[PathBuf]) -> Vec<Outcome> {
    let (bar, style, client) = (bar(paths.len()), Style::of_stdout(), supervisor.client("cli"));
    let ranked = paths.len() > 1 && !asked.full && !asked.json;
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(paths.len());
    let mut running = std::collections::VecDeque::new();
    let mut waiting = paths.iter();
    loop {
        while running.len() < at_once(supervisor)
            && let Some(path) = waiting.next()
        {
            running.push_back((path, start(&client, &bar, path, asked)));
        }
        let Some((path, task)) = running.pop_front() else { break };
        let outcome = task.await.unwrap_or_else(|error| {
            let message = format!("the report itself failed: {error}; report this");
            Err(Failure { path: output::shown_path(path), message, error: None })
        });
        bar.inc(1);
        bar.suspend(|| match &outcome {
            _ if asked.json => output::line(&object(&outcome).to_string()),
            Ok(driver) if !ranked => output::print(&report::full(driver, style)),
            Ok(_) => {}
            Err(failure) => output::problem(&crate::report::failure(failure)),
        });
        outcomes.push(outcome);
    }
    bar.finish_and_clear();
    if ranked {
        let read: Vec<&Surfaced> = outcomes.iter().flatten().collect();
        output::print(&rank::text(&read, style));
    }
    outcomes
}
