//! From type records to the layouts and type references every engine answers with.

use std::borrow::Cow;
use std::cell::Cell;

use target::{Field, TypeKind, TypeLayout, TypeRef};

use super::bytes::{Bytes, Record};
use super::primitive::{primitive, primitive_text};
use super::types::{FIRST_RECORD, TypeStream, Udt};

/// How deep a type may nest before it counts as a cycle.
const MAX_DEPTH: u32 = 16;
/// No real type has more members.
const MAX_FIELDS: usize = 1 << 16;
/// Continuations of one field list.
const MAX_LISTS: usize = 4096;

const LF_MODIFIER: u16 = 0x1001;
const LF_POINTER: u16 = 0x1002;
const LF_PROCEDURE: u16 = 0x1008;
const LF_MFUNCTION: u16 = 0x1009;
const LF_ARGLIST: u16 = 0x1201;
const LF_FIELDLIST: u16 = 0x1203;
const LF_BITFIELD: u16 = 0x1205;
const LF_ARRAY: u16 = 0x1503;
const LF_ALIAS: u16 = 0x150a;

/// One entry of a field list that has a place in the layout.
enum Member<'a> {
    Data { ty: u32, offset: u64, name: Cow<'a, str> },
    Base { ty: u32, offset: u64 },
    FunctionTable,
    Value { value: i128, name: Cow<'a, str> },
}

/// Steps one answer may take: types that refer to each other could branch without end.
const MAX_STEPS: u32 = 1 << 18;

/// Reads types of one PDB, for one answer.
pub(crate) struct Layouts<'a> {
    types: &'a TypeStream,
    /// 4 or 8: of `__VFN_table`.
    pointer_size: u64,
    steps: Cell<u32>,
}

impl<'a> Layouts<'a> {
    pub(crate) fn new(types: &'a TypeStream, pointer_size: u64) -> Self {
        Self { types, pointer_size, steps: Cell::new(0) }
    }

    fn exhausted(&self, depth: u32) -> bool {
        self.steps.set(self.steps.get().saturating_add(1));
        depth > MAX_DEPTH || self.steps.get() > MAX_STEPS
    }

    /// The type at `index`, as a member or variable of it is described.
    pub(crate) fn reference(&self, index: u32) -> TypeRef {
        self.reference_at(index, 0)
    }

    fn reference_at(&self, index: u32, depth: u32) -> TypeRef {
        if index < FIRST_RECORD {
            return primitive(index);
        }
        if self.exhausted(depth) {
            return TypeRef::Unknown;
        }
        let index = self.types.resolve(index);
        let Some(record) = self.types.record(index) else { return TypeRef::Unknown };
        if let Some(udt) = self.types.udt(index) {
            return self.named(index, &udt, depth);
        }
        self.composed(record, depth).unwrap_or(TypeRef::Unknown)
    }

    fn named(&self, index: u32, udt: &Udt<'_>, depth: u32) -> TypeRef {
        let size = match udt.kind {
            TypeKind::Enum => self.reference_at(udt.underlying, depth + 1).size(),
            _ => udt.size,
        };
        TypeRef::Named { name: shown_name(udt.name, index), size, kind: udt.kind }
    }

    fn composed(&self, record: Record<'_>, depth: u32) -> Option<TypeRef> {
        let mut data = Bytes::new(record.data);
        Some(match record.kind {
            LF_MODIFIER => self.reference_at(data.u32()?, depth + 1),
            LF_POINTER => {
                let (to, attributes) = (data.u32()?, data.u32()?);
                let size = match (u64::from(attributes >> 13) & 0x3f, attributes & 0x1f) {
                    (0, 0x0c) => 8,
                    (0, _) => 4,
                    (size, _) => size,
                };
                TypeRef::Pointer { to: Box::new(self.reference_at(to, depth + 1)), size }
            }
            LF_ARRAY => {
                let of = data.u32()?;
                data.u32()?;
                let size = data.size()?;
                let of = self.reference_at(of, depth + 1);
                let count = size.checked_div(of.size()).unwrap_or(0);
                TypeRef::Array { of: Box::new(of), count, size }
            }
            LF_BITFIELD => self.reference_at(data.u32()?, depth + 1),
            LF_ALIAS => self.reference_at(data.u32()?, depth + 1),
            LF_PROCEDURE | LF_MFUNCTION => TypeRef::Function { text: self.text(record, depth) },
            _ => return None,
        })
    }

    /// C's spelling of a type, short: what a function type is described by.
    fn text_of(&self, index: u32, depth: u32) -> String {
        if index < FIRST_RECORD {
            return primitive_text(index);
        }
        if self.exhausted(depth) {
            return "...".to_owned();
        }
        if let Some(udt) = self.types.udt(index) {
            return String::from_utf8_lossy(udt.name).into_owned();
        }
        self.types.record(index).map_or_else(|| "?".to_owned(), |r| self.text(r, depth))
    }

    fn text(&self, record: Record<'_>, depth: u32) -> String {
        let mut data = Bytes::new(record.data);
        let written = (|| {
            Some(match record.kind {
                LF_MODIFIER => {
                    let (of, flags) = (data.u32()?, data.u16()?);
                    let prefix = if flags & 1 != 0 { "const " } else { "" };
                    format!("{prefix}{}", self.text_of(of, depth + 1))
                }
                LF_POINTER => {
                    let (to, attributes) = (data.u32()?, data.u32()?);
                    let mark = match (attributes >> 5) & 7 {
                        1 => "&",
                        4 => "&&",
                        _ => "*",
                    };
                    format!("{}{mark}", self.text_of(to, depth + 1))
                }
                LF_ARRAY => format!("{}[]", self.text_of(data.u32()?, depth + 1)),
                LF_PROCEDURE => {
                    let result = data.u32()?;
                    data.take(4)?;
                    self.function_text(result, data.u32()?, depth)
                }
                LF_MFUNCTION => {
                    let result = data.u32()?;
                    data.take(8 + 4)?;
                    self.function_text(result, data.u32()?, depth)
                }
                _ => return None,
            })
        })();
        written.unwrap_or_else(|| "?".to_owned())
    }

    fn function_text(&self, result: u32, arguments: u32, depth: u32) -> String {
        let mut text = format!("{} (", self.text_of(result, depth + 1));
        if let Some(list) = self.types.record(arguments).filter(|r| r.kind == LF_ARGLIST) {
            let mut data = Bytes::new(list.data);
            let count = data.u32().unwrap_or(0);
            for position in 0..count.min(64) {
                let Some(argument) = data.u32() else { break };
                if position > 0 {
                    text.push(',');
                }
                match argument {
                    0 => text.push_str("..."),
                    _ => text.push_str(&self.text_of(argument, depth + 1)),
                }
                // Nested function types can repeat each other: bound what is written.
                if text.len() > 1024 {
                    text.push_str(",...");
                    break;
                }
            }
        }
        text.push(')');
        text
    }

    /// The layout of the definition at `index`; `None` when it is no readable definition.
    pub(crate) fn layout(&self, index: u32) -> Option<TypeLayout> {
        let index = self.types.resolve(index);
        let udt = self.types.udt(index)?;
        let mut fields = Vec::new();
        self.add_fields(&udt, 0, 0, &mut fields);
        let TypeRef::Named { name, size, kind } = self.named(index, &udt, 0) else { return None };
        Some(TypeLayout { module: String::new(), name, kind, size, fields, ambiguous: 0 })
    }

    fn add_fields(&self, udt: &Udt<'_>, at: u64, depth: u32, fields: &mut Vec<Field>) {
        let enum_type = (udt.kind == TypeKind::Enum).then(|| self.reference(udt.underlying));
        self.members(udt.fields, &mut |member| {
            let field = match member {
                Member::Value { value, name } => Field {
                    name: name.into_owned(),
                    offset: 0,
                    size: enum_type.as_ref().map_or(0, TypeRef::size),
                    ty: enum_type.clone().unwrap_or(TypeRef::Unknown),
                    bits: None,
                    // A u64 enumerator above i64::MAX keeps its bits.
                    value: Some(value as i64),
                    base_class: false,
                },
                Member::Base { ty, offset } => {
                    let ty = self.reference(ty);
                    let name =
                        if let TypeRef::Named { name, .. } = &ty { name.clone() } else { String::new() };
                    let size = ty.size();
                    Field {
                        name,
                        offset: at.saturating_add(offset),
                        size,
                        ty,
                        bits: None,
                        value: None,
                        base_class: true,
                    }
                }
                Member::FunctionTable => Field {
                    name: "__VFN_table".to_owned(),
                    offset: at,
                    size: self.pointer_size,
                    ty: TypeRef::Pointer { to: Box::new(TypeRef::Unknown), size: self.pointer_size },
                    bits: None,
                    value: None,
                    base_class: false,
                },
                Member::Data { ty, offset, name } => {
                    let offset = at.saturating_add(offset);
                    let anonymous = self.types.udt(self.types.resolve(ty)).filter(|_| name.is_empty());
                    if let Some(inner) = anonymous.filter(|_| !self.exhausted(depth + 1)) {
                        self.add_fields(&inner, offset, depth + 1, fields);
                        return fields.len() < MAX_FIELDS;
                    }
                    let bits = self.bits(ty);
                    let ty = self.reference(ty);
                    let size = ty.size();
                    Field { name: name.into_owned(), offset, size, ty, bits, value: None, base_class: false }
                }
            };
            fields.push(field);
            fields.len() < MAX_FIELDS
        });
    }

    /// `(position, length)` when `index` is a bit field.
    fn bits(&self, index: u32) -> Option<(u8, u8)> {
        let record = self.types.record(index).filter(|r| r.kind == LF_BITFIELD)?;
        let mut data = Bytes::new(record.data);
        data.u32()?;
        let (length, position) = (data.u8()?, data.u8()?);
        Some((position, length))
    }

    /// Calls `visit` for each member of the field list until it says to stop.
    fn members(&self, list: u32, visit: &mut dyn FnMut(Member<'_>) -> bool) {
        let mut next = Some(list);
        for _ in 0..MAX_LISTS {
            let Some(record) = next.and_then(|i| self.types.record(i)).filter(|r| r.kind == LF_FIELDLIST)
            else {
                return;
            };
            next = None;
            let mut data = Bytes::new(record.data);
            while let Some(item) = read_member(&mut data) {
                match item {
                    Item::Member(member) => {
                        if !visit(member) {
                            return;
                        }
                    }
                    Item::Continued(list) => next = Some(list),
                    Item::Other => {}
                }
            }
        }
    }
}

/// One entry of a field list.
enum Item<'a> {
    Member(Member<'a>),
    Continued(u32),
    /// Methods, static members, nested types, virtual bases: nothing with an offset of its own.
    Other,
}

/// Reads one entry (cvinfo.h `lfMember` and its kin) and the padding before it.
fn read_member<'a>(data: &mut Bytes<'a>) -> Option<Item<'a>> {
    while data.rest().first().is_some_and(|&b| b >= 0xf0) {
        data.take(1)?;
    }
    let kind = data.u16()?;
    let attributes = data.u16()?;
    Some(match kind {
        0x150d => {
            let (ty, offset) = (data.u32()?, data.size()?);
            Item::Member(Member::Data { ty, offset, name: data.name() })
        }
        0x1400 | 0x151a => Item::Member(Member::Base { ty: data.u32()?, offset: data.size()? }),
        0x1401 | 0x1402 => {
            data.take(8)?;
            data.number()?;
            data.number()?;
            Item::Other
        }
        0x1502 => {
            let value = data.number()?;
            Item::Member(Member::Value { value, name: data.name() })
        }
        0x1409 => {
            data.u32()?;
            Item::Member(Member::FunctionTable)
        }
        0x1404 => Item::Continued(data.u32()?),
        // LF_STMEMBER, LF_METHOD, LF_NESTTYPE(EX), LF_FRIENDFCN: an index and a name.
        0x150e | 0x150f | 0x1510 | 0x1512 | 0x150c => {
            data.u32()?;
            data.name_bytes();
            Item::Other
        }
        0x1511 => {
            data.u32()?;
            // An introducing virtual method has its table offset between index and name.
            if matches!((attributes >> 2) & 7, 4 | 6) {
                data.u32()?;
            }
            data.name_bytes();
            Item::Other
        }
        0x140a => {
            data.u32()?;
            Item::Other
        }
        0x140c => {
            data.take(8)?;
            Item::Other
        }
        _ => return None,
    })
}

/// A type's name; one that many types share gets its index, by which it can be asked for.
fn shown_name(name: &[u8], index: u32) -> String {
    let name = String::from_utf8_lossy(name);
    let shared =
        name.contains("<unnamed-tag>") || name.contains("<anonymous-tag>") || name.contains("__unnamed");
    if shared || name.is_empty() { format!("{name}#{index:x}") } else { name.into_owned() }
}

#[cfg(test)]
mod tests {
    use target::{TypeKind, TypeRef};

    use super::Layouts;
    use crate::pdb::types::TypeStream;

    /// A type stream with these records, from index 0x1000 on.
    fn stream(records: &[(u16, Vec<u8>)]) -> TypeStream {
        let mut bytes = vec![0u8; 56];
        bytes[4] = 56;
        bytes[8..12].copy_from_slice(&0x1000u32.to_le_bytes());
        bytes[12..16].copy_from_slice(&(0x1000 + records.len() as u32).to_le_bytes());
        for (kind, data) in records {
            bytes.extend(u16::try_from(data.len() + 2).unwrap().to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(data);
        }
        TypeStream::parse(bytes).unwrap()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn structure(fields: u32, size: u16, name: &str) -> (u16, Vec<u8>) {
        let mut data = vec![1, 0, 0, 0];
        data.extend(words(&[fields, 0, 0]));
        data.extend(size.to_le_bytes());
        data.extend(name.bytes().chain([0]));
        (0x1505, data)
    }

    fn member(ty: u32, offset: u16, name: &str) -> Vec<u8> {
        let mut data = vec![0x0d, 0x15, 3, 0];
        data.extend(ty.to_le_bytes());
        data.extend(offset.to_le_bytes());
        data.extend(name.bytes().chain([0]));
        while data.len() % 4 != 0 {
            data.push(0xf0 + (4 - data.len() % 4) as u8);
        }
        data
    }

    #[test]
    fn members_bits_arrays_and_bases() {
        let mut fields = vec![0, 0x14, 3, 0];
        fields.extend(words(&[0x1003]));
        fields.extend([0, 0, 0xf2, 0xf1]);
        fields.extend(member(0x1001, 8, "flag"));
        fields.extend(member(0x1002, 12, "text"));
        let types = stream(&[
            (0x1203, fields),
            (0x1205, [words(&[0x75]), vec![3, 5]].concat()),
            (0x1503, [words(&[0x70, 0x75]), vec![15, 0, 0]].concat()),
            structure(0, 8, "Base"),
            structure(0x1000, 32, "Derived"),
        ]);
        let layout = Layouts::new(&types, 8).layout(0x1004).unwrap();
        assert_eq!((layout.name.as_str(), layout.kind, layout.size), ("Derived", TypeKind::Struct, 32));
        let rows: Vec<_> =
            layout.fields.iter().map(|f| (f.name.as_str(), f.offset, f.bits, f.base_class)).collect();
        let expected = [("Base", 0, None, true), ("flag", 8, Some((5, 3)), false), ("text", 12, None, false)];
        assert_eq!(rows, expected);
        assert!(matches!(&layout.fields[2].ty, TypeRef::Array { count: 15, size: 15, .. }));
    }

    #[test]
    fn types_that_contain_themselves_end() {
        // A modifier and an array of themselves, a pointer pair, a field list that goes on in itself.
        let mut fields = member(0x1005, 0, "");
        fields.extend([4, 0x14, 0, 0]);
        fields.extend(words(&[0x1004]));
        let types = stream(&[
            (0x1001, words(&[0x1000, 0])),
            (0x1503, [words(&[0x1001, 0x75]), vec![15, 0, 0]].concat()),
            (0x1002, words(&[0x1003, 0x1_000c])),
            (0x1002, words(&[0x1002, 0x1_000c])),
            (0x1203, fields),
            structure(0x1004, 8, "Self"),
        ]);
        let layouts = Layouts::new(&types, 8);
        for index in 0x1000..0x1005 {
            let _ = layouts.reference(index);
        }
        assert!(layouts.layout(0x1005).unwrap().fields.len() <= super::MAX_FIELDS + 16);
    }

    #[test]
    fn branching_types_end() {
        // Each function takes 60 of the next; each structure holds 200 nameless ones of the next.
        let mut records = Vec::new();
        for level in 0..17u32 {
            let arguments = [vec![60], vec![0x1000 + 2 * level + 2; 60]].concat();
            records.push((0x1008, words(&[3, 0, 0x1000 + 2 * level + 1])));
            records.push((0x1201, words(&arguments)));
        }
        let types = stream(&records);
        let TypeRef::Function { text } = Layouts::new(&types, 8).reference(0x1000) else { panic!() };
        assert!(text.len() < 100_000);

        let mut records = Vec::new();
        for level in 0..17u32 {
            let next = 0x1000 + 2 * level + 3;
            records.push((0x1203, (0..200).flat_map(|_| member(next, 0, "")).collect()));
            records.push(structure(0x1000 + 2 * level, 8, "S"));
        }
        let types = stream(&records);
        assert!(Layouts::new(&types, 8).layout(0x1001).is_some());
    }
}
