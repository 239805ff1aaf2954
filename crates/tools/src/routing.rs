//! The one way a call names its session.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A session handle as an argument. Its wording is the same in every tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub String);

impl JsonSchema for SessionId {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "SessionId".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "Session to ask; omitted: the current one." })
    }
}

/// The handle as the trait `Sessions` takes it.
#[must_use]
pub fn handle(id: Option<&SessionId>) -> Option<&str> {
    id.map(|SessionId(id)| id.as_str())
}
