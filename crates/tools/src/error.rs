//! The error branch every failing tool answers with (spec 20 section 1.1 and 1.3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use target::TargetError;

/// What the caller should do next depends on this and nothing finer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Category {
    InvalidArgument,
    Unsupported,
    Debugger,
    TargetRunning,
    Timeout,
    Interrupted,
    NotRun,
    StaleSession,
    WorkerLost,
    Capacity,
    NotServed,
    Internal,
    RecoveryRequired,
}

impl Category {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Unsupported => "unsupported",
            Self::Debugger => "debugger",
            Self::TargetRunning => "target_running",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
            Self::NotRun => "not_run",
            Self::StaleSession => "stale_session",
            Self::WorkerLost => "worker_lost",
            Self::Capacity => "capacity",
            Self::NotServed => "not_served",
            Self::Internal => "internal",
            Self::RecoveryRequired => "recovery_required",
        }
    }
}

/// A sentence of a failure for those who are served all of `needs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    pub needs: Vec<String>,
    pub text: String,
}

/// A tool's failure. Travels over the worker channel as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub category: Category,
    /// Finer cause, snake_case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What happened, to what, and what to do next.
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Tools that are a sensible next call; narrowed to the surface before it is sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// Sentences that name tools; added to the message when the surface serves all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    /// Fields beside `error` in the structured answer (`target` of a failed open).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl ToolError {
    #[must_use]
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self {
            category,
            reason: None,
            message: message.into(),
            session_id: None,
            next: Vec::new(),
            hints: Vec::new(),
            extra: Map::new(),
        }
    }
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Category::InvalidArgument, message)
    }
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
    #[must_use]
    pub fn about(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }
    #[must_use]
    pub fn then(mut self, tools: &[&str]) -> Self {
        self.next = tools.iter().map(ToString::to_string).collect();
        self
    }
    /// Adds `; text` to the message where the surface serves all of `needs`: the only way a message
    /// may name a tool.
    #[must_use]
    pub fn when_served(mut self, needs: &[&str], text: impl Into<String>) -> Self {
        let needs = needs.iter().map(ToString::to_string).collect();
        self.hints.push(Hint { needs, text: text.into() });
        self
    }
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(field.to_owned(), value.into());
        self
    }

    /// The same for `surface`: the message with the hints it is entitled to.
    #[must_use]
    pub fn told(mut self, surface: &crate::Surface) -> Self {
        for hint in std::mem::take(&mut self.hints) {
            if hint.needs.iter().all(|tool| surface.serves(tool)) {
                self.message.push_str("; ");
                self.message.push_str(&hint.text);
            }
        }
        self
    }

    /// The structured answer; `next` keeps only what `surface` serves.
    #[must_use]
    pub fn structured(&self, surface: &crate::Surface) -> Value {
        let mut error = Map::new();
        error.insert("category".into(), json!(self.category));
        if let Some(reason) = &self.reason {
            error.insert("reason".into(), json!(reason));
        }
        error.insert("message".into(), json!(self.message));
        if let Some(session) = &self.session_id {
            error.insert("session_id".into(), json!(session));
        }
        let next: Vec<&String> = self.next.iter().filter(|name| surface.serves(name)).collect();
        if !next.is_empty() {
            error.insert("next".into(), json!(next));
        }
        let mut answer = Map::new();
        answer.insert("status".into(), json!("error"));
        answer.insert("error".into(), Value::Object(error));
        for (key, value) in &self.extra {
            answer.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(answer)
    }
}

impl From<TargetError> for ToolError {
    fn from(error: TargetError) -> Self {
        let (category, reason) = error.category();
        let category = match category {
            "unsupported" => Category::Unsupported,
            "interrupted" => Category::Interrupted,
            "timeout" => Category::Timeout,
            "invalid_argument" => Category::InvalidArgument,
            "target_running" => Category::TargetRunning,
            "stale_session" => Category::StaleSession,
            _ => Category::Debugger,
        };
        let mut out = Self::new(category, error.to_string());
        out.reason = reason.map(ToOwned::to_owned);
        out
    }
}
