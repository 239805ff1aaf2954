//! `debug_batch`: steps that change a target as one operation, with a cleanup that runs on every path.

use std::borrow::Cow;

use batch::{Batch, Budget, NotBegun, Report, Step};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use target::Transaction;

use super::over_job::OverJob;
use crate::error::{Category, ToolError};
use crate::prose::Fragment;
use crate::routing::SessionId;
use crate::surface::Surface;
use crate::tool::{Hints, Job, Tool, WorkerTool};

pub(crate) struct DebugBatch;

#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Params {
    #[serde(flatten)]
    batch: Batch,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
}

impl TryFrom<Value> for Params {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let batch = batch::parse(&value, crate::admit::nearest).map_err(|problems| problems.join("; "))?;
        let session_id = value.get("session_id").and_then(Value::as_str);
        Ok(Self { batch, session_id: session_id.map(|id| SessionId(id.to_owned())) })
    }
}

/// The session as every tool has it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Named {
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl JsonSchema for Params {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Batch".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let step = generator.subschema_for::<Step>();
        let named = generator.subschema_for::<Named>();
        let session = named.get("properties").and_then(|properties| properties.get("session_id"));
        let of_steps = json_schema!({ "$ref": "#/$defs/step" });
        json_schema!({
            "type": "object",
            "properties": {
                "steps": { "type": "array", "minItems": 1, "maxItems": 64, "items": of_steps },
                "always": {
                    "type": "array", "maxItems": 64, "items": of_steps,
                    "description": "Cleanup; runs whatever happened, also after a failure, a timeout or a disconnect.",
                },
                "timeout_ms": {
                    "type": "integer", "minimum": 2000,
                    "description": "Of everything, default 120000; half, at most 30 s, is kept for the cleanup.",
                },
                "session_id": session,
            },
            "required": ["steps"],
            "$defs": { "step": step },
        })
    }
}

impl Tool for DebugBatch {
    const NAME: &'static str = "debug_batch";
    const TITLE: &'static str = "Run steps as one operation";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "Patch, arm, resume, check and restore as one operation: steps run in order and stop at the first that \
         fails; then always runs, on every path, even if this call is never answered. Bytes written come back by \
         themselves unless restore says never. Look at both outcome (committed, failed, timed_out, \
         abandoned, interrupted, target_gone, target_replaced, target_uncertain) and rollback (not_supplied, \
         complete, incomplete, not_attempted). Commands can succeed and have done nothing: expect what must hold.",
    )];
    type Params = Params;
    type Output = Report;

    fn retires_handle(params: &Params) -> bool {
        params.batch.replaces_target()
    }

    fn is_error(output: &Value) -> bool {
        ["committed", "rollback_complete"].iter().any(|flag| output.get(flag) != Some(&Value::Bool(true)))
    }

    fn render(output: &Report, _: &Surface) -> String {
        batch::render(output)
    }

    fn derived(output: &Report) -> Vec<transcript::Derived> {
        super::derived::of(output)
    }
}

/// Retracts what a teardown was promised, also when the executor unwinds.
struct InTransaction<'a>(&'a dyn Transaction);

impl Drop for InTransaction<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl WorkerTool for DebugBatch {
    fn run(job: &mut Job<'_>, params: Params) -> Result<Report, ToolError> {
        let budget = Budget::of(params.batch.timeout_ms, job.halt.remaining())
            .map_err(|error| ToolError::new(Category::NotRun, error.to_string()))?;
        let progress = job.progress;
        let transaction = progress.transaction();
        if transaction.is_some_and(|transaction| !transaction.begin(budget.total)) {
            let message = "not begun: the session is being ended. Nothing was run and nothing changed";
            return Err(ToolError::new(Category::NotRun, message));
        }
        let _ending = transaction.map(InTransaction);
        batch::run(&params.batch, budget, &mut OverJob::new(job)).map_err(|refused| match refused {
            NotBegun::Gone(_) => ToolError::new(Category::StaleSession, refused.to_string()),
            NotBegun::Unidentified(_) => ToolError::new(Category::Debugger, refused.to_string()),
        })
    }
}
