//! `open_dump`: a dump or an image in a session of its own.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::opening::{EngineChoice, OpenRequest, Summary};
use crate::prose::Fragment;
use crate::sessions::Sessions;
use crate::surface::Surface;
use crate::tool::{Hints, SessionsTool, Tool};

pub(crate) struct OpenDump;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// Path on the debugger's host.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    #[serde(default)]
    engine: Option<EngineChoice>,
    /// Folders, srv*CACHE*URL; `;` between. The dump's own folder is always searched.
    #[serde(default)]
    #[schemars(length(max = 8192))]
    symbol_path: Option<String>,
    /// Where the images are; same form.
    #[serde(default)]
    #[schemars(length(max = 8192))]
    image_path: Option<String>,
    /// Load address of a bare PE image, 0x and hex digits.
    #[serde(default)]
    image_base: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Output {
    session_id: String,
    kind: String,
    engine: String,
    engine_reason: String,
    target: String,
    report: String,
    summary: Summary,
}

impl Tool for OpenDump {
    const NAME: &'static str = "open_dump";
    const TITLE: &'static str = "Open a dump or image";
    const HINTS: Hints = Hints::OPEN;
    const PROSE: &'static [Fragment] = &[
        Fragment::Fixed(
            "Opens a user or kernel crash dump, or a bare image (.exe, .dll, .sys), plain or inside a CAB, zip, \
             xz or gz, as a new session that becomes the current one. End it with end_session.",
        ),
        Fragment::If {
            needs: &["crash_triage", "exception_triage"],
            text: "Next: crash_triage for a kernel dump, exception_triage for a user dump.",
        },
    ];
    type Params = Params;
    type Output = Output;

    fn check(params: &Params) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        if params.path.contains('\0') {
            problems.push("path must not contain NUL".to_owned());
        }
        if params.path.trim().is_empty() {
            problems.push("path must not be blank".to_owned());
        }
        for (field, path) in [("symbol_path", &params.symbol_path), ("image_path", &params.image_path)] {
            if let Some(path) = path {
                problems.extend(expression::guard_path(path, field).err().map(|error| error.to_string()));
            }
        }
        if let Some(Err(error)) = params.image_base.as_deref().map(expression::parse_address) {
            problems.push(format!("image_base: {error}"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn render(output: &Output, _: &Surface) -> String {
        let mut text = format!(
            "Session {} ({}) on {}, served by the {} engine: {}.",
            output.session_id, output.kind, output.target, output.engine, output.engine_reason
        );
        for line in summary_lines(&output.summary) {
            text.push_str(&format!("\n{line}"));
        }
        if !output.report.trim().is_empty() {
            text.push_str(&format!("\n{}", output.report.trim_end()));
        }
        if let Some(limitation) = &output.summary.limitation {
            text.push_str(&format!("\nNote: {limitation}"));
        }
        text
    }
}

/// What the version block does not say.
fn summary_lines(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(check) = &summary.bug_check {
        let parameters: Vec<String> = check.parameters.iter().map(ToString::to_string).collect();
        lines.push(format!("Bug check {} ({})", check.code, parameters.join(", ")));
    }
    if let Some(exception) = &summary.exception {
        let thread = exception.thread.map(|thread| format!(" on thread {thread}")).unwrap_or_default();
        lines.push(format!("Exception {} at {}{thread}", exception.code, exception.address));
    }
    if let Some(count) = summary.modules_loaded {
        lines.push(format!("{count} modules"));
    }
    lines
}

#[async_trait]
impl SessionsTool for OpenDump {
    async fn run(sessions: Arc<dyn Sessions>, params: Params) -> Result<Output, ToolError> {
        let remembered = sessions.remembered_symbols().await.unwrap_or_default();
        let named = params.symbol_path.is_some();
        let image_base = match params.image_base.as_deref().map(expression::parse_address) {
            None => None,
            Some(Ok(base)) => Some(base),
            Some(Err(error)) => return Err(ToolError::invalid(format!("image_base: {error}"))),
        };
        // Whoever writes a URL into a path wants it used; only a remembered `network: false` says no.
        let network = named || remembered.network || remembered.symbol_path.is_none();
        let opened = sessions
            .open(OpenRequest::Dump {
                path: params.path.clone(),
                engine: params.engine.unwrap_or_default(),
                symbol_path: params.symbol_path.or(remembered.symbol_path),
                image_path: params.image_path.or(remembered.image_path),
                image_base,
                network,
            })
            .await?;
        Ok(Output {
            session_id: opened.session_id,
            kind: opened.report.kind,
            engine: opened.report.engine,
            engine_reason: opened.report.engine_reason,
            target: params.path,
            report: opened.report.report,
            summary: opened.report.summary,
        })
    }
}
