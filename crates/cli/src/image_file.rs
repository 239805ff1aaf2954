//! The report of a bare image: a driver, DLL or program file in place of a dump.

use tools::Summary;

use crate::report::Report;
use crate::triage::Triaged;

fn kind(triaged: &Triaged) -> &'static str {
    let extension = triaged.path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("sys") => "driver",
        Some("dll") => "library",
        Some("exe") => "program",
        _ => "image",
    }
}

/// What the file is, in one sentence.
pub(crate) fn sentence(triaged: &Triaged) -> String {
    let name = triaged.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let arch = triaged.opened.summary.arch.as_deref().map(|arch| format!(" for {arch}")).unwrap_or_default();
    format!("{name} is a {} file{arch}, not a dump: nothing ran and nothing crashed in it.", kind(triaged))
}

/// Its name in a debugger.
pub(crate) fn name(summary: &Summary) -> Option<&str> {
    summary.primary_module.as_ref().map(|module| module.name.as_str())
}

/// What its header and its symbols say.
pub(crate) fn rows(report: &mut Report, triaged: &Triaged) {
    if let Some(image) = &triaged.opened.summary.primary_module {
        report.add(
            "Module",
            format!("{}, {:#x} bytes in memory, base {}", image.name, image.size, image.start),
        );
    }
    let Some(module) = &triaged.module else { return };
    report.maybe("Version", module.version.as_ref());
    let pdb = module.pdb.as_ref().map(|pdb| format!("{} {}", pdb.name, pdb.key));
    let has = !module.lacks_symbols();
    match pdb {
        Some(pdb) => report.add("Symbols", format!("{pdb}{}", if has { "" } else { ", not found" })),
        None if has => report.add("Symbols", &module.symbols),
        None => report.add("Symbols", "the file names no PDB"),
    }
}
