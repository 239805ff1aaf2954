//! The one wire form of every kind of value (spec 20 section 1.4), as types: what is an address is
//! typed as one, so no tool can print it another way.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Parses `0x` plus hex digits; what every string form here reads back.
fn parse_hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

macro_rules! hex_value {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal, $pattern:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                parse_hex(&text)
                    .and_then(|value| <$inner>::try_from(value).ok())
                    .map(Self)
                    .ok_or_else(|| D::Error::custom(concat!("not a ", stringify!($name))))
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

hex_value!(
    /// An address, pointer or register-sized value: `0x` and exactly 16 lowercase hex digits.
    Address(u64), "0x{:016x}", "^0x[0-9a-f]{16}$"
);
hex_value!(
    /// An RVA, displacement or structure offset: `0x` and minimal lowercase hex digits.
    Rva(u64), "0x{:x}", "^0x[0-9a-f]+$"
);
hex_value!(
    /// A 32-bit code (bug check, NTSTATUS, HRESULT, control code): `0x` and 8 lowercase hex digits.
    Code(u32), "0x{:08x}", "^0x[0-9a-f]{8}$"
);

/// Raw bytes in memory order as lowercase hex without separators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HexBytes(pub Vec<u8>);

impl fmt::Display for HexBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(self.0.len() * 2);
        for byte in &self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        f.write_str(&text)
    }
}

impl Serialize for HexBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let digits: Option<Vec<u8>> =
            text.bytes().map(|b| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
        let digits = digits.ok_or_else(|| D::Error::custom("not hex"))?;
        if digits.len() % 2 != 0 {
            return Err(D::Error::custom("odd number of hex digits"));
        }
        Ok(Self(digits.chunks_exact(2).map(|pair| (pair[0] << 4) | pair[1]).collect()))
    }
}

impl JsonSchema for HexBytes {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "HexBytes".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9a-f]{2})*$" })
    }
}

/// A GUID as PDBs carry it. Text form: 32 uppercase hex digits, no dashes, the three leading fields
/// read as little-endian numbers (the symbol-store key's spelling).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// Reads `XXXXXXXX-XXXX-...`, `{...}` or 32 bare digits, any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'-' | b'{' | b'}')).collect();
        if digits.len() != 32 {
            return None;
        }
        let mut big = [0u8; 16];
        for (out, pair) in big.iter_mut().zip(digits.chunks_exact(2)) {
            *out = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        let b = big;
        Some(Self([
            b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
            b[15],
        ]))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = &self.0;
        write!(
            f,
            "{:02X}{:02X}{:02X}{:02X}{:02X}{:02X}{:02X}{:02X}",
            b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6]
        )?;
        b[8..].iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

impl Serialize for Guid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Guid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a GUID"))
    }
}

impl JsonSchema for Guid {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Guid".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9A-F]{32}$" })
    }
}

/// The debugger's own spelling of a 64-bit address, for text only: ``fffff804`7ba00000``.
#[must_use]
pub fn backticked(address: u64) -> String {
    format!("{:08x}`{:08x}", address >> 32, address & 0xffff_ffff)
}

/// A time of day as RFC 3339 UTC with milliseconds, from a Windows FILETIME (100 ns since 1601).
/// `None` for zero and for values past year 9999.
#[must_use]
pub fn rfc3339_from_filetime(filetime: u64) -> Option<String> {
    const EPOCH_DIFFERENCE_SECONDS: i64 = 11_644_473_600;
    if filetime == 0 {
        return None;
    }
    let seconds = i64::try_from(filetime / 10_000_000).ok()? - EPOCH_DIFFERENCE_SECONDS;
    rfc3339(seconds, u32::try_from(filetime / 10_000 % 1000).ok()?)
}

/// A time of day as RFC 3339 UTC with milliseconds, from seconds since 1970.
#[must_use]
pub fn rfc3339(unix_seconds: i64, milliseconds: u32) -> Option<String> {
    let days = unix_seconds.div_euclid(86_400);
    let second_of_day = unix_seconds.rem_euclid(86_400);
    // Civil-from-days (Howard Hinnant's public-domain algorithm).
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    if !(1..=9999).contains(&year) {
        return None;
    }
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{milliseconds:03}Z",
        second_of_day / 3600,
        second_of_day / 60 % 60,
        second_of_day % 60
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(serde_json::to_string(&Address(0x401000)).unwrap(), "\"0x0000000000401000\"");
        assert_eq!(serde_json::to_string(&Rva(0)).unwrap(), "\"0x0\"");
        assert_eq!(serde_json::to_string(&Code(0x7e)).unwrap(), "\"0x0000007e\"");
        assert_eq!(serde_json::to_string(&HexBytes(vec![0x4d, 0x5a])).unwrap(), "\"4d5a\"");
        assert_eq!(serde_json::from_str::<HexBytes>("\"4d5a\"").unwrap(), HexBytes(vec![0x4d, 0x5a]));
        assert!(serde_json::from_str::<Code>("\"0x100000000\"").is_err());
    }

    #[test]
    fn guid_text_is_the_store_key() {
        let guid = Guid::parse("3249d99d-0c40-4931-8610-f4e4fb0b6936").unwrap();
        assert_eq!(guid.to_string(), "3249D99D0C4049318610F4E4FB0B6936");
        assert_eq!(guid.0[0], 0x9d);
    }

    #[test]
    fn filetime_of_a_known_dump() {
        // kernel/triage_x64_19041_7e.dmp: "Sun Feb 21 01:38:22.987 2021 (UTC)".
        let filetime = (1_613_871_502u64 + 11_644_473_600) * 10_000_000 + 9_870_000;
        assert_eq!(rfc3339_from_filetime(filetime).unwrap(), "2021-02-21T01:38:22.987Z");
        assert_eq!(rfc3339_from_filetime(0), None);
        assert_eq!(rfc3339_from_filetime(u64::MAX), None);
    }
}
