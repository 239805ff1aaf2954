//! `decode_ioctl`: a control code taken apart. Needs no session.

use analysis_driver::{ControlCode, DecodedCode, parse_code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use target::Code;

use crate::error::ToolError;
use crate::prose::Fragment;
use crate::surface::Surface;
use crate::tool::{Hints, PureTool, Tool};

pub(crate) struct DecodeIoctl;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// 0x222003, 9c402401, 222003h; digits alone are decimal.
    #[schemars(length(min = 1, max = 32))]
    code: String,
}

impl Tool for DecodeIoctl {
    const NAME: &'static str = "decode_ioctl";
    const TITLE: &'static str = "Decode a control code";
    const HINTS: Hints = Hints::PURE;
    const PROSE: &'static [Fragment] = &[Fragment::Fixed(
        "An I/O control code taken apart: device type, function, buffer method, required access, and where the \
         driver finds the buffers. Needs no session.",
    )];
    type Params = Params;
    type Output = DecodedCode;

    fn loosen(args: &mut Map<String, Value>) {
        if let Some(code) = args.get_mut("code")
            && let Some(number) = code.as_i64()
        {
            // An integer is what it says: no second reading.
            *code = Value::String(if number < 0 { number.to_string() } else { format!("{number:#x}") });
        }
    }

    fn check(params: &Params) -> Result<(), Vec<String>> {
        parse_code(&params.code).map(|_| ()).map_err(|error| vec![format!("code: {error}")])
    }

    fn render(output: &DecodedCode, _: &Surface) -> String {
        analysis_driver::render_code(output)
    }
}

impl PureTool for DecodeIoctl {
    fn run(params: Params) -> Result<DecodedCode, ToolError> {
        let reading =
            parse_code(&params.code).map_err(|error| ToolError::invalid(format!("code: {error}")))?;
        let mut decoded = ControlCode(reading.code).decode();
        decoded.alternate_reading = reading.alternate.map(Code);
        Ok(decoded)
    }
}
