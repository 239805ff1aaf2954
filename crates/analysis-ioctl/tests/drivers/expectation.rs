//! What a test driver's source says about it: the leading comment's `key: value` lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use analysis_ioctl::set::{Set, Sets};

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/drivers")
}

/// The comment of one source.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// `d01`.
    pub id: String,
    lines: BTreeMap<String, Vec<String>>,
}

fn number(text: &str) -> u32 {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).expect(text),
        None => text.parse().expect(text),
    }
}

impl Expectation {
    pub fn all() -> Vec<Self> {
        let mut out = Vec::new();
        for entry in std::fs::read_dir(folder().join("src")).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let id = stem.split('_').next().unwrap().to_owned();
            if !id.starts_with('d') || !id[1..].starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for line in text.lines() {
                let Some(line) = line.strip_prefix("//").or_else(|| line.strip_prefix('#')) else { break };
                if let Some((key, value)) = line.trim().split_once(": ") {
                    lines.entry(key.to_owned()).or_default().push(value.to_owned());
                }
            }
            out.push(Self { id, lines });
        }
        out.sort_by(|a, b| a.id.cmp(&b.id));
        out
    }

    pub fn get(&self, key: &str) -> &[String] {
        self.lines.get(key).map_or(&[], Vec::as_slice)
    }

    pub fn has(&self, key: &str) -> bool {
        self.lines.contains_key(key)
    }

    fn numbers(&self, key: &str) -> Vec<u32> {
        let words = self.get(key).iter().flat_map(|line| line.split_whitespace());
        words.map(|w| number(w.split('=').next().unwrap())).collect()
    }

    pub fn codes(&self) -> Vec<u32> {
        self.numbers("codes")
    }

    pub fn refused(&self) -> Vec<u32> {
        self.numbers("refused")
    }

    pub fn default(&self) -> Option<u32> {
        self.numbers("default").first().copied()
    }

    /// Every code the source names: accepted, refused, by pattern, in runs.
    pub fn set(&self, sets: &mut Sets) -> Set {
        let mut values = self.codes();
        values.extend(self.refused());
        for line in self.get("dense") {
            let words: Vec<u32> = line.split_whitespace().map(number).collect();
            values.extend((0..words[2]).map(|i| words[0] + i * words[1]));
        }
        let mut set = sets.values_of(&values);
        for line in self.get("pattern") {
            let words: Vec<u32> = line.split_whitespace().map(number).collect();
            let part = sets.pattern(words[0], words[1]);
            set = sets.or(set, part);
        }
        set
    }
}
