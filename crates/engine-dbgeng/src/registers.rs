//! The registers of a live thread as the engine lists them: branch records, parts and vector lanes too.

use std::cell::Cell;
use std::rc::Rc;

use target::{ContextOf, ListedRegister, RegisterValue, Result, View};
use windows::Win32::System::Diagnostics::Debug::Extensions::{
    DEBUG_REGISTER_DESCRIPTION, DEBUG_REGISTER_SUB_REGISTER, DEBUG_REGSRC_DEBUGGEE, DEBUG_VALUE,
    DEBUG_VALUE_FLOAT32, DEBUG_VALUE_FLOAT64, DEBUG_VALUE_FLOAT80, DEBUG_VALUE_FLOAT128, DEBUG_VALUE_INT8,
    DEBUG_VALUE_INT16, DEBUG_VALUE_INT32, DEBUG_VALUE_INT64, DEBUG_VALUE_VECTOR64, DEBUG_VALUE_VECTOR128,
};

use crate::engine::{DbgEng, EngineResult};
use crate::names::wide;

/// More than any processor has.
const MOST: u32 = 4096;

/// One register of the engine's list.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    index: u32,
    name: String,
    subregister: bool,
    kind: u32,
}

impl Described {
    /// Shown unasked: an integer that is neither part nor lane (lanes are not flagged as parts).
    fn is_whole(&self) -> bool {
        let integer = [DEBUG_VALUE_INT8, DEBUG_VALUE_INT16, DEBUG_VALUE_INT32, DEBUG_VALUE_INT64];
        !self.subregister && !self.name.contains('/') && integer.contains(&self.kind)
    }
}

impl DbgEng {
    pub(crate) fn list_registers(
        &self,
        of: ContextOf,
        view: View,
        all: bool,
    ) -> Result<Option<Vec<ListedRegister>>> {
        // Of a dump the engine shows zeros for what was not recorded; the context knows better.
        if !self.is_live() || self.facts.wow64 || view == View::Wow64 {
            return Ok(None);
        }
        let Some(thread) = self.engine_thread(of)? else { return self.listed(all).map(Some) };
        self.on_thread(thread, || self.listed(all)).map(Some)
    }

    fn listed(&self, all: bool) -> Result<Vec<ListedRegister>> {
        let described = self.described_registers()?;
        let wanted: Vec<&Described> = described.iter().filter(|d| all || d.is_whole()).collect();
        let indices: Vec<u32> = wanted.iter().map(|d| d.index).collect();
        let mut values = vec![DEBUG_VALUE::default(); indices.len()];
        let count = u32::try_from(indices.len()).unwrap_or(0);
        // SAFETY: as many indices in as values out. S_FALSE: some could not be read, and say so by type.
        unsafe {
            self.registers.GetValues2(
                DEBUG_REGSRC_DEBUGGEE,
                count,
                Some(indices.as_ptr()),
                0,
                values.as_mut_ptr(),
            )
        }
        .said("read the registers")?;
        let rows = wanted.into_iter().zip(&values);
        Ok(rows
            .map(|(described, value)| ListedRegister {
                name: described.name.clone(),
                value: value_of(value),
                subregister: described.subregister,
            })
            .collect())
    }

    fn described_registers(&self) -> Result<Rc<[Described]>> {
        if let Some(known) = &*self.described.borrow() {
            return Ok(known.clone());
        }
        // SAFETY: no arguments.
        let count = unsafe { self.registers.GetNumberRegisters() }.said("count the registers")?.min(MOST);
        let all: Rc<[Described]> = (0..count).filter_map(|index| self.describe_register(index)).collect();
        *self.described.borrow_mut() = Some(all.clone());
        Ok(all)
    }

    fn describe_register(&self, index: u32) -> Option<Described> {
        let description = Cell::new(DEBUG_REGISTER_DESCRIPTION::default());
        let name = wide(|buffer, size| {
            // SAFETY: the buffer lives for the call, the record is a local.
            unsafe { self.registers.GetDescriptionWide(index, buffer, size, Some(description.as_ptr())) }
        })
        .ok()?;
        let description = description.get();
        let subregister = description.Flags & DEBUG_REGISTER_SUB_REGISTER != 0;
        Some(Described { index, name, subregister, kind: description.Type })
    }
}

fn value_of(value: &DEBUG_VALUE) -> RegisterValue {
    // SAFETY: every bit pattern is a value of each member, and the type says which was filled.
    unsafe {
        let raw = value.Anonymous.RawBytes;
        let bytes = |count: usize| RegisterValue::Bytes(raw[..count.min(raw.len())].to_vec());
        match value.Type {
            DEBUG_VALUE_INT8 => RegisterValue::Int(value.Anonymous.I8.into()),
            DEBUG_VALUE_INT16 => RegisterValue::Int(value.Anonymous.I16.into()),
            DEBUG_VALUE_INT32 => RegisterValue::Int(value.Anonymous.I32.into()),
            DEBUG_VALUE_INT64 => RegisterValue::Int(value.Anonymous.Anonymous.I64),
            DEBUG_VALUE_FLOAT32 => RegisterValue::Float(value.Anonymous.F32.into()),
            DEBUG_VALUE_FLOAT64 => RegisterValue::Float(value.Anonymous.F64),
            DEBUG_VALUE_FLOAT80 => bytes(10),
            DEBUG_VALUE_VECTOR64 => bytes(8),
            DEBUG_VALUE_FLOAT128 | DEBUG_VALUE_VECTOR128 => bytes(16),
            _ => RegisterValue::Unavailable,
        }
    }
}
