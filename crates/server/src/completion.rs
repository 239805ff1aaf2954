//! Completions (spec 00 decision 15): at most 100 values within 200 ms, an empty list instead of an
//! error. Nothing is downloaded, and no running target is waited for.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CompleteRequestParams, CompletionInfo, Reference};
use serde_json::{Value, json};
use supervisor::Client;
use tools::operations::{COMPLETE_MODULE, COMPLETE_SYMBOL};
use tools::{Surface, prompts};

use crate::uri;

/// How long a completion may take.
const BOUND: Duration = Duration::from_millis(200);
/// Entries of a folder that are looked at.
const MOST_ENTRIES: usize = 20_000;

/// Values and whether there are more.
type Found = (Vec<String>, bool);

/// What could be meant.
pub(crate) async fn complete(
    client: &Arc<Client>,
    surface: &Surface,
    dump_dirs: &[PathBuf],
    request: CompleteRequestParams,
) -> CompletionInfo {
    let looked = tokio::time::timeout(BOUND, look(client, surface, dump_dirs, request)).await;
    let (mut values, more) = looked.ok().flatten().unwrap_or_default();
    // A value with a token in it completes nothing: what it stands for is kept back.
    values.retain(|value| matches!(client.redactor().text(value), Cow::Borrowed(_)));
    let more = more || values.len() > CompletionInfo::MAX_VALUES;
    values.truncate(CompletionInfo::MAX_VALUES);
    CompletionInfo::with_pagination(values, None, more).unwrap_or_default()
}

async fn look(
    client: &Arc<Client>,
    surface: &Surface,
    dump_dirs: &[PathBuf],
    request: CompleteRequestParams,
) -> Option<Found> {
    let typed = request.argument.value;
    let session =
        request.context.and_then(|context| context.arguments).and_then(|mut a| a.remove("session_id"));
    match (request.r#ref, request.argument.name.as_str()) {
        (Reference::Prompt(prompt), "path") => {
            let offered = prompts::offered(surface).find(|offered| offered.name == prompt.name)?;
            offered.arguments.iter().find(|argument| argument.name == "path")?;
            let folders = dump_dirs.to_vec();
            tokio::task::spawn_blocking(move || paths(&folders, &typed)).await.ok()
        }
        (Reference::Resource(template), argument) => match (template.uri.as_str(), argument) {
            (uri::MODULES | uri::SYMBOL, "session_id") => sessions(client, &typed).await,
            (uri::MODULES, "filter") => ask(client, session, COMPLETE_MODULE, &typed).await,
            (uri::SYMBOL, "symbol") => ask(client, session, COMPLETE_SYMBOL, &typed).await,
            _ => None,
        },
        _ => None,
    }
}

/// The caller's own sessions.
async fn sessions(client: &Arc<Client>, typed: &str) -> Option<Found> {
    let page = client.sessions().status(None).await.ok()?;
    let ids = page.sessions.into_iter().filter(|row| row.live).map(|row| row.session_id);
    Some((ids.filter(|id| id.starts_with(typed)).collect(), false))
}

/// A worker's answer, if it has nothing else to do.
async fn ask(client: &Arc<Client>, session: Option<String>, operation: &str, typed: &str) -> Option<Found> {
    let sessions = client.sessions();
    let page = sessions.status(session.as_deref()).await.ok()?;
    let row =
        page.sessions.iter().find(|row| session.as_ref().map_or(row.current, |id| *id == row.session_id))?;
    let moving = row.execution.as_ref().is_some_and(|execution| !execution.stopped);
    if row.busy.is_some() || moving || !row.live {
        return None;
    }
    let (_, answer) =
        sessions.operate(Some(&row.session_id), operation, json!({ "prefix": typed })).await.ok()?;
    let values =
        answer["values"].as_array()?.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    Some((values, answer["more"] == true))
}

/// Paths below `folders` that begin with `typed`; folders end with a separator.
fn paths(folders: &[PathBuf], typed: &str) -> Found {
    let mut values = Vec::new();
    for folder in folders {
        let Ok(root) = folder.canonicalize() else { continue };
        let shown = root.to_string_lossy().into_owned();
        let separator = std::path::MAIN_SEPARATOR;
        // Nothing typed yet, or a part of the folder's own path: its entries.
        let inside = format!("{}{separator}", shown.trim_end_matches(separator));
        if inside.starts_with(typed) {
            values.extend(entries(&root, &root, &inside, ""));
        } else if let Some(rest) = typed.strip_prefix(&inside) {
            let (below, start) = rest.rfind(separator).map_or(("", rest), |at| rest.split_at(at + 1));
            values.extend(entries(&root, &root.join(below), &format!("{inside}{below}"), start));
        }
    }
    values.sort_unstable();
    values.dedup();
    let more = values.len() > CompletionInfo::MAX_VALUES;
    (values, more)
}

/// Entries of `folder` whose name begins with `start`, if it lies in `root`, links followed.
fn entries(root: &Path, folder: &Path, shown: &str, start: &str) -> Vec<String> {
    let within = |path: &Path| path.canonicalize().is_ok_and(|real| real.starts_with(root));
    if !within(folder) {
        return Vec::new();
    }
    let Ok(list) = std::fs::read_dir(folder) else { return Vec::new() };
    list.take(MOST_ENTRIES)
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let path = entry.path();
            if !name.starts_with(start) || (entry.file_type().ok()?.is_symlink() && !within(&path)) {
                return None;
            }
            let end = if path.is_dir() { std::path::MAIN_SEPARATOR_STR } else { "" };
            Some(format!("{shown}{name}{end}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_their_folders() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let dumps = home.join("dumps");
        std::fs::create_dir_all(dumps.join("more")).unwrap();
        for file in ["a.dmp", "ab.dmp", "more/c.dmp"] {
            std::fs::write(dumps.join(file), b"").unwrap();
        }
        std::fs::write(home.join("secret.txt"), b"").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&home, dumps.join("up")).unwrap();
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let found = |typed: &str| paths(std::slice::from_ref(&dumps), typed).0;
        let all = vec![text(dumps.join("a.dmp")), text(dumps.join("ab.dmp")), text(dumps.join("more/"))];
        assert_eq!(found(""), all);
        assert_eq!(found(&text(home.clone())), all);
        assert_eq!(found(&text(dumps.join("ab"))), [text(dumps.join("ab.dmp"))]);
        assert_eq!(found(&text(dumps.join("more/"))), [text(dumps.join("more/c.dmp"))]);
        for outside in [home.join("s"), dumps.join("../s"), dumps.join("up/s"), dumps.join("none/x")] {
            assert_eq!(found(&text(outside.clone())), Vec::<String>::new(), "{}", outside.display());
        }
        assert_eq!(paths(&[], ""), (Vec::new(), false));
    }
}
