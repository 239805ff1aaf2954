//! A transport that begins with a request: whatever a client sends before it (a notification left
//! over from another era, an answer to nobody) is dropped instead of ending the process.

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio_util::sync::CancellationToken;

pub(crate) struct FirstRequest<T> {
    inner: T,
    begun: bool,
    /// Cancelled when the client's end is closed, which is before the service ends: that gives
    /// answers on their way some seconds.
    left: CancellationToken,
}

impl<T> FirstRequest<T> {
    pub(crate) fn new(inner: T, left: CancellationToken) -> Self {
        Self { inner, begun: false, left }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for FirstRequest<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.left.cancel();
                return None;
            };
            if self.begun || matches!(message, ClientJsonRpcMessage::Request(_)) {
                self.begun = true;
                return Some(message);
            }
            tracing::debug!("dropped a message before the first request");
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}
