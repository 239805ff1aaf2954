//! Opens a dump in DbgEng and prints what the typed interface answers: `probe ENGINE_DIR DUMP [SYMBOLS]`.

#[cfg(windows)]
fn main() {
    use target::{ContextOf, Halt, SymbolPaths, Target, View};
    let arguments: Vec<String> = std::env::args().collect();
    let [_, engine, dump, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: probe ENGINE_DIR DUMP [SYMBOLS]");
        std::process::exit(2);
    };
    let symbols = rest.first().cloned().unwrap_or_default();
    let paths = SymbolPaths { images: symbols.clone(), symbols, network: false };
    let options = engine_dbgeng::OpenOptions { engine: engine.into(), paths };
    let engine = match engine_dbgeng::open_dump(dump.as_ref(), &options, &|_| {}) {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    println!("{:#?}", engine.facts());
    println!("{:?}", engine.bug_check());
    println!("{:#?}", engine.stored_event());
    println!("{:?}", engine.threads());
    let context = engine.context(ContextOf::Selected, View::Default).ok().flatten();
    if let Some(context) = context {
        match engine.stack(&context, 64, &Halt::unbounded()) {
            Ok(stack) => stack
                .frames
                .iter()
                .enumerate()
                .for_each(|(i, f)| println!("{}", target::FrameInfo::new(i, f).place())),
            Err(error) => println!("{error}"),
        }
        println!("{:?}", engine.disassemble(context.ip(), 3));
    }
    println!("{:?}", engine.evaluate("@$ip", &Halt::unbounded()));
    for module in engine.modules().iter().flat_map(|m| m.iter()) {
        println!(
            "{:016x} {:8x} {} {:?}",
            module.base,
            module.size,
            module.name,
            engine.symbol_status(module.base, false).map(|s| s.state)
        );
    }
}

#[cfg(not(windows))]
fn main() {}
