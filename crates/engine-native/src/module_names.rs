//! Names modules are qualified by, as DbgEng makes them.

use std::collections::HashSet;

use target::{Module, base_name};

/// The image's file name without its extension, characters a symbol expression cannot hold
/// replaced by `_`.
pub(crate) fn from_image(path: &str) -> String {
    let file = base_name(path);
    let stem = match file.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => file,
    };
    stem.chars().map(|c| if c.is_alphanumeric() || c == '_' || c == '$' { c } else { '_' }).collect()
}

/// Gives every module a name: a second module of the same name carries its base (`ntdll_771d0000`).
pub(crate) fn assign(modules: &mut [Module]) {
    let mut used: HashSet<String> = HashSet::with_capacity(modules.len());
    for module in modules {
        if module.name.is_empty() {
            module.name = from_image(&module.image_name);
        }
        if module.name.is_empty() {
            module.name = format!("image{:x}", module.base);
        }
        if !used.insert(module.name.to_ascii_lowercase()) {
            module.name = format!("{}_{:x}", module.name, module.base);
            // A base listed twice: only a counter tells the two apart.
            let stem = module.name.clone();
            let mut again = 2u32;
            while !used.insert(module.name.to_ascii_lowercase()) {
                module.name = format!("{stem}_{again}");
                again += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_the_debugger_makes_them() {
        assert_eq!(from_image(r"C:\Windows\System32\ntdll.dll"), "ntdll");
        assert_eq!(from_image("api-ms-win-core.1.dll"), "api_ms_win_core_1");
        assert_eq!(from_image("noext"), "noext");
        assert_eq!(from_image(".hidden"), "_hidden");
        assert_eq!(from_image(""), "");
    }

    #[test]
    fn twins_carry_their_base() {
        let module = |base, image: &str| Module {
            name: String::new(),
            image_name: image.into(),
            image_path: image.into(),
            base,
            size: 0x1000,
            timestamp: 0,
            checksum: 0,
            pdb: None,
            user_mode: None,
            file_version: None,
        };
        let mut list = vec![
            module(0x7ff8_0000_0000, "ntdll.dll"),
            module(0x771d_0000, "NTDLL.DLL"),
            module(0x771d_0000, "ntdll.dll"),
        ];
        assign(&mut list);
        let names: Vec<_> = list.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["ntdll", "NTDLL_771d0000", "ntdll_771d0000_2"]);
    }
}
