//! Progress as MCP notifications.

use async_trait::async_trait;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use supervisor::ProgressSink;

/// Notifies the peer that gave `token`.
pub(crate) struct Notify {
    pub(crate) peer: Peer<RoleServer>,
    pub(crate) token: ProgressToken,
}

#[async_trait]
impl ProgressSink for Notify {
    async fn progress(&self, elapsed: f64, message: &str) {
        let note = ProgressNotificationParam::new(self.token.clone(), elapsed).with_message(message);
        // A client that is gone is found out by the transport.
        if let Err(error) = self.peer.notify_progress(note).await {
            tracing::debug!(%error, "a progress notification was not sent");
        }
    }
}
