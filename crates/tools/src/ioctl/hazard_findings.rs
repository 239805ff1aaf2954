//! The findings of `driver_hazards`: data flow from what a caller controls to where it matters.

use code_flow::{CodeImage, SectionState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::location::evaluate;
use crate::tool::Job;

/// The section: its state, and why it is not whole.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Findings {
    pub status: SectionState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Findings {
    /// Classes of the findings about a code.
    pub(crate) fn classes_of(&self, _: target::Code) -> Vec<String> {
        Vec::new()
    }
    pub(crate) fn text(&self) -> String {
        match &self.note {
            Some(note) => format!("Findings: {note}."),
            None => "Findings: none".to_owned(),
        }
    }
}

/// Findings from the routine given, or from those DriverEntry installs.
pub(crate) fn findings(
    job: &Job<'_>,
    _image: &CodeImage<'_>,
    dispatch: Option<&str>,
) -> Result<Findings, ToolError> {
    if let Some(text) = dispatch {
        evaluate(job.target, text, job.halt)?;
    }
    Ok(Findings {
        status: SectionState::Unavailable,
        note: Some("data-flow findings are not served for this driver".to_owned()),
    })
}
