//! Where a transcript goes and how large it grows.

use std::path::PathBuf;

/// Bytes kept per field when nothing else is said.
const FIELD: usize = 16_384;
const ROTATE_AT: u64 = 256 << 20;
const KEEP: usize = 8;
/// Rotated files a setting may ask for.
const KEEP_MOST: u64 = 1000;

/// How a transcript is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub path: PathBuf,
    /// Bytes kept per field; 0 is no cap.
    pub max_field: usize,
    /// Bytes at which the file is rotated; 0 is never.
    pub max_bytes: u64,
    /// Rotated files kept.
    pub keep: usize,
}

impl Settings {
    /// The documented figures for a transcript at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), max_field: FIELD, max_bytes: ROTATE_AT, keep: KEEP }
    }

    /// `WINDBG_MCP_TRANSCRIPT` and its `_MAX_FIELD`, `_MAX_BYTES` and `_KEEP`; `None` when no path
    /// is named. A figure that does not parse is the default, with a warning.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        Self::from(|name| std::env::var_os(name))
    }

    fn from(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Self> {
        let path = variable("WINDBG_MCP_TRANSCRIPT").filter(|path| !path.is_empty())?;
        let mut settings = Self::at(path);
        let number = |name: &str, default: u64, most: u64| {
            let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return default };
            let text = text.to_string_lossy();
            match text.trim().parse::<u64>() {
                Ok(number) if number <= most => number,
                _ => {
                    tracing::warn!(
                        "{name} is {text:?}; it must be an integer up to {most}, {default} is used"
                    );
                    default
                }
            }
        };
        let field = number("WINDBG_MCP_TRANSCRIPT_MAX_FIELD", FIELD as u64, 1 << 30);
        settings.max_field = usize::try_from(field).unwrap_or(FIELD);
        settings.max_bytes = number("WINDBG_MCP_TRANSCRIPT_MAX_BYTES", ROTATE_AT, u64::MAX);
        settings.keep =
            usize::try_from(number("WINDBG_MCP_TRANSCRIPT_KEEP", KEEP as u64, KEEP_MOST)).unwrap_or(KEEP);
        Some(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(n, v)| (format!("WINDBG_MCP_TRANSCRIPT{n}"), (*v).to_owned())).collect();
            Settings::from(|name| pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.into()))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("", "")]), None);
        assert_eq!(of(&[("", "t"), ("_MAX_FIELD", "x"), ("_KEEP", "1001")]), Some(Settings::at("t")));
        let asked = of(&[("", "t"), ("_MAX_FIELD", "0"), ("_MAX_BYTES", "0"), ("_KEEP", " 2 ")]).unwrap();
        assert_eq!((asked.max_field, asked.max_bytes, asked.keep), (0, 0, 2));
    }
}
