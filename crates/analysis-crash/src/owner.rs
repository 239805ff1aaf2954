//! The owner file of `--triage-ini` (spec 60 section 2.7): who follows up a module or function.
//!
//! Lines `Module[!Function]=Owner`. `*` may end a name; `default` names the owner of everything else.
//! Owner `ignore` passes the blame to the next frame; `maybe_` and `last_` owners lose to a definite
//! match lower on the stack.

/// Who owns what; empty unless a file was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    module: Pattern,
    function: Option<Pattern>,
    owner: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: String,
    prefix: bool,
}

/// The owner where no file says otherwise.
const DEFAULT_OWNER: &str = "MachineOwner";
/// Lines taken from a file at most.
const MAX_ENTRIES: usize = 65_536;

impl Pattern {
    fn new(text: &str) -> Self {
        let lower = text.trim().to_ascii_lowercase();
        match lower.strip_suffix('*') {
            Some(start) => Self { text: start.to_owned(), prefix: true },
            None => Self { text: lower, prefix: false },
        }
    }
    fn matches(&self, name: &str) -> bool {
        if self.prefix { name.starts_with(&self.text) } else { name == self.text }
    }
}

impl Owners {
    /// Reads the text of an owner file. Lines that are no `name=owner` are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut entries = Vec::new();
        for line in text.lines().take(MAX_ENTRIES) {
            let line = line.trim();
            if line.starts_with([';', '#', '[']) {
                continue;
            }
            let Some((name, owner)) = line.split_once('=') else { continue };
            let owner: String = owner.chars().filter(|c| !c.is_whitespace()).collect();
            let name = name.trim();
            if name.is_empty() || owner.is_empty() {
                continue;
            }
            let name = if name.eq_ignore_ascii_case("default") { "*" } else { name };
            let (module, function) = match name.split_once('!') {
                Some((module, function)) => (module, Some(Pattern::new(function))),
                None => (name, None),
            };
            entries.push(Entry { module: Pattern::new(module), function, owner });
        }
        Self { entries }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The owner of one frame: the longest match, a module match before a function match.
    fn owner(&self, module: &str, function: Option<&str>) -> Option<&str> {
        let module = module.to_ascii_lowercase();
        let function = function.map(str::to_ascii_lowercase);
        let rank = |entry: &Entry| {
            let whole = entry.function.is_none() && !(entry.module.prefix && entry.module.text.is_empty());
            let length = entry.module.text.len() + entry.function.as_ref().map_or(0, |f| f.text.len());
            (whole, length)
        };
        self.entries
            .iter()
            .filter(|e| {
                e.module.matches(&module)
                    && e.function.as_ref().is_none_or(|p| function.as_deref().is_some_and(|f| p.matches(f)))
            })
            .max_by_key(|e| rank(e))
            .map(|e| e.owner.as_str())
    }

    /// Index of the frame to blame among `frames` (module, function; innermost first) and its owner.
    /// `None` when there is no frame or all of them are ignored.
    #[must_use]
    pub fn choose(&self, frames: &[(&str, Option<&str>)]) -> Option<(usize, String)> {
        let mut weak: Option<(usize, u8, &str)> = None;
        for (index, (module, function)) in frames.iter().enumerate() {
            let owner = self.owner(module, *function).unwrap_or(DEFAULT_OWNER);
            if owner.eq_ignore_ascii_case("ignore") {
                continue;
            }
            let (strength, bare) = match (owner.strip_prefix("maybe_"), owner.strip_prefix("last_")) {
                (Some(bare), _) => (2, bare),
                (_, Some(bare)) => (1, bare),
                _ => return Some((index, owner.to_owned())),
            };
            if weak.is_none_or(|(_, best, _)| strength > best) {
                weak = Some((index, strength, bare));
            }
        }
        weak.map(|(index, _, owner)| (index, owner.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_the_first_frame_is_the_machine_owners() {
        let owners = Owners::default();
        assert_eq!(owners.choose(&[("a", None), ("b", None)]), Some((0, "MachineOwner".into())));
        assert_eq!(owners.choose(&[]), None);
    }

    #[test]
    fn precedence() {
        let owners = Owners::parse(
            "; comment\n[section]\nstor*=Storage Team\nstorport=Port\nNDIS!NdisQueue*=Net\nndis=NdisTeam\n\
             skip=ignore\nperhaps=maybe_Someone\nfinal=last_Resort\ndefault=Else\nbroken\n=x\ny=\n",
        );
        let one = |module, function| owners.choose(&[(module, function)]).map(|(_, o)| o);
        assert_eq!(one("STORPORT", None).as_deref(), Some("Port"));
        assert_eq!(one("storahci", None).as_deref(), Some("StorageTeam"));
        assert_eq!(one("NDIS", Some("NdisQueueIoWorkItem")).as_deref(), Some("NdisTeam"));
        assert_eq!(one("other", None).as_deref(), Some("Else"));
        assert_eq!(owners.choose(&[("skip", None), ("storport", None)]), Some((1, "Port".into())));
        assert_eq!(owners.choose(&[("perhaps", None), ("storport", None)]), Some((1, "Port".into())));
        assert_eq!(owners.choose(&[("final", None), ("perhaps", None)]), Some((1, "Someone".into())));
        assert_eq!(owners.choose(&[("skip", None)]), None);
    }
}
