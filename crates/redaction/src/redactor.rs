//! The one thing a channel asks before a message leaves.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::counts::Counts;
use crate::filter::Filter;
use crate::pairs::mask_pairs;
use crate::secret;
use crate::shape::{self, Shape};
use crate::value::Pass;

/// Secrets, and the `--redact` filter when there is one. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    filter: Option<Arc<Filter>>,
}

impl Redactor {
    /// Secrets only.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(filter: Filter) -> Self {
        Self { filter: Some(Arc::new(filter)) }
    }

    /// Whether a `--redact` file is in force.
    #[must_use]
    pub fn filters(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether anything could be taken out at all.
    #[must_use]
    pub fn acts(&self) -> bool {
        self.filter.is_some() || secret::any()
    }

    /// A line of a log as it may leave: also without what looks like a secret (spec 30 section 12.4).
    #[must_use]
    pub fn log_line<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.text(text) {
            Cow::Borrowed(text) => mask_pairs(text),
            Cow::Owned(text) => Cow::Owned(mask_pairs(&text).into_owned()),
        }
    }

    /// `text` as it may leave.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.counted(text, &mut Counts::default())
    }

    /// The same; adds what was taken out to `counts`.
    #[must_use]
    pub fn counted<'a>(&self, text: &'a str, counts: &mut Counts) -> Cow<'a, str> {
        let masked = secret::mask_counted(text, &mut counts.secrets);
        let Some(filter) = &self.filter else { return masked };
        match masked {
            Cow::Borrowed(text) => filter.text(text, counts),
            Cow::Owned(text) => Cow::Owned(filter.text(&text, counts).into_owned()),
        }
    }

    /// Makes `value`, which has the type of `shape`, what may leave: strings only, and of those only
    /// text and bytes. A row with blanked bytes gets `redacted: [{offset, size}]`.
    pub fn value(&self, value: &mut Value, shape: &Shape) -> Counts {
        let filter = self.filter.as_deref();
        let mut pass = Pass { filter, shape, counts: Counts::default() };
        if self.acts() {
            pass.value(value, shape::ROOT, "", &mut Vec::new());
        }
        pass.counts
    }

    /// The first token of this run's filter in a string of `args`: it stands for a value the caller
    /// never saw, so a call with it means nothing.
    #[must_use]
    pub fn token_in(&self, args: &Map<String, Value>) -> Option<String> {
        fn inside(filter: &Filter, value: &Value) -> Option<String> {
            match value {
                Value::String(text) => {
                    filter.tokens(text).first().map(|range| text[range.clone()].to_owned())
                }
                Value::Array(items) => items.iter().find_map(|item| inside(filter, item)),
                Value::Object(members) => members.values().find_map(|value| inside(filter, value)),
                Value::Null | Value::Bool(_) | Value::Number(_) => None,
            }
        }
        let filter = self.filter.as_deref()?;
        args.values().find_map(|value| inside(filter, value))
    }

    /// What the filter replaced in this run.
    #[must_use]
    pub fn totals(&self) -> Counts {
        self.filter.as_ref().map(|filter| filter.totals()).unwrap_or_default()
    }
}
