//! Symbols, source lines, types and locals as every engine answers them.

/// The nearest symbol at or before an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolHit {
    pub module: String,
    /// Without the module; undecorated.
    pub name: String,
    /// As stored (mangled), when it differs.
    pub raw_name: Option<String>,
    pub address: u64,
    pub displacement: u64,
    /// Bytes of the function or datum, if recorded.
    pub size: Option<u64>,
    pub kind: SymbolKind,
}

impl SymbolHit {
    /// `module!name`.
    #[must_use]
    pub fn qualified(&self) -> String {
        format!("{}!{}", self.module, self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    Function,
    Data,
    Public,
    Export,
    Constant,
}

/// A source position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    pub file: String,
    pub line: u32,
    /// Bytes from the start of the line's code.
    pub displacement: u64,
}

/// A type by name: its size and members, one level deep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeLayout {
    pub module: String,
    pub name: String,
    pub kind: TypeKind,
    pub size: u64,
    pub fields: Vec<Field>,
    /// Same-named definitions with another layout that were not chosen.
    pub ambiguous: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeKind {
    Struct,
    Class,
    Union,
    Enum,
    Base,
    Pointer,
    Array,
    Function,
}

/// One member (or, of an enum, one value).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub offset: u64,
    /// Bytes; of a bit field, of its storage unit.
    pub size: u64,
    pub ty: TypeRef,
    /// `(position, length)` of a bit field.
    pub bits: Option<(u8, u8)>,
    /// Value of an enumerator.
    pub value: Option<i64>,
    /// A base class rather than a member.
    pub base_class: bool,
}

/// A member's type: enough to render it and to walk on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeRef {
    /// Struct, class or union by name.
    Named {
        name: String,
        size: u64,
        kind: TypeKind,
    },
    /// `name` is the debugger's spelling (`Uint4B`, `Char`), `signed` its interpretation.
    Base {
        name: String,
        size: u64,
        signed: bool,
        float: bool,
    },
    Pointer {
        to: Box<TypeRef>,
        size: u64,
    },
    Array {
        of: Box<TypeRef>,
        count: u64,
        size: u64,
    },
    Function {
        text: String,
    },
    Void,
    Unknown,
}

impl TypeRef {
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Named { size, .. }
            | Self::Base { size, .. }
            | Self::Pointer { size, .. }
            | Self::Array { size, .. } => *size,
            Self::Function { .. } | Self::Void | Self::Unknown => 0,
        }
    }
}

/// A local or parameter of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    pub name: String,
    pub parameter: bool,
    pub ty: TypeRef,
    pub location: LocalLocation,
}

/// Where a local lives at the frame's instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalLocation {
    Memory(u64),
    /// In a register: its value in that frame.
    Register {
        name: &'static str,
        value: u64,
    },
    Constant(i64),
    /// Optimised out here, or the frame does not know the register.
    Unavailable(&'static str),
}
