//! The server's life: until the client leaves or the system says stop.

use std::io::IsTerminal as _;
use std::sync::Arc;

use supervisor::Supervisor;
use tokio_util::sync::CancellationToken;

/// Serves and answers the exit code.
pub(crate) async fn stdio(supervisor: &Arc<Supervisor>, serving: server::Serving) -> i32 {
    if std::io::stdin().is_terminal() {
        eprintln!(
            "windbg-mcp: serving MCP on standard input, for a program to talk to; Ctrl+C ends it.\n\
             For people: windbg-mcp triage DUMP, or windbg-mcp --help"
        );
    }
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    let waiter = tokio::spawn(async move {
        told_to_stop().await;
        tracing::info!("told to stop");
        stopper.cancel();
    });
    let served = server::serve_stdio(supervisor, serving, stop).await;
    waiter.abort();
    match served {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(%error, "serving failed");
            1
        }
    }
}

#[cfg(unix)]
async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(not(unix))]
async fn told_to_stop() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
