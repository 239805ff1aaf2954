//! One request to a worker and whoever waits for its answer.

use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;
use tools::ToolError;

use crate::lock;
use crate::progress::Milestones;

/// A worker's answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) data: Value,
    pub(crate) interrupted: bool,
}

pub(crate) type Answer = Result<Reply, ToolError>;

/// A call on a session. Outlives its caller's wait: the answer of an abandoned call is kept for
/// whoever asks the same again.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: u64,
    /// The tool or operation.
    pub(crate) name: String,
    /// Name and arguments in one canonical spelling.
    pub(crate) key: String,
    pub(crate) since: Instant,
    /// It can let the target move, or change it.
    pub(crate) moves: bool,
    /// Its number in the transcript, 0 without.
    pub(crate) request: u64,
    milestones: Mutex<Milestones>,
    answer: watch::Sender<Option<Answer>>,
}

impl Call {
    pub(crate) fn new(id: u64, name: &str, key: String, milestones: Milestones) -> Self {
        let (name, answer) = (name.to_owned(), watch::Sender::new(None));
        Self {
            id,
            name,
            key,
            since: Instant::now(),
            moves: false,
            request: 0,
            milestones: Mutex::new(milestones),
            answer,
        }
    }

    pub(crate) fn asked_as(mut self, request: u64) -> Self {
        self.request = request;
        self
    }

    pub(crate) fn moving(mut self, moves: bool) -> Self {
        self.moves = moves;
        self
    }

    pub(crate) fn say(&self, text: &str) {
        lock(&self.milestones).say(text);
    }

    /// Another caller listens now.
    pub(crate) fn heard_by(&self, milestones: Milestones) {
        *lock(&self.milestones) = milestones;
    }

    /// Files the answer; only the first counts.
    pub(crate) fn finish(&self, answer: Answer) {
        self.heard_by(Milestones::none());
        self.answer.send_if_modified(|slot| {
            let first = slot.is_none();
            if first {
                *slot = Some(answer);
            }
            first
        });
    }

    pub(crate) fn peek(&self) -> Option<Answer> {
        self.answer.borrow().clone()
    }

    /// The answer, once there is one.
    pub(crate) async fn answer(&self) -> Answer {
        let mut answers = self.answer.subscribe();
        loop {
            if let Some(answer) = answers.borrow_and_update().clone() {
                return answer;
            }
            if answers.changed().await.is_err() {
                // The sender is `self`.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// One spelling per meaning: keys sorted, the session left out.
pub(crate) fn key(name: &str, args: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut pairs: Vec<(&String, &Value)> = map.iter().collect();
                pairs.sort_by_key(|(key, _)| *key);
                Value::Object(pairs.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
            other => other.clone(),
        }
    }
    let mut args = sorted(args);
    if let Value::Object(map) = &mut args {
        map.shift_remove("session_id");
    }
    format!("{name} {args}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_is_the_meaning() {
        let one = key("t", &json!({ "b": [1, { "y": 2, "x": 1 }], "a": 1, "session_id": "sess-1" }));
        let two = key("t", &json!({ "a": 1, "b": [1, { "x": 1, "y": 2 }] }));
        assert_eq!(one, two);
        assert_ne!(one, key("t", &json!({ "a": 2, "b": [1, { "x": 1, "y": 2 }] })));
    }
}
