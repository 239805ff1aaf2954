//! How much was taken out.

use std::collections::BTreeMap;

/// Replacements by the name of their set or pattern, and masked secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub redactions: BTreeMap<String, u64>,
    pub secrets: u64,
}

impl Counts {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.redactions.is_empty() && self.secrets == 0
    }

    pub(crate) fn add(&mut self, name: &str) {
        match self.redactions.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.redactions.insert(name.to_owned(), 1);
            }
        }
    }

    /// `user_paths 3, mail 1`.
    #[must_use]
    pub fn words(&self) -> String {
        let sets = self.redactions.iter().map(|(name, count)| format!("{name} {count}"));
        let secrets = (self.secrets > 0).then(|| format!("secrets {}", self.secrets));
        sets.chain(secrets).collect::<Vec<_>>().join(", ")
    }
}
