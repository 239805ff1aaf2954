//! Names of inlined functions, from the IPI stream.

use super::bytes::Bytes;
use super::types::TypeStream;

const LF_FUNC_ID: u16 = 0x1601;
const LF_MFUNC_ID: u16 = 0x1602;
const LF_STRING_ID: u16 = 0x1605;

/// `scope::name` of a function id: the scope is a namespace string or the class.
pub(super) fn function_name(ids: &TypeStream, types: &TypeStream, id: u32) -> Option<String> {
    let record = ids.record(id)?;
    let mut data = Bytes::new(record.data);
    let (scope, _type) = (data.u32()?, data.u32()?);
    let name = data.name();
    let scope = match record.kind {
        LF_FUNC_ID if scope == 0 => None,
        LF_FUNC_ID => string(ids, scope),
        LF_MFUNC_ID => types.udt(scope).map(|udt| String::from_utf8_lossy(udt.name).into_owned()),
        _ => return None,
    };
    Some(match scope {
        Some(scope) if !scope.is_empty() => format!("{scope}::{name}"),
        _ => name.into_owned(),
    })
}

/// The type index of the function an id names.
pub(super) fn function_type(ids: &TypeStream, id: u32) -> Option<u32> {
    let record = ids.record(id).filter(|r| matches!(r.kind, LF_FUNC_ID | LF_MFUNC_ID))?;
    let mut data = Bytes::new(record.data);
    data.u32()?;
    data.u32()
}

fn string(ids: &TypeStream, id: u32) -> Option<String> {
    let record = ids.record(id).filter(|r| r.kind == LF_STRING_ID)?;
    let mut data = Bytes::new(record.data);
    data.u32()?;
    Some(data.name().into_owned())
}
