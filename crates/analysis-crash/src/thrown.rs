//! C++ throws: the MSVC type graph, the object, and the HRESULT it carries (spec 60 section 3.5).

use target::{Address, MemoryExt as _, Target};

use crate::hresult_carrier::{Carried, by_type, winrt_pattern};
use crate::layout::printable;
use crate::result::{HresultConfidence, Provenance, Thrown};
use crate::what::what;

/// Magic numbers of the throw record's first parameter.
pub(crate) const MAGICS: [u64; 4] = [0x1993_0520, 0x1993_0521, 0x1993_0522, 0x0199_4000];
/// Catchable types of one throw at most; more is not a type graph.
const MAX_TYPES: u32 = 64;
/// Bytes of a mangled name read at most.
const MAX_NAME: usize = 512;

/// One entry of the catchable type array.
#[derive(Clone, Debug)]
pub(crate) struct Catchable {
    pub(crate) mangled: String,
    pub(crate) name: String,
    pub(crate) mdisp: u32,
    pub(crate) pdisp: u32,
    pub(crate) size: u32,
}

/// The type graph as far as it could be read.
pub(crate) struct TypeGraph {
    pub(crate) types: Vec<Catchable>,
    /// An entry could not be read: the absence of a type proves nothing.
    pub(crate) partial: bool,
}

/// Decodes the throw whose parameters are `parameters`; `None` for a magic that is not the compiler's.
pub(crate) fn decode_throw(
    target: &dyn Target,
    parameters: &[u64],
    provenance: Provenance,
) -> Option<Thrown> {
    let (&magic, &object, &throw_info) = (parameters.first()?, parameters.get(1)?, parameters.get(2)?);
    if !MAGICS.contains(&magic) {
        return None;
    }
    // Three parameters are the 32-bit layout: links are absolute, so base 0 makes the same arithmetic work.
    let wide = parameters.len() >= 4;
    let base = parameters.get(3).copied().unwrap_or(0);
    let mut thrown = empty(object, provenance);
    if object == 0 && throw_info == 0 {
        thrown.rethrow = true;
        return Some(thrown);
    }
    let graph = type_graph(target, throw_info, base, wide);
    fill(target, &mut thrown, graph.as_ref(), object, wide);
    Some(thrown)
}

fn empty(object: u64, provenance: Provenance) -> Thrown {
    Thrown {
        object: Address(object),
        size: None,
        type_name: None,
        mangled_name: None,
        catchable_as: vec![],
        what: None,
        hresult: None,
        hresult_confidence: None,
        hresult_source: None,
        origin: None,
        provenance,
        rethrow: false,
        type_note: None,
    }
}

fn fill(target: &dyn Target, thrown: &mut Thrown, graph: Option<&TypeGraph>, object: u64, wide: bool) {
    let Some(graph) = graph.filter(|g| !g.types.is_empty()) else {
        thrown.type_note = Some(
            "The type cannot be read: the throwing image is not in the target and was not found by its identity."
                .into(),
        );
        if let Some(info) = winrt_pattern(target, object) {
            thrown.hresult = Some(info);
            thrown.hresult_confidence = Some(HresultConfidence::Convention);
            thrown.hresult_source = Some(crate::result::HresultSource::Winrt);
        }
        return;
    };
    if let Some(first) = graph.types.first() {
        thrown.type_name = Some(first.name.clone());
        thrown.mangled_name = Some(first.mangled.clone());
        thrown.size = Some(first.size);
    }
    thrown.catchable_as = graph.types.iter().map(|t| t.name.clone()).collect();
    thrown.what = what(target, graph, object, wide);
    match by_type(target, graph, object, wide) {
        Carried::Value { info, source, origin } => {
            thrown.hresult = Some(*info);
            thrown.hresult_confidence = Some(HresultConfidence::Corroborated);
            thrown.hresult_source = Some(source);
            thrown.origin = origin;
        }
        Carried::Note(note) => thrown.type_note = Some(note),
        Carried::NoCarrier if graph.partial => {
            thrown.type_note = Some(
                "A base type could not be read, so whether the object carries an HRESULT is not known."
                    .into(),
            );
        }
        Carried::NoCarrier => {
            thrown.type_note = Some("None of the object's types carries an HRESULT.".into());
        }
    }
}

/// ThrowInfo to CatchableTypeArray to the names. `None` when not even the array can be read.
fn type_graph(target: &dyn Target, throw_info: u64, base: u64, wide: bool) -> Option<TypeGraph> {
    let link = |rva: u32| base.checked_add(u64::from(rva)).filter(|_| rva != 0);
    let array = link(target.read_u32(throw_info.checked_add(12)?).ok()?)?;
    let count = target.read_u32(array).ok()?;
    if count == 0 || count > MAX_TYPES {
        return None;
    }
    let mut graph = TypeGraph { types: vec![], partial: false };
    for index in 0..u64::from(count) {
        let entry = array
            .checked_add(4 + 4 * index)
            .and_then(|at| target.read_u32(at).ok())
            .and_then(link)
            .and_then(|at| catchable(target, at, base, wide));
        match entry {
            Some(entry) => graph.types.push(entry),
            // Entry 0 is the thrown type: without it the others must not take its place.
            None if index == 0 => return None,
            None => graph.partial = true,
        }
    }
    Some(graph)
}

fn catchable(target: &dyn Target, at: u64, base: u64, wide: bool) -> Option<Catchable> {
    let bytes: [u8; 28] = target.read_array(at).ok()?;
    let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    let descriptor = base.checked_add(u64::from(word(4)))?;
    let name_at = descriptor.checked_add(if wide { 16 } else { 8 })?;
    let mangled = printable(&target.read_c_string(name_at, MAX_NAME)?)?;
    // Every descriptor name starts with a dot; anything else is memory of another kind.
    if !mangled.starts_with('.') {
        return None;
    }
    let name = demangled(&mangled);
    Some(Catchable { mangled, name, mdisp: word(8), pdisp: word(12), size: word(20) })
}

/// `.?AVhresult_error@winrt@@` to `winrt::hresult_error`; the mangled name where that fails.
fn demangled(mangled: &str) -> String {
    use undname::Flags;
    let flags = Flags::NO_ECSU | Flags::NO_MS_KEYWORDS | Flags::NAME_ONLY;
    undname::demangle(mangled, flags).unwrap_or_else(|_| mangled.to_owned())
}
