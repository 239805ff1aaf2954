//! The addresses of resources.

/// What an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Sessions,
    Transcript,
    Page(String),
    Modules { session: String, filter: Option<String> },
    Symbol { session: String, symbol: String },
}

pub(crate) const SESSIONS: &str = "windbg://sessions";
pub(crate) const TRANSCRIPT: &str = "windbg://transcript";
pub(crate) const PAGES: &str = "windbg://docs/";
pub(crate) const MODULES: &str = "windbg://session/{session_id}/modules{?filter}";
pub(crate) const SYMBOL: &str = "windbg://session/{session_id}/symbol/{symbol}";

/// Longer ones name nothing.
const LONGEST: usize = 4096;

impl Address {
    /// Reads an address; `None` for what names nothing here.
    pub(crate) fn parse(uri: &str) -> Option<Self> {
        if uri.len() > LONGEST {
            return None;
        }
        let rest = uri.strip_prefix("windbg://")?;
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let parts: Vec<String> = path.split('/').map(decoded).collect::<Option<_>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match (parts.as_slice(), query) {
            (["sessions"], None) => Some(Self::Sessions),
            (["transcript"], None) => Some(Self::Transcript),
            (["docs", page], None) => Some(Self::Page((*page).to_owned())),
            (["session", session, "modules"], query) => {
                let filter = match query {
                    None | Some("") => None,
                    Some(query) => Some(decoded(query.strip_prefix("filter=")?)?),
                };
                Some(Self::Modules { session: (*session).to_owned(), filter })
            }
            (["session", session, "symbol", symbol], None) => {
                Some(Self::Symbol { session: (*session).to_owned(), symbol: (*symbol).to_owned() })
            }
            _ => None,
        }
    }
}

/// Text with its percent escapes undone; `None` for a broken escape or what is no UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_something_and_what_does_not() {
        let modules = |filter: Option<&str>| Address::Modules {
            session: "sess-1".into(),
            filter: filter.map(Into::into),
        };
        let symbol = Address::Symbol { session: "sess-1".into(), symbol: "nt!Ke*?".into() };
        for (uri, address) in [
            ("windbg://sessions", Some(Address::Sessions)),
            ("windbg://transcript", Some(Address::Transcript)),
            ("windbg://docs/tools", Some(Address::Page("tools".into()))),
            ("windbg://session/sess-1/modules", Some(modules(None))),
            ("windbg://session/sess-1/modules?filter=a%2a", Some(modules(Some("a*")))),
            ("windbg://session/sess-1/symbol/nt!Ke%2A%3F", Some(symbol)),
            ("windbg://docs/../Cargo", None),
            ("windbg://docs/%2e%2e", Some(Address::Page("..".into()))),
            ("windbg://session/sess-1/modules?limit=1", None),
            ("windbg://session/sess-1/symbol/%zz", None),
            ("windbg://session/sess-1/symbol/%ff", None),
            ("windbg://session/sess-1/symbol/%2", None),
            ("windbg://sessions/", None),
            ("WINDBG://sessions", None),
            ("file:///etc/passwd", None),
            ("", None),
        ] {
            assert_eq!(Address::parse(uri), address, "{uri}");
        }
        assert_eq!(Address::parse(&format!("windbg://docs/{}", "x".repeat(5000))), None);
    }
}
