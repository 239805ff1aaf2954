//! Undecorated names: MSVC (`undname`), Itanium (`cpp_demangle`), Rust (`rustc-demangle`).

use std::panic::catch_unwind;

use undname::Flags;

/// Longer decorated names stay decorated: demanglers are superlinear in hostile ones.
const MAX_LENGTH: usize = 4096;
/// Back references can make a short name print without end; nobody reads more than this.
const MAX_SHOWN: usize = 16 << 10;

/// The name a debugger shows for `raw`, a function without its parameters; `None` when `raw` is
/// not decorated or cannot be read.
#[must_use]
pub fn display_name(raw: &str) -> Option<String> {
    if raw.len() > MAX_LENGTH {
        return None;
    }
    if raw.starts_with("??_C@") {
        return Some("`string'".to_owned());
    }
    if raw.starts_with('?') {
        return microsoft(raw, Flags::NAME_ONLY | Flags::NO_TAG_SPECIFIER)
            .map(|name| debugger_spelling(&name));
    }
    let rust = raw.starts_with("_R") || raw.starts_with("_ZN") || raw.starts_with("__ZN");
    if rust && let Ok(name) = rustc_demangle::try_demangle(raw) {
        return Some(format!("{name:#}"));
    }
    if raw.starts_with("_Z") || raw.starts_with("__Z") {
        return itanium(raw.strip_prefix("__Z").map_or(raw.to_owned(), |rest| format!("_Z{rest}")).as_str());
    }
    None
}

/// The full declaration behind a decorated name, with return type and parameters.
#[must_use]
pub fn full_name(raw: &str) -> Option<String> {
    if raw.len() > MAX_LENGTH {
        return None;
    }
    if raw.starts_with('?') { microsoft(raw, Flags::default()) } else { display_name(raw) }
}

/// A C name of x86 without its calling-convention marks: `_f`, `_f@8` and `@f@8` are `f`.
#[must_use]
pub fn plain_name(raw: &str) -> &str {
    let without_count = match raw.rsplit_once('@') {
        Some((name, bytes)) if !bytes.is_empty() && bytes.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => raw,
    };
    let (fastcall, stdcall) = (without_count.strip_prefix('@'), without_count.strip_prefix('_'));
    let name = match (fastcall, stdcall) {
        (Some(name), _) if without_count.len() < raw.len() => name,
        (_, Some(name)) => name,
        _ => raw,
    };
    if name.is_empty() { raw } else { name }
}

fn microsoft(raw: &str, flags: Flags) -> Option<String> {
    let name = catch_unwind(|| undname::demangle(raw, flags).ok()).ok().flatten();
    name.filter(|name| name.len() <= MAX_SHOWN)
}

fn itanium(raw: &str) -> Option<String> {
    let demangled = catch_unwind(|| {
        let symbol = cpp_demangle::Symbol::new_with_options(
            raw,
            &cpp_demangle::ParseOptions::default().recursion_limit(64),
        )
        .ok()?;
        let options = cpp_demangle::DemangleOptions::default().no_params().recursion_limit(64);
        symbol.demangle_with_options(&options).ok()
    });
    demangled.ok().flatten().filter(|name| name.len() <= MAX_SHOWN)
}

/// DbgEng's spelling, which is the compiler's own: no space after a comma, two closing brackets
/// apart, pointer marks apart (`char * const &`), special members in full.
fn debugger_spelling(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    let (mut depth, mut quoted) = (0usize, false);
    for (at, c) in name.char_indices() {
        let operator = out.trim_end_matches(['<', '>', '-', '=', '&', '*']).ends_with("operator");
        match c {
            ' ' if out.ends_with(',') => continue,
            '<' if !operator => depth += 1,
            '>' if !operator => {
                depth = depth.saturating_sub(1);
                if out.ends_with('>') || out.ends_with(" const") || out.ends_with(" volatile") {
                    out.push(' ');
                }
            }
            '&' | '*' | 'c' | 'v' if depth > 0 && out.ends_with('*') && !operator => {
                let rest = &name[at..];
                if matches!(c, '&' | '*') || rest.starts_with("const") || rest.starts_with("volatile") {
                    out.push(' ');
                }
            }
            '`' => quoted = true,
            '\'' => quoted = false,
            _ => {}
        }
        out.push(c);
        if quoted && (out.ends_with(" ctor") || out.ends_with(" dtor")) {
            let kind = if out.ends_with("ctor") { "constructor" } else { "destructor" };
            out.truncate(out.len() - 4);
            out.push_str(kind);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{display_name, full_name, plain_name};

    #[test]
    fn microsoft_names_without_parameters() {
        for (raw, shown) in [
            ("?stackMethod@stackTestClass@@QEAAXXZ", "stackTestClass::stackMethod"),
            (
                "??A?$vector@V?$shared_ptr@UItem@@@std@@V?$allocator@V?$shared_ptr@UItem@@@std@@@2@@std@@QEAAAEAV?$shared_ptr@UItem@@@1@_K@Z",
                "std::vector<std::shared_ptr<Item>,std::allocator<std::shared_ptr<Item> > >::operator[]",
            ),
            ("??2@YAPEAX_K@Z", "operator new"),
            ("??_C@_03HHGA@abc?$AA@", "`string'"),
            ("??1Item@@QEAA@XZ", "Item::~Item"),
            // The spellings of these functions' own procedure records.
            ("??_GC@google_breakpad@@UAEPAXI@Z", "google_breakpad::C::`scalar deleting destructor'"),
            (
                "??$_Construct_in_place@PEADAEBQEAD@std@@YAXAEAPEADAEBQEAD@Z",
                "std::_Construct_in_place<char *,char * const &>",
            ),
            (
                "??$addressof@$$CBV?$basic_string@DU?$char_traits@D@std@@V?$allocator@D@2@@std@@@std@@YAPEBV?$basic_string@DU?$char_traits@D@std@@V?$allocator@D@2@@0@AEBV10@@Z",
                "std::addressof<std::basic_string<char,std::char_traits<char>,std::allocator<char> > const >",
            ),
            ("??6@YAHUA@@H@Z", "operator<<"),
            ("??5@YAHUA@@H@Z", "operator>>"),
            ("??CA@@QEAAPEAHXZ", "A::operator->"),
            ("??D?$P@PEAH@@QEAAHXZ", "P<int *>::operator*"),
        ] {
            assert_eq!(display_name(raw).as_deref(), Some(shown), "{raw}");
        }
        assert_eq!(display_name("KeBugCheckEx"), None);
        assert!(full_name("?f@@YAHH@Z").unwrap().contains("f(int)"));
    }

    #[test]
    fn itanium_and_rust_names() {
        assert_eq!(display_name("_ZN3foo3barEi").as_deref(), Some("foo::bar"));
        assert_eq!(
            display_name("_ZN4core9panicking5panic17h0123456789abcdefE").as_deref(),
            Some("core::panicking::panic")
        );
        assert_eq!(display_name("_RNvC6_123foo3bar").as_deref(), Some("123foo::bar"));
    }

    #[test]
    fn calling_convention_marks() {
        for (raw, shown) in [
            ("_f@8", "f"),
            ("@f@12", "f"),
            ("_main", "main"),
            ("f", "f"),
            ("_", "_"),
            ("__RtlX@4", "_RtlX"),
            ("@x", "@x"),
        ] {
            assert_eq!(plain_name(raw), shown, "{raw}");
        }
    }

    #[test]
    fn hostile_names_end() {
        for raw in
            ["?".repeat(3000), format!("_Z{}", "N".repeat(3000)), "??$".repeat(1000), "?A".repeat(2000)]
        {
            let _ = display_name(&raw);
        }
        // Each level names the one inside it twice.
        let doubled = (0..15).fold("V?$A@H@@".to_owned(), |inner, _| format!("V?$C@{inner}V1@@@"));
        assert_eq!(display_name(&format!("??0{}QAE@XZ", &doubled[1..])), None);
    }
}
