//! Import libraries from `kernel.imports`: one for each linker and machine. mingw's own lack some of the
//! routines, and lld takes none of mingw's.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::quiet;
use crate::process::output;

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

/// Whose import library is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linker {
    Lld,
    Gnu,
}

/// Makes the import libraries of what `objects` (in `folder`, for `machine`: `x64 x86 arm64`) leave
/// undefined, and no more: a longer list would change the hints of every other driver. Their names.
pub(crate) fn libraries(
    folder: &Path,
    machine: &str,
    linker: Linker,
    objects: &[String],
) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(folder.join("kernel.imports"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let imports = lines.map(Import::parse).collect::<Result<Vec<_>>>()?;
    let undefined = undefined(folder, objects)?;
    let used = imports.iter().filter(|import| undefined.contains(import.name));
    let (framework, kernel): (Vec<_>, Vec<_>) =
        used.partition(|import| import.library.eq_ignore_ascii_case("wdfldr.sys"));
    let stem = objects.first().map_or("", |object| object.trim_end_matches(".obj"));
    let mut names = Vec::new();
    for (image, imports) in [("kernel", kernel), ("wdf", framework)] {
        if !imports.is_empty() {
            names.push(library(folder, &format!("{stem}-{image}"), machine, linker, &imports)?);
        }
    }
    Ok(names)
}

/// Names that the objects want from elsewhere, without any decoration.
fn undefined(folder: &Path, objects: &[String]) -> Result<BTreeSet<String>> {
    let listed =
        output(Command::new("llvm-nm").current_dir(folder).args(["-u", "--just-symbol-name"]).args(objects))?;
    let bare = |symbol: &str| {
        let name = symbol.trim();
        let name = name.strip_prefix("__imp_").unwrap_or(name);
        let name = match name.split('@').collect::<Vec<_>>()[..] {
            ["", name, _] => name,
            [name, _] => name.strip_prefix('_').unwrap_or(name),
            _ => name,
        };
        name.to_owned()
    };
    let names: BTreeSet<String> = listed.lines().map(bare).collect();
    // A C routine of x86 has one underscore more than its name.
    let more: Vec<String> = names.iter().filter_map(|name| name.strip_prefix('_')).map(Into::into).collect();
    Ok(names.into_iter().chain(more).collect())
}

fn library(
    folder: &Path,
    name: &str,
    machine: &str,
    linker: Linker,
    imports: &[&Import<'_>],
) -> Result<String> {
    let def = definition(folder, name, imports, machine == "x86")?;
    let (program, options, library): (_, &[&str], _) = match (linker, machine) {
        (Linker::Lld, "x64") => ("llvm-dlltool", &["-m", "i386:x86-64"], format!("{name}.lib")),
        (Linker::Lld, "arm64") => ("llvm-dlltool", &["-m", "arm64"], format!("{name}.lib")),
        (Linker::Lld, _) => ("llvm-dlltool", &["-k", "-m", "i386"], format!("{name}.lib")),
        (Linker::Gnu, "x64") => ("x86_64-w64-mingw32-dlltool", &[], format!("{name}.a")),
        (Linker::Gnu, _) => ("i686-w64-mingw32-dlltool", &["-k"], format!("{name}.a")),
    };
    let mut command = Command::new(program);
    quiet(command.current_dir(folder).args(options).args(["-d", &def, "-l", &library]))?;
    Ok(library)
}

/// A `.def` file; its name.
fn definition(folder: &Path, name: &str, imports: &[&Import<'_>], decorated: bool) -> Result<String> {
    let library = imports.first().context("an import library imports something")?.library;
    let mut text = format!("LIBRARY {library}\nEXPORTS\n");
    for import in imports {
        writeln!(text, "{}", if decorated { import.decorated()? } else { import.name.to_owned() })?;
    }
    let file = format!("{name}.def");
    std::fs::write(folder.join(&file), text)?;
    Ok(file)
}
