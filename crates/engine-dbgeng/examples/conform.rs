//! Runs the conformance suite on one dump in DbgEng: `conform ENGINE_DIR DUMP [SYMBOLS]`. Exit code 1
//! when a rule is broken, 3 when the dump does not open.

#[cfg(windows)]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, engine, dump, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: conform ENGINE_DIR DUMP [SYMBOLS]");
        std::process::exit(2);
    };
    let symbols = rest.first().cloned().unwrap_or_default();
    let paths = target::SymbolPaths { images: symbols.clone(), symbols, network: false };
    let options = engine_dbgeng::OpenOptions { engine: engine.into(), paths };
    let engine = match engine_dbgeng::open_dump(dump.as_ref(), &options, &|_| {}) {
        Ok(engine) => engine,
        Err(error) => {
            println!("does not open: {error}");
            std::process::exit(3);
        }
    };
    let failures = target::conformance::check(&engine);
    for failure in &failures {
        println!("{failure}");
    }
    println!("{} broken rules", failures.len());
    std::process::exit(i32::from(!failures.is_empty()));
}

#[cfg(not(windows))]
fn main() {}
