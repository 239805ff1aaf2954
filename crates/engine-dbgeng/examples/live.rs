//! Debugs a program alive and prints what happens: `live ENGINE_DIR SYMBOLS "COMMAND LINE"`.

#[cfg(windows)]
fn main() {
    use std::time::Duration;
    use target::capability::Resume;
    use target::{ContextOf, Halt, Target, TargetExt, View};
    let arguments: Vec<String> = std::env::args().collect();
    let [_, engine, symbols, line, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: live ENGINE_DIR SYMBOLS \"COMMAND LINE\" [go|into|over|COMMAND ...]");
        std::process::exit(2);
    };
    let paths = target::SymbolPaths { images: symbols.clone(), symbols: symbols.clone(), network: false };
    let options = engine_dbgeng::OpenOptions { engine: engine.into(), paths };
    let launch = engine_dbgeng::LaunchOptions { command_line: line.clone(), ..Default::default() };
    let halt = Halt::within(Duration::from_secs(30));
    let opened = match line.strip_prefix("pid:").and_then(|p| p.parse().ok()) {
        Some(pid) => engine_dbgeng::attach(pid, &options, &|m| println!("{m:?}"), &halt),
        None => engine_dbgeng::launch(&launch, &options, &|m| println!("{m:?}"), &halt),
    };
    let engine = match opened {
        Ok(engine) => engine,
        Err(error) => {
            println!("{error}");
            std::process::exit(1);
        }
    };
    for step in rest {
        let how = match step.as_str() {
            "go" => Some(Resume::Go),
            "into" => Some(Resume::StepInto),
            "over" => Some(Resume::StepOver),
            _ => None,
        };
        let bound = Duration::from_secs(3);
        println!("--- {step}");
        match how {
            Some(how) => {
                println!("{:?}", engine.run().map(|run| run.resume(how, bound, &|| {}, &Halt::unbounded())))
            }
            None => println!("{:?}", engine.command().map(|c| c.execute(step, &Halt::within(bound)))),
        }
        if let Ok(Some(context)) = engine.context(ContextOf::Selected, View::Default) {
            println!("{} {:?}", engine.describe(context.ip()), engine.selection());
        }
    }
    println!("{:?}", engine.release());
}

#[cfg(not(windows))]
fn main() {}
