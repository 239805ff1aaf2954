//! DbgEng away from Windows: Wine runs the Windows worker, which loads the user's own copy of
//! Microsoft's DLLs (spec 00 decision 12). What that takes, and what of it is here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::image_header::{PE_X64, PE_X86, pe_machine};

/// One thing the DbgEng engine needs on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFact {
    pub present: bool,
    /// Without it there is no DbgEng; else it only serves less.
    pub needed: bool,
    /// What was found and where, or what is missing and what that costs.
    pub text: String,
    /// What to type to get it.
    pub command: Option<String>,
}

impl EngineFact {
    fn here(text: String) -> Self {
        Self { present: true, needed: true, text, command: None }
    }
    fn missing(text: String, command: impl Into<String>) -> Self {
        Self { present: false, needed: true, text, command: Some(command.into()) }
    }
    fn optional(mut self) -> Self {
        self.needed = false;
        self
    }
}

/// A worker's architecture: its folder names, its machine in a PE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    X64,
    X86,
}

impl Arch {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X64 => "x64",
            Self::X86 => "x86",
        }
    }
    fn machine(self) -> u16 {
        match self {
            Self::X64 => PE_X64,
            Self::X86 => PE_X86,
        }
    }
}

/// `dbgeng.dll` imports `dbghelp.dll` and `DbgModel.dll`; the rest it loads when asked for what they do.
pub(crate) const NEEDED: [&str; 3] = ["dbgeng.dll", "dbghelp.dll", "DbgModel.dll"];
pub(crate) const USEFUL: [(&str, &str); 3] = [
    ("msdia140.dll", "names from PDBs, only exports"),
    ("symsrv.dll", "symbol servers and stores"),
    ("srcsrv.dll", "source servers"),
];

/// A package anybody can fetch carries Microsoft's own builds.
const GET_DLLS: &str = "pip download --no-deps --only-binary=:all: --platform win_amd64 --python-version 3.8 \
                        pykd==0.3.4.15 && unzip -j pykd-*.whl 'pykd/*.dll' -d ~/dbgeng && \
                        windbg-mcp install-engine ~/dbgeng   # or a copy of a Windows machine's Debuggers/x64";

/// Everything found.
pub(crate) struct Setup {
    pub(crate) wine: PathBuf,
    pub(crate) worker: PathBuf,
    pub(crate) engine: PathBuf,
    pub(crate) prefix: Option<PathBuf>,
}

/// A file of `folder` by its name in any case, as Windows and Wine find it.
pub(crate) fn in_folder(folder: &Path, name: &str) -> Option<PathBuf> {
    let exact = folder.join(name);
    if exact.is_file() {
        return Some(exact);
    }
    let entries = std::fs::read_dir(folder).ok()?;
    let mut paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths.find(|path| path.file_name().is_some_and(|file| file.eq_ignore_ascii_case(name)))
}

fn program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The Windows worker: named, or in `share/wine` beside or above this program.
fn worker(config: &Config, arch: Arch) -> (PathBuf, bool) {
    let named = config.wine_worker.clone().map(|path| match arch {
        Arch::X64 => path,
        Arch::X86 => path.with_file_name("x86").join(path.file_name().unwrap_or_default()),
    });
    if let Some(path) = named {
        let here = path.is_file();
        return (path, here);
    }
    let folder = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    let folder = folder.unwrap_or_default();
    let below = match arch {
        Arch::X64 => PathBuf::from("share/wine/windbg-mcp.exe"),
        Arch::X86 => PathBuf::from("share/wine/x86/windbg-mcp.exe"),
    };
    let places = [folder.join(&below), folder.parent().unwrap_or(Path::new("/")).join(&below)];
    let found = places.iter().find(|path| path.is_file()).cloned();
    let here = found.is_some();
    (found.unwrap_or_else(|| folder.join(below)), here)
}

/// The folder with the DLLs of `arch`: the one named, its `x86` or a sibling named so for the 32-bit
/// ones, or the worker's own.
pub(crate) fn engine_folder(config: &Config, arch: Arch, worker: &Path) -> Option<PathBuf> {
    let beside = || worker.parent().filter(|folder| in_folder(folder, NEEDED[0]).is_some());
    let Some(named) = &config.engine_dir else { return beside().map(Path::to_owned) };
    let named = std::path::absolute(named).unwrap_or_else(|_| named.clone());
    match arch {
        Arch::X64 => Some(named),
        Arch::X86 => {
            let places = [named.join("x86"), named.with_file_name("x86")];
            let right = |folder: &&PathBuf| machine_in(folder) == Some(PE_X86);
            places.iter().find(right).cloned().or_else(|| Some(named).filter(|named| right(&named)))
        }
    }
}

/// Where the DLLs are looked for when no folder is named: beside the worker.
pub(crate) fn worker_folder(config: &Config) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let program = if cfg!(windows) { own } else { worker(config, Arch::X64).0 };
    program.parent().map(Path::to_owned).unwrap_or_default()
}

fn machine_in(folder: &Path) -> Option<u16> {
    pe_machine(&in_folder(folder, NEEDED[0])?)
}

fn wine_fact(config: &Config) -> (Option<PathBuf>, EngineFact) {
    let found = program(&config.wine);
    let fact = match &found {
        Some(path) => EngineFact::here(format!("Wine is {}", path.display())),
        None => EngineFact::missing(
            format!("Wine is missing ({}, WINDBG_MCP_WINE)", config.wine.display()),
            if cfg!(target_os = "macos") {
                "brew install --cask wine-stable"
            } else {
                "sudo apt-get install -y --no-install-recommends wine wine64"
            },
        ),
    };
    (found, fact)
}

fn worker_facts(worker: &Path, here: bool) -> Vec<EngineFact> {
    let name = worker.display();
    if !here {
        return vec![EngineFact::missing(
            format!("the Windows worker {name} is missing (WINDBG_MCP_WINE_WORKER names another)"),
            "cargo xtask wine-worker   # in a checkout; a release archive has it in share/wine",
        )];
    }
    let mut facts = vec![EngineFact::here(format!("the Windows worker is {name}"))];
    let folder = worker.parent().unwrap_or(Path::new("."));
    if in_folder(folder, "bcryptprimitives.dll").is_none() {
        let text =
            format!("bcryptprimitives.dll is missing in {}; Wine before 10 needs it", folder.display());
        facts.push(EngineFact::missing(text, "cargo xtask wine-worker").optional());
    }
    facts
}

/// The DLLs in `folder`: one fact for all, or one for each trouble.
fn dll_facts(folder: Option<&Path>, arch: Arch) -> Vec<EngineFact> {
    let Some(folder) = folder else {
        let text = "no folder with Microsoft's debugger DLLs is named (WINDBG_MCP_ENGINE_DIR, --engine-dir)";
        return vec![EngineFact::missing(text.to_owned(), GET_DLLS)];
    };
    let name = folder.display();
    let missing: Vec<&str> = NEEDED.into_iter().filter(|dll| in_folder(folder, dll).is_none()).collect();
    if !missing.is_empty() {
        let text = format!("{} missing in {name} (WINDBG_MCP_ENGINE_DIR)", missing.join(", "));
        return vec![EngineFact::missing(text, GET_DLLS)];
    }
    let other =
        |dll: &&str| in_folder(folder, dll).and_then(|path| pe_machine(&path)) != Some(arch.machine());
    if let Some(dll) = NEEDED.into_iter().find(|dll| other(dll)) {
        let text = format!("{dll} in {name} is not a DLL for {}", arch.name());
        return vec![EngineFact::missing(text, GET_DLLS)];
    }
    let mut facts =
        vec![EngineFact::here(format!("Microsoft's debugger DLLs for {} are in {name}", arch.name()))];
    for (dll, does) in USEFUL.into_iter().filter(|(dll, _)| in_folder(folder, dll).is_none()) {
        facts
            .push(EngineFact::missing(format!("{dll} is missing in {name}: no {does}"), GET_DLLS).optional());
    }
    facts
}

/// The prefix Wine will use: the one asked for, the environment's, its own default.
pub(crate) fn prefix(asked: Option<&str>) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    asked
        .filter(|asked| !asked.is_empty())
        .map(PathBuf::from)
        .or_else(|| set("WINEPREFIX"))
        .or_else(|| set("HOME").map(|home| home.join(".wine")))
}

fn prefix_fact(prefix: Option<&Path>) -> EngineFact {
    let Some(prefix) = prefix else {
        return EngineFact::missing(
            "no Wine prefix: neither WINEPREFIX nor HOME is set".to_owned(),
            "export HOME=~",
        );
    };
    let name = prefix.display();
    if !exists(prefix) {
        let text =
            format!("the Wine prefix {name} does not exist yet; the first session makes it (about 10 s)");
        return EngineFact::missing(text, format!("WINEPREFIX='{name}' wineboot -i")).optional();
    }
    match std::fs::canonicalize(prefix.join("dosdevices/z:")) {
        Ok(root) if root == Path::new("/") => EngineFact::here(format!("the Wine prefix is {name}")),
        _ => EngineFact::missing(
            format!(
                "drive Z: of the Wine prefix {name} is not /, so its programs cannot see this machine's files"
            ),
            format!("ln -sfn / '{name}/dosdevices/z:'"),
        ),
    }
}

/// Whether Wine has set this prefix up.
pub(crate) fn exists(prefix: &Path) -> bool {
    prefix.join("system.reg").is_file()
}

/// What `arch` needs, found or not.
pub(crate) fn facts(
    config: &Config,
    arch: Arch,
    asked_prefix: Option<&str>,
) -> (Option<Setup>, Vec<EngineFact>) {
    let (wine, fact) = wine_fact(config);
    let (worker, here) = worker(config, arch);
    let engine = engine_folder(config, arch, &worker);
    let prefix = prefix(asked_prefix);
    let mut facts = vec![fact];
    facts.extend(worker_facts(&worker, here));
    facts.extend(dll_facts(engine.as_deref(), arch));
    facts.push(prefix_fact(prefix.as_deref()));
    let complete = facts.iter().all(|fact| fact.present || !fact.needed);
    let setup = match (complete, wine, engine) {
        (true, Some(wine), Some(engine)) => Some(Setup { wine, worker, engine, prefix }),
        _ => None,
    };
    (setup, facts)
}

/// `/a/b` as Wine's programs see it.
pub(crate) fn windows_path(path: &Path) -> String {
    format!("Z:{}", path.to_string_lossy().replace('/', "\\"))
}

/// The DLLs by full path: the override reaches this folder's files only, so that a debuggee, which
/// inherits it with Wine's environment, still gets the `dbghelp` it would have had.
fn overrides(engine: &Path) -> String {
    let folder = windows_path(engine);
    let ours = if folder.contains([';', ',', '=']) {
        // Such a path cannot be written in the variable.
        "dbgeng,dbghelp,dbgmodel,symsrv,srcsrv=n".to_owned()
    } else {
        let names = ["dbgeng", "dbghelp", "dbgmodel", "symsrv", "srcsrv"];
        format!("{}=n", names.map(|name| format!("{folder}\\{name}")).join(","))
    };
    match std::env::var("WINEDLLOVERRIDES") {
        Ok(own) if !own.trim().is_empty() => format!("{own};{ours}"),
        _ => ours,
    }
}

/// Whether the locale's character set is UTF-8: the first of these variables that is set decides
/// (locale(7)).
fn speaks_utf8(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let set =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| variable(name).filter(|v| !v.is_empty()));
    set.is_some_and(|locale| locale.to_ascii_lowercase().replace('-', "").ends_with("utf8"))
}

impl Setup {
    /// What the worker's environment has beyond this process's.
    pub(crate) fn environment(&self) -> Vec<(String, OsString)> {
        let mut overrides = overrides(&self.engine);
        let mut environment = Vec::new();
        if let Some(prefix) = &self.prefix {
            environment.push(("WINEPREFIX".to_owned(), prefix.clone().into_os_string()));
            if !exists(prefix) {
                // Setting up a prefix asks for Mono and Gecko in windows nobody sees.
                overrides.push_str(";mscoree,mshtml=");
            }
        }
        if std::env::var_os("WINEDEBUG").is_none() {
            environment.push(("WINEDEBUG".to_owned(), "-all".into()));
        }
        if !speaks_utf8(&|name| std::env::var(name).ok()) {
            // Wine takes file names for the locale's: in "C" no other letter has a name.
            environment.push(("LC_ALL".to_owned(), "C.UTF-8".into()));
        }
        environment.push(("WINEDLLOVERRIDES".to_owned(), overrides.into()));
        environment.push(("WINDBG_MCP_ENGINE_DIR".to_owned(), windows_path(&self.engine).into()));
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 0x48];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[0x3c] = 0x40;
        bytes[0x40..0x44].copy_from_slice(b"PE\0\0");
        bytes[0x44..0x46].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    fn bare() -> Config {
        Config {
            wine: "/nonesuch/wine".into(),
            wine_worker: Some("/nonesuch/windbg-mcp.exe".into()),
            ..Config::default()
        }
    }

    fn texts(facts: &[EngineFact]) -> String {
        facts.iter().map(|fact| format!("{}\n", fact.text)).collect()
    }

    #[test]
    fn a_bare_machine_lacks_each_thing_by_name_with_a_command() {
        let (setup, facts) = facts(&bare(), Arch::X64, Some("/nonesuch/prefix"));
        assert!(setup.is_none());
        let said = texts(&facts);
        for part in
            ["Wine is missing", "Windows worker /nonesuch", "WINDBG_MCP_ENGINE_DIR", "prefix /nonesuch"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(facts.iter().all(|fact| !fact.present && fact.command.is_some()), "{facts:?}");
    }

    #[test]
    fn dlls_are_looked_at_and_not_only_for() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            texts(&dll_facts(Some(folder.path()), Arch::X64))
                .contains("dbgeng.dll, dbghelp.dll, DbgModel.dll missing")
        );
        for dll in ["DBGENG.DLL", "dbghelp.dll", "dbgmodel.dll"] {
            std::fs::write(folder.path().join(dll), image(PE_X64)).unwrap();
        }
        let facts = dll_facts(Some(folder.path()), Arch::X64);
        assert!(facts[0].present && !facts[1].present && !facts[1].needed, "{facts:?}");
        assert!(texts(&dll_facts(Some(folder.path()), Arch::X86)).contains("is not a DLL for x86"));
        std::fs::write(folder.path().join("dbghelp.dll"), image(PE_X86)).unwrap();
        assert!(texts(&dll_facts(Some(folder.path()), Arch::X64)).contains("dbghelp.dll in"));
    }

    #[test]
    fn the_32_bit_dlls_are_below_or_beside_the_named_folder() {
        let root = tempfile::tempdir().unwrap();
        let config = Config { engine_dir: Some(root.path().join("x64")), ..bare() };
        let worker = Path::new("/nonesuch/windbg-mcp.exe");
        assert_eq!(engine_folder(&config, Arch::X86, worker), None);
        for folder in ["x86", "x64/x86"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
            std::fs::write(root.path().join(folder).join("dbgeng.dll"), image(PE_X86)).unwrap();
            assert_eq!(engine_folder(&config, Arch::X86, worker), Some(root.path().join(folder)));
        }
    }

    #[test]
    fn the_locale_is_what_is_set_first() {
        let with = |set: &'static [(&str, &str)]| {
            speaks_utf8(&move |name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert!(with(&[("LANG", "de_DE.UTF-8")]) && with(&[("LC_ALL", "C.utf8"), ("LANG", "C")]));
        assert!(
            !with(&[]) && !with(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]) && !with(&[("LANG", "de_DE")])
        );
    }

    #[test]
    fn overrides_name_files_and_not_names() {
        let text = overrides(Path::new("/opt/my dbg"));
        assert!(text.contains(r"Z:\opt\my dbg\dbghelp,"), "{text}");
        assert!(!text.contains(",dbghelp"), "{text}");
        assert!(overrides(Path::new("/a;b")).contains("dbgeng,dbghelp"), "no other way");
    }
}
