//! Building the drivers, the same bytes every time: `/Brepro` and `--no-insert-timestamp`, no paths of
//! this machine. Other compiler versions make other bytes; the committed ones are Debian 12's.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::imports::{self, Linker};
use super::source::{self, Source, Variant};
use crate::process::{self, output, root};

/// The compilers whose output is committed: Debian 12's.
const CLANG: &str = "14.0.6";
const GCC: &str = "12";

const GCC_OPTIONS: [&str; 6] =
    ["-ffreestanding", "-fno-ident", "-fno-stack-protector", "-fcf-protection=none", "-Wall", "-Werror"];

const GCC_LINK: [&str; 6] = [
    "-nostdlib",
    "-shared",
    "-s",
    "-Wl,--subsystem,native",
    "-Wl,--exclude-all-symbols",
    "-Wl,--no-insert-timestamp",
];

const CLANG_OPTIONS: [&str; 10] = [
    "-O2",
    "-g",
    "-gcodeview",
    "-fms-extensions",
    "-ffreestanding",
    "-fno-ident",
    "-Wall",
    "-Werror",
    "-fdebug-compilation-dir=.",
    "-fcoverage-compilation-dir=.",
];

pub(crate) fn run(check: bool, ids: &[String]) -> Result<()> {
    for tool in ["clang", "lld-link", "llvm-dlltool", "x86_64-w64-mingw32-gcc", "i686-w64-mingw32-gcc"] {
        if !process::exists(tool) {
            bail!("{tool} is missing; `cargo xtask lab` installs the compilers");
        }
    }
    let sources = source::all(ids)?;
    let work = root().join("target/drivers");
    let built = build(&sources, &work)?;
    if check { compare(&built) } else { commit(&built) }
}

/// A built file and where its committed copy lies.
pub(crate) struct Built {
    pub(crate) made: PathBuf,
    pub(crate) committed: PathBuf,
}

/// Copies the sources to where they are compiled, so that no path of this machine gets into an image.
fn prepare(build: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(build);
    std::fs::create_dir_all(build)?;
    for entry in std::fs::read_dir(source::folder().join("src"))? {
        let path = entry?.path();
        std::fs::copy(&path, build.join(path.file_name().context("a source has a name")?))?;
    }
    Ok(())
}

/// Builds one variant of sources from anywhere into `folder`.
pub(crate) fn into(sources: &[Source], variant: Variant, folder: &Path) -> Result<()> {
    let build = folder.join("build");
    prepare(&build)?;
    for source in sources {
        std::fs::copy(&source.path, build.join(source.file()?))?;
        one(source, variant, &build, folder)?;
    }
    Ok(())
}

/// Builds every variant of `sources` below `work`.
fn build(sources: &[Source], work: &Path) -> Result<Vec<Built>> {
    let build = work.join("build");
    prepare(&build)?;
    let mut files = Vec::new();
    for source in sources {
        for &variant in &source.variants {
            let folder = work.join("bin").join(variant.name());
            std::fs::create_dir_all(&folder)?;
            one(source, variant, &build, &folder)?;
            let kept = variant == Variant::X64Clang && source.keeps_pdb;
            for extension in if kept { &["sys", "pdb"][..] } else { &["sys"] } {
                let file = format!("{}.{extension}", source.id);
                files.push(Built {
                    made: folder.join(&file),
                    committed: source::folder().join("bin").join(variant.name()).join(&file),
                });
            }
        }
    }
    Ok(files)
}

/// Linked in `build` under its bare name, then moved: ld takes the image base, and lld the build id, from
/// the path it is told to write to.
fn one(source: &Source, variant: Variant, build: &Path, folder: &Path) -> Result<()> {
    link_variant(source, variant, build)?;
    for extension in ["sys", "pdb"] {
        let file = format!("{}.{extension}", source.id);
        let made = build.join(&file);
        if made.exists() {
            std::fs::rename(&made, folder.join(&file)).with_context(|| made.display().to_string())?;
        }
    }
    Ok(())
}

fn link_variant(source: &Source, variant: Variant, build: &Path) -> Result<()> {
    let gcc = |machine, compiler, level, entry| with_gcc(source, machine, compiler, level, entry, build);
    let clang = |machine, target| with_clang(source, machine, target, build);
    match variant {
        Variant::X64GccO0 => gcc("x64", "x86_64-w64-mingw32-gcc", "-O0", "DriverEntry"),
        Variant::X64GccO2 => gcc("x64", "x86_64-w64-mingw32-gcc", "-O2", "DriverEntry"),
        Variant::X64GccOs => gcc("x64", "x86_64-w64-mingw32-gcc", "-Os", "DriverEntry"),
        Variant::X86Gcc => gcc("x86", "i686-w64-mingw32-gcc", "-O2", "_DriverEntry@8"),
        Variant::X64Clang => clang("x64", "x86_64"),
        Variant::X86Clang => clang("x86", "i686"),
        Variant::Arm64Clang => clang("arm64", "aarch64"),
    }
    .with_context(|| format!("{} as {}", source.path.display(), variant.name()))
}

fn with_gcc(
    source: &Source,
    machine: &str,
    compiler: &str,
    level: &str,
    entry: &str,
    build: &Path,
) -> Result<()> {
    let object = format!("{}-{machine}{level}.obj", source.id);
    let compiler = || {
        let mut command = Command::new(compiler);
        command.current_dir(build);
        command
    };
    quiet(compiler().args(GCC_OPTIONS).args([level, "-c", "-o", &object]).arg(source.file()?))?;
    let libraries = imports::libraries(build, machine, Linker::Gnu, std::slice::from_ref(&object))?;
    let mut link = compiler();
    link.args(GCC_LINK).arg(format!("-Wl,-e,{entry}")).args(["-o", &image(source), &object]).args(libraries);
    quiet(&mut link)
}

fn with_clang(source: &Source, machine: &str, target: &str, build: &Path) -> Result<()> {
    let target = format!("--target={target}-pc-windows-msvc");
    let mut objects = vec![format!("{}-{machine}.obj", source.id)];
    let name = source.file()?;
    compile(build, &target, name, &objects[0])?;
    if name.ends_with(".s") {
        let frame = format!("{}-frame.c", source.id);
        let text = format!("#define NAME \"{}\"\n#include \"frame.h\"\n", source.id.to_uppercase());
        std::fs::write(build.join(&frame), text)?;
        objects.push(format!("{}-frame.obj", source.id));
        compile(build, &target, &frame, &objects[1])?;
    }
    let libraries = imports::libraries(build, machine, Linker::Lld, &objects)?;
    objects.extend(libraries);
    link(source, &objects, build)
}

/// One object file; assembly takes no options of the C compiler.
fn compile(build: &Path, target: &str, name: &str, object: &str) -> Result<()> {
    let options = if name.ends_with(".s") { &CLANG_OPTIONS[..0] } else { &CLANG_OPTIONS[..] };
    let mut command = Command::new("clang");
    quiet(command.current_dir(build).arg(target).args(options).args(["-c", name, "-o", object]))
}

/// The PDB is named after the driver alone, so that its path is not in the image.
fn link(source: &Source, inputs: &[String], build: &Path) -> Result<()> {
    quiet(
        Command::new("lld-link")
            .current_dir(build)
            .args(["/Brepro", "/nodefaultlib", "/debug", "/pdbsourcepath:.", "/driver", "/subsystem:native"])
            .arg("/entry:DriverEntry")
            .arg(format!("/out:{}", image(source)))
            .arg(format!("/pdb:{}.pdb", source.id))
            .arg(format!("/pdbaltpath:{}.pdb", source.id))
            .args(inputs),
    )
}

fn image(source: &Source) -> String {
    format!("{}.sys", source.id)
}

/// A compiler is silent unless it fails: there are over a hundred runs.
pub(crate) fn quiet(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn commit(built: &[Built]) -> Result<()> {
    for file in built {
        let folder = file.committed.parent().context("a file lies in a folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::copy(&file.made, &file.committed).with_context(|| file.made.display().to_string())?;
    }
    println!("{} files of fixtures/drivers/bin rebuilt", built.len());
    Ok(())
}

fn compare(built: &[Built]) -> Result<()> {
    let differing: Vec<String> = built
        .iter()
        .filter(|file| std::fs::read(&file.made).ok() != std::fs::read(&file.committed).ok())
        .map(|file| file.committed.strip_prefix(root()).unwrap_or(&file.committed).display().to_string())
        .collect();
    if differing.is_empty() {
        println!("{} files of fixtures/drivers/bin equal their sources' builds", built.len());
        return Ok(());
    }
    let list = differing.join("\n  ");
    if let Some(other) = other_compiler()? {
        bail!("{other}: these differ, as other compilers' output does; check on Debian 12:\n  {list}");
    }
    bail!("differ from their sources; run `cargo xtask drivers build` and commit:\n  {list}")
}

/// Which compiler is not the one whose output is committed.
fn other_compiler() -> Result<Option<String>> {
    let clang = output(Command::new("clang").arg("--version"))?;
    let gcc = output(Command::new("x86_64-w64-mingw32-gcc").arg("-dumpversion"))?;
    let other = |name: &str, have: &str, want: &str| Some(format!("{name} here is {have}, not {want}"));
    let first = clang.lines().next().unwrap_or_default();
    Ok(if !first.contains(CLANG) {
        other("clang", first, CLANG)
    } else if !gcc.trim().starts_with(GCC) {
        other("mingw gcc", gcc.trim(), GCC)
    } else {
        None
    })
}
