//! What every opener answers, and the paths every opener takes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::opening::Summary;
use crate::sessions::{OpenedSession, Sessions};

/// A session that was opened.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Opened {
    session_id: String,
    kind: String,
    engine: String,
    engine_reason: String,
    target: String,
    report: String,
    summary: Summary,
}

impl Opened {
    pub(super) fn of(opened: OpenedSession, target: String) -> Self {
        Self {
            session_id: opened.session_id,
            kind: opened.report.kind,
            engine: opened.report.engine,
            engine_reason: opened.report.engine_reason,
            target,
            report: opened.report.report,
            summary: opened.report.summary,
        }
    }

    /// What to look at first.
    pub(super) fn next(&self) -> &'static [&'static str] {
        match (self.kind.as_str(), self.summary.kernel_mode) {
            ("dump", Some(true)) => &["crash_triage"],
            ("dump", Some(false)) if self.summary.exception.is_some() => &["exception_triage"],
            ("dump", Some(false)) => &["threads", "backtrace"],
            ("image", _) if self.summary.image.as_ref().is_some_and(|image| image.facts.is_driver) => {
                &["driver_surface", "ioctl_map", "modules"]
            }
            ("image", _) => &["modules", "disassemble"],
            _ => &[],
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "Session {} ({}) on {}, served by the {} engine: {}.",
            self.session_id, self.kind, self.target, self.engine, self.engine_reason
        );
        for line in summary_lines(&self.summary) {
            text.push_str(&format!("\n{line}"));
        }
        if !self.report.trim().is_empty() {
            text.push_str(&format!("\n{}", self.report.trim_end()));
        }
        if let Some(limitation) = &self.summary.limitation {
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
    match &summary.image {
        Some(image) => lines.extend(image_lines(&image.facts)),
        None => lines.extend(summary.modules_loaded.map(|count| format!("{count} modules"))),
    }
    lines
}

/// What the file of an image session is.
fn image_lines(image: &target::ImageFacts) -> Vec<String> {
    let mut lines = Vec::new();
    let what = if image.is_driver { "Driver" } else { "Image" };
    let entry = image.entry.map(|entry| format!(", entry {entry}")).unwrap_or_default();
    let framework = image.framework.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
    lines.push(format!(
        "{what} ({} subsystem{framework}), {:#x} bytes in memory, {} sections{entry}",
        image.subsystem,
        image.size_of_image,
        image.sections.len()
    ));
    lines.extend(image.sha256.as_ref().map(|hash| format!("SHA-256 {hash}")));
    if let Some(signature) = &image.signature {
        let names: Vec<&str> = signature.signers.iter().map(|signer| signer.subject.as_str()).collect();
        let digest = match signature.digest_matches {
            Some(false) => "; it is not over these bytes",
            _ => "",
        };
        lines.push(format!("Signer: {} (not verified{digest})", names.join("; ")));
    }
    if !image.warnings.is_empty() {
        lines.push(format!("Odd: {}", image.warnings.join("; ")));
    }
    lines
}

/// Where symbols and images of the new session are looked for.
pub(super) struct Paths {
    pub(super) symbol_path: Option<String>,
    pub(super) image_path: Option<String>,
    pub(super) network: bool,
}

impl Paths {
    /// The caller's, or what was remembered for new sessions.
    pub(super) async fn of(
        sessions: &dyn Sessions,
        symbol_path: Option<String>,
        image_path: Option<String>,
    ) -> Self {
        let remembered = sessions.remembered_symbols().await.unwrap_or_default();
        Self {
            // Whoever writes a URL into a path wants it used; only a remembered `network: false` says no.
            network: symbol_path.is_some() || remembered.network || remembered.symbol_path.is_none(),
            symbol_path: symbol_path.or(remembered.symbol_path),
            image_path: image_path.or(remembered.image_path),
        }
    }

    pub(super) fn problems(symbol_path: Option<&str>, image_path: Option<&str>) -> Vec<String> {
        [("symbol_path", symbol_path), ("image_path", image_path)]
            .into_iter()
            .filter_map(|(field, path)| expression::guard_path(path?, field).err())
            .map(|error| error.to_string())
            .collect()
    }
}
