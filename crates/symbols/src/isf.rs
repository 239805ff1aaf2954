//! Volatility's ISF: types and symbols of a build without its PDB (spec 80 section 11.6). It has no
//! function sizes, lines or locals.

use std::cell::OnceCell;
use std::path::Path;

use serde::Deserialize;
use target::{Field, Guid, PdbIdentity, SymbolKind, SymbolState, TypeKind, TypeLayout, TypeRef};

use crate::error::guarded;
use crate::glob::Glob;
use crate::packed;
use crate::pdb::primitive_named;
use crate::table::{Entry, Table};
use crate::{Result, Sym, SymbolError, SymbolFile};

/// A symbol further below an address than this says nothing about it.
const MAX_DISPLACEMENT: u64 = 16 << 20;
/// How deep a type may nest.
const MAX_DEPTH: u32 = 16;

/// One ISF file.
#[derive(Debug)]
pub struct IsfFile {
    identity: Option<PdbIdentity>,
    bases: Entries<Base>,
    types: Entries<UserType>,
    enums: Entries<Enumeration>,
    table: Table,
    /// Types of symbols, where the file has them.
    symbol_types: Entries<Node>,
    pointer_size: OnceCell<u64>,
}

/// A JSON object as pairs sorted by key.
#[derive(Debug)]
struct Entries<T>(Vec<(Box<str>, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Entries<T> {
    fn get(&self, name: &str) -> Option<&T> {
        let at = self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> serde::de::Visitor<'de> for Visitor<T> {
            type Value = Entries<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                entries.sort_by(|a: &(Box<str>, T), b| a.0.cmp(&b.0));
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Visitor(std::marker::PhantomData))
    }
}

#[derive(Deserialize)]
struct Document {
    metadata: Metadata,
    #[serde(default)]
    base_types: Entries<Base>,
    #[serde(default)]
    user_types: Entries<UserType>,
    #[serde(default)]
    enums: Entries<Enumeration>,
    #[serde(default)]
    symbols: Entries<Symbol>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    windows: Option<Windows>,
}

#[derive(Deserialize)]
struct Windows {
    #[serde(default)]
    pdb: Option<Pdb>,
}

#[derive(Deserialize)]
struct Pdb {
    #[serde(rename = "GUID")]
    guid: String,
    age: u32,
    #[serde(default)]
    database: String,
}

#[derive(Debug, Deserialize)]
struct Base {
    size: u64,
    #[serde(default)]
    signed: bool,
    #[serde(default)]
    kind: Box<str>,
}

#[derive(Debug, Deserialize)]
struct UserType {
    #[serde(default)]
    kind: Box<str>,
    size: u64,
    #[serde(default)]
    fields: Entries<Member>,
}

#[derive(Debug, Deserialize)]
struct Member {
    offset: u64,
    #[serde(rename = "type")]
    ty: Node,
    #[serde(default)]
    anonymous: bool,
}

#[derive(Debug, Deserialize)]
struct Enumeration {
    size: u64,
    #[serde(default)]
    base: Box<str>,
    #[serde(default)]
    constants: Entries<i128>,
}

#[derive(Deserialize)]
struct Symbol {
    address: u64,
    #[serde(default)]
    linkage_name: Option<Box<str>>,
    #[serde(default, rename = "type")]
    ty: Option<Node>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Node {
    Base {
        name: Box<str>,
    },
    Struct {
        name: Box<str>,
    },
    Union {
        name: Box<str>,
    },
    Class {
        name: Box<str>,
    },
    Enum {
        name: Box<str>,
    },
    Pointer {
        subtype: Box<Node>,
    },
    Array {
        count: u64,
        subtype: Box<Node>,
    },
    Bitfield {
        bit_position: u8,
        bit_length: u8,
        #[serde(rename = "type")]
        ty: Box<Node>,
    },
    Function,
    #[serde(other)]
    Other,
}

impl IsfFile {
    /// Opens an ISF, `.json` or `.json.xz`.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_text(&packed::read(path)?)
    }

    /// The same of a file in memory, packed or not.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::from_text(&packed::unpack(bytes)?)
    }

    fn from_text(text: &[u8]) -> Result<Self> {
        let document: Document = guarded("JSON", || {
            serde_json::from_slice(text).map_err(|e| SymbolError::damaged(format_args!("as an ISF: {e}")))
        })?;
        let pdb = document.metadata.windows.and_then(|w| w.pdb);
        let identity =
            pdb.and_then(|p| Some(PdbIdentity { guid: Guid::parse(&p.guid)?, age: p.age, name: p.database }));
        let mut entries = Vec::with_capacity(document.symbols.0.len());
        let mut symbol_types = Vec::new();
        for (name, symbol) in document.symbols.0 {
            let Ok(rva) = u32::try_from(symbol.address) else { continue };
            if let Some(ty) = symbol.ty {
                symbol_types.push((name.clone(), ty));
            }
            entries.push(Entry { rva, kind: SymbolKind::Public, name, linkage: symbol.linkage_name });
        }
        Ok(Self {
            identity,
            bases: document.base_types,
            types: document.user_types,
            enums: document.enums,
            table: Table::new(entries),
            symbol_types: Entries(symbol_types),
            pointer_size: OnceCell::new(),
        })
    }

    /// Symbols it has.
    #[must_use]
    pub fn symbol_count(&self) -> usize {
        self.table.len()
    }
    /// Structures and unions it has.
    #[must_use]
    pub fn type_count(&self) -> usize {
        self.types.0.len()
    }

    fn pointer_size(&self) -> u64 {
        *self.pointer_size.get_or_init(|| self.bases.get("pointer").map_or(8, |b| b.size))
    }

    fn reference(&self, node: &Node, depth: u32) -> TypeRef {
        if depth > MAX_DEPTH {
            return TypeRef::Unknown;
        }
        match node {
            Node::Base { name } => self.base(name),
            Node::Struct { name } | Node::Union { name } | Node::Class { name } => {
                let found = self.types.get(name);
                let written = match node {
                    Node::Union { .. } => TypeKind::Union,
                    Node::Class { .. } => TypeKind::Class,
                    _ => TypeKind::Struct,
                };
                let kind = found.map_or(written, |t| type_kind(&t.kind));
                TypeRef::Named { name: name.to_string(), size: found.map_or(0, |t| t.size), kind }
            }
            Node::Enum { name } => {
                let size = self.enums.get(name).map_or(4, |e| e.size);
                TypeRef::Named { name: name.to_string(), size, kind: TypeKind::Enum }
            }
            Node::Pointer { subtype } => {
                let to = Box::new(self.reference(subtype, depth + 1));
                TypeRef::Pointer { to, size: self.pointer_size() }
            }
            Node::Array { count, subtype } => {
                let of = self.reference(subtype, depth + 1);
                let size = of.size().saturating_mul(*count);
                TypeRef::Array { of: Box::new(of), count: *count, size }
            }
            Node::Bitfield { ty, .. } => self.reference(ty, depth + 1),
            Node::Function => TypeRef::Function { text: "function".to_owned() },
            Node::Other => TypeRef::Unknown,
        }
    }

    /// A base type under the debugger's name.
    fn base(&self, name: &str) -> TypeRef {
        if name == "void" {
            return TypeRef::Void;
        }
        let alias = match name {
            "wchar" => "wchar_t",
            "f32" => "float",
            "f64" => "double",
            other => other,
        };
        let declared = self.bases.get(name);
        match (primitive_named(alias), declared) {
            (Some(known), None) => known,
            (Some(known), Some(declared)) if known.size() == declared.size => known,
            (_, Some(base)) => TypeRef::Base {
                name: name.to_owned(),
                size: base.size,
                signed: base.signed,
                float: &*base.kind == "float",
            },
            (None, None) => TypeRef::Unknown,
        }
    }

    fn layout(&self, name: &str, ty: &UserType) -> TypeLayout {
        let mut fields = Vec::new();
        self.add_fields(ty, 0, 0, &mut fields);
        // The file is alphabetical; a layout goes by place.
        fields.sort_by_key(|f: &Field| (f.offset, f.bits.map_or(0, |b| b.0)));
        TypeLayout {
            module: String::new(),
            name: name.to_owned(),
            kind: type_kind(&ty.kind),
            size: ty.size,
            fields,
            ambiguous: 0,
        }
    }

    fn add_fields(&self, ty: &UserType, at: u64, depth: u32, fields: &mut Vec<Field>) {
        for (name, member) in &ty.fields.0 {
            if fields.len() >= 1 << 16 {
                return;
            }
            let offset = at.saturating_add(member.offset);
            let inner = match &member.ty {
                Node::Struct { name } | Node::Union { name } if member.anonymous => self.types.get(name),
                _ => None,
            };
            // Two levels of anonymous nesting occur; the bound is for files that refer in circles.
            if let Some(inner) = inner.filter(|_| depth < 4) {
                self.add_fields(inner, offset, depth + 1, fields);
                continue;
            }
            let bits = match member.ty {
                Node::Bitfield { bit_position, bit_length, .. } => Some((bit_position, bit_length)),
                _ => None,
            };
            let ty = self.reference(&member.ty, 0);
            let size = ty.size();
            let name = name.to_string();
            fields.push(Field { name, offset, size, ty, bits, value: None, base_class: false });
        }
    }

    fn enumeration(&self, name: &str, found: &Enumeration) -> TypeLayout {
        let ty = self.base(&found.base);
        let field = |(name, value): &(Box<str>, i128)| Field {
            name: name.to_string(),
            offset: 0,
            size: found.size,
            ty: ty.clone(),
            bits: None,
            value: Some(*value as i64),
            base_class: false,
        };
        let mut fields: Vec<Field> = found.constants.0.iter().map(field).collect();
        fields.sort_by_key(|f| f.value);
        TypeLayout {
            module: String::new(),
            name: name.to_owned(),
            kind: TypeKind::Enum,
            size: found.size,
            fields,
            ambiguous: 0,
        }
    }
}

fn type_kind(kind: &str) -> TypeKind {
    match kind {
        "union" => TypeKind::Union,
        "class" => TypeKind::Class,
        _ => TypeKind::Struct,
    }
}

impl SymbolFile for IsfFile {
    fn state(&self) -> SymbolState {
        SymbolState::Isf
    }
    fn identity(&self) -> Option<&PdbIdentity> {
        self.identity.as_ref()
    }
    fn symbol_at(&self, rva: u64) -> Result<Option<Sym>> {
        Ok(self.table.nearest(rva).filter(|s| rva - s.rva < MAX_DISPLACEMENT))
    }
    fn by_name(&self, name: &str) -> Result<Vec<Sym>> {
        Ok(self.table.by_name(name))
    }
    fn matching(&self, pattern: &str, limit: usize) -> Result<Vec<Sym>> {
        Ok(self.table.matching(pattern, limit))
    }
    fn aliases(&self, rva: u64) -> Result<Vec<String>> {
        Ok(self.table.aliases(rva))
    }
    fn type_layout(&self, name: &str) -> Result<TypeLayout> {
        let bare = ["struct ", "class ", "union ", "enum "].iter().find_map(|p| name.strip_prefix(p));
        let name = bare.unwrap_or(name).trim();
        if let Some(ty) = self.types.get(name) {
            return Ok(self.layout(name, ty));
        }
        if let Some(found) = self.enums.get(name) {
            return Ok(self.enumeration(name, found));
        }
        if let Some((name, ty)) = self.types.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)) {
            return Ok(self.layout(name, ty));
        }
        match self.base(name) {
            TypeRef::Unknown => Err(SymbolError::NoSuchType(name.to_owned())),
            base => Ok(crate::pdb::described(name, &base)),
        }
    }
    fn types_matching(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        let glob = Glob::new(pattern);
        let all = self.types.0.iter().map(|(n, _)| n).chain(self.enums.0.iter().map(|(n, _)| n));
        let mut found: Vec<String> = all.filter(|n| glob.matches(n)).map(ToString::to_string).collect();
        found.sort_unstable();
        found.truncate(limit);
        Ok(found)
    }
    fn type_of(&self, symbol: &str) -> Result<Option<TypeRef>> {
        Ok(self.symbol_types.get(symbol).map(|node| self.reference(node, 0)))
    }
}
