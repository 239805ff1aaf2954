//! `dt NAME` where the name is a variable's: seen through the type it has.

use target::{Local, LocalLocation, MemoryExt as _, Result, TargetError, TypeKind, TypeRef};

use crate::format_value::c_type_text;
use crate::locals;
use crate::run::Run;

/// What a variable is, as far as `dt` has not said it yet.
pub(crate) enum Variable {
    /// Its value was printed: it holds no structure.
    Shown,
    /// A structure, or a pointer to one: the type's name, and where the structure lies if that is known.
    Structure(String, Option<u64>),
}

/// The variable of this name: a local of the current frame, else a global. `None`: there is none.
pub(crate) fn variable(run: &mut Run<'_>, name: &str) -> Result<Option<Variable>> {
    if !name.contains('!')
        && let Some((module, local)) = local(run, name)?
    {
        let place = locals::place(run, &local.location);
        run.say(format!("Local var @ {place} Type {}", c_type_text(&local.ty)));
        return show(run, &module, &local).map(Some);
    }
    let Some((module, ty)) = run.target.variable_type(name)? else { return Ok(None) };
    let Some(hit) = run.target.resolve(name)?.into_iter().next() else { return Ok(None) };
    let location = LocalLocation::Memory(hit.address);
    show(run, &module, &Local { name: name.to_owned(), parameter: false, ty, location }).map(Some)
}

/// A local of the current frame, and the module whose types it is made of.
fn local(run: &Run<'_>, name: &str) -> Result<Option<(String, Local)>> {
    let frame = match locals::frame(run) {
        Ok(frame) => frame,
        Err(error @ (TargetError::Interrupted | TargetError::Deadline(_))) => return Err(error),
        Err(_) => return Ok(None),
    };
    let all = run.target.locals(&frame).unwrap_or_default();
    let Some(local) = all.into_iter().find(|local| local.name == name) else { return Ok(None) };
    Ok(Some((frame.symbol.map(|symbol| symbol.module).unwrap_or_default(), local)))
}

fn show(run: &mut Run<'_>, module: &str, local: &Local) -> Result<Variable> {
    let structure = |ty: &TypeRef| match ty {
        TypeRef::Named { name, kind, .. } if *kind != TypeKind::Enum => {
            Some(if module.is_empty() { name.clone() } else { format!("{module}!{name}") })
        }
        _ => None,
    };
    if let Some(name) = structure(&local.ty)
        && let LocalLocation::Memory(address) = local.location
    {
        return Ok(Variable::Structure(name, Some(address)));
    }
    let value = locals::value(run, local);
    run.say(value);
    let TypeRef::Pointer { to, size } = &local.ty else { return Ok(Variable::Shown) };
    let Some(name) = structure(to) else { return Ok(Variable::Shown) };
    let pointer_size = u8::try_from(*size).unwrap_or(8);
    let address = match local.location {
        LocalLocation::Memory(address) => run.target.read_pointer(address, pointer_size).ok(),
        LocalLocation::Register { value, .. } => Some(value),
        LocalLocation::Constant(_) | LocalLocation::Unavailable(_) => None,
    };
    Ok(Variable::Structure(name, address.filter(|address| *address != 0)))
}
