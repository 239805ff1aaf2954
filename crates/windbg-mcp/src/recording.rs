//! The transcript, when `WINDBG_MCP_TRANSCRIPT` names one.

use std::sync::Arc;

use transcript::{Recorder, Settings, Start};

use crate::engines;

/// Opens it. A path that cannot be opened is said loudly and costs the transcript, not the session.
pub(crate) fn start(arguments: &cli::Arguments) -> Option<Arc<Recorder>> {
    let settings = Settings::from_env()?;
    let path = settings.path.display().to_string();
    let engines = engines::AVAILABLE.iter().filter(|(_, has)| *has).map(|(name, _)| (*name).to_owned());
    let start = Start {
        version: env!("WINDBG_MCP_BUILD").to_owned(),
        engines: engines.collect(),
        surface: arguments.tools().summary(),
    };
    match Recorder::open(settings, start) {
        Ok(recorder) => {
            tracing::info!(run = recorder.run(), "transcript in {path}");
            Some(Arc::new(recorder))
        }
        Err(error) => {
            tracing::error!("NO TRANSCRIPT: {path} cannot be opened: {error}; this run is not recorded");
            None
        }
    }
}
