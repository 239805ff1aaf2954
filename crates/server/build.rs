//! Embeds the repository's docs, so that a page is served as soon as it is written.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    println!("cargo::rerun-if-changed={}", docs.display());
    let mut pages: Vec<_> = fs::read_dir(&docs)?.collect::<Result<_, _>>()?;
    pages.sort_by_key(fs::DirEntry::file_name);
    let mut source =
        String::from("/// Name and text of each page.\npub(crate) const PAGES: &[(&str, &str)] = &[\n");
    for page in pages {
        let path = page.path().canonicalize()?;
        if path.extension().is_some_and(|extension| extension == "md")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            let _ = writeln!(source, "    ({name:?}, include_str!({:?})),", path.display().to_string());
        }
    }
    source.push_str("];\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo set no OUT_DIR"))?;
    fs::write(Path::new(&out).join("pages.rs"), source)
}
