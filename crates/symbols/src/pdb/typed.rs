//! Types by name, and the variables of a frame.

use target::{TypeKind, TypeLayout, TypeRef};

use super::PdbFile;
use super::bytes::{Bytes, Records};
use super::globals::Global;
use super::layout::Layouts;
use super::locals::{Collector, RawLocal};
use super::scopes::{ProcedureKind, walk};
use super::types::FIRST_RECORD;
use super::{ids, lookup, primitive_named};
use crate::glob::Glob;
use crate::{LocalVar, Result, SymbolError, VarLocation};

impl PdbFile {
    fn layouts(&self) -> Result<Layouts<'_>> {
        Ok(Layouts::new(self.types()?, self.pointer_size()))
    }

    pub(super) fn find_layout(&self, name: &str) -> Result<TypeLayout> {
        let name = name.trim();
        let bare = ["struct ", "class ", "union ", "enum "].iter().find_map(|p| name.strip_prefix(p));
        let bare = bare.unwrap_or(name);
        let none = || SymbolError::NoSuchType(name.to_owned());
        let indices = self.type_indices(bare)?;
        let Some((&index, others)) = indices.split_first() else {
            return primitive_named(name).map(|ty| described(name, &ty)).ok_or_else(none);
        };
        let layouts = self.layouts()?;
        if index < FIRST_RECORD {
            return Ok(described(name, &layouts.reference(index)));
        }
        let Some(mut layout) = layouts.layout(index) else {
            return Ok(described(name, &layouts.reference(index)));
        };
        let types = self.types()?;
        let shape = |i: u32| types.udt(types.resolve(i)).map(|u| (u.size, u.count));
        let chosen = shape(index);
        layout.ambiguous = others.iter().filter(|&&i| shape(i) != chosen).count() as u32;
        Ok(layout)
    }

    /// Candidates for a type name, the chosen one first: defined under it with a size, in any case,
    /// then through a typedef; `name#index` names one of many unnamed types.
    fn type_indices(&self, name: &str) -> Result<Vec<u32>> {
        let types = self.types()?;
        if let Some(index) = name.rsplit_once('#').and_then(|(_, i)| u32::from_str_radix(i, 16).ok())
            && types.udt(index).is_some()
        {
            return Ok(vec![index]);
        }
        let mut found = types.named(name.as_bytes());
        if found.is_empty() {
            let typedef = |g: &Global<'_>| match g {
                Global::Typedef { ty, .. } => Some(*ty),
                _ => None,
            };
            found = self.globals()?.named(name.as_bytes()).iter().filter_map(typedef).collect();
        }
        if found.is_empty() {
            let same = types.all_definitions().filter(|(_, n)| n.eq_ignore_ascii_case(name.as_bytes()));
            found = same.map(|(i, _)| i).take(64).collect();
        }
        found.sort_by_key(|&i| (types.udt(i).is_some_and(|u| u.size == 0 && u.kind != TypeKind::Enum), i));
        Ok(found)
    }

    pub(super) fn find_types(&self, pattern: &str, limit: usize) -> Result<Vec<String>> {
        let glob = Glob::new(pattern);
        let names = self.types()?.all_definitions();
        let mut found: Vec<String> = names
            .filter(|(_, name)| super::globals::matches(&glob, name))
            .map(|(_, name)| String::from_utf8_lossy(name).into_owned())
            .collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(limit);
        Ok(found)
    }

    pub(super) fn find_type_of(&self, symbol: &str) -> Result<Option<TypeRef>> {
        let globals = self.globals()?;
        for global in globals.named(symbol.as_bytes()) {
            if let Global::Data { ty, .. } | Global::Constant { ty, .. } = global {
                return Ok(Some(self.reference(ty)?));
            }
        }
        Ok(None)
    }

    pub(super) fn find_locals(&self, rva: u64) -> Result<Vec<LocalVar>> {
        let Some(machine) = self.machine() else { return Ok(Vec::new()) };
        let Some(found) = self.find_procedure(rva)? else { return Ok(Vec::new()) };
        if found.procedure.kind != ProcedureKind::Function {
            return Ok(Vec::new());
        }
        let mut collector = Collector::new(machine, found.section, found.offset);
        let symbols = &found.module.symbols;
        walk(symbols, found.procedure.record, |_| (), |record, _| collector.frame_procedure(record));
        let mut chain_length = 0;
        let enter = |record| found.live_scope(record);
        walk(symbols, found.procedure.record, enter, |record, scopes: &[Option<bool>]| {
            if scopes.contains(&None) {
                return collector.skip(record);
            }
            let depth = scopes.iter().filter(|&&scope| scope == Some(true)).count();
            collector.take(record, depth, scopes.contains(&Some(false)));
            chain_length = chain_length.max(depth);
        });
        let mut parameters = self.parameter_count(&found)?;
        let said = collector.locals.iter().filter(|l| l.parameter && l.inline_depth == 0).count();
        parameters = parameters.saturating_sub(u32::try_from(said).unwrap_or(u32::MAX));
        let mut variables: Vec<LocalVar> = Vec::new();
        for mut local in collector.locals {
            // Optimised code lists a parameter's home slot beside where it really is.
            let homed = |v: &LocalVar| v.inlined.is_none() && v.name == local.name;
            if local.positional && !local.in_block && local.inline_depth == 0 && variables.iter().any(homed) {
                continue;
            }
            if local.positional && !local.in_block && local.inline_depth == 0 && parameters > 0 {
                local.parameter = true;
                parameters -= 1;
            }
            local.ty = self.global_id(&found.module, local.ty)?;
            variables.push(self.variable(local, chain_length)?);
        }
        Ok(variables)
    }

    fn variable(&self, local: RawLocal, chain_length: usize) -> Result<LocalVar> {
        let ty = self.reference(local.ty)?;
        let location = match local.place {
            Some((section, offset)) => match self.addresses()?.rva(section, offset) {
                Some(rva) => VarLocation::Image { rva: u64::from(rva) },
                None => local.location,
            },
            None => local.location,
        };
        // Depth 1 is the outermost inlined function, the last of the chain.
        let inlined = (local.inline_depth > 0).then(|| chain_length.saturating_sub(local.inline_depth));
        Ok(LocalVar { name: local.name, parameter: local.parameter, inlined, ty, location })
    }

    /// How many parameters (`this` included) the procedure's type declares.
    fn parameter_count(&self, found: &lookup::Found) -> Result<u32> {
        let Some(record) = Records::one(&found.module.symbols, found.procedure.record) else { return Ok(0) };
        let mut ty = Bytes::at(record.data, 24).and_then(|mut b| b.u32()).unwrap_or(0);
        if matches!(record.kind, 0x1146 | 0x1147 | 0x1156) {
            ty = ids::function_type(self.ids()?, ty).unwrap_or(0);
        }
        Ok(self.types()?.record(ty).and_then(|r| parameters_of(r.kind, r.data)).unwrap_or(0))
    }
}

/// Of an `LF_PROCEDURE` or `LF_MFUNCTION`.
fn parameters_of(kind: u16, data: &[u8]) -> Option<u32> {
    match kind {
        0x1008 => Some(u32::from(Bytes::at(data, 6)?.u16()?)),
        0x1009 => {
            let this = Bytes::at(data, 8)?.u32()?;
            Some(u32::from(Bytes::at(data, 14)?.u16()?) + u32::from(this != 0))
        }
        _ => None,
    }
}

/// A layout without members: of built-in types, and of typedefs that name a pointer or an array.
pub(crate) fn described(name: &str, ty: &TypeRef) -> TypeLayout {
    let kind = match ty {
        TypeRef::Named { kind, .. } => *kind,
        TypeRef::Pointer { .. } => TypeKind::Pointer,
        TypeRef::Array { .. } => TypeKind::Array,
        TypeRef::Function { .. } => TypeKind::Function,
        TypeRef::Base { .. } | TypeRef::Void | TypeRef::Unknown => TypeKind::Base,
    };
    let fields = Vec::new();
    TypeLayout { module: String::new(), name: name.to_owned(), kind, size: ty.size(), fields, ambiguous: 0 }
}
