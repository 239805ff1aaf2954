//! The symbol path grammar (spec 80 section 11.2): elements separated by `;`, stores of one element
//! by `*`, nearest first. `:` never separates, so drive letters and URLs need no quoting.

use std::fmt;
use std::path::PathBuf;

use crate::place;

/// Elements looked at; a longer path is cut, and says so in [`SymbolPath::rejected`].
const ELEMENTS_LIMIT: usize = 256;
/// Stores in one element.
const STORES_LIMIT: usize = 16;

/// A parsed symbol or image path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolPath {
    pub elements: Vec<Element>,
    /// What was not understood, as `element: why`. Nothing else is lost by it.
    pub rejected: Vec<String>,
}

/// One element of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// A folder: flat, or laid out as a store.
    Folder(PathBuf),
    /// `cache*DIR`: hits of the store chains to its right are copied here.
    Cache(PathBuf),
    /// `srv*A*B*URL`: left is nearest; a hit is copied into every writable store to its left.
    Chain(Vec<Store>),
}

/// One store of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    Folder(PathBuf),
    /// `http://` or `https://`, without a trailing slash.
    Server(String),
}

impl Store {
    fn parse(text: &str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            Self::Folder(place::default_store())
        } else if is_url(text) {
            Self::Server(text.trim_end_matches('/').to_owned())
        } else {
            Self::Folder(place::expand(text))
        }
    }
}

fn is_url(text: &str) -> bool {
    let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    lower.starts_with("http://") || lower.starts_with("https://")
}

fn strip_keyword<'a>(element: &'a str, keyword: &str) -> Option<&'a str> {
    let head = element.get(..keyword.len())?;
    head.eq_ignore_ascii_case(keyword).then(|| &element[keyword.len()..])
}

impl SymbolPath {
    /// Reads a path. Never fails: elements that make no sense are listed in `rejected`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut path = Self::default();
        for element in text.split(';').map(str::trim).filter(|e| !e.is_empty()) {
            if path.elements.len() == ELEMENTS_LIMIT {
                path.rejected.push(format!("elements after the {ELEMENTS_LIMIT}th are not looked at"));
                break;
            }
            path.parse_element(element);
        }
        path
    }

    fn parse_element(&mut self, element: &str) {
        if let Some(rest) = strip_keyword(element, "symsrv*") {
            // The second field names the server DLL; only the protocol of symsrv.dll is known.
            match rest.split_once('*') {
                Some((dll, stores)) if dll.trim().eq_ignore_ascii_case("symsrv.dll") => self.chain(stores),
                None if rest.trim().eq_ignore_ascii_case("symsrv.dll") => self.chain(""),
                _ => self.rejected.push(format!("{element}: only symsrv.dll is a known symbol server type")),
            }
        } else if let Some(stores) = strip_keyword(element, "srv*") {
            self.chain(stores);
        } else if element.eq_ignore_ascii_case("srv") {
            self.chain("");
        } else if let Some(folder) = strip_keyword(element, "cache*") {
            let folder = folder.trim();
            if folder.contains('*') {
                self.rejected.push(format!("{element}: cache* takes one folder"));
            } else if is_url(folder) {
                self.rejected.push(format!("{element}: a cache must be a folder"));
            } else {
                let folder = if folder.is_empty() { place::default_store() } else { place::expand(folder) };
                self.elements.push(Element::Cache(folder));
            }
        } else if is_url(element) {
            // Microsoft's debuggers need `srv*` before a URL; what is meant is clear without it.
            self.elements.push(Element::Chain(vec![Store::parse(element)]));
        } else if element.contains('*') {
            self.rejected.push(format!("{element}: starts with neither srv*, cache* nor symsrv*"));
        } else {
            self.elements.push(Element::Folder(place::expand(element)));
        }
    }

    fn chain(&mut self, stores: &str) {
        let stores: Vec<Store> = stores.split('*').take(STORES_LIMIT).map(Store::parse).collect();
        self.elements.push(Element::Chain(stores));
    }

    /// Adds a folder at the end, unless it is there already.
    pub fn push_folder(&mut self, folder: impl Into<PathBuf>) {
        let element = Element::Folder(folder.into());
        if !self.elements.contains(&element) {
            self.elements.push(element);
        }
    }

    /// Whether a look-up could use the network, were it allowed.
    #[must_use]
    pub fn names_a_server(&self) -> bool {
        self.elements.iter().any(|element| match element {
            Element::Chain(stores) => stores.iter().any(|s| matches!(s, Store::Server(_))),
            _ => false,
        })
    }

    /// Every local folder of the path, in order, once each: where ISF files may lie.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        let mut add = |folder: &PathBuf| {
            if !folders.contains(folder) {
                folders.push(folder.clone());
            }
        };
        for element in &self.elements {
            match element {
                Element::Folder(folder) | Element::Cache(folder) => add(folder),
                Element::Chain(stores) => stores.iter().for_each(|store| {
                    if let Store::Folder(folder) = store {
                        add(folder);
                    }
                }),
            }
        }
        folders
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Server(url) => f.write_str(url),
        }
    }
}

impl fmt::Display for SymbolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, element) in self.elements.iter().enumerate() {
            if index > 0 {
                f.write_str(";")?;
            }
            match element {
                Element::Folder(folder) => write!(f, "{}", folder.display())?,
                Element::Cache(folder) => write!(f, "cache*{}", folder.display())?,
                Element::Chain(stores) => {
                    f.write_str("srv")?;
                    stores.iter().try_for_each(|store| write!(f, "*{store}"))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(text: &str) -> Store {
        Store::Folder(PathBuf::from(text))
    }
    fn server(text: &str) -> Store {
        Store::Server(text.to_owned())
    }

    #[test]
    fn the_forms_of_an_element() {
        let path = SymbolPath::parse(
            r"C:\sym; srv*/a*/b*https://host/x/ ;CACHE*/c;symsrv*symsrv.dll*/d*http://h:81;;https://bare",
        );
        assert_eq!(path.rejected, Vec::<String>::new());
        assert_eq!(
            path.elements,
            [
                Element::Folder(PathBuf::from(r"C:\sym")),
                Element::Chain(vec![folder("/a"), folder("/b"), server("https://host/x")]),
                Element::Cache(PathBuf::from("/c")),
                Element::Chain(vec![folder("/d"), server("http://h:81")]),
                Element::Chain(vec![server("https://bare")]),
            ]
        );
        assert!(path.names_a_server());
        assert_eq!(path.folders().len(), 5);
    }

    #[test]
    fn an_empty_store_is_the_default_one() {
        let default = Store::Folder(place::default_store());
        for text in ["srv*", "SRV", "symsrv*symsrv.dll", "symsrv*symsrv.dll*"] {
            assert_eq!(SymbolPath::parse(text).elements, [Element::Chain(vec![default.clone()])], "{text}");
        }
        assert_eq!(
            SymbolPath::parse("srv**http://h").elements,
            [Element::Chain(vec![default, server("http://h")])]
        );
        assert_eq!(SymbolPath::parse(""), SymbolPath::default());
    }

    #[test]
    fn what_makes_no_sense_is_named_and_the_rest_kept() {
        let path = SymbolPath::parse("foo*bar;symsrv*other.dll*/x;cache*http://h;cache*/a*/b;/kept");
        assert_eq!(path.elements, [Element::Folder(PathBuf::from("/kept"))]);
        assert_eq!(path.rejected.len(), 4);
        assert_eq!(SymbolPath::parse(&";/x".repeat(400)).elements.len(), ELEMENTS_LIMIT);
    }

    #[test]
    fn text_reads_back() {
        let text = "/a;srv*/b*http://h;cache*/c";
        let path = SymbolPath::parse(text);
        assert_eq!(path.to_string(), text);
        assert_eq!(SymbolPath::parse(&path.to_string()), path);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

        #[test]
        fn any_text_is_read_and_reads_back(text in "[;*~/.: a-zS]{0,40}|((srv|cache|symsrv\\*symsrv.dll)\\*[^;]{0,20};?){0,4}") {
            let path = SymbolPath::parse(&text);
            let again = SymbolPath::parse(&path.to_string());
            proptest::prop_assert_eq!(path.elements.len(), again.elements.len());
        }
    }
}
