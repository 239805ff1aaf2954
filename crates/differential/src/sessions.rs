//! One dump in two sessions, asked side by side.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::fields::{Difference, compare};
use crate::{Answer, Case, Client, Error, text};

/// The two engines of a comparison, as `open_dump` calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    pub native: &'static str,
    pub other: &'static str,
}

impl Engines {
    /// What the product is compared with.
    pub const DBGENG: Self = Self { native: "native", other: "dbgeng" };
    /// The same engine twice: what differs then is chance.
    pub const TWICE: Self = Self { native: "native", other: "native" };
}

/// Two sessions of one dump, and what differed so far.
pub(crate) struct Pair<'a> {
    client: &'a mut Client,
    native: Option<String>,
    other: Option<String>,
    pub(crate) looked_at: usize,
    pub(crate) questions: usize,
    pub(crate) differences: Vec<Difference>,
    asked: HashSet<String>,
}

impl<'a> Pair<'a> {
    /// Opens `case` twice and compares what the openers say. Both must open it for anything more to be
    /// asked. Also the native engine's summary.
    pub(crate) fn open(
        client: &'a mut Client,
        case: &Case,
        engines: Engines,
    ) -> Result<(Self, Value), Error> {
        let mut arguments = json!({ "path": case.dump, "symbol_path": case.symbols });
        if !case.images.is_empty() {
            arguments["image_path"] = Value::from(case.images.as_str());
        }
        let mut open = |engine: &str| {
            arguments["engine"] = Value::from(engine);
            client.call("open_dump", &arguments)
        };
        // One after the other: the first answer of two would make the other session the current one.
        let (native, other) = (open(engines.native)?, open(engines.other)?);
        for answer in [&native, &other] {
            if let Answer::Refused { reason: Some(reason), message, .. } = answer
                && reason == "no_dbgeng"
            {
                return Err(Error::NoEngine(message.clone()));
            }
        }
        let session = |answer: &Answer| answer.served()?["session_id"].as_str().map(ToOwned::to_owned);
        let mut pair = Self {
            client,
            native: session(&native),
            other: session(&other),
            looked_at: 0,
            questions: 0,
            differences: Vec::new(),
            asked: HashSet::new(),
        };
        pair.judge("open_dump", &native, &other);
        let summary = native.served().map(|opened| opened["summary"].clone()).unwrap_or_default();
        Ok((pair, summary))
    }

    pub(crate) fn both_open(&self) -> bool {
        self.native.is_some() && self.other.is_some()
    }

    fn judge(&mut self, question: &str, native: &Answer, other: &Answer) {
        let compared = compare(question, native, other);
        self.questions += 1;
        self.looked_at += compared.looked_at;
        self.differences.extend(compared.differences);
    }

    /// Asks both the same. A question asked before is not asked again.
    fn both(
        &mut self,
        question: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<Option<(Answer, Answer)>, Error> {
        let (Some(native), Some(other)) = (self.native.clone(), self.other.clone()) else { return Ok(None) };
        if !self.asked.insert(question.to_owned()) {
            return Ok(None);
        }
        let of = |session: String| {
            let mut arguments = arguments.clone();
            arguments["session_id"] = Value::from(session);
            arguments
        };
        let first = self.client.ask(tool, &of(native))?;
        let second = self.client.ask(tool, &of(other))?;
        Ok(Some((self.client.answer(first)?, self.client.answer(second)?)))
    }

    /// Asks both and compares; both answers, nothing when either refused or it was asked before.
    pub(crate) fn ask(
        &mut self,
        question: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<Option<(Value, Value)>, Error> {
        let Some((native, other)) = self.both(question, tool, arguments)? else { return Ok(None) };
        self.judge(question, &native, &other);
        Ok(native.served().cloned().zip(other.served().cloned()))
    }

    /// Asks both a raw command; what `read` makes of the texts.
    pub(crate) fn facts(
        &mut self,
        command: &str,
        read: fn(&str) -> Value,
    ) -> Result<Option<(Answer, Answer)>, Error> {
        let question = format!("execute {command}");
        let answers = self.both(&question, "execute", &json!({ "command": command }))?;
        let facts = |answer: Answer| match answer {
            Answer::Served(value) => Answer::Served(read(value["text"].as_str().unwrap_or_default())),
            // One engine refuses what the other prints a complaint about.
            Answer::Refused { category, .. } if category == "debugger" => Answer::Served(text::nothing()),
            refused @ Answer::Refused { .. } => refused,
        };
        Ok(answers.map(|(native, other)| (facts(native), facts(other))))
    }

    /// Asks both a raw command and compares what `read` makes of the texts. A command that must tell
    /// something and tells nothing of it is a difference, even when both are silent.
    pub(crate) fn ask_text(
        &mut self,
        command: &str,
        tells: bool,
        read: fn(&str) -> Value,
    ) -> Result<(), Error> {
        let Some((native, other)) = self.facts(command, read)? else { return Ok(()) };
        let question = format!("execute {command}");
        self.judge(&question, &native, &other);
        if tells && native.served() == Some(&text::nothing()) {
            self.differences.push(Difference {
                question,
                field: "nothing".to_owned(),
                native: None,
                other: None,
            });
        }
        Ok(())
    }

    /// Ends both sessions.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        for session in [self.native.take(), self.other.take()].into_iter().flatten() {
            self.client.call("end_session", &json!({ "session_id": session }))?;
        }
        Ok(())
    }
}
