//! `dt`: type layouts, and memory seen through them.

use target::{Field, MemoryExt as _, Result, TargetError, TypeKind, TypeLayout, TypeRef};

use crate::format_value::{bits_text, bits_value, type_text, value_text};
use crate::modules::glob;
use crate::operand::words;
use crate::run::{Run, usage};
use crate::variables::{Variable, variable};

/// Levels of `-r`.
const DEPTH_LIMIT: u32 = 16;
/// Type names listed for a pattern.
const NAMES_LIMIT: usize = 10_000;
/// Bytes of one field that are read to show it.
const VALUE_LIMIT: u64 = 256;

/// Bytes of a structure looked at to say why some did not read.
const SHOWN_LIMIT: u64 = 1 << 16;

#[derive(Default)]
struct Request<'a> {
    type_name: &'a str,
    depth: u32,
    verbose: bool,
    fields: Vec<&'a str>,
    /// What is left when fields are taken out: an address expression.
    others: Vec<&'a str>,
}

impl<'a> Request<'a> {
    /// Tells the words that name members from those of an address.
    fn sort(&mut self, run: &Run<'_>, layout: &TypeLayout, prefixes: &'a [String]) {
        let words = std::mem::take(&mut self.others);
        (self.fields, self.others) = words.into_iter().partition(|word| is_field(run, layout, word));
        self.fields.extend(prefixes.iter().map(String::as_str));
    }
}

/// `dt [-rN] [-v] [-y] TYPE [FIELD...] [ADDRESS]`, and a variable's name for a type and its address.
pub(crate) fn dt(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let mut request = Request::default();
    let mut prefixes: Vec<String> = Vec::new();
    let mut prefix_next = false;
    for word in words(arguments) {
        if std::mem::take(&mut prefix_next) {
            prefixes.push(format!("{word}*"));
        } else if let Some(option) =
            word.strip_prefix(['-', '/']).filter(|o| o.starts_with(char::is_alphabetic))
        {
            // A letter of another alphabet is none of ours.
            match option.split_at_checked(1).unwrap_or((option, "")) {
                ("r", "") => request.depth = DEPTH_LIMIT,
                ("r", depth) => {
                    request.depth = depth.parse::<u32>().unwrap_or(DEPTH_LIMIT).min(DEPTH_LIMIT);
                }
                ("v", "") => request.verbose = true,
                ("y", "") => prefix_next = true,
                ("b" | "n" | "c" | "o" | "i" | "p", "") => {}
                _ => return Err(usage(format!("dt: option {word} is not served (-r -v are)"))),
            }
        } else if request.type_name.is_empty() {
            request.type_name = word;
        } else {
            request.others.push(word);
        }
    }
    if request.type_name.is_empty() {
        return Err(usage("dt needs a type: dt nt!_EPROCESS [ADDRESS]"));
    }
    if request.type_name.contains(['*', '?']) {
        return names(run, request.type_name);
    }
    match run.target.type_layout(request.type_name) {
        Ok(layout) => {
            request.sort(run, &layout, &prefixes);
            let expression = request.others.join(" ");
            let address =
                if expression.is_empty() { None } else { Some(run.clip(run.evaluate(&expression)?)) };
            print(run, &layout, &request, address)
        }
        Err(error @ (TargetError::Interrupted | TargetError::Deadline(_))) => Err(error),
        Err(error) => match variable(run, request.type_name)? {
            Some(Variable::Shown) => Ok(()),
            Some(Variable::Structure(name, address)) => {
                let layout = run.target.type_layout(&name)?;
                request.sort(run, &layout, &prefixes);
                if let Some(word) = request.others.first() {
                    return Err(usage(format!("{word} is no member of {name}")));
                }
                print(run, &layout, &request, address)
            }
            None => Err(symbol_instead(run, error, request.type_name)),
        },
    }
}

/// A name that is no type and is a symbol: what to ask for instead.
fn symbol_instead(run: &Run<'_>, error: TargetError, name: &str) -> TargetError {
    let module = match name.split_once('!') {
        Some((module, _)) => format!("{module}!"),
        None => String::new(),
    };
    if !run.target.resolve(name).is_ok_and(|hits| !hits.is_empty()) {
        return error;
    }
    let text = format!("{name} is a symbol, not a type: dt {module}TYPE {name}, with the type it has");
    TargetError::failed_because("no_type", text)
}

fn names(run: &mut Run<'_>, pattern: &str) -> Result<()> {
    let found = run.target.find_types(pattern, NAMES_LIMIT)?;
    if found.is_empty() {
        return Err(TargetError::failed_because("no_type", format!("no type fits '{pattern}'")));
    }
    for name in found {
        run.check()?;
        run.say(format!("          {name}"));
    }
    Ok(())
}

/// Members that one type may have, those of its base classes included.
const FIELDS_LIMIT: usize = 1 << 16;
/// Base classes laid out for one answer; also how deep they may nest.
const BASES_LIMIT: u32 = 64;

/// Whether a word names members rather than an address.
fn is_field(run: &Run<'_>, layout: &TypeLayout, word: &str) -> bool {
    match word.split_once('.') {
        Some((first, _)) => layout.fields.iter().any(|f| f.name == first),
        None => {
            let all = with_bases(run, layout).unwrap_or_default();
            all.iter().any(|f| fits(word, &f.name)) && run.check().is_ok()
        }
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    if pattern.contains(['*', '?']) { glob(pattern, name) } else { pattern == name }
}

fn print(run: &mut Run<'_>, layout: &TypeLayout, request: &Request<'_>, address: Option<u64>) -> Result<()> {
    run.say(if layout.module.is_empty() {
        layout.name.clone()
    } else {
        format!("{}!{}", layout.module, layout.name)
    });
    if request.verbose {
        let kind = match layout.kind {
            TypeKind::Union => "union",
            TypeKind::Class => "class",
            TypeKind::Enum => "enum",
            _ => "struct",
        };
        run.say(format!(
            "{kind} {}, {} elements, {:#x} bytes",
            layout.name,
            layout.fields.len(),
            layout.size
        ));
    }
    if layout.ambiguous > 0 {
        run.say(format!("   ({} other definitions of this name differ)", layout.ambiguous));
    }
    if layout.kind == TypeKind::Enum {
        for field in &layout.fields {
            run.check()?;
            run.say(format!("   {} = 0n{}", field.name, field.value.unwrap_or(0)));
        }
        return Ok(());
    }
    let laid_out = with_bases(run, layout)?;
    let dotted: Vec<&str> = request.fields.iter().copied().filter(|f| f.contains('.')).collect();
    for field in &laid_out {
        run.check()?;
        if request.fields.is_empty() || request.fields.iter().any(|f| fits(f, &field.name)) {
            member(run, &layout.module, field, address, request.depth, 0)?;
        }
    }
    for path in dotted {
        nested(run, layout, path, address)?;
    }
    if let Some(address) = address
        && let length = usize::try_from(layout.size.min(SHOWN_LIMIT)).unwrap_or(0)
        && let (bytes, Some(why)) = run.target.read_prefix(address, length)
        && (request.fields.is_empty() || bytes.is_empty())
    {
        let at = run.notation().address(run.clip(address.wrapping_add(bytes.len() as u64)));
        run.say(format!("?? did not read: {at}: {why}"));
    }
    Ok(())
}

/// The members, those of base classes in the place of these, as a debugger lays them out.
fn with_bases(run: &Run<'_>, layout: &TypeLayout) -> Result<Vec<Field>> {
    let mut fields = Vec::new();
    // Bases that name each other would have no end.
    let mut bases = BASES_LIMIT;
    add_members(run, layout, 0, &mut bases, &mut fields)?;
    Ok(fields)
}

fn add_members(
    run: &Run<'_>,
    layout: &TypeLayout,
    at: u64,
    bases: &mut u32,
    fields: &mut Vec<Field>,
) -> Result<()> {
    for field in &layout.fields {
        run.check()?;
        let offset = at.saturating_add(field.offset);
        if let TypeRef::Named { name, .. } = &field.ty
            && field.base_class
            && *bases > 0
            && let Ok(base) = layout_of(run, &layout.module, name)
        {
            *bases -= 1;
            add_members(run, &base, offset, bases, fields)?;
        } else if fields.len() < FIELDS_LIMIT {
            fields.push(Field { offset, ..field.clone() });
        }
    }
    Ok(())
}

/// One member, and below it its own members while `depth` lasts.
fn member(
    run: &mut Run<'_>,
    module: &str,
    field: &Field,
    address: Option<u64>,
    depth: u32,
    level: usize,
) -> Result<()> {
    run.check()?;
    let indent = " ".repeat(3 + 3 * level);
    let at = address.map(|a| run.clip(a.wrapping_add(field.offset)));
    let shown = shown_value(run, field, at);
    run.say(format!("{indent}+0x{:03x} {:<16} : {shown}", field.offset, field.name).trim_end());
    if depth == 0 {
        return Ok(());
    }
    if let TypeRef::Named { name, kind, .. } = &field.ty
        && *kind != TypeKind::Enum
        && field.bits.is_none()
        && let Ok(layout) = layout_of(run, module, name)
    {
        for inner in &with_bases(run, &layout)? {
            member(run, module, inner, at, depth - 1, level + 1)?;
        }
    }
    Ok(())
}

/// A member's type, of its own module first: names repeat across modules.
fn layout_of(run: &Run<'_>, module: &str, name: &str) -> Result<TypeLayout> {
    if module.is_empty() || name.contains('!') {
        return run.target.type_layout(name);
    }
    run.target.type_layout(&format!("{module}!{name}")).or_else(|_| run.target.type_layout(name))
}

fn shown_value(run: &Run<'_>, field: &Field, at: Option<u64>) -> String {
    let Some(at) = at else {
        return field.bits.map_or_else(|| type_text(&field.ty), bits_text);
    };
    let structure = matches!(&field.ty, TypeRef::Named { kind, .. } if *kind != TypeKind::Enum);
    if structure && field.bits.is_none() {
        return type_text(&field.ty);
    }
    let size = if field.size == 0 { field.ty.size() } else { field.size };
    let length = usize::try_from(size.clamp(1, VALUE_LIMIT)).unwrap_or(8);
    match (run.target.read_prefix(at, length), field.bits) {
        ((bytes, None), Some(bits)) => bits_value(&bytes, bits),
        ((bytes, None), None) => value_text(run.target, &field.ty, &bytes),
        ((_, Some(_)), _) => "??".to_owned(),
    }
}

/// A member of a member: `Pcb.DirectoryTableBase`.
fn nested(run: &mut Run<'_>, layout: &TypeLayout, path: &str, address: Option<u64>) -> Result<()> {
    let mut layout = layout.clone();
    let mut offset = 0u64;
    let mut parts = path.split('.').filter(|p| !p.is_empty()).take(DEPTH_LIMIT as usize).peekable();
    while let Some(part) = parts.next() {
        let Some(field) = layout.fields.iter().find(|f| f.name == part).cloned() else {
            return Err(TargetError::failed_because(
                "no_field",
                format!("{} has no member {part}", layout.name),
            ));
        };
        if parts.peek().is_none() {
            let named = Field { offset: offset.wrapping_add(field.offset), name: path.to_owned(), ..field };
            return member(run, &layout.module, &named, address, 0, 0);
        }
        offset = offset.wrapping_add(field.offset);
        let TypeRef::Named { name, .. } = &field.ty else {
            return Err(TargetError::failed_because("no_field", format!("{part} has no members of its own")));
        };
        layout = layout_of(run, &layout.module, name)?;
    }
    Ok(())
}
