//! What `walk_memory` answers, and its table.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use target::Address;

/// A value, or `null` for one that did not read: there `null` is the finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct MaybeRead(pub(super) Option<Address>);

impl JsonSchema for MaybeRead {
    fn schema_name() -> Cow<'static, str> {
        "MaybeRead".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [{ "type": "string", "pattern": "^0x[0-9a-f]{16}$" }, { "type": "null" }] })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Mode {
    List,
    Array,
    Chain,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) offset: i64,
    pub(super) size: u8,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Row {
    pub(super) address: Address,
    /// Of a chain, always there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<MaybeRead>,
    /// Parallel to `columns`.
    pub(super) values: Vec<MaybeRead>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Reason {
    Complete,
    Cap,
    NullLink,
    Loop,
    StopAddress,
    UnreadableLink,
    Deadline,
    Interrupted,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct StoppedAt {
    pub(super) reason: Reason,
    /// The node to go on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Address>,
    /// Of a list, the index to go on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_index: Option<usize>,
}

impl StoppedAt {
    pub(super) fn new(reason: Reason) -> Self {
        Self { reason, next: None, at: None, next_index: None }
    }

    fn sentence(&self, first: Option<Address>) -> String {
        let at = self.at.map(|at| at.to_string()).unwrap_or_default();
        let rest = match (self.next, self.next_index) {
            (Some(next), _) => format!("go on from {next}"),
            (None, Some(index)) => format!("go on from index {index}"),
            (None, None) => String::new(),
        };
        match self.reason {
            Reason::Complete => "every node asked for was visited.".to_owned(),
            Reason::Cap => format!("count was reached; {rest}."),
            Reason::NullLink => "the chain ended with a null link.".to_owned(),
            Reason::Loop if self.at == first => format!("the list closed on its first node, {at}."),
            Reason::Loop => {
                format!(
                    "the chain runs back to {at}, not its first node: the list is damaged, or began with a tail."
                )
            }
            Reason::StopAddress if first.is_none() => {
                format!("start is stop_at, {at}: for a list head, start at poi(start).")
            }
            Reason::StopAddress => format!("the next node is stop_at, {at}."),
            Reason::UnreadableLink => format!("the link of {at} did not read; what comes after is unknown."),
            Reason::Deadline => format!("the call's time ran out; {rest}."),
            Reason::Interrupted => format!("interrupted; {rest}."),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    pub(super) mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<Address>,
    pub(super) columns: Vec<Column>,
    pub(super) requested: usize,
    pub(super) walked: usize,
    /// Nodes of which nothing read.
    pub(super) unreadable: usize,
    pub(super) nodes: Vec<Row>,
    pub(super) stopped: StoppedAt,
    /// The first failed read, when every node was unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

/// A value at its own width, `??` for every byte that did not read.
fn cell(value: Option<Address>, size: u8) -> String {
    let width = usize::from(size) * 2;
    match value {
        Some(Address(value)) => format!("0x{value:0width$x}"),
        None => format!("0x{}", "?".repeat(width)),
    }
}

impl Output {
    pub(super) fn text(&self) -> String {
        let kind = match self.mode {
            Mode::List => "a list",
            Mode::Array => "an array",
            Mode::Chain => "a chain",
        };
        let from = self.start.map(|start| format!(" from {start}")).unwrap_or_default();
        let mut text = format!("{} of at most {} nodes of {kind}{from}", self.walked, self.requested);
        if self.unreadable > 0 {
            text.push_str(&format!(", {} unreadable", self.unreadable));
        }
        if !self.nodes.is_empty() {
            text.push('\n');
            text.push_str(&self.table());
        }
        if self
            .nodes
            .iter()
            .any(|row| row.next == Some(MaybeRead(None)) || row.values.contains(&MaybeRead(None)))
        {
            text.push_str("\n?? did not read.");
        }
        if let Some(note) = &self.note {
            text.push_str(&format!("\nNothing read; first: {note}."));
        }
        let first = self.nodes.first().map(|row| row.address);
        text.push_str(&format!("\nStopped: {}", self.stopped.sentence(first)));
        text
    }

    fn table(&self) -> String {
        let mut header = vec!["address".to_owned()];
        if self.mode == Mode::Chain {
            header.push("next".to_owned());
        }
        header.extend(self.columns.iter().map(|column| column.name.clone()));
        let rows: Vec<Vec<String>> = self.nodes.iter().map(|row| self.cells(row)).collect();
        crate::table::columns(&header, &rows)
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let mut cells = vec![row.address.to_string()];
        if self.mode == Mode::Chain {
            cells.push(cell(row.next.and_then(|next| next.0), 8));
        }
        cells.extend(row.values.iter().zip(&self.columns).map(|(value, column)| cell(value.0, column.size)));
        cells
    }
}
