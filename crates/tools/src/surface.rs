//! The tools a client is served.

/// A set of served tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surface {
    names: Vec<&'static str>,
}

impl Surface {
    /// Everything this build has.
    #[must_use]
    pub fn all() -> Self {
        Self { names: crate::all().iter().map(|entry| entry.name).collect() }
    }

    #[must_use]
    pub fn serves(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// The served rows in `tools/list` order.
    pub fn entries(&self) -> impl Iterator<Item = &'static crate::ToolEntry> {
        crate::all().iter().filter(|entry| self.serves(entry.name))
    }

    /// A surface of just these tools, for tests of narrowed prose.
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        let names = crate::all().iter().map(|e| e.name).filter(|n| names.contains(n)).collect();
        Self { names }
    }
}
