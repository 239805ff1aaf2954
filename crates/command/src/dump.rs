//! `d` and its forms: memory as numbers, text and pointers.

use target::{MemoryExt as _, Result};

use crate::dump_text;
use crate::notation::known_place;
use crate::operand::Range;
use crate::run::{Run, usage};

/// How `d` shows memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Words,
    Dwords,
    Qwords,
    DwordsWithText,
    /// `da`, `du`: bytes of a character.
    Text(u8),
    /// `dps`, `dds`, `dqs`: values of this size with the symbol they point to.
    Symbols(u8),
    /// `dpp`, `dpa`, `dpu`: pointers of this size with what is behind them.
    Behind(u8, Pointee),
}

/// What a pointer is followed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointee {
    Pointer,
    Ascii,
    Unicode,
}

impl Unit {
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Bytes => 1,
            Self::Words => 2,
            Self::Dwords | Self::DwordsWithText => 4,
            Self::Qwords => 8,
            Self::Text(size) | Self::Symbols(size) | Self::Behind(size, _) => u64::from(size),
        }
    }
    /// Units on a line.
    fn per_line(self) -> u64 {
        match self {
            Self::Bytes => 16,
            Self::Words => 8,
            Self::Dwords | Self::DwordsWithText => 4,
            Self::Qwords => 2,
            Self::Text(_) => 32,
            Self::Symbols(_) | Self::Behind(..) => 1,
        }
    }
    /// Units without a range: 128 bytes; text until its end.
    fn default_count(self) -> u64 {
        match self {
            Self::Text(_) => 0x1000,
            _ => 128 / self.size(),
        }
    }
}

macro_rules! forms {
    ($($name:ident = $unit:expr;)*) => {
        $(pub(crate) fn $name(run: &mut Run<'_>, arguments: &str) -> Result<()> {
            display(run, arguments, $unit)
        })*
    };
}

forms! {
    db = Unit::Bytes;
    dw = Unit::Words;
    dd = Unit::Dwords;
    dq = Unit::Qwords;
    da = Unit::Text(1);
    du = Unit::Text(2);
    dc = Unit::DwordsWithText;
    dds = Unit::Symbols(4);
    dqs = Unit::Symbols(8);
}

pub(crate) fn dp(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let unit = if run.notation().is_32_bit() { Unit::Dwords } else { Unit::Qwords };
    display(run, arguments, unit)
}
pub(crate) fn dps(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let unit = Unit::Symbols(run.notation().pointer_size);
    display(run, arguments, unit)
}
pub(crate) fn dpp(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let unit = Unit::Behind(run.notation().pointer_size, Pointee::Pointer);
    display(run, arguments, unit)
}
pub(crate) fn dpa(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let unit = Unit::Behind(run.notation().pointer_size, Pointee::Ascii);
    display(run, arguments, unit)
}
pub(crate) fn dpu(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let unit = Unit::Behind(run.notation().pointer_size, Pointee::Unicode);
    display(run, arguments, unit)
}
/// `d`: the last form again.
pub(crate) fn again(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let unit = run.session.unit.unwrap_or(Unit::Bytes);
    display(run, arguments, unit)
}

fn display(run: &mut Run<'_>, arguments: &str, unit: Unit) -> Result<()> {
    let (range, rest) = run.range(arguments, unit.size(), run.session.next_dump, unit.default_count())?;
    if !rest.is_empty() {
        return Err(usage(format!("extra text '{rest}'")));
    }
    run.session.unit = Some(unit);
    if let Unit::Text(size) = unit {
        return text(run, range, size);
    }
    let mut done = 0;
    while done < range.count {
        run.check()?;
        let count = unit.per_line().min(range.count - done);
        let at = run.clip(range.start.wrapping_add(done * unit.size()));
        let line = line(run, unit, at, count);
        run.say(line);
        done += count;
    }
    run.session.next_dump = Some(run.clip(range.start.wrapping_add(range.count * unit.size())));
    Ok(())
}

/// The bytes of a line, `None` where they cannot be read.
fn cells(run: &Run<'_>, at: u64, bytes: u64) -> Vec<Option<u8>> {
    let length = usize::try_from(bytes).unwrap_or(0);
    let mut out: Vec<Option<u8>> = Vec::with_capacity(length);
    while out.len() < length {
        let from = run.clip(at.wrapping_add(out.len() as u64));
        let (prefix, _) = run.target.read_prefix(from, length - out.len());
        out.extend(prefix.iter().copied().map(Some));
        if out.len() < length {
            out.push(None);
        }
    }
    out
}

pub(crate) fn line(run: &Run<'_>, unit: Unit, at: u64, count: u64) -> String {
    let notation = run.notation();
    let bytes = cells(run, at, count * unit.size());
    let size = usize::try_from(unit.size()).unwrap_or(1);
    let units: Vec<Option<u64>> = bytes.chunks(size).map(dump_text::number).collect();
    let address = notation.address(at);
    match unit {
        Unit::Bytes => format!("{address}  {}", dump_text::bytes_row(&bytes)),
        Unit::DwordsWithText => {
            let text: String = bytes.iter().map(|b| b.map_or('?', dump_text::printable)).collect();
            format!("{address}  {}  {text}", dump_text::numbers_row(&units, 4))
        }
        Unit::Symbols(size) => {
            let value = units.first().copied().flatten();
            let shown = dump_text::one_number(value, usize::from(size));
            let place = value.and_then(|v| known_place(run.target, v)).map(|p| format!(" {p}"));
            format!("{address}  {shown}{}", place.unwrap_or_default())
        }
        Unit::Behind(size, pointee) => {
            let value = units.first().copied().flatten();
            let shown = dump_text::one_number(value, usize::from(size));
            let behind = value.and_then(|v| behind(run, v, size, pointee)).map(|t| format!(" {t}"));
            format!("{address}  {shown}{}", behind.unwrap_or_default())
        }
        _ => format!("{address}  {}", dump_text::numbers_row(&units, size)),
    }
}

/// What lies behind a pointer, `None` when it cannot be read.
fn behind(run: &Run<'_>, pointer: u64, size: u8, pointee: Pointee) -> Option<String> {
    const TEXT: usize = 64;
    if pointee == Pointee::Pointer {
        let value = run.target.read_pointer(pointer, size).ok()?;
        let place = known_place(run.target, value).map(|p| format!(" {p}")).unwrap_or_default();
        return Some(format!("{}{place}", dump_text::one_number(Some(value), usize::from(size))));
    }
    let unit = if pointee == Pointee::Ascii { 1 } else { 2 };
    let (bytes, _) = run.target.read_prefix(pointer, TEXT * unit);
    let bytes: Vec<Option<u8>> = bytes.into_iter().map(Some).collect();
    let units: Vec<Option<u64>> = bytes.chunks_exact(unit).map(dump_text::number).collect();
    let end = units.iter().position(|u| *u == Some(0)).unwrap_or(units.len());
    (!units.is_empty()).then(|| format!("\"{}\"", dump_text::characters(&units[..end])))
}

/// Quoted text, 32 characters a line, up to its NUL.
fn text(run: &mut Run<'_>, range: Range, size: u8) -> Result<()> {
    let unit = Unit::Text(size);
    let mut done = 0;
    let mut ended = false;
    while done < range.count && !ended {
        run.check()?;
        let at = run.clip(range.start.wrapping_add(done * unit.size()));
        let count = unit.per_line().min(range.count - done);
        let bytes = cells(run, at, count * unit.size());
        let units: Vec<Option<u64>> = bytes.chunks(usize::from(size)).map(dump_text::number).collect();
        let length = units.iter().position(|u| matches!(u, None | Some(0))).unwrap_or(units.len());
        ended = length < units.len();
        let address = run.notation().address(at);
        if units.first() == Some(&None) {
            if done == 0 {
                run.say(format!("{address}  \"????\""));
            }
            break;
        }
        run.say(format!("{address}  \"{}\"", dump_text::characters(&units[..length])));
        done += length as u64 + u64::from(ended);
    }
    run.session.next_dump = Some(run.clip(range.start.wrapping_add(done * unit.size())));
    Ok(())
}
