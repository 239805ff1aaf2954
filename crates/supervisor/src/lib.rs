//! Sessions: one worker process each, its queue, interrupt, reclaim, progress and log (spec 10
//! sections 1, 2 and 3.2). Knows tools only by their admission and never loads an engine.
//!
//! ```no_run
//! # async fn example() -> Result<(), supervisor::CallFailure> {
//! use supervisor::{Config, Supervisor};
//! use tokio_util::sync::CancellationToken;
//!
//! let supervisor = Supervisor::new(Config::default());
//! let client = supervisor.client("stdio");
//! let surface = tools::Surface::all();
//! let answer = client.call("session_status", None, &surface, None, CancellationToken::new()).await?;
//! println!("{}", answer.text);
//! supervisor.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod answer;
mod attend;
mod call;
mod client;
mod config;
mod egress;
mod end;
mod endpoint;
mod engine_install;
mod image;
mod image_header;
mod log;
mod open;
mod process;
mod progress;
mod recording;
mod runs;
mod scope;
mod session;
mod stderr;
mod wine;
#[cfg(unix)]
mod wine_server;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use answer::{CallFailure, CallResult};
pub use client::Client;
pub use config::{BadVariable, Config};
pub use engine_install::InstalledEngine;
pub use log::{LogRing, RingLayer};
pub use progress::{Milestones, ProgressSink, relay};
pub use wine::EngineFact;

/// What every client and session shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) log: Arc<LogRing>,
    pub(crate) endpoints: endpoint::Endpoints,
    closing: AtomicBool,
    /// Requests of this run, as the transcript numbers them.
    requests: AtomicU64,
}

impl Shared {
    pub(crate) fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

/// All sessions of all clients. Needs a tokio runtime.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
    clients: Mutex<HashMap<String, Arc<Client>>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // State is consistent between statements; a panic elsewhere must not end every session.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Supervisor {
    /// A supervisor with a log of its own.
    #[must_use]
    pub fn new(config: Config) -> Arc<Self> {
        let log = Arc::new(LogRing::new(config.log_records));
        Self::with_log(config, log)
    }

    /// A supervisor that files worker records in `log`, which a [`RingLayer`] may share.
    #[must_use]
    pub fn with_log(config: Config, log: Arc<LogRing>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            config,
            log,
            endpoints: endpoint::Endpoints::default(),
            closing: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        });
        Arc::new(Self { shared, clients: Mutex::default() })
    }

    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// What every message passes on its way out; for whoever says something beside the tools.
    #[must_use]
    pub fn redactor(&self) -> &redaction::Redactor {
        &self.shared.config.redactor
    }

    #[must_use]
    pub fn log(&self) -> Arc<LogRing> {
        Arc::clone(&self.shared.log)
    }

    /// The client of this id, made on first use. Clients never see each other's sessions; over
    /// stdio there is one.
    #[must_use]
    pub fn client(&self, id: &str) -> Arc<Client> {
        let mut clients = lock(&self.clients);
        let make = || Arc::new(Client::new(id, Arc::clone(&self.shared)));
        Arc::clone(clients.entry(id.to_owned()).or_insert_with(make))
    }

    /// What DbgEng needs on this machine, found or missing; nothing to say on Windows, where the
    /// worker itself finds it.
    #[must_use]
    pub fn dbgeng_facts(&self) -> Vec<EngineFact> {
        image::dbgeng_facts(&self.shared.config)
    }

    /// Copies the engine in `from` to where workers find it without being told.
    ///
    /// # Errors
    /// What is wrong with the source, or with the folder it goes to.
    pub fn install_engine(&self, from: &std::path::Path) -> Result<InstalledEngine, String> {
        engine_install::install(from, &wine::worker_folder(&self.shared.config))
    }

    /// The client is gone, the sessions not yet: batches that run stop at their next step and clean up,
    /// those that wait do not begin.
    pub async fn abandon(&self) {
        let clients: Vec<Arc<Client>> = lock(&self.clients).values().cloned().collect();
        let mut tasks = tokio::task::JoinSet::new();
        for session in clients.iter().flat_map(|client| client.held()) {
            tasks.spawn(async move { session.announce().await });
        }
        tasks.join_all().await;
    }

    /// Releases every session in parallel with the shutdown grace, then kills what is left.
    /// Nothing can be opened afterwards.
    pub async fn shutdown(&self) {
        self.shared.closing.store(true, Ordering::Release);
        let clients: Vec<Arc<Client>> = lock(&self.clients).values().cloned().collect();
        let held = clients.iter().map(|client| client.held().len()).sum();
        self.shared.record(None, transcript::Event::Shutdown { sessions: held, client: None });
        let taken_out = self.shared.config.redactor.totals();
        if !taken_out.is_empty() {
            tracing::info!("redacted in this run: {}", taken_out.words());
        }
        let mut tasks = tokio::task::JoinSet::new();
        for session in clients.iter().flat_map(|client| client.held()) {
            tasks.spawn(async move { session.let_go().await });
        }
        tasks.join_all().await;
    }
}
