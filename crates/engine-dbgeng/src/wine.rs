//! Under Wine this program sees a Unix machine's files on drive Z, and callers name them as they are
//! called there.

use std::ffi::CStr;
use std::sync::OnceLock;

use windows::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows::core::{s, w};

/// Wine's version, when this process runs under Wine.
#[must_use]
pub fn version() -> Option<&'static str> {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    VERSION.get_or_init(ask).as_deref()
}

fn ask() -> Option<String> {
    // SAFETY: the names are NUL-terminated and ntdll is never unloaded.
    let function =
        unsafe { GetProcAddress(GetModuleHandleW(w!("ntdll.dll")).ok()?, s!("wine_get_version")) }?;
    // SAFETY: Wine's ntdll exports `const char *wine_get_version(void)` (its wiki names it for this use).
    let text = unsafe {
        let version: extern "C" fn() -> *const std::ffi::c_char = std::mem::transmute(function);
        let text = version();
        if text.is_null() {
            return None;
        }
        CStr::from_ptr(text)
    };
    Some(text.to_string_lossy().into_owned())
}

/// A path as this process opens it: `/a/b` is `Z:\a\b` under Wine, anything else is itself.
#[must_use]
pub fn windows_path(path: &str) -> String {
    if version().is_some() { on_drive_z(path) } else { path.to_owned() }
}

/// A search path (`_NT_SYMBOL_PATH` grammar) with its folders as this process opens them.
#[must_use]
pub fn windows_search_path(path: &str) -> String {
    if version().is_none() {
        return path.to_owned();
    }
    let chain = |element: &str| element.split('*').map(on_drive_z).collect::<Vec<_>>().join("*");
    path.split(';').map(chain).collect::<Vec<_>>().join(";")
}

fn on_drive_z(path: &str) -> String {
    if path.starts_with('/') { format!("Z:{}", path.replace('/', "\\")) } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::on_drive_z;

    #[test]
    fn only_absolute_unix_paths_are_mapped() {
        for (given, mapped) in [
            ("/a b/c", r"Z:\a b\c"),
            (r"C:\x", r"C:\x"),
            ("https://h/p", "https://h/p"),
            ("srv", "srv"),
            ("", ""),
        ] {
            assert_eq!(on_drive_z(given), mapped);
        }
    }
}
