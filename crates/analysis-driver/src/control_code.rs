//! `CTL_CODE`, taken apart (winioctl.h): device type 31..16, required access 15..14, function
//! 13..2, method 1..0.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use target::Code;

use crate::device_types::device_type_name;

/// How the I/O manager hands the buffers over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Method {
    Buffered,
    InDirect,
    OutDirect,
    Neither,
}

impl Method {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::InDirect => "in_direct",
            Self::OutDirect => "out_direct",
            Self::Neither => "neither",
        }
    }
    fn constant(self) -> &'static str {
        match self {
            Self::Buffered => "METHOD_BUFFERED",
            Self::InDirect => "METHOD_IN_DIRECT",
            Self::OutDirect => "METHOD_OUT_DIRECT",
            Self::Neither => "METHOD_NEITHER",
        }
    }
}

/// The access a handle must have for the I/O manager to deliver the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RequiredAccess {
    Any,
    Read,
    Write,
    ReadWrite,
}

impl RequiredAccess {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "read_write",
        }
    }
    fn constant(self) -> &'static str {
        match self {
            Self::Any => "FILE_ANY_ACCESS",
            Self::Read => "FILE_READ_ACCESS",
            Self::Write => "FILE_WRITE_ACCESS",
            Self::ReadWrite => "FILE_READ_ACCESS | FILE_WRITE_ACCESS",
        }
    }
    /// The file rights a handle needs: `FILE_READ_DATA` 1, `FILE_WRITE_DATA` 2.
    #[must_use]
    pub fn file_rights(self) -> u32 {
        match self {
            Self::Any => 0,
            Self::Read => 1,
            Self::Write => 2,
            Self::ReadWrite => 3,
        }
    }
}

/// A control code as its four fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControlCode(pub u32);

impl ControlCode {
    #[must_use]
    pub fn device_type(self) -> u32 {
        self.0 >> 16
    }
    /// 12 bits.
    #[must_use]
    pub fn function(self) -> u32 {
        (self.0 >> 2) & 0xfff
    }
    #[must_use]
    pub fn method(self) -> Method {
        match self.0 & 3 {
            0 => Method::Buffered,
            1 => Method::InDirect,
            2 => Method::OutDirect,
            _ => Method::Neither,
        }
    }
    #[must_use]
    pub fn required_access(self) -> RequiredAccess {
        match (self.0 >> 14) & 3 {
            0 => RequiredAccess::Any,
            1 => RequiredAccess::Read,
            2 => RequiredAccess::Write,
            _ => RequiredAccess::ReadWrite,
        }
    }

    /// Everything about the code.
    #[must_use]
    pub fn decode(self) -> DecodedCode {
        let (method, access) = (self.method(), self.required_access());
        let name = device_type_name(self.device_type());
        let device = name.map_or_else(|| format!("{:#x}", self.device_type()), ToOwned::to_owned);
        DecodedCode {
            code: Code(self.0),
            device_type: Code(self.device_type()),
            device_type_name: name.map(ToOwned::to_owned),
            function: Code(self.function()),
            method,
            required_access: access,
            ctl_code: format!(
                "CTL_CODE({device}, {:#x}, {}, {})",
                self.function(),
                method.constant(),
                access.constant()
            ),
            vendor_device_type: self.device_type() >= 0x8000,
            vendor_function: self.function() >= 0x800,
            buffers: Buffers::of(method),
            notes: notes(method, access),
            alternate_reading: None,
        }
    }
}

/// Which fields of the request hold the caller's buffers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Buffers {
    pub input: String,
    pub output: String,
}

impl Buffers {
    fn of(method: Method) -> Self {
        let (input, output) = match method {
            Method::Buffered => ("Irp->AssociatedIrp.SystemBuffer", "Irp->AssociatedIrp.SystemBuffer"),
            Method::InDirect => {
                ("Irp->AssociatedIrp.SystemBuffer", "Irp->MdlAddress (locked, probed for read)")
            }
            Method::OutDirect => {
                ("Irp->AssociatedIrp.SystemBuffer", "Irp->MdlAddress (locked, probed for write)")
            }
            Method::Neither => (
                "Parameters.DeviceIoControl.Type3InputBuffer (the caller's own pointer)",
                "Irp->UserBuffer (the caller's own pointer)",
            ),
        };
        Self { input: input.to_owned(), output: output.to_owned() }
    }
}

fn notes(method: Method, access: RequiredAccess) -> Vec<String> {
    let mut notes = Vec::new();
    if method == Method::Neither {
        notes.push(
            "METHOD_NEITHER: the I/O manager checks neither buffer; the driver must probe and lock both itself"
                .to_owned(),
        );
    }
    if access == RequiredAccess::Any {
        notes.push(
            "FILE_ANY_ACCESS: delivered on any handle to the device, one opened with no access too"
                .to_owned(),
        );
    }
    notes
}

/// What `decode_ioctl` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecodedCode {
    pub code: Code,
    pub device_type: Code,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_type_name: Option<String>,
    pub function: Code,
    pub method: Method,
    pub required_access: RequiredAccess,
    /// The macro call that gives this code.
    pub ctl_code: String,
    pub vendor_device_type: bool,
    pub vendor_function: bool,
    pub buffers: Buffers,
    pub notes: Vec<String>,
    /// The hexadecimal reading of a string of decimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternate_reading: Option<Code>,
}

/// A string read as a control code, and its other reading if digits alone left two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeReading {
    pub code: u32,
    pub alternate: Option<u32>,
}

/// `0x...`, `...h` and anything with a letter a-f is hexadecimal; digits alone are decimal, with
/// the hexadecimal reading beside it (spec 00 decision 6).
///
/// # Errors
/// What is wrong with the text, naming both bounds.
pub fn parse_code(text: &str) -> Result<CodeReading, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("a control code is a number such as 0x222003; this one is blank".to_owned());
    }
    let lower = trimmed.to_ascii_lowercase();
    let hex = |digits: &str| -> Result<u32, String> {
        let plain = digits.replace('`', "");
        if plain.is_empty() || !plain.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("{trimmed:?} is not a number; write a control code like 0x222003"));
        }
        u64::from_str_radix(plain.trim_start_matches('0'), 16)
            .or_else(|_| if plain.bytes().all(|b| b == b'0') { Ok(0) } else { Err(()) })
            .ok()
            .and_then(|value| u32::try_from(value).ok())
            .ok_or_else(|| format!("{trimmed} is above 0xffffffff: control codes have 32 bits"))
    };
    if let Some(digits) = lower.strip_prefix("0x") {
        return hex(digits).map(|code| CodeReading { code, alternate: None });
    }
    if let Some(digits) = lower.strip_suffix('h') {
        return hex(digits).map(|code| CodeReading { code, alternate: None });
    }
    if lower.bytes().all(|b| b.is_ascii_digit()) {
        let alternate = hex(&lower).ok();
        let decimal = lower.parse::<u64>().ok().and_then(|value| u32::try_from(value).ok());
        return match decimal {
            Some(code) => Ok(CodeReading { code, alternate: alternate.filter(|other| *other != code) }),
            None => Err(format!("{trimmed} is above 4294967295 (0xffffffff): control codes have 32 bits")),
        };
    }
    hex(&lower).map(|code| CodeReading { code, alternate: None })
}

/// The text half.
#[must_use]
pub fn render_code(decoded: &DecodedCode) -> String {
    let mut text = format!("{}: {}\n", decoded.code, decoded.ctl_code);
    let vendor = |flag: bool| if flag { ", vendor range" } else { "" };
    text.push_str(&format!(
        "device type {:#x}{}{}; function {:#x}{}; method {}; access {}\n",
        decoded.device_type.0,
        decoded.device_type_name.as_deref().map(|name| format!(" {name}")).unwrap_or_default(),
        vendor(decoded.vendor_device_type),
        decoded.function.0,
        vendor(decoded.vendor_function),
        decoded.method.name(),
        decoded.required_access.name()
    ));
    text.push_str(&format!("input: {}\noutput: {}", decoded.buffers.input, decoded.buffers.output));
    for note in &decoded.notes {
        text.push_str(&format!("\n{note}"));
    }
    if let Some(other) = decoded.alternate_reading {
        text.push_str(&format!("\nRead as decimal. If the digits were hexadecimal, the code is {other}."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(code: u32) -> (u32, u32, Method, RequiredAccess) {
        let code = ControlCode(code);
        (code.device_type(), code.function(), code.method(), code.required_access())
    }

    #[test]
    fn cases_of_the_spec() {
        assert_eq!(fields(0x22_2003), (0x22, 0x800, Method::Neither, RequiredAccess::Any));
        assert_eq!(fields(0x6d_c000), (0x6d, 0, Method::Buffered, RequiredAccess::ReadWrite));
        assert_eq!(fields(0x12_e486), (0x12, 0x921, Method::OutDirect, RequiredAccess::ReadWrite));
        assert_eq!(parse_code("2236419"), Ok(CodeReading { code: 0x22_2003, alternate: Some(0x0223_6419) }));
    }

    #[test]
    fn readings() {
        let plain = |code| Ok(CodeReading { code, alternate: None });
        assert_eq!(parse_code("0x222003"), plain(0x22_2003));
        assert_eq!(parse_code("222003h"), plain(0x22_2003));
        assert_eq!(parse_code("9c402401"), plain(0x9c40_2401));
        assert_eq!(parse_code("0xffffffff"), plain(u32::MAX));
        assert_eq!(parse_code("0x0"), plain(0));
        assert_eq!(parse_code("7"), plain(7));
        for wrong in ["-1", "", "  ", "0x1ffffffff", "4294967296", "0x", "h", "0x22z", "twelve"] {
            assert!(parse_code(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn text() {
        let mut decoded = ControlCode(0x22_2003).decode();
        decoded.alternate_reading = Some(Code(0x0223_6419));
        insta::assert_snapshot!(render_code(&decoded));
    }

    proptest::proptest! {
        #[test]
        fn the_fields_make_the_code_again(code: u32) {
            let parts = ControlCode(code);
            let again = parts.device_type() << 16
                | (parts.required_access() as u32) << 14
                | parts.function() << 2
                | parts.method() as u32;
            proptest::prop_assert_eq!(again, code);
        }
        #[test]
        fn no_text_panics(text: String) {
            let _ = parse_code(&text);
        }
    }
}
