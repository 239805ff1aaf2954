//! What a batch came to (spec 20 section 2.7).

use std::collections::BTreeMap;

use control::Verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::Address;

use crate::changes::Change;

fn is_false(value: &bool) -> bool {
    !*value
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Outcome {
    Committed,
    Failed,
    TimedOut,
    Abandoned,
    Interrupted,
    TargetGone,
    TargetReplaced,
    TargetUncertain,
}

/// What became of the cleanup: the `always` block, the owed restores, and the aim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Rollback {
    /// There was nothing to do.
    NotSupplied,
    Complete,
    Incomplete,
    /// It could not be aimed at the target it was written for, so none of it ran.
    NotAttempted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum StepResult {
    Ok,
    Failed,
    /// A check did not hold.
    Unmet,
    Skipped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TargetState {
    Stopped,
    Running,
    Detached,
    Ended,
    Uncertain,
}

/// How the session is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct After {
    pub state: TargetState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Address>,
    /// The step that made it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// One step as it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// 1-based, in its block.
    pub position: usize,
    /// Its name, or what it does.
    pub label: String,
    /// What ran, references filled in.
    pub action: String,
    pub result: StepResult,
    /// Of all but `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Kinds of change it can have made, whether or not it then succeeded; none when it was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Characters of the output left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_dropped: Option<usize>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut_short: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub target_gone: bool,
    /// After it the engine held another target or was aimed elsewhere.
    #[serde(default, skip_serializing_if = "is_false")]
    pub target_changed: bool,
    /// It succeeded and printed what engines print when they fail.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspect_output: bool,
}

impl Row {
    pub(crate) fn of(position: usize, label: String, action: String) -> Self {
        Self {
            position,
            label,
            action,
            result: StepResult::Ok,
            detail: None,
            changes: Vec::new(),
            value: None,
            verdict: None,
            stopped_at: None,
            bytes_read: None,
            output: None,
            output_dropped: None,
            cut_short: false,
            timed_out: false,
            target_gone: false,
            target_changed: false,
            suspect_output: false,
        }
    }

    pub(crate) fn failed(&mut self, detail: impl Into<String>) {
        (self.result, self.detail) = (StepResult::Failed, Some(detail.into()));
    }
}

/// A restore owed by a `write_memory`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreRow {
    /// Position of the step that wrote.
    pub step: usize,
    pub address: Address,
    pub size: usize,
    /// `ok`, `failed`, `skipped`.
    pub result: StepResult,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The whole answer of a batch that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    pub outcome: Outcome,
    /// 1-based in `steps`: what failed, was cut, or was the first not attempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<usize>,
    pub committed: bool,
    pub rollback: Rollback,
    /// The flag to branch on: `complete` or `not_supplied`.
    pub rollback_complete: bool,
    pub after: After,
    pub budget_ms: u64,
    pub elapsed_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, Address>,
    pub steps: Vec<Row>,
    pub always: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restores: Vec<RestoreRow>,
}

impl Report {
    /// Whether the answer is marked as an error: it did not commit, or its rollback did not finish.
    #[must_use]
    pub fn is_error(&self) -> bool {
        !(self.committed && self.rollback_complete)
    }
}

#[cfg(test)]
pub(crate) fn empty() -> Report {
    Report {
        outcome: Outcome::Committed,
        at: None,
        committed: true,
        rollback: Rollback::NotSupplied,
        rollback_complete: true,
        after: After { state: TargetState::Stopped, ip: None, by: None, why: None },
        budget_ms: 0,
        elapsed_ms: 0,
        captures: BTreeMap::new(),
        steps: Vec::new(),
        always: Vec::new(),
        restores: Vec::new(),
    }
}
