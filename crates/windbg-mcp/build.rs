//! The build's identity: `X.Y.Z+g<12 hex>` and, when the working tree differs from that commit,
//! `-dirty.<8 hex>`, a digest of the difference. Without git it is the bare version; `WINDBG_MCP_BUILD`
//! says it where server and worker are built apart.

use std::process::Command;

fn git(args: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git").args(args).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// FNV-1a: only has to tell two working trees apart.
fn digest(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn identity() -> String {
    if let Some(said) = std::env::var("WINDBG_MCP_BUILD").ok().filter(|said| !said.is_empty()) {
        return said;
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return version };
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    let changed = git(&["diff", "HEAD", "--", ":/crates", ":/Cargo.lock"]).unwrap_or_default();
    if changed.is_empty() {
        format!("{version}+g{commit}")
    } else {
        format!("{version}+g{commit}-dirty.{:08x}", digest(&changed))
    }
}

/// What Explorer and scanners read of the Windows program. `FileVersion` is the bare release.
fn version_resource(identity: &str) -> std::io::Result<()> {
    let mut resource = winresource::WindowsResource::new();
    resource
        .set("CompanyName", "the windbg-mcp authors")
        .set("ProductName", "windbg-mcp")
        .set("FileDescription", "MCP server for Windows debugging")
        .set("OriginalFilename", "windbg-mcp.exe")
        .set("InternalName", "windbg-mcp")
        .set("LegalCopyright", "Copyright (c) 2026 the windbg-mcp authors; MIT License")
        .set("ProductVersion", identity);
    resource.compile()
}

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-env-changed=WINDBG_MCP_BUILD");
    // A commit, a checkout or a change in any crate makes another build.
    for path in ["../../.git/HEAD", "../../.git/logs/HEAD", "../../Cargo.lock", "../../crates"] {
        if std::path::Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let identity = identity();
    println!("cargo:rustc-env=WINDBG_MCP_BUILD={identity}");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("windows") {
        version_resource(&identity)?;
    }
    Ok(())
}
