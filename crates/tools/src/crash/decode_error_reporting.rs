//! `decode_error_reporting`: one status value read every way. Needs no session.

use analysis_status::{StatusInfo, StatusSpace, decode, parse_code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::surface::Surface;
use crate::tool::{Hints, PureTool, Tool};

pub(crate) struct DecodeErrorReporting;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// 0x80070005, -2147024891, E_FAIL, STATUS_ACCESS_VIOLATION.
    #[schemars(length(min = 1, max = 128))]
    code: String,
    /// Which reading leads; exception codes are ntstatus.
    #[serde(default)]
    space: Option<StatusSpace>,
}

impl Tool for DecodeErrorReporting {
    const NAME: &'static str = "decode_error_reporting";
    const TITLE: &'static str = "Decode a status code";
    const HINTS: Hints = Hints::PURE;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "What an HRESULT, NTSTATUS or Win32 error means: every reading of the number, names and message. Needs \
         no session.",
    )];
    type Params = Params;
    type Output = StatusInfo;

    fn loosen(args: &mut Map<String, Value>) {
        if let Some(code) = args.get_mut("code")
            && let Some(number) = code.as_i64()
        {
            *code = Value::String(number.to_string());
        }
    }

    fn check(params: &Params) -> Result<(), Vec<String>> {
        parse_code(&params.code).map(|_| ()).map_err(|error| vec![format!("code: {error}")])
    }

    fn render(output: &StatusInfo, _: &Surface) -> String {
        analysis_status::render_status(output)
    }
}

impl PureTool for DecodeErrorReporting {
    fn run(params: Params) -> Result<StatusInfo, ToolError> {
        let value = parse_code(&params.code).map_err(|error| ToolError::invalid(format!("code: {error}")))?;
        Ok(decode(value, params.space.unwrap_or_default()))
    }
}
