//! What a running server lists, in bytes of minified JSON: what reaches a model and what crosses the
//! wire (spec 20 section 8.1).

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Client, Era};

/// Bytes a token of a tool surface has, measured on a small model's tokenizer (spec 20 section 8.1).
pub const BYTES_A_TOKEN: f64 = 3.9;

/// Bytes of one tool's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub model_visible: usize,
    pub wire: usize,
    pub description: usize,
    pub input_schema: usize,
    pub output_schema: usize,
    pub annotations: usize,
}

/// What one server listed.
pub struct Listing {
    pub tools: Vec<Value>,
    pub instructions: String,
    /// Bytes of the whole `tools/list` result.
    pub payload: usize,
}

fn bytes(value: &Value) -> usize {
    if value.is_null() { 0 } else { value.to_string().len() }
}

/// Bytes of a definition that reach a model.
pub fn model_visible(tool: &Value) -> usize {
    let seen = json!({
        "name": tool["name"], "description": tool["description"], "inputSchema": tool["inputSchema"]
    });
    bytes(&seen)
}

impl Listing {
    /// Of a server with `--tools spec`, or with no choice made.
    pub fn of(spec: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windbg-mcp"));
        command.args(spec.iter().flat_map(|spec| ["--tools", spec]));
        let mut client = Client::of(command, Era::Handshake("2025-11-25"));
        client.greet();
        let list = client.result("tools/list", json!({}));
        Self {
            tools: list["tools"].as_array().unwrap().clone(),
            instructions: client.greeting["instructions"].as_str().unwrap().to_owned(),
            payload: bytes(&list),
        }
    }

    pub fn rows(&self) -> BTreeMap<String, Row> {
        let row = |tool: &Value| {
            let name = tool["name"].as_str().unwrap().to_owned();
            let row = Row {
                name: name.clone(),
                model_visible: model_visible(tool),
                wire: bytes(tool),
                description: tool["description"].as_str().unwrap().len(),
                input_schema: bytes(&tool["inputSchema"]),
                output_schema: bytes(&tool["outputSchema"]),
                annotations: bytes(&tool["annotations"]),
            };
            (name, row)
        };
        self.tools.iter().map(row).collect()
    }

    pub fn model_visible(&self) -> usize {
        self.tools.iter().map(model_visible).sum()
    }

    /// Of everything a client is told; any word changed changes it.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(self.instructions.as_bytes());
        for tool in &self.tools {
            digest.update(tool.to_string().as_bytes());
        }
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether what is recorded is to be written anew: `WINDBG_MCP_RECORD=1`, or `cargo xtask surface`.
pub fn recording() -> bool {
    std::env::var("WINDBG_MCP_RECORD").is_ok_and(|value| value == "1")
}
