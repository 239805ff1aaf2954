//! The tools a client is served, and the words that choose them (spec 20 section 5.2).

use crate::Group;
use crate::catalogue;

/// A set of served tools, and who chose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surface {
    names: Vec<&'static str>,
    chosen_by: Option<String>,
}

/// Why a specification selects no surface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error(
        "{source_name}: {entry:?} is no group and no tool{}; groups are {}, all is everything, and `windbg-mcp \
         tools` lists the tools",
        near.map(|near| format!(" (did you mean {near:?}?)")).unwrap_or_default(),
        vocabulary()
    )]
    Unknown { source_name: String, entry: String, near: Option<&'static str> },
    #[error(
        "{source_name}: this build does not have {entry:?} yet; groups are {}, all is everything, and \
         `windbg-mcp tools` lists the tools",
        vocabulary()
    )]
    NotInThisBuild { source_name: String, entry: String },
    #[error(
        "{source_name} selects nothing; name groups ({}), tools, or all, with commas between",
        vocabulary()
    )]
    Nothing { source_name: String },
}

/// The groups this build has tools of.
fn groups() -> impl Iterator<Item = Group> {
    Group::ALL.into_iter().filter(|group| crate::all().iter().any(|entry| entry.group == *group))
}

fn vocabulary() -> String {
    groups().map(Group::name).collect::<Vec<_>>().join(", ")
}

impl Default for Surface {
    /// What is served when nobody chose: the groups that need no special target.
    fn default() -> Self {
        Self::when(None, |entry| entry.group.is_ordinary())
    }
}

impl Surface {
    fn when(chosen_by: Option<String>, serve: impl Fn(&crate::ToolEntry) -> bool) -> Self {
        let names = crate::all().iter().filter(|entry| serve(entry)).map(|entry| entry.name).collect();
        Self { names, chosen_by }
    }

    /// Everything this build has.
    #[must_use]
    pub fn all() -> Self {
        Self::when(None, |_| true)
    }

    /// What `spec` names: groups, tools or `all`, with commas between. The group `session` is always
    /// in. `source` says where the words are from: a flag, a variable, a file's entry.
    ///
    /// # Errors
    /// [`SpecError`]; every entry is looked at, also beside `all`.
    pub fn parse(spec: &str, source: &str) -> Result<Self, SpecError> {
        let entries: Vec<&str> = spec.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
        if entries.is_empty() {
            return Err(SpecError::Nothing { source_name: source.to_owned() });
        }
        for entry in &entries {
            check(entry, source)?;
        }
        let chosen = |tool: &crate::ToolEntry| {
            tool.group == Group::Session
                || entries.iter().any(|entry| [tool.name, tool.group.name(), "all"].contains(entry))
        };
        Ok(Self::when(Some(source.to_owned()), chosen))
    }

    #[must_use]
    pub fn serves(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// The served rows in `tools/list` order.
    pub fn entries(&self) -> impl Iterator<Item = &'static crate::ToolEntry> {
        crate::all().iter().filter(|entry| self.serves(entry.name))
    }

    /// Where the words that chose it are from; `None` when nobody chose.
    #[must_use]
    pub fn chosen_by(&self) -> Option<&str> {
        self.chosen_by.as_deref()
    }

    /// `13 of 78 tools (session, crash)`: whole groups in their order, then single tools by name.
    #[must_use]
    pub fn summary(&self) -> String {
        let members = |group: Group| crate::all().iter().filter(move |entry| entry.group == group);
        let whole: Vec<Group> =
            groups().filter(|group| members(*group).all(|entry| self.serves(entry.name))).collect();
        let mut loose: Vec<&str> =
            self.entries().filter(|entry| !whole.contains(&entry.group)).map(|entry| entry.name).collect();
        loose.sort_unstable();
        let named: Vec<&str> = whole.iter().map(|group| group.name()).chain(loose).collect();
        format!("{} of {} tools ({})", self.names.len(), crate::all().len(), named.join(", "))
    }

    /// A surface of just these tools, for tests of narrowed prose.
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        Self::when(None, |entry| names.contains(&entry.name))
    }
}

fn check(entry: &str, source: &str) -> Result<(), SpecError> {
    let served = |entry: &str| {
        entry == "all" || groups().any(|group| group.name() == entry) || crate::find(entry).is_some()
    };
    if served(entry) {
        return Ok(());
    }
    let source_name = source.to_owned();
    if Group::ALL.into_iter().any(|group| group.name() == entry) || catalogue::contains(entry) {
        return Err(SpecError::NotInThisBuild { source_name, entry: entry.to_owned() });
    }
    let words: Vec<&'static str> = ["all"]
        .into_iter()
        .chain(groups().map(Group::name))
        .chain(crate::all().iter().map(|e| e.name))
        .collect();
    let entry: String = entry.chars().take(64).collect();
    let near = crate::admit::nearest(&entry, &words);
    Err(SpecError::Unknown { source_name, entry, near })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(group: Group) -> usize {
        crate::all().iter().filter(|entry| entry.group == group).count()
    }

    fn served(spec: &str) -> usize {
        Surface::parse(spec, "--tools").unwrap().entries().count()
    }

    #[test]
    fn a_specification_selects_groups_and_tools_and_always_the_sessions() {
        let session = size(Group::Session);
        let inspect = size(Group::Inspect);
        let (exec, crash) = (size(Group::Exec), size(Group::Crash));
        for (spec, tools) in [
            ("all", crate::all().len()),
            ("session,inspect,exec,crash", session + inspect + exec + crash),
            ("session,inspect,crash", session + inspect + crash),
            ("crash", session + crash),
            ("session", session),
            ("registers,backtrace", session + 2),
            ("walk_memory", session + 1),
            (" crash , ,registers,", session + crash + 1),
            ("crash,crash_triage", session + crash),
            ("crash,all", crate::all().len()),
        ] {
            assert_eq!(served(spec), tools, "{spec}");
        }
        let ordinary = crate::all().iter().filter(|entry| entry.group != Group::SecureKernel).count();
        assert_eq!(Surface::default().entries().count(), ordinary);
        assert_eq!(Surface::default().chosen_by(), None);
    }

    #[test]
    fn a_bad_entry_is_refused_wherever_it_stands_and_names_its_source() {
        for (spec, words) in [
            ("all,ttdd", &["--tools", "\"ttdd\"", "groups are session, inspect", "all is everything"][..]),
            ("ttdd,all", &["--tools", "\"ttdd\""]),
            ("crash_traige", &["did you mean \"crash_triage\""]),
            ("Crash", &["\"Crash\"", "did you mean \"crash\""]),
            (" ,,", &["--tools selects nothing", "crash"]),
            ("", &["--tools selects nothing"]),
        ] {
            let error = Surface::parse(spec, "--tools").unwrap_err().to_string();
            for word in words {
                assert!(error.contains(word), "{spec}: {word:?} in {error}");
            }
        }
        if crate::find("open_sk_capture").is_none() {
            for spec in ["open_sk_capture", "securekernel,all"] {
                let error = Surface::parse(spec, "WINDBG_MCP_TOOLS_CI").unwrap_err();
                assert!(matches!(error, SpecError::NotInThisBuild { .. }), "{error}");
                assert!(error.to_string().starts_with("WINDBG_MCP_TOOLS_CI: "), "{error}");
            }
        }
    }

    #[test]
    fn the_summary_names_whole_groups_then_single_tools() {
        let (all, session) = (crate::all().len(), size(Group::Session));
        let summary = |spec: &str| Surface::parse(spec, "--tools").unwrap().summary();
        assert_eq!(
            summary("crash"),
            format!("{} of {all} tools (session, crash)", session + size(Group::Crash))
        );
        assert_eq!(
            summary("registers,backtrace"),
            format!("{} of {all} tools (session, backtrace, registers)", session + 2)
        );
        assert!(summary("all").starts_with(&format!("{all} of {all} tools (session, inspect, exec")));
    }
}
