//! MCP over stdio: the protocol's two eras over the supervisor's calls. What a client may see and
//! open hangs on its [`supervisor::Client`], found per request; over stdio there is one.

mod completion;
mod first;
mod handler;
mod lines;
mod listing;
mod pages;
mod progress;
mod prompts;
mod resources;
mod uri;

use std::sync::Arc;

use rmcp::ServiceExt;
use rmcp::service::{QuitReason, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio_pipes;
use supervisor::Supervisor;
use tokio_util::sync::CancellationToken;
use tools::Surface;

use first::FirstRequest;
use handler::McpServer;

/// Why serving ended otherwise than by the client's leave or a signal.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the MCP handshake failed: {0}; start the client again, or see RUST_LOG=debug")]
    Handshake(Box<ServerInitializeError>),
    #[error("the MCP service task ended abnormally: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// What is served, and how.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The build, as `initialize` reports it.
    pub version: String,
    pub surface: Surface,
    /// Folders below which paths of dumps are completed.
    pub dump_dirs: Vec<std::path::PathBuf>,
}

/// Serves one client over standard input and output until it closes its end or `stop` is cancelled,
/// then lets go of every session. Nothing but JSON-RPC lines is written to standard output.
///
/// # Errors
/// [`ServeError`]; sessions are let go in every case.
pub async fn serve_stdio(
    supervisor: &Arc<Supervisor>,
    serving: Serving,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let (input, output) = stdio_pipes();
    let left = CancellationToken::new();
    let (readable, forwarded) = tokio::io::duplex(1 << 16);
    tokio::spawn(lines::forward(input, forwarded));
    let transport = FirstRequest::new(AsyncRwTransport::new(readable, output), left.clone());
    let abandoning = tokio::spawn({
        let supervisor = Arc::clone(supervisor);
        async move {
            left.cancelled().await;
            supervisor.abandon().await;
        }
    });
    let served = serve(supervisor, serving, transport, stop).await;
    abandoning.abort();
    supervisor.shutdown().await;
    served
}

async fn serve<T>(
    supervisor: &Arc<Supervisor>,
    serving: Serving,
    transport: T,
    stop: CancellationToken,
) -> Result<(), ServeError>
where
    T: rmcp::transport::Transport<rmcp::RoleServer> + 'static,
{
    tracing::info!(version = serving.version, "serving over stdio: {}", serving.surface.summary());
    let server = McpServer::new(supervisor.client("stdio"), serving);
    let running = match server.serve_with_ct(transport, stop).await {
        Ok(running) => running,
        // Leaving before saying anything is no failure, and neither is a signal.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(ServeError::Handshake(Box::new(error))),
    };
    match running.waiting().await? {
        QuitReason::JoinError(error) => Err(ServeError::Task(error)),
        reason => {
            tracing::info!(?reason, "the client is gone");
            Ok(())
        }
    }
}
