//! Who controls which remote target. Two debuggers on one link stop and start the target behind each
//! other's back, so an endpoint is taken before anything is dialled and given back when the worker's
//! process is gone. Only this supervisor's own sessions are known here.

use std::sync::{Arc, Mutex};

use connection_string::Endpoint;
use tools::{Category, OpenRequest, ToolError};

use crate::{Shared, lock};

/// Endpoints taken, by ticket.
#[derive(Debug, Default)]
pub(crate) struct Endpoints(Mutex<(u64, Vec<(u64, Endpoint)>)>);

/// A place in [`Endpoints`]; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    ticket: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(&self.shared.endpoints.0).1.retain(|(ticket, _)| *ticket != self.ticket);
    }
}

/// Takes the endpoint of `request`, if it has one.
///
/// # Errors
/// [`Category::Capacity`] when another session holds it, or may.
pub(crate) fn reserve(shared: &Arc<Shared>, request: &OpenRequest) -> Result<Option<Reservation>, ToolError> {
    let Some(connection) = request.connection() else { return Ok(None) };
    let endpoint = connection.endpoint();
    let mut taken = lock(&shared.endpoints.0);
    if taken.1.iter().any(|(_, other)| other.conflicts(&endpoint)) {
        // Another client's session is not named.
        let message = format!(
            "another session of this server controls, or may control, the target behind {connection}; nothing was \
             dialled. A second controller would move the target behind the first one's back: use or end that session"
        );
        return Err(ToolError::new(Category::Capacity, message)
            .because("endpoint_taken")
            .then(&["session_status", "end_session"])
            .with("target", "no"));
    }
    taken.0 += 1;
    let ticket = taken.0;
    taken.1.push((ticket, endpoint));
    Ok(Some(Reservation { shared: Arc::clone(shared), ticket }))
}
