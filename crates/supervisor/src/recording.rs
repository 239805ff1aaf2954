//! What the transcript is told (spec 20 section 4.3): every call at the one place calls pass, every
//! session event at the one place it happens.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use redaction::Shape;
use serde_json::{Map, Value};
use tools::ToolEntry;
use transcript::{Body, Event, Text};

use crate::answer::{self, CallFailure, CallResult};
use crate::call::Call;
use crate::session::Session;
use crate::{Config, Shared, lock};

/// The client of stdio is the only one there is; naming it says nothing.
const UNNAMED: &str = "stdio";

/// The session a call was routed to, noted where sessions are resolved and made, and the call's
/// number in the transcript.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routed {
    session: Arc<Mutex<Option<String>>>,
    request: u64,
}

impl Routed {
    pub(crate) fn note(&self, session: &str) {
        *lock(&self.session) = Some(session.to_owned());
    }

    fn session(&self) -> Option<String> {
        lock(&self.session).clone()
    }

    /// 0 for what is no tool call.
    pub(crate) fn request(&self) -> u64 {
        self.request
    }
}

impl Shared {
    /// Records an event; its texts pass the redactor here.
    pub(crate) fn record(&self, client: Option<&str>, event: Event) {
        if let Some(recorder) = &self.config.transcript {
            recorder.record(client, event);
        }
    }

    /// A text of an event that no result carried.
    pub(crate) fn told(&self, text: &str) -> Text {
        Text::new(self.config.redactor.text(text))
    }
}

impl Session {
    /// Records an event of this session.
    pub(crate) fn record(&self, event: Event) {
        if self.shared.config.transcript.is_some() {
            let client = self.client.upgrade();
            self.shared.record(client.as_ref().map(|client| client.id()), event);
        }
    }
}

impl Session {
    /// Records what the answer of a call nobody waits for any more tells: a batch whose client was
    /// killed has changed the target and cleaned up all the same.
    pub(crate) fn record_unheard(&self, call: &Call) {
        let (Some(entry), Some(Ok(reply))) = (tools::find(&call.name), call.peek()) else { return };
        if self.shared.config.transcript.is_none() || call.request == 0 {
            return;
        }
        let Config { answer_bytes, redactor, .. } = &self.shared.config;
        let surface = tools::Surface::all();
        let finished =
            answer::finish(entry, reply.data, reply.interrupted, &surface, *answer_bytes, redactor);
        let Some(data) = finished.ok().and_then(|result| result.structured) else { return };
        for derived in entry.derived(&data) {
            self.record(derived.of(call.request, Some(self.id.clone())));
        }
    }
}

/// A call being recorded. Dropped without an end, its caller stopped waiting.
pub(crate) struct Recording<'a> {
    shared: &'a Shared,
    client: &'a str,
    /// As the caller wrote it; a name that is no tool's passes the redactor.
    tool: String,
    request: u64,
    began: Instant,
    routed: Routed,
    ended: bool,
}

impl<'a> Recording<'a> {
    /// Records the request. Its secrets are known from here on, whatever becomes of it.
    pub(crate) fn begin(
        shared: &'a Shared,
        client: &'a str,
        tool: &'a str,
        args: Option<&Map<String, Value>>,
    ) -> Self {
        if let Some(args) = args {
            redaction::learn_arguments(args);
        }
        let request = shared.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let known = tools::find(tool).is_some();
        let tool = if known { tool.to_owned() } else { shared.told(tool).text };
        let recording = Self {
            shared,
            client,
            tool,
            request,
            began: Instant::now(),
            routed: Routed { request, ..Routed::default() },
            ended: false,
        };
        recording.asked(args);
        recording
    }

    fn asked(&self, args: Option<&Map<String, Value>>) {
        let Some(recorder) = &self.shared.config.transcript else { return };
        let session = args.and_then(|args| args.get("session_id")).and_then(Value::as_str);
        let event = Event::ToolRequest {
            request: self.request,
            tool: self.tool.clone(),
            client: (self.client != UNNAMED).then(|| self.client.to_owned()),
            session: session.map(|session| self.shared.told(session).text),
            args: None,
        };
        match args {
            None => recorder.record(Some(self.client), event),
            Some(args) => {
                let mut args = Value::Object(args.clone());
                self.shared.config.redactor.value(&mut args, &Shape::callers());
                recorder.record_with(Some(self.client), event, Body::Args(&args));
            }
        }
    }

    pub(crate) fn routed(&self) -> Routed {
        self.routed.clone()
    }

    /// Records the answer, which has passed the redactor, and what it tells beside itself.
    pub(crate) fn end(mut self, entry: Option<&ToolEntry>, answered: &Result<CallResult, CallFailure>) {
        self.ended = true;
        let Some(recorder) = &self.shared.config.transcript else { return };
        match answered {
            Ok(result) => {
                let data = result.structured.as_ref();
                let category = data.and_then(|data| data.pointer("/error/category")).and_then(Value::as_str);
                let event = self.result(!result.is_error, category, &result.text);
                recorder.record_with(Some(self.client), event, data.map_or(Body::None, Body::Data));
                if let (Some(entry), Some(data), None) = (entry, data, category) {
                    for derived in entry.derived(data) {
                        recorder.record(Some(self.client), derived.of(self.request, self.routed.session()));
                    }
                }
            }
            Err(failure) => {
                let category = match failure {
                    CallFailure::UnknownTool { .. } => "invalid_argument",
                    CallFailure::NoWorker(_) => "internal",
                };
                let told = self.shared.told(&failure.to_string()).text;
                recorder.record(Some(self.client), self.result(false, Some(category), &told));
            }
        }
    }

    fn result(&self, ok: bool, category: Option<&str>, text: &str) -> Event {
        Event::ToolResult {
            request: self.request,
            tool: self.tool.clone(),
            session: self.routed.session(),
            elapsed_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            verdict: if ok { "ok" } else { "error" }.to_owned(),
            category: category.map(ToOwned::to_owned),
            text: Text::new(text),
            data: None,
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let event = self.result(false, Some("timeout"), "its caller stopped waiting");
            self.shared.record(Some(self.client), event);
        }
    }
}
