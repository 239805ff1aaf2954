//! The lab: Microsoft's DbgEng under Wine, and what builds programs for it. Everything goes into the
//! ignored folder `.lab`; a piece that is there and verified is not fetched again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::prerequisite::{self, apt};
use crate::process::{self, exists, output, root, run};

/// One wheel of the PyPI package that carries Microsoft's engine.
struct Engine {
    folder: &'static str,
    platform: &'static str,
    dlls: [(&'static str, &'static str); 6],
}

const PYKD: &str = "pykd==0.3.4.15";

/// SHA-256 of each DLL as the package carries it (DbgEng 10.0.15063.400).
const ENGINES: [Engine; 2] = [
    Engine {
        folder: "dbgeng-x64",
        platform: "win_amd64",
        dlls: [
            ("DbgModel.dll", "fbb2c823a2d2e20070904ec8e2e4413e59b547136c3a00af0bc89c6b5bc902fa"),
            ("dbgeng.dll", "3305a179960c726da112905582a9e00425c01c7cdb83a3909d535bb56272ef3d"),
            ("dbghelp.dll", "35dabc9aca6beccc7b1bb80676fc7bbc6799447550da96489d47c74508384a02"),
            ("msdia140.dll", "3584853f0b740e8690fa97e298aef4aeeffb4d9eceb9f667757139d6ee8f54a7"),
            ("srcsrv.dll", "ec4ca4c8dad6a9e8b8bd0d2fa7fa993d0e70db57cc22a0945d2ff517f90c2a4a"),
            ("symsrv.dll", "34e00dbf11ece378c7855bc327af4b80da94bb4d15e2d0ea9a07cd48700b64a4"),
        ],
    },
    Engine {
        folder: "dbgeng-x86",
        platform: "win32",
        dlls: [
            ("DbgModel.dll", "605eb61f259575d6e26a668c5dc2a4a42b7dec8133f37cc779aa93464f580bfe"),
            ("dbgeng.dll", "76c5a88d3e50f19e867ce24b9394538191558c78a1fea3f3c3cd24e094911d8c"),
            ("dbghelp.dll", "c3be52fa009b641fcdc3bdef68af64ab8b22095d1f1249d1e0d5d573942a4650"),
            ("msdia140.dll", "03f55cad406e8e69dcab51499938bd45adc4259bffbe1aacee9cce89a87d707f"),
            ("srcsrv.dll", "cd1bb67615739ba132dc1b2e3cc459c78a11ed326b6c89ecfb10eb6721445e81"),
            ("symsrv.dll", "3dbf19d00620e976755996abc651f9d99dc2a23812bf45c41a230e590f35cb88"),
        ],
    },
];

/// Programs and the Debian package of each.
const PROGRAMS: [(&str, &str); 6] = [
    ("wine", "wine wine64"),
    ("x86_64-w64-mingw32-gcc", "g++-mingw-w64-x86-64-win32"),
    ("i686-w64-mingw32-gcc", "g++-mingw-w64-i686-win32"),
    ("clang", "clang"),
    ("lld-link", "lld"),
    ("llvm-dlltool", "llvm"),
];

const RUST_TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "i686-pc-windows-gnu"];

/// The lab's folder.
pub(crate) fn folder() -> PathBuf {
    root().join(".lab")
}

/// Installs and checks every piece.
pub(crate) fn set_up() -> Result<()> {
    programs()?;
    rust_targets()?;
    for engine in &ENGINES {
        install(engine)?;
    }
    shim("x86_64-w64-mingw32-gcc", "shim-x64")?;
    shim("i686-w64-mingw32-gcc", "shim-x86")?;
    prefix()?;
    crate::pydivert::set_up()?;
    println!("lab: ready in {}", folder().display());
    Ok(())
}

fn programs() -> Result<()> {
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| !exists(program))
        .flat_map(|(_, packages)| packages.split(' '))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("lab: needs {} (about 400 MB down, 2 GB installed)", missing.join(" "));
    apt(&missing)
}

fn rust_targets() -> Result<()> {
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]))?;
    for target in RUST_TARGETS {
        if !installed.lines().any(|line| line == target) {
            run(Command::new("rustup").args(["target", "add", target]))?;
        }
    }
    Ok(())
}

fn verified(folder: &Path, engine: &Engine) -> bool {
    engine.dlls.iter().all(|(name, wanted)| sha256(&folder.join(name)).is_ok_and(|have| have == *wanted))
}

pub(crate) fn sha256(path: &Path) -> Result<String> {
    let text = output(Command::new("sha256sum").arg(path))?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

fn install(engine: &Engine) -> Result<()> {
    let folder = folder().join(engine.folder);
    if verified(&folder, engine) {
        return Ok(());
    }
    println!("lab: {} from PyPI (about 11 MB)", engine.folder);
    let download = folder.join("download");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&download)?;
    // A fresh Debian's python3 has no pip; the tests' own environment does.
    let python = prerequisite::python()?;
    run(Command::new(&python)
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
        .args(["--platform", engine.platform, "--python-version", "3.8", "-d"])
        .arg(&download)
        .arg(PYKD))?;
    let wheel = std::fs::read_dir(&download)?.next().context("pip left no wheel")??.path();
    run(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&download))?;
    for (name, _) in engine.dlls {
        std::fs::copy(download.join("pykd").join(name), folder.join(name))?;
    }
    std::fs::remove_dir_all(&download)?;
    if !verified(&folder, engine) {
        bail!("{}: a DLL's hash is not the one on record", folder.display());
    }
    Ok(())
}

/// Rust's standard library imports `ProcessPrng`, which Wine 8 lacks. The shim goes beside test
/// executables only, never into a release.
/// Builds our stand-in for `bcryptprimitives.dll`, which Wine before 10 lacks, into the lab.
pub(crate) fn shim(compiler: &str, name: &str) -> Result<()> {
    let folder = folder().join(name);
    let built = folder.join("bcryptprimitives.dll");
    std::fs::create_dir_all(&folder)?;
    let source = root().join("xtask/shim/bcryptprimitives.c");
    // Rust imports the bare name, also where a 32-bit compiler would export `ProcessPrng@8`.
    let options = ["-O1", "-shared", "-Wl,--kill-at", "-o"];
    run(Command::new(compiler).args(options).arg(&built).arg(source).arg("-ladvapi32"))
}

/// The lab's own Wine prefix.
fn prefix() -> Result<()> {
    let prefix = folder().join("prefix");
    if prefix.join("system.reg").is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(&prefix)?;
    println!("lab: making a Wine prefix (about 10 s)");
    let made = process::output(
        Command::new("wine")
            .args(["wineboot", "-i"])
            .env("WINEPREFIX", &prefix)
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "mscoree,mshtml="),
    );
    if !prefix.join("system.reg").is_file() {
        made.context("wineboot")?;
        bail!("wineboot left no prefix in {}", prefix.display());
    }
    Ok(())
}
