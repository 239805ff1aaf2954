//! The repository's own fixtures, built from `fixtures/src` by clang and lld and committed, so that a
//! fresh clone has a user dump and a kernel dump with PDBs. `/Brepro` and neutral paths make the images
//! and PDBs the same bytes on every machine with the same LLVM.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{self, root};
use crate::wine;

const COMPILE: [&str; 9] = [
    "--target=x86_64-pc-windows-msvc",
    "-O1",
    "-g",
    "-gcodeview",
    "-fms-extensions",
    "-mno-red-zone",
    "-fno-ident",
    "-fdebug-compilation-dir=.",
    "-fcoverage-compilation-dir=.",
];

/// What is committed and rebuilt to the same bytes. `crash.dmp` is not among them: thread ids and
/// times differ from run to run, so it is made once and kept.
const FILES: [&str; 7] =
    ["crash.exe", "crash.pdb", "ntkrnlmp.exe", "ntkrnlmp.pdb", "faultdrv.sys", "faultdrv.pdb", "kernel.dmp"];

/// Rebuilds everything; with `check`, compares instead of replacing. The user dump is rebuilt only
/// when `engine` names a folder with Microsoft's DbgEng and there are Wine and mingw to run it.
pub(crate) fn rebuild(check: bool, engine: Option<&Path>) -> Result<()> {
    for tool in ["clang", "lld-link", "llvm-dlltool"] {
        if !process::exists(tool) {
            bail!("{tool} is missing: apt-get install -y --no-install-recommends clang lld llvm");
        }
    }
    let work = root().join("target/fixtures");
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work)?;
    for entry in std::fs::read_dir(root().join("fixtures/src"))? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::copy(&path, work.join(path.file_name().context("a source has a name")?))?;
        }
    }
    images(&work)?;
    std::fs::write(work.join("kernel.dmp"), crate::kernel_fixture::build(&work)?)?;
    let committed = root().join("fixtures");
    if check {
        return compare(&work, &committed);
    }
    for file in FILES {
        std::fs::copy(work.join(file), committed.join(file))?;
    }
    if let Some(engine) = engine {
        user_dump(&work, engine)?;
        std::fs::copy(work.join("crash.dmp"), committed.join("crash.dmp"))?;
    }
    println!("fixtures rebuilt");
    Ok(())
}

fn images(work: &Path) -> Result<()> {
    for name in ["crash", "nt", "nt_objects", "faultdrv"] {
        let (source, object) = (format!("{name}.c"), format!("{name}.obj"));
        process::run(
            Command::new("clang").current_dir(work).args(COMPILE).args(["-c", &source, "-o", &object]),
        )?;
    }
    process::run(Command::new("llvm-dlltool").current_dir(work).args([
        "-m",
        "i386:x86-64",
        "-d",
        "kernel32.def",
        "-l",
        "kernel32.lib",
    ]))?;
    let kernel = ["/dll", "/driver", "/subsystem:native"];
    link(work, "crash", "exe", &["/subsystem:console", "/entry:Main"], &["crash.obj", "kernel32.lib"])?;
    let mut options = kernel.to_vec();
    options.extend(["/entry:KiSystemStartup", "/base:0x140000000", "/implib:nt.lib"]);
    link(work, "ntkrnlmp", "exe", &options, &["nt.obj", "nt_objects.obj"])?;
    let mut options = kernel.to_vec();
    options.push("/entry:DriverEntry");
    link(work, "faultdrv", "sys", &options, &["faultdrv.obj", "nt.lib"])
}

fn link(work: &Path, name: &str, extension: &str, options: &[&str], inputs: &[&str]) -> Result<()> {
    let mut command = Command::new("lld-link");
    command.current_dir(work).args(["/Brepro", "/nodefaultlib", "/debug", "/pdbsourcepath:."]);
    command.args([
        format!("/out:{name}.{extension}"),
        format!("/pdb:{name}.pdb"),
        format!("/pdbaltpath:{name}.pdb"),
    ]);
    process::run(command.args(options).args(inputs))
}

/// A real crash, caught and written by Microsoft's own engine under Wine.
fn user_dump(work: &Path, engine: &Path) -> Result<()> {
    process::run(Command::new("x86_64-w64-mingw32-g++").current_dir(work).args([
        "-O1",
        "-static",
        "-o",
        "write_dump.exe",
        "write_dump.cpp",
        "-ldbgeng",
    ]))?;
    for entry in std::fs::read_dir(engine)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("dll")) {
            std::fs::copy(&path, work.join(path.file_name().context("a DLL has a name")?))?;
        }
    }
    let words = ["C:\\fx\\write_dump.exe", "C:\\fx\\crash.exe", ".dump /m C:\\fx\\crash.dmp"];
    let code = wine::run_in(work, &words)?;
    if code != 0 || !work.join("crash.dmp").is_file() {
        bail!("write_dump.exe ended with {code} and left no dump");
    }
    Ok(())
}

fn compare(work: &Path, committed: &Path) -> Result<()> {
    let differing: Vec<&str> = FILES
        .into_iter()
        .filter(|file| std::fs::read(work.join(file)).ok() != std::fs::read(committed.join(file)).ok())
        .collect();
    if !differing.is_empty() {
        bail!("fixtures differ from their sources: {}; run `cargo xtask fixtures`", differing.join(", "));
    }
    println!("fixtures equal what is committed");
    Ok(())
}
