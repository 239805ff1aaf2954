//! The object manager's namespace: directories, names, types, symbolic links (spec 40 section 7).
//! Every bucket is walked: a re-implementation of the hash that is wrong looks in the wrong bucket
//! and reports "absent".

use std::collections::BTreeSet;

use target::{Halt, MemoryExt as _, Result, Target, TargetError};

use crate::layout::Private;

const MAX_LINKS: usize = 65_536;
const MAX_NAME_BYTES: u64 = 1024;
const MAX_TARGET_BYTES: u64 = 32_768;
const MAX_COMPONENTS: usize = 32;
const MAX_HOPS: usize = 8;
const CALLBACK_LINK: u32 = 0x10;
const HAS_NAME: u8 = 2;

/// A name as UTF-16 units, which is what the kernel compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    units: Vec<u16>,
}

impl ObjectName {
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { units: text.encode_utf16().collect() }
    }
    /// For people; lossy where a surrogate stands alone.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf16_lossy(&self.units)
    }
    /// Whether the text says exactly this name; two names that are not exact may render alike.
    #[must_use]
    pub fn exact(&self) -> bool {
        String::from_utf16(&self.units).is_ok()
    }
    fn same(&self, other: &Self) -> bool {
        self.units.len() == other.units.len()
            && self.units.iter().zip(&other.units).all(|(a, b)| upcase(*a) == upcase(*b))
    }
}

/// One UTF-16 unit as the kernel compares it: full Unicode folding expands and depends on context,
/// and gives wrong matches both ways.
fn upcase(unit: u16) -> u16 {
    match unit {
        0x61..=0x7a => unit - 0x20,
        0..0xc0 | 0xd800..=0xdfff => unit,
        _ => {
            let Some(letter) = char::from_u32(u32::from(unit)) else { return unit };
            let mut upper = letter.to_uppercase();
            match (upper.next().and_then(|c| u16::try_from(u32::from(c)).ok()), upper.next()) {
                (Some(single), None) if single >= 0xc0 => single,
                _ => unit,
            }
        }
    }
}

/// A path that led to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Address of the object's body.
    pub object: u64,
    pub path: String,
    /// Links followed on the way, outermost first.
    pub followed: Vec<String>,
}

/// What a symbolic link says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    Path(ObjectName),
    /// The target is computed by a routine in the kernel.
    Callback,
}

/// The objects of one directory.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub objects: Vec<u64>,
    /// The first link that would not read; what follows it is unknown, not absent.
    pub unread: Option<target::memory::ReadError>,
    pub stopped: Option<target::halt::Stop>,
}

/// The namespace of a kernel target, with layouts from its symbols.
pub struct Namespace<'a> {
    target: &'a dyn Target,
    pointer: u8,
    body: u64,
    info_mask: u64,
    type_index: u64,
    name_info_name: u64,
    name_info_size: u64,
    buckets: u64,
    bucket_count: u64,
    entry_link: u64,
    entry_object: u64,
}

fn near(name: &ObjectName, others: &[ObjectName]) -> Vec<String> {
    let wanted = name.text().to_lowercase();
    let head: String = wanted.chars().take(3).collect();
    let alike = |other: &&ObjectName| {
        let text = other.text().to_lowercase();
        text.contains(&wanted) || wanted.contains(&text) || text.starts_with(&head)
    };
    others.iter().filter(alike).map(ObjectName::text).take(8).collect()
}

impl<'a> Namespace<'a> {
    /// Layouts of the namespace.
    ///
    /// # Errors
    /// `no_type_information`: the kernel's symbols are not loaded.
    pub fn new(target: &'a dyn Target) -> Result<Self> {
        let pointer = target.facts().machine.pointer_size();
        let header = Private::of(target, "_OBJECT_HEADER")?;
        let name_info = Private::of(target, "_OBJECT_HEADER_NAME_INFO")?;
        let directory = Private::of(target, "_OBJECT_DIRECTORY")?;
        let entry = Private::of(target, "_OBJECT_DIRECTORY_ENTRY")?;
        let buckets = directory.offset("HashBuckets")?;
        let bucket_count = (directory.end_of("HashBuckets")? - buckets) / u64::from(pointer);
        if !(1..=1024).contains(&bucket_count) {
            return Err(TargetError::failed_because(
                "malformed",
                format!("an object directory of {bucket_count} buckets contradicts every kernel"),
            ));
        }
        Ok(Self {
            target,
            pointer,
            body: header.offset("Body")?,
            info_mask: header.offset("InfoMask")?,
            type_index: header.offset("TypeIndex")?,
            name_info_name: name_info.offset("Name")?,
            name_info_size: name_info.size(),
            buckets,
            bucket_count,
            entry_link: entry.offset("ChainLink")?,
            entry_object: entry.offset("Object")?,
        })
    }

    fn global(&self, name: &str) -> Result<u64> {
        let hits = self.target.resolve(&format!("nt!{name}"))?;
        hits.first().map(|hit| hit.address).ok_or_else(|| {
            TargetError::failed_because("no_type_information", format!("nt!{name} is in no loaded symbols"))
        })
    }

    /// The root directory.
    ///
    /// # Errors
    /// `no_namespace`: it does not read, the ordinary answer on a kernel minidump.
    pub fn root(&self) -> Result<u64> {
        let at = self.global("ObpRootDirectoryObject")?;
        self.target.read_pointer(at, self.pointer).map_err(|error| {
            TargetError::failed_because(
                "no_namespace",
                format!("the object namespace is not in this target: nt!ObpRootDirectoryObject, {error}; give an address"),
            )
        })
    }

    fn unicode_string(&self, at: u64, limit: u64) -> Result<ObjectName> {
        let torn = |what: String| TargetError::failed_because("malformed", what);
        let length = u64::from(self.target.read_u16(at)?);
        let maximum = u64::from(self.target.read_u16(at.wrapping_add(2))?);
        let buffer = self.target.read_pointer(at.wrapping_add(u64::from(self.pointer)), self.pointer)?;
        if length > maximum || length % 2 != 0 || (length > 0 && buffer == 0) || length > limit {
            return Err(torn(format!(
                "the UNICODE_STRING at {at:#x} is torn (length {length} of {maximum})"
            )));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        self.target.read_exact(buffer, &mut bytes)?;
        let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        Ok(ObjectName { units: units.collect() })
    }

    /// The name of an object; `Ok(None)`: it has none.
    ///
    /// # Errors
    /// Its header or name does not read, or is torn.
    pub fn name_of(&self, object: u64) -> Result<Option<ObjectName>> {
        let header = object.wrapping_sub(self.body);
        let mask = self.target.read_u8(header.wrapping_add(self.info_mask))?;
        if mask & HAS_NAME == 0 {
            return Ok(None);
        }
        let table = self.global("ObpInfoMaskToOffset")?;
        let distance = u64::from(self.target.read_u8(table.wrapping_add(u64::from(mask & 3)))?);
        if distance < self.name_info_size {
            return Err(TargetError::failed_because(
                "malformed",
                format!("the name of the object at {object:#x} would overlap its header"),
            ));
        }
        let info = header.wrapping_sub(distance);
        self.unicode_string(info.wrapping_add(self.name_info_name), MAX_NAME_BYTES).map(Some)
    }

    /// The name of an object's type; `None`: unknown, which is not "another type".
    #[must_use]
    pub fn type_of(&self, object: u64) -> Option<String> {
        let header = object.wrapping_sub(self.body);
        let index = self.target.read_u8(header.wrapping_add(self.type_index)).ok()?;
        // Before Windows 10 the index was stored plain, and there is no cookie.
        let cookie = match self.target.resolve("nt!ObHeaderCookie").ok()?.first() {
            Some(hit) => self.target.read_u8(hit.address).ok()? ^ header.to_le_bytes()[1],
            None => 0,
        };
        let table = self.global("ObTypeIndexTable").ok()?;
        let slot = u64::from(index ^ cookie) * u64::from(self.pointer);
        let object_type = self.target.read_pointer(table.wrapping_add(slot), self.pointer).ok()?;
        let layout = Private::of(self.target, "_OBJECT_TYPE").ok()?;
        let name = self.unicode_string(object_type.wrapping_add(layout.offset("Name").ok()?), MAX_NAME_BYTES);
        name.ok().filter(|name| !name.units.is_empty() && name.exact()).map(|name| name.text())
    }

    /// Every object of a directory.
    ///
    /// # Errors
    /// `too_many`: more links than any directory holds, or a chain that closes on itself.
    pub fn list(&self, directory: u64, halt: &Halt) -> Result<Listing> {
        let mut out = Listing::default();
        let mut followed = 0usize;
        for bucket in 0..self.bucket_count {
            let slot = directory.wrapping_add(self.buckets).wrapping_add(bucket * u64::from(self.pointer));
            let mut entry = match self.target.read_pointer(slot, self.pointer) {
                Ok(entry) => entry,
                Err(error) => {
                    out.unread.get_or_insert(error);
                    continue;
                }
            };
            while entry != 0 {
                if let Some(stop) = halt.stop() {
                    out.stopped = Some(stop);
                    return Ok(out);
                }
                // Links are counted, not objects: an entry without an object may point at itself.
                followed += 1;
                if followed > MAX_LINKS {
                    return Err(TargetError::failed_because(
                        "too_many",
                        format!(
                            "the object directory at {directory:#x} has more than {MAX_LINKS} links or a cycle"
                        ),
                    ));
                }
                let object = self.target.read_pointer(entry.wrapping_add(self.entry_object), self.pointer);
                let next = self.target.read_pointer(entry.wrapping_add(self.entry_link), self.pointer);
                match (object, next) {
                    (Ok(object), Ok(next)) => {
                        if object != 0 {
                            out.objects.push(object);
                        }
                        entry = next;
                    }
                    (Err(error), _) | (_, Err(error)) => {
                        out.unread.get_or_insert(error);
                        break;
                    }
                }
            }
        }
        Ok(out)
    }

    /// What a symbolic link points at.
    ///
    /// # Errors
    /// It does not read, or its target is torn.
    pub fn link_target(&self, link: u64) -> Result<LinkTarget> {
        let layout = Private::of(self.target, "_OBJECT_SYMBOLIC_LINK")?;
        let flags = self.target.read_u32(link.wrapping_add(layout.offset("Flags")?))?;
        if flags & CALLBACK_LINK != 0 {
            return Ok(LinkTarget::Callback);
        }
        let at = link.wrapping_add(layout.offset("LinkTarget")?);
        self.unicode_string(at, MAX_TARGET_BYTES).map(LinkTarget::Path)
    }

    /// The entry of that name, and the name as it is spelled there.
    fn child(&self, directory: u64, name: &ObjectName, path: &str, halt: &Halt) -> Result<(u64, String)> {
        let listing = self.list(directory, halt)?;
        let mut names = Vec::new();
        for object in &listing.objects {
            // A name that does not read is one of the unchecked ones below.
            if let Ok(Some(own)) = self.name_of(*object) {
                if own.exact() && own.same(name) {
                    return Ok((*object, own.text()));
                }
                names.push(own);
            }
        }
        if let Some(error) = listing.unread {
            if listing.objects.is_empty() {
                return Err(TargetError::failed_because(
                    "no_namespace",
                    format!("the object namespace is not in this target: {path}, {error}; give an address"),
                ));
            }
            return Err(TargetError::failed_because(
                "unreadable",
                format!("{path} was not read whole: {error}; {} may be in the rest", name.text()),
            ));
        }
        if listing.stopped.is_some() || names.len() < listing.objects.len() {
            halt.check("looking for an object")?;
        }
        let near = near(name, &names);
        let hint = if near.is_empty() { String::new() } else { format!("; near names: {}", near.join(", ")) };
        Err(TargetError::failed_because("not_found", format!("{path} holds no {}{hint}", name.text())))
    }

    /// The object a path names. Links are followed where `follow` says so or where the path goes on.
    ///
    /// # Errors
    /// `not_found` with near names, `untyped_component`, `no_namespace`, a malformed path.
    pub fn lookup(&self, path: &str, follow: bool, halt: &Halt) -> Result<Found> {
        let mut followed = Vec::new();
        let mut path = global_path(path);
        let mut seen = BTreeSet::new();
        loop {
            let (object, used, rest) = self.walk(&path, halt)?;
            let is_link = self.type_of(object).as_deref() == Some("SymbolicLink");
            if !is_link || (!follow && rest.is_empty()) {
                if rest.is_empty() {
                    return Ok(Found { object, path: used, followed });
                }
                return Err(TargetError::failed_because(
                    "untyped_component",
                    format!("{used} is not known to be a directory, so nothing below it is looked up"),
                ));
            }
            if followed.len() >= MAX_HOPS || !seen.insert(object) {
                return Err(TargetError::failed_because(
                    "malformed",
                    format!("the links at {used} lead round"),
                ));
            }
            followed.push(used.clone());
            match self.link_target(object)? {
                LinkTarget::Path(target) if target.exact() => {
                    path = global_path(&format!("{}{rest}", target.text()));
                }
                LinkTarget::Path(_) => {
                    return Err(TargetError::failed_because(
                        "malformed",
                        format!("the target of {used} is not text"),
                    ));
                }
                LinkTarget::Callback => {
                    return Err(TargetError::failed_because(
                        "callback_link",
                        format!("the target of {used} is computed by the kernel at run time"),
                    ));
                }
            }
        }
    }

    /// Walks components while they are directories: the object reached, its path, what is left.
    fn walk(&self, path: &str, halt: &Halt) -> Result<(u64, String, String)> {
        let parts = components(path)?;
        let mut object = self.root()?;
        let mut used = String::new();
        for (index, part) in parts.iter().enumerate() {
            let here = if used.is_empty() { "\\" } else { used.as_str() };
            let (child, spelled) = self.child(object, &ObjectName::new(part), here, halt)?;
            object = child;
            used.push('\\');
            used.push_str(&spelled);
            let rest: String = parts[index + 1..].iter().map(|part| format!("\\{part}")).collect();
            if !rest.is_empty() && self.type_of(object).as_deref() != Some("Directory") {
                return Ok((object, used, rest));
            }
        }
        Ok((object, used, String::new()))
    }

    /// Directories are the only objects that are listed.
    #[must_use]
    pub fn is_directory(&self, object: u64) -> bool {
        self.type_of(object).as_deref() == Some("Directory")
    }
}

/// The components of a path that starts at the root.
fn components(path: &str) -> Result<Vec<&str>> {
    let bad = |what: &str| TargetError::InvalidArgument(format!("{path:?} is not an object path: {what}"));
    let rest = path.strip_prefix('\\').ok_or_else(|| bad("it does not start with a backslash"))?;
    let parts: Vec<&str> = rest.strip_suffix('\\').unwrap_or(rest).split('\\').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(bad("a component is empty"));
    }
    if parts.len() > MAX_COMPONENTS {
        return Err(bad("it has more than 32 components"));
    }
    Ok(parts)
}

/// `\??\` and `\DosDevices\` as they are seen outside of any logon session.
#[must_use]
pub fn global_path(path: &str) -> String {
    for prefix in ["\\??\\", "\\DosDevices\\"] {
        if path.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix)) {
            return format!("\\GLOBAL??\\{}", path.get(prefix.len()..).unwrap_or_default());
        }
    }
    path.to_owned()
}

/// Whether two whole paths name the same object, a trailing backslash aside: never a prefix.
#[must_use]
pub fn same_path(a: &str, b: &str) -> bool {
    let trim = |path: &str| ObjectName::new(path.strip_suffix('\\').unwrap_or(path));
    trim(&global_path(a)).same(&trim(&global_path(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_as_the_kernel_compares_them() {
        let same = |a: &str, b: &str| ObjectName::new(a).same(&ObjectName::new(b));
        assert!(same("Device", "DEVICE") && same("é", "É") && same("ÿ", "Ÿ"));
        assert!(!same("ß", "SS") && !same("µ", "Μ") && !same("ı", "I") && !same("ſ", "S"));
        // Deseret has cases in Unicode, but each is two units, which the kernel does not fold.
        assert!(!same("\u{10428}", "\u{10400}"));
        assert!(same("σ", "Σ") && same("ς", "ς"));
    }

    #[test]
    fn paths() {
        assert_eq!(global_path("\\??\\C:"), "\\GLOBAL??\\C:");
        assert_eq!(global_path("\\dosdevices\\X"), "\\GLOBAL??\\X");
        assert!(same_path("\\Device\\X\\", "\\device\\x") && !same_path("\\Device\\X\\dir", "\\Device\\X"));
        assert!(components("\\a\\b\\").is_ok());
        for bad in ["", "a", "\\", "\\a\\\\b"] {
            assert!(components(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_unpaired_surrogate_is_not_exact() {
        let name = ObjectName { units: vec![0x41, 0xd800] };
        assert!(!name.exact());
    }
}
