//! Finding and loading `dbgeng.dll`: by full path, never by the loader's own search, so that neither
//! a planted DLL nor Windows' inbox copy is taken by accident.

use std::ffi::c_void;
use std::path::Path;

use windows::Win32::System::Diagnostics::Debug::Extensions::IDebugClient5;
use windows::Win32::System::LibraryLoader::{GetProcAddress, LOAD_WITH_ALTERED_SEARCH_PATH, LoadLibraryExW};
use windows::core::{GUID, HRESULT, HSTRING, Interface, s};

use crate::engine::OpenError;

type DebugCreate = unsafe extern "system" fn(*const GUID, *mut *mut c_void) -> HRESULT;

/// Loads the engine of `folder` without creating one: whether it is there and fits this process.
///
/// # Errors
/// When it is missing, or is not a DLL this process can load.
pub fn load(folder: &Path) -> Result<(), OpenError> {
    entry(folder).map(drop)
}

fn entry(folder: &Path) -> Result<DebugCreate, OpenError> {
    let path = folder.join("dbgeng.dll");
    if !path.is_file() {
        return Err(OpenError::EngineMissing(path));
    }
    // SAFETY: the path is a NUL-terminated wide string that outlives the call; the library is never freed.
    let library = unsafe {
        LoadLibraryExW(&HSTRING::from(path.as_os_str()), None, LOAD_WITH_ALTERED_SEARCH_PATH)
            .map_err(|error| OpenError::EngineUnloadable { path: path.clone(), error })?
    };
    // SAFETY: the module is loaded and the name is NUL-terminated.
    let entry = unsafe { GetProcAddress(library, s!("DebugCreate")) };
    let Some(entry) = entry else {
        return Err(OpenError::EngineMissing(path));
    };
    // SAFETY: dbgeng.h declares DebugCreate with exactly this signature.
    Ok(unsafe { std::mem::transmute::<unsafe extern "system" fn() -> isize, DebugCreate>(entry) })
}

/// A client of the engine in `folder`.
pub(crate) fn create(folder: &Path) -> Result<IDebugClient5, OpenError> {
    let debug_create = entry(folder)?;
    let mut client = std::ptr::null_mut();
    // SAFETY: both pointers are valid for the call; on success `client` owns one reference.
    unsafe {
        debug_create(&IDebugClient5::IID, &mut client)
            .ok()
            .map_err(|error| OpenError::Engine { doing: "creating the engine", error })?;
        Ok(IDebugClient5::from_raw(client))
    }
}
