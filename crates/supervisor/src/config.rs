//! Figures of spec 10 section 1.6 and what overrides them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redaction::Redactor;
use tools::EngineChoice;
use transcript::Recorder;

/// How a supervisor behaves. [`Config::default`] has the documented figures.
#[derive(Clone, Debug)]
pub struct Config {
    /// The worker's image; this executable when `None`.
    pub worker: Option<PathBuf>,
    /// Its arguments.
    pub worker_args: Vec<String>,
    /// Environment added to the worker's (tests).
    pub worker_env: Vec<(String, String)>,
    /// The engine of an open that names none; by the system when [`EngineChoice::Auto`].
    pub engine: EngineChoice,
    /// The folder with Microsoft's debugger DLLs.
    pub engine_dir: Option<PathBuf>,
    /// Wine, by name or path.
    pub wine: PathBuf,
    /// The Windows worker that Wine runs; `share/wine/windbg-mcp.exe` beside this program when `None`.
    pub wine_worker: Option<PathBuf>,
    /// How long a caller waits for an answer.
    pub call_timeout: Duration,
    /// How long a worker may take to say it is ready.
    pub worker_ready: Duration,
    /// Live sessions of one client.
    pub sessions: usize,
    /// Closed sessions remembered of one client.
    pub history: usize,
    /// How long `interrupt` waits for the worker's reader.
    pub interrupt_wait: Duration,
    /// How long a kernel controller that is handed off may take to be seen gone.
    pub handoff_wait: Duration,
    /// Grace of `end_session` and reclaim before the worker is killed.
    pub release_grace: Duration,
    /// Grace of every session at shutdown, all in parallel.
    pub shutdown_grace: Duration,
    /// An open that takes longer is reported as overdue.
    pub overdue: Duration,
    /// Silence after which a progress heartbeat is sent.
    pub heartbeat: Duration,
    /// Records the log keeps.
    pub log_records: usize,
    /// Longest structured or text answer, in bytes.
    pub answer_bytes: usize,
    /// How long the result of an abandoned call waits to be collected.
    pub kept_for: Duration,
    /// What no message leaves without.
    pub redactor: Redactor,
    /// The transcript, when one is kept.
    pub transcript: Option<Arc<Recorder>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker: None,
            worker_args: vec!["--engine-worker".to_owned()],
            worker_env: Vec::new(),
            engine: EngineChoice::Auto,
            engine_dir: None,
            wine: PathBuf::from("wine"),
            wine_worker: None,
            call_timeout: Duration::from_secs(300),
            worker_ready: Duration::from_secs(30),
            sessions: 4,
            history: 8,
            interrupt_wait: Duration::from_secs(5),
            handoff_wait: Duration::from_secs(10),
            release_grace: Duration::from_secs(20),
            shutdown_grace: Duration::from_secs(5),
            overdue: Duration::from_secs(120),
            heartbeat: Duration::from_secs(10),
            log_records: 1000,
            answer_bytes: 1 << 20,
            kept_for: Duration::from_secs(900),
            redactor: Redactor::none(),
            transcript: None,
        }
    }
}

/// A variable whose value cannot be used; the server refuses to start with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value:?}; it must be {wanted}")]
pub struct BadVariable {
    variable: &'static str,
    value: String,
    wanted: String,
}

fn path(variable: &'static str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn engine(variable: &'static str) -> Result<EngineChoice, BadVariable> {
    let value = std::env::var(variable).unwrap_or_default();
    match value.trim() {
        "" | "auto" => Ok(EngineChoice::Auto),
        "native" => Ok(EngineChoice::Native),
        "dbgeng" => Ok(EngineChoice::Dbgeng),
        _ => Err(BadVariable { variable, value, wanted: "auto, native or dbgeng".to_owned() }),
    }
}

fn number(variable: &'static str, min: u64, max: u64) -> Result<Option<u64>, BadVariable> {
    let Some(value) = std::env::var_os(variable) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    match value.trim().parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
        _ => Err(BadVariable { variable, value, wanted: format!("an integer from {min} to {max}") }),
    }
}

impl Config {
    /// The figures and engines with `WINDBG_MCP_ENGINE`, `_ENGINE_DIR`, `_WINE`, `_WINE_WORKER`, `WINDBG_MCP_CALL_TIMEOUT_SECS` (1..86400), `WINDBG_MCP_WORKER_READY_SECS`
    /// (1..3600) and `WINDBG_MCP_LOG_BUFFER` (1..100000) applied.
    ///
    /// # Errors
    /// [`BadVariable`]: exit with code 2.
    pub fn from_env() -> Result<Self, BadVariable> {
        let mut config = Self::default();
        if let Some(seconds) = number("WINDBG_MCP_CALL_TIMEOUT_SECS", 1, 86_400)? {
            config.call_timeout = Duration::from_secs(seconds);
        }
        if let Some(seconds) = number("WINDBG_MCP_WORKER_READY_SECS", 1, 3600)? {
            config.worker_ready = Duration::from_secs(seconds);
        }
        if let Some(records) = number("WINDBG_MCP_LOG_BUFFER", 1, 100_000)? {
            config.log_records = usize::try_from(records).unwrap_or(1000);
        }
        config.engine = engine("WINDBG_MCP_ENGINE")?;
        config.engine_dir = path("WINDBG_MCP_ENGINE_DIR");
        if let Some(wine) = path("WINDBG_MCP_WINE") {
            config.wine = wine;
        }
        config.wine_worker = path("WINDBG_MCP_WINE_WORKER");
        Ok(config)
    }
}
