//! The same drivers behind a real I/O manager: Wine loads them, another process sends the codes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::source::{Source, folder, number};
use super::sweep::device_types;
use crate::lab;
use crate::process::{self, output, root, run};

/// What a service of a running driver is.
const SERVICE_RUNNING: &str = "state 4";

/// A Wine prefix of this oracle's own, and the programs that ask.
pub(crate) struct Host {
    prefix: PathBuf,
    programs: PathBuf,
}

impl Host {
    /// Makes the prefix from the lab's and builds the programs.
    pub(crate) fn new() -> Result<Self> {
        let from = lab::folder().join("prefix");
        if !from.join("system.reg").is_file() {
            bail!("the lab is not set up; run: cargo xtask lab");
        }
        let prefix = root().join("target/drivers/wine-prefix");
        if !prefix.join("system.reg").is_file() {
            std::fs::create_dir_all(&prefix)?;
            run(Command::new("cp").arg("-a").arg(from.join(".")).arg(&prefix))?;
        }
        let programs = root().join("target/drivers/wine");
        std::fs::create_dir_all(&programs)?;
        for name in ["sweep", "gate"] {
            let source = folder().join("wine").join(format!("{name}.c"));
            let program = programs.join(format!("{name}.exe"));
            process::output(
                Command::new("x86_64-w64-mingw32-gcc")
                    .args(["-O1", "-Wall", "-Werror", "-o"])
                    .args([&program, &source]),
            )?;
        }
        Ok(Self { prefix, programs })
    }

    /// Runs a program with the driver's Windows path and `arguments`; what it printed.
    fn ask(&self, program: &str, service: &str, image: &Path, arguments: &[String]) -> Result<String> {
        let inside = self.prefix.join("drive_c/drivers");
        std::fs::create_dir_all(&inside)?;
        let file = format!("{service}.sys");
        std::fs::copy(image, inside.join(&file)).with_context(|| image.display().to_string())?;
        output(
            Command::new("wine")
                .arg(self.programs.join(program))
                .arg(service)
                .arg(format!("C:\\drivers\\{file}"))
                .args(arguments)
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_default())
                .env("HOME", &self.prefix)
                .env("WINEPREFIX", &self.prefix)
                .env("WINEDEBUG", "-all")
                .env("WINEDLLOVERRIDES", "mscoree,mshtml="),
        )
    }

    /// Every code of the driver's device types that did not get its default answer, and the error it got.
    /// A run that cannot be counted is an error.
    pub(crate) fn sweep(&self, source: &Source, service: &str, image: &Path) -> Result<BTreeMap<u32, u32>> {
        let mut arguments = vec![source.id.to_uppercase()];
        arguments.extend(device_types(source).iter().map(|kind| format!("{kind:x}")));
        let text = self.ask("sweep.exe", service, image, &arguments)?;
        let has = |line: &str| text.lines().any(|other| other.trim() == line);
        if !has(SERVICE_RUNNING) || !has("end ok") {
            bail!("a run that does not count: {}", text.trim().replace('\n', "; "));
        }
        let mut found = BTreeMap::new();
        for line in text.lines() {
            if let ["code", code, error] = line.split_whitespace().collect::<Vec<_>>()[..] {
                found.insert(u32::from_str_radix(code, 16)?, number(error)?);
            }
        }
        Ok(found)
    }

    /// The outcome of each handle and code of the access gate: `(granted, required) -> error`, both as
    /// FILE_READ_ACCESS (1) and FILE_WRITE_ACCESS (2).
    pub(crate) fn access_gate(&self) -> Result<BTreeMap<(u32, u32), u32>> {
        let image = folder().join("bin/x64-gcc-o2/gate.sys");
        let text = self.ask("gate.exe", "WmGate", &image, &["GATE".to_owned()])?;
        let mut found = BTreeMap::new();
        for line in text.lines() {
            if let ["gate", granted, required, error] = line.split_whitespace().collect::<Vec<_>>()[..] {
                found.insert((number(granted)?, number(required)?), number(error)?);
            }
        }
        if found.len() != 16 {
            bail!("not 16 outcomes: {}", text.trim().replace('\n', "; "));
        }
        Ok(found)
    }
}

impl Drop for Host {
    /// Ends this prefix's own server and with it what the host left running.
    fn drop(&mut self) {
        let _ = Command::new("wineserver").arg("-k").env("WINEPREFIX", &self.prefix).status();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use analysis_driver::{RequiredAccess, TokenKind, access_of, parse_sddl};

    use super::*;

    const ERROR_ACCESS_DENIED: u32 = 5;

    /// A handle delivers a code when it was granted everything the code requires; a handle opened with
    /// no access delivers the codes that require none. That is what `device_security` says in `delivers`.
    #[test]
    fn the_access_gate_is_as_wine_enforces_it() {
        if std::env::var("WINDBG_MCP_LAB").is_err() {
            test_data::not_run("lab absent (cargo xtask lab, WINDBG_MCP_LAB=1)");
            return;
        }
        const SYNCHRONIZE: u32 = 0x10_0000;
        let kinds =
            [RequiredAccess::Any, RequiredAccess::Read, RequiredAccess::Write, RequiredAccess::ReadWrite];
        let outcomes = Host::new().and_then(|host| host.access_gate()).unwrap();
        for ((granted, required), error) in outcomes {
            let expected = if required & !granted == 0 { 0 } else { ERROR_ACCESS_DENIED };
            assert_eq!(error, expected, "granted {granted}, required {required}");
            let descriptor = parse_sddl(&format!("D:P(A;;{:#x};;;WD)", SYNCHRONIZE | granted)).unwrap();
            let delivers = access_of(&descriptor, TokenKind::StandardUser).delivers;
            let kind = kinds.into_iter().find(|kind| kind.file_rights() == required).unwrap();
            assert_eq!(delivers.contains(&kind), error == 0, "granted {granted}, required {required}");
        }
    }
}
