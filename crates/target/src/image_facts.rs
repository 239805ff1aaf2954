//! What an image file says of itself: identity, layout, version, signature.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Address, Rva};

/// Facts about an image file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageFacts {
    /// `native`, `windows_gui`, `windows_console`, ..., or the number.
    pub subsystem: String,
    /// Native subsystem: a driver, or the kernel.
    pub is_driver: bool,
    /// Entry point at the session's base; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Address>,
    pub size_of_image: u64,
    pub file_size: u64,
    /// Of the file; absent above 256 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// SHA-256 of what Authenticode signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticode: Option<String>,
    /// MD5 over the imports' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imphash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<ImageVersion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<ImageSignature>,
    /// `kmdf`, `filter_manager`, `ndis`, ... by its imports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    pub sections: Vec<ImageSection>,
    /// What a well-made file does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A section, as far as a reader of addresses needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageSection {
    pub name: String,
    pub rva: Rva,
    pub size: u64,
    /// Bytes the file has for it; what is beyond reads as zeros.
    pub file_bytes: u64,
    /// Of `r`, `w`, `x`.
    pub access: String,
}

/// Strings of the version resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageVersion {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub company_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_filename: Option<String>,
}

/// The embedded signature as it is written: no chain, no time, no revocation is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageSignature {
    /// The signed digest is this file's. That the signature over it is good is not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_matches: Option<bool>,
    /// `sha1`, `sha256`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_algorithm: Option<String>,
    pub signers: Vec<ImageSigner>,
}

/// Who signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageSigner {
    pub subject: String,
    pub issuer: String,
    /// Hex.
    pub serial: String,
}
