//! `lm` and its options.

use target::{Module, Result, SymbolState, SymbolStatus, TargetError};

use crate::calendar;
use crate::notation::Notation;
use crate::run::{Run, usage};

#[derive(Default)]
struct Options {
    verbose: bool,
    user: bool,
    kernel: bool,
    loaded_only: bool,
    image_paths: bool,
    timestamps: bool,
    bare: bool,
    pattern: Option<String>,
    address: Option<u64>,
}

fn options(run: &Run<'_>, text: &str) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(letter) = rest.chars().next() else { return Ok(options) };
        rest = &rest[letter.len_utf8()..];
        match letter.to_ascii_lowercase() {
            'v' => options.verbose = true,
            'u' => options.user = true,
            'k' => options.kernel = true,
            'l' => options.loaded_only = true,
            'f' => options.image_paths = true,
            't' | 'n' => options.timestamps = true,
            'o' | 'e' | 'i' | 'd' => {}
            '1' => {}
            'm' => {
                let (pattern, after) = crate::operand::word(rest);
                if pattern.is_empty() {
                    return Err(usage("lm m needs a pattern"));
                }
                options.pattern = Some(pattern.to_owned());
                // `lm1m` lists names only; what follows a pattern is more options.
                options.bare |= text.trim_start().starts_with('1');
                rest = after;
            }
            'a' => {
                options.address = Some(run.evaluate(rest)?);
                return Ok(options);
            }
            _ => {
                return Err(usage(format!(
                    "lm: option '{letter}' is not served (v m u k l f t n a o 1 are)"
                )));
            }
        }
    }
}

/// `arguments` is everything behind `lm`.
pub(crate) fn lm(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let options = options(run, arguments)?;
    let modules = run.target.modules()?;
    let kernel_target = run.target.facts().kind.is_kernel();
    let mut shown: Vec<&Module> = modules.iter().filter(|m| wanted(m, &options, kernel_target)).collect();
    shown.sort_by_key(|m| m.base);
    if options.bare {
        shown.iter().for_each(|m| run.say(&m.name));
        return Ok(());
    }
    // A WoW64 process has 64-bit modules too.
    let wide = modules.iter().any(|m| m.end() >> 32 != 0);
    let notation = if wide { Notation { pointer_size: 8 } } else { Notation::of(run.target.facts().machine) };
    let width = notation.address(0).len();
    run.say(format!("{:<width$} {:<width$}   module name", "start", "end"));
    for module in &shown {
        run.check()?;
        // Naming one module asks for its symbols; listing all must not load all.
        let load = options.verbose && shown.len() == 1;
        let status = run.target.symbol_status(module.base, load)?;
        if options.loaded_only && matches!(status.state, SymbolState::Deferred | SymbolState::None) {
            continue;
        }
        let line = row(run, notation, module, &status, &options);
        run.say(line.trim_end());
        if options.verbose {
            details(run, module, &status);
        }
    }
    unloaded(run, notation, &options)
}

fn wanted(module: &Module, options: &Options, kernel_target: bool) -> bool {
    let user = module.user_mode.unwrap_or(!kernel_target);
    let side = !(options.user || options.kernel) || (options.user && user) || (options.kernel && !user);
    let named = options.pattern.as_deref().is_none_or(|p| glob(p, &module.name));
    let at = options.address.is_none_or(|a| module.contains(a));
    side && named && at
}

fn state_words(status: &SymbolStatus) -> &'static str {
    match status.state {
        SymbolState::None => "(no symbols)",
        SymbolState::Deferred => "(deferred)",
        SymbolState::Coff => "(coff symbols)",
        SymbolState::CodeView => "(codeview symbols)",
        SymbolState::Pdb | SymbolState::Dia => "(pdb symbols)",
        SymbolState::Export => "(export symbols)",
        SymbolState::Sym => "(sym symbols)",
        SymbolState::Dwarf => "(dwarf symbols)",
        SymbolState::Isf => "(isf symbols)",
        SymbolState::Other => "(other symbols)",
    }
}

fn row(
    run: &Run<'_>,
    notation: Notation,
    module: &Module,
    status: &SymbolStatus,
    options: &Options,
) -> String {
    let range = format!("{} {}", notation.address(module.base), notation.address(module.end()));
    if options.image_paths {
        return format!("{range}   {:<8} {}", module.name, module.image_path);
    }
    if options.timestamps {
        return format!("{range}   {:<8} {:<16} {}", module.name, module.image_name, timestamp(run, module));
    }
    let flag = if status.unmatched { 'M' } else { ' ' };
    let file = match (&status.file, status.state) {
        (Some(file), _) => file.as_str(),
        (None, SymbolState::Export) => module.image_name.as_str(),
        _ => "",
    };
    format!("{range}   {:<8} {flag} {:<23}{file}", module.name, state_words(status))
}

/// A module's time stamp as WinDbg writes it. It is a hash when the image says so, and where that
/// cannot be read, when it is later than the dump (or than now, without a dump).
fn timestamp(run: &Run<'_>, module: &Module) -> String {
    let image = pe::MappedImage::new(run.target, module.base);
    let says = pe::Pe::parse(&image).ok().and_then(|header| header.is_reproducible(&image));
    stamp(run, module.timestamp, says)
}

fn stamp(run: &Run<'_>, seconds: u32, is_hash: Option<bool>) -> String {
    let dumped = run.target.facts().dump.as_ref().and_then(|dump| dump.time.clone());
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
        target::value::rfc3339(i64::try_from(since.as_secs()).ok()?, 0)
    };
    let stamped = target::value::rfc3339(i64::from(seconds), 0);
    let later = || dumped.or_else(now).is_some_and(|latest| stamped.is_some_and(|stamped| stamped > latest));
    if is_hash.unwrap_or_else(later) {
        return format!("{seconds:08X} (This is a reproducible build file hash, not a timestamp)");
    }
    match calendar::from_unix(i64::from(seconds)) {
        Some(date) if seconds != 0 => format!("{date} ({seconds:08X})"),
        _ => format!("unavailable ({seconds:08X})"),
    }
}

fn details(run: &mut Run<'_>, module: &Module, status: &SymbolStatus) {
    if let Some(file) = &status.file {
        run.say(format!("    Symbol file: {file}"));
    }
    run.say(format!("    Image path: {}", module.image_path));
    run.say(format!("    Image name: {}", module.image_name));
    run.say(format!("    Timestamp:        {}", timestamp(run, module)));
    run.say(format!("    CheckSum:         {:08X}", module.checksum));
    run.say(format!("    ImageSize:        {:08X}", module.size));
    if let Some([a, b, c, d]) = module.file_version {
        run.say(format!("    File version:     {a}.{b}.{c}.{d}"));
    }
    if let Some(pdb) = status.pdb.as_ref().or(module.pdb.as_ref()) {
        run.say(format!("    PDB:              {} {}", pdb.file_name(), pdb.key()));
    }
    if let Some(note) = &status.note {
        run.say(format!("    Symbols:          {note}"));
    }
}

fn unloaded(run: &mut Run<'_>, notation: Notation, options: &Options) -> Result<()> {
    if options.loaded_only || options.address.is_some() || options.user {
        return Ok(());
    }
    let list = match run.target.unloaded_modules() {
        Ok(list) => list,
        Err(error @ (TargetError::Interrupted | TargetError::Deadline(_))) => return Err(error),
        // Not every target records them; the loaded ones are the answer.
        Err(_) => return Ok(()),
    };
    // A loaded module has a name besides its file's; an unloaded one is looked for by both.
    let named = |file: &str| {
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        options.pattern.as_deref().is_none_or(|p| glob(p, file) || glob(p, stem))
    };
    let shown: Vec<_> = list.iter().filter(|m| named(&m.image_name)).collect();
    if shown.is_empty() {
        return Ok(());
    }
    run.say("");
    run.say("Unloaded modules:");
    for module in shown {
        run.check()?;
        let end = module.base.saturating_add(module.size);
        run.say(format!(
            "{} {}   {:<8}",
            notation.address(module.base),
            notation.address(end),
            module.image_name
        ));
        if options.verbose {
            run.say(format!("    Timestamp: {}", stamp(run, module.timestamp, None)));
            run.say(format!("    Checksum:  {:08X}", module.checksum));
            run.say(format!("    ImageSize:  {:08X}", module.size));
        }
    }
    Ok(())
}

/// `*` and `?`, any case; the time is linear in text and pattern together, nearly always.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.to_lowercase().chars().collect(), text.to_lowercase().chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    t = from + 1;
                    star = Some((at, t));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("nt", "nt", true),
            ("NT*", "ntdll", true),
            ("*dll", "ntdll", true),
            ("n?dll", "ntdll", true),
            ("*t*l", "ntdll", true),
            ("nt", "ntdll", false),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
