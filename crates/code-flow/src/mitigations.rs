//! What an image's headers say of hardening (winnt.h: `IMAGE_DLLCHARACTERISTICS_*`,
//! `IMAGE_GUARD_*`, load configuration).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pe::DirectoryIndex;

use crate::image::CodeImage;
use crate::spans::is_discardable;

/// `IMAGE_GUARD_RETPOLINE_PRESENT`.
const GUARD_RETPOLINE: u32 = 0x0010_0000;
/// `IMAGE_GUARD_CF_INSTRUMENTED`.
const GUARD_CF: u32 = 0x100;

/// Header facts; `None` where the load configuration that would say is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mitigations {
    pub nx_compat: bool,
    pub dynamic_base: bool,
    pub high_entropy: bool,
    pub force_integrity: bool,
    pub guard_cf: bool,
    pub retpoline: bool,
    /// The image has a stack cookie.
    pub gs_cookie: bool,
    pub writable_executable_sections: Vec<String>,
    /// Every executable section called INIT is thrown away after initialisation; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_discardable: Option<bool>,
    /// Has an embedded signature. Not verified.
    pub signed: bool,
}

/// Reads them.
#[must_use]
pub fn mitigations(image: &CodeImage<'_>) -> Mitigations {
    let flags = image.pe.dll_characteristics;
    let config = image.pe.load_config(image);
    let guard = config.as_ref().and_then(|config| config.guard_flags).unwrap_or(0);
    let init: Vec<bool> = image
        .pe
        .sections
        .iter()
        .filter(|section| section.name.eq_ignore_ascii_case("INIT") && section.is_executable())
        .map(is_discardable)
        .collect();
    Mitigations {
        nx_compat: flags & 0x100 != 0,
        dynamic_base: flags & 0x40 != 0,
        high_entropy: flags & 0x20 != 0,
        force_integrity: flags & 0x80 != 0,
        guard_cf: flags & 0x4000 != 0 || guard & GUARD_CF != 0,
        retpoline: guard & GUARD_RETPOLINE != 0,
        gs_cookie: config.and_then(|config| config.security_cookie).is_some_and(|cookie| cookie != 0),
        writable_executable_sections: image
            .pe
            .sections
            .iter()
            .filter(|section| section.is_executable() && section.is_writable())
            .map(|section| section.name.clone())
            .collect(),
        init_discardable: if init.is_empty() { None } else { Some(init.iter().all(|kept| *kept)) },
        signed: image.pe.directory(DirectoryIndex::Security).is_some(),
    }
}
