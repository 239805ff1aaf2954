//! What a call answers, and how a tool's value becomes it.

use std::borrow::Cow;

use redaction::Redactor;
use serde_json::{Map, Value, json};
use tools::{Category, Surface, ToolEntry, ToolError};

use crate::egress;

/// The answer of one tool call, ready for any transport.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// `{"status":"ok", ...}` or `{"status":"error", ...}`; `None` for a raw tool's success.
    pub structured: Option<Value>,
    /// The same for people; of an error, its message. No control characters but line breaks and tabs.
    pub text: String,
    pub is_error: bool,
}

/// What is no tool result but a protocol error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// JSON-RPC `-32602`.
    #[error("unknown tool {name:?}{}", did_you_mean(near))]
    UnknownTool { name: String, near: Vec<&'static str> },
    /// JSON-RPC `-32603`: no engine worker could be started at all.
    #[error("{0}")]
    NoWorker(String),
}

fn did_you_mean(near: &[&str]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

/// Marks the error that means [`CallFailure::NoWorker`] on its way through a tool.
pub(crate) const NO_WORKER: &str = "no_worker";

impl CallResult {
    /// The error branch as it may leave; `next` narrowed to `surface`.
    #[must_use]
    pub(crate) fn failure(error: ToolError, surface: &Surface, redactor: &Redactor) -> Self {
        let (error, counts) = egress::error(redactor, error);
        let mut result = Self::error(&error, surface);
        if let Some(Value::Object(answer)) = &mut result.structured {
            egress::report(answer, &counts);
        }
        result
    }

    /// The error branch as it is; `next` narrowed to `surface`.
    #[must_use]
    pub fn error(error: &ToolError, surface: &Surface) -> Self {
        let error = error.clone().told(surface);
        let error = ToolError { message: printable(&error.message), ..error };
        Self { structured: Some(error.structured(surface)), text: error.message, is_error: true }
    }
}

/// Text that is what it looks like: names of a dump can hold escape sequences, and letters that turn
/// those around them or that only a program reads.
fn printable(text: &str) -> String {
    text.chars().map(|c| if acts(c) { '.' } else { c }).collect()
}

/// Line ends and tabs are the layout of the text itself.
fn acts(c: char) -> bool {
    !matches!(c, '\n' | '\t') && target::acts(c)
}

fn with_status(data: Value) -> Option<Value> {
    let Value::Object(payload) = data else { return None };
    let mut answer = Map::with_capacity(payload.len() + 1);
    answer.insert("status".to_owned(), json!("ok"));
    answer.extend(payload);
    Some(Value::Object(answer))
}

/// Says how to ask for less than an answer of `bytes` bytes.
fn too_large(tool: &ToolEntry, bytes: usize, bound: usize) -> ToolError {
    let schema = tool.input_schema();
    let narrowing = ["limit", "frames", "count", "size", "length", "filter", "pattern"];
    let offered: Vec<&str> = narrowing
        .into_iter()
        .filter(|name| schema.get("properties").is_some_and(|properties| properties.get(name).is_some()))
        .collect();
    let how = if offered.is_empty() {
        "ask for less".to_owned()
    } else {
        format!("ask for less with {}", offered.join(", "))
    };
    ToolError::new(
        Category::Debugger,
        format!("the answer of {} is {bytes} bytes; at most {bound} are sent: {how}", tool.name),
    )
    .because("answer_too_large")
}

/// The longest prefix of `text` of at most `bound` bytes that ends on a character.
pub(crate) fn prefix(text: &str, bound: usize) -> &str {
    let mut end = bound.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A tool's success for `surface`; `interrupted` when a break cut it.
pub(crate) fn finish(
    tool: &ToolEntry,
    mut data: Value,
    interrupted: bool,
    surface: &Surface,
    bound: usize,
    redactor: &Redactor,
) -> Result<CallResult, ToolError> {
    let mut counts = egress::value(redactor, tool, &mut data);
    let mut text = tool.render(&data, surface).map_err(|error| {
        tracing::error!(tool = tool.name, %error, "a result did not render");
        ToolError::new(Category::Internal, format!("{error}; this is a bug, please report it"))
    })?;
    if text.contains(acts) {
        text = printable(&text);
    }
    // Raw text once more: what its type could not tell, its lines may.
    if tool.raw
        && let Cow::Owned(filtered) = redactor.counted(&text, &mut counts)
    {
        text = filtered;
    }
    if text.len() > bound {
        let (kept, whole) = (prefix(&text, bound).len(), text.len());
        text.truncate(kept);
        text.push_str(&format!(
            "\n[cut here: {whole} bytes in all, {kept} shown; ask for less to see the rest]"
        ));
    }
    if interrupted {
        text.push_str("\n[interrupted on request, partial]");
    }
    text.push_str(&egress::footer(&counts));
    let next = tool.next(&data, surface);
    if !next.is_empty() {
        text.push_str(&format!("\nNext: {}.", next.join(", ")));
    }
    if tool.raw {
        return Ok(CallResult { structured: None, text, is_error: false });
    }
    let is_error = tool.is_error(&data);
    let mut structured = with_status(data).ok_or_else(|| {
        ToolError::new(Category::Internal, format!("{} answered no object; please report it", tool.name))
    })?;
    if interrupted && let Value::Object(answer) = &mut structured {
        answer.insert("interrupted".into(), Value::Bool(true));
    }
    if let Value::Object(answer) = &mut structured {
        egress::report(answer, &counts);
    }
    if !next.is_empty()
        && let Value::Object(answer) = &mut structured
    {
        answer.insert("next".into(), json!(next));
    }
    let bytes = serialised_len(&structured);
    if bytes > bound {
        return Err(too_large(tool, bytes, bound));
    }
    Ok(CallResult { structured: Some(structured), text, is_error })
}

fn serialised_len(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_on_a_character() {
        assert_eq!(prefix("aéb", 2), "a");
        assert_eq!(prefix("aéb", 3), "aé");
        assert_eq!(prefix("ab", 9), "ab");
    }

    fn execute() -> &'static ToolEntry {
        tools::find("execute").unwrap()
    }

    #[test]
    fn a_cut_success_says_so_and_a_raw_one_has_no_structure() {
        let data = json!({ "text": "half" });
        let whole =
            finish(execute(), data.clone(), false, &Surface::all(), 1 << 20, &Redactor::none()).unwrap();
        assert_eq!((whole.text.as_str(), whole.structured, whole.is_error), ("half", None, false));
        let cut = finish(execute(), data, true, &Surface::all(), 1 << 20, &Redactor::none()).unwrap();
        assert_eq!(cut.text, "half\n[interrupted on request, partial]");
    }

    #[test]
    fn escape_sequences_of_a_dump_do_not_reach_a_terminal() {
        let data = json!({ "text": "\u{1b}[31ma\tb\n\u{9b}c\u{7}" });
        let whole = finish(execute(), data, false, &Surface::all(), 1 << 20, &Redactor::none()).unwrap();
        assert_eq!(whole.text, ".[31ma\tb\n.c.");
        // Nor what turns a name around, or letters only a model reads.
        let data = json!({ "text": "\u{202e}sys.evil\u{e0041}" });
        let turned = finish(execute(), data, false, &Surface::all(), 1 << 20, &Redactor::none()).unwrap();
        assert_eq!(turned.text, ".sys.evil.");
        let error = CallResult::error(&ToolError::invalid("\u{1b}]0;x\u{7}"), &Surface::all());
        assert_eq!(error.text, ".]0;x.");
        assert_eq!(error.structured.unwrap()["error"]["message"], ".]0;x.");
    }

    #[test]
    fn a_cut_success_says_so_in_both_halves() {
        let data = json!({ "records": [], "matched": 0, "next_since": 0, "held": 0, "capacity": 1 });
        let log = tools::find("server_log").unwrap();
        let cut = finish(log, data, true, &Surface::all(), 1 << 20, &Redactor::none()).unwrap();
        assert!(cut.text.ends_with("[interrupted on request, partial]"), "{}", cut.text);
        assert_eq!(cut.structured.unwrap()["interrupted"], true);
    }

    #[test]
    fn a_long_raw_text_is_cut_and_says_how_much_there_was() {
        let long = finish(
            execute(),
            json!({ "text": "é".repeat(100) }),
            false,
            &Surface::all(),
            31,
            &Redactor::none(),
        )
        .unwrap();
        assert!(
            long.text.starts_with(&"é".repeat(15)) && !long.text.contains(&"é".repeat(16)),
            "{}",
            long.text
        );
        assert!(long.text.contains("200 bytes in all"), "{}", long.text);
    }

    #[test]
    fn a_typed_answer_past_the_bound_is_an_error_that_names_the_way_out() {
        let tool = tools::find("session_status").unwrap();
        let page = json!({ "sessions": [], "max_sessions": 4 });
        let answer = finish(tool, page.clone(), false, &Surface::all(), 1 << 20, &Redactor::none()).unwrap();
        assert_eq!(answer.structured.unwrap()["status"], "ok");
        let error = finish(tool, page, false, &Surface::all(), 10, &Redactor::none()).unwrap_err();
        assert_eq!((error.category, error.reason.as_deref()), (Category::Debugger, Some("answer_too_large")));
        let narrowed = too_large(tools::find("read_memory").unwrap(), 2, 1);
        assert!(narrowed.message.contains("size"), "{}", narrowed.message);
    }

    #[test]
    fn data_that_is_not_the_tools_output_is_internal() {
        let error =
            finish(execute(), json!({ "text": 1 }), false, &Surface::all(), 1 << 20, &Redactor::none())
                .unwrap_err();
        assert_eq!(error.category, Category::Internal);
    }

    #[test]
    fn status_comes_first() {
        let answer = with_status(json!({ "a": 1 })).unwrap();
        assert_eq!(answer.to_string(), r#"{"status":"ok","a":1}"#);
        assert_eq!(with_status(json!([1])), None);
        assert_eq!(serialised_len(&answer), answer.to_string().len());
    }
}
