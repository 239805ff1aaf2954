//! A worker that opens scripts and nothing else: what the tests of supervisor and worker spawn. As a
//! dump, or as a program to launch, it opens a file that holds a script.
//! `WINDBG_MCP_TEST_WORKER` makes it break the channel's rules.

use std::io::{BufRead as _, Write as _};

use tools::{Category, OpenRequest, ToolError};
use worker::{BoundedAllocator, Factories, scripted};

#[global_allocator]
static ALLOCATOR: BoundedAllocator = BoundedAllocator;

fn main() {
    match std::env::var("WINDBG_MCP_TEST_WORKER").as_deref() {
        Ok("unparsable") => unparsable(),
        Ok("mute") => std::thread::sleep(std::time::Duration::from_secs(600)),
        Ok("stillborn") => eprintln!("the engine DLL is missing"),
        _ => {
            let factories = Factories {
                engine: "scripted",
                prepare: None,
                open: Box::new(|request, opener, halt| match request {
                    OpenRequest::Scripted { script } => scripted::open(script, opener, halt),
                    OpenRequest::Dump { path, .. } => scripted::open(&read(path)?, opener, halt),
                    OpenRequest::Launch(launch) => scripted::open(&read(&launch.command_line)?, opener, halt),
                    OpenRequest::Kernel(_) => {
                        let (target, report) = scripted::open(&read(&kernel_script())?, opener, halt)?;
                        Ok((target, tools::OpenReport { kind: "kernel".to_owned(), ..report }))
                    }
                    OpenRequest::Attach(_) => {
                        Err(ToolError::new(Category::Unsupported, "nothing runs here to attach to"))
                    }
                }),
                operations: vec![
                    (scripted::OPERATION, scripted::run_line),
                    ("environment", |_, _| {
                        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
                        Ok(names.collect::<Vec<String>>().into())
                    }),
                ],
            };
            std::process::exit(worker::main(factories));
        }
    }
}

/// What a kernel does is not in its connection string.
fn kernel_script() -> String {
    std::env::var("WINDBG_MCP_TEST_KERNEL").unwrap_or_default()
}

fn read(path: &str) -> Result<String, ToolError> {
    std::fs::read_to_string(path)
        .map_err(|error| ToolError::new(Category::Debugger, format!("cannot read {path}: {error}")))
}

/// Ready, then the first request is answered with something that is no message.
fn unparsable() {
    let mut out = std::io::stdout();
    let ready = format!(
        "{{\"message\":\"ready\",\"build\":\"{}\",\"engine\":\"scripted\",\"arch\":\"x64\"}}\n",
        channel::build()
    );
    let _ = out.write_all(ready.as_bytes()).and_then(|()| out.flush());
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
    let _ = out.write_all(b"{\"message\":\"from another build\"}\n").and_then(|()| out.flush());
    std::thread::sleep(std::time::Duration::from_secs(600));
}
