//! Import libraries from `kernel.imports`: one for each linker and machine. mingw's own lack some of the
//! routines, and lld takes none of mingw's.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::quiet;

/// One imported routine.
struct Import<'a> {
    library: &'a str,
    convention: &'a str,
    words: u32,
    name: &'a str,
}

impl<'a> Import<'a> {
    fn parse(line: &'a str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [library, convention, words, name] = words[..] else { bail!("not an import: {line}") };
        Ok(Self { library, convention, words: words.parse().with_context(|| line.to_owned())?, name })
    }

    /// The name in a `.def` for 32-bit x86; the tools add the leading underscore.
    fn decorated(&self) -> Result<String> {
        let bytes = self.words * 4;
        Ok(match self.convention {
            "std" => format!("{}@{bytes}", self.name),
            "fast" => format!("@{}@{bytes}", self.name),
            "c" => self.name.to_owned(),
            other => bail!("no calling convention {other}"),
        })
    }
}

/// Writes `x64.lib x86.lib arm64.lib` for lld and `libx64.a libx86.a` for GNU ld into `folder`.
pub(crate) fn libraries(folder: &Path) -> Result<()> {
    let text = std::fs::read_to_string(folder.join("kernel.imports"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let imports = lines.map(Import::parse).collect::<Result<Vec<_>>>()?;
    let names = |import: &Import<'_>| Ok(import.name.to_owned());
    for (machine, name) in [("i386:x86-64", "x64"), ("arm64", "arm64")] {
        let def = definition(folder, name, &imports, names)?;
        quiet(
            Command::new("llvm-dlltool")
                .current_dir(folder)
                .args(["-m", machine, "-d", &def])
                .args(["-l", &format!("{name}.lib")]),
        )?;
    }
    let def = definition(folder, "x64-gnu", &imports, names)?;
    let gnu = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(folder);
        command
    };
    quiet(gnu("x86_64-w64-mingw32-dlltool").args(["-d", &def, "-l", "libx64.a"]))?;
    let def = definition(folder, "x86", &imports, |import| import.decorated())?;
    quiet(gnu("llvm-dlltool").args(["-k", "-m", "i386", "-d", &def, "-l", "x86.lib"]))?;
    quiet(gnu("i686-w64-mingw32-dlltool").args(["-k", "-d", &def, "-l", "libx86.a"]))
}

/// A `.def` file; its name.
fn definition(
    folder: &Path,
    name: &str,
    imports: &[Import<'_>],
    spelled: impl Fn(&Import<'_>) -> Result<String>,
) -> Result<String> {
    let library = imports.first().context("kernel.imports is empty")?.library;
    let mut text = format!("LIBRARY {library}\nEXPORTS\n");
    for import in imports {
        writeln!(text, "{}", spelled(import)?)?;
    }
    let file = format!("{name}.def");
    std::fs::write(folder.join(&file), text)?;
    Ok(file)
}
