//! The binary: decides its role, wires engines and logging, and hands over.

mod engines;
mod logging;
mod recording;
mod serve;

use std::io::Write as _;
use std::process::ExitCode;

/// A worker's memory bound holds only if the allocator counts.
#[global_allocator]
static ALLOCATOR: worker::BoundedAllocator = worker::BoundedAllocator;

fn main() -> ExitCode {
    channel::identify(env!("WINDBG_MCP_BUILD"));
    // Before anything else: a worker owns its standard streams and parses no command line.
    if std::env::args_os().nth(1).is_some_and(|word| word == "--engine-worker") {
        let code = worker::main(engines::factories(std::env::args().skip(2)));
        engines::clean();
        return exit(code);
    }
    let arguments = cli::Arguments::from_command_line(env!("WINDBG_MCP_BUILD"));
    let serving = arguments.serves();
    let redactor = match arguments.redact().map(|path| redaction::Filter::load(&path)) {
        None => redaction::Redactor::none(),
        Some(Ok(filter)) => redaction::Redactor::with(filter),
        Some(Err(error)) => return usage(&error.to_string()),
    };
    let log = match logging::start(serving, redactor.clone()) {
        Ok(log) => log,
        Err(error) => return usage(&error.to_string()),
    };
    let mut config = match supervisor::Config::from_env() {
        Ok(config) => config,
        Err(error) => return usage(&error.to_string()),
    };
    if let Some(folder) = arguments.engine_dir() {
        config.engine_dir = Some(folder.to_owned());
    }
    config.redactor = redactor;
    if arguments.opens_sessions() {
        config.transcript = recording::start(&arguments);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return usage(&format!("cannot start the async runtime: {error}")),
    };
    let supervisor = supervisor::Supervisor::with_log(config, log);
    let code = if serving {
        let serving = server::Serving {
            version: env!("WINDBG_MCP_BUILD").to_owned(),
            surface: arguments.tools().clone(),
            dump_dirs: arguments.dump_dirs().to_vec(),
        };
        runtime.block_on(serve::stdio(&supervisor, serving))
    } else {
        runtime.block_on(cli::run(arguments, &supervisor, engines::AVAILABLE))
    };
    // A read of standard input cannot be cancelled; it must not keep the process.
    runtime.shutdown_background();
    exit(code)
}

fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn usage(message: &str) -> ExitCode {
    // A reader that has left is told nothing, and that is no panic.
    let _ = writeln!(std::io::stderr(), "windbg-mcp: {message}");
    ExitCode::from(2)
}
