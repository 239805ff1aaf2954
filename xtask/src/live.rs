//! Programs that tests debug alive, built from `fixtures/src/live` into `target/live`, never committed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{output, root, run};

/// Builds what is older than its source; the folder with the programs and their PDBs.
pub(crate) fn build() -> Result<PathBuf> {
    let folder = root().join("target/live");
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(root().join("fixtures/src/live"))? {
        let source = entry?.path();
        let stem = source.file_stem().context("a source has a name")?.to_owned();
        let program = folder.join(&stem).with_extension("exe");
        if newer(&source, &program) {
            compile(&source, &program)?;
        }
    }
    Ok(folder)
}

fn newer(source: &Path, built: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    match (time(source), time(built)) {
        (Some(source), Some(built)) => source > built,
        _ => true,
    }
}

fn compile(source: &Path, program: &Path) -> Result<()> {
    let libgcc = output(Command::new("x86_64-w64-mingw32-gcc").arg("-print-libgcc-file-name"))?;
    let libraries = Path::new(libgcc.trim()).parent().context("libgcc lies in a folder")?.to_owned();
    // In a folder of its own and moved: two runs at once must not see half a program, and its name
    // stands in its export directory.
    let making = program.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(&making)?;
    let made = making.join(program.file_name().context("a program has a name")?);
    run(Command::new("clang")
        .args(["-target", "x86_64-w64-mingw32", "-g", "-gcodeview", "-O1", "-fuse-ld=lld", "-static"])
        .arg(format!("-Wl,--pdb={}", program.with_extension("pdb").display()))
        .arg(format!("-L{}", libraries.display()))
        .arg("-o")
        .args([&made, &source.to_path_buf()]))?;
    std::fs::rename(made, program)?;
    std::fs::remove_dir_all(making)?;
    Ok(())
}
