//! Our own engine, on every system.

use std::path::Path;

use connection_string::Transport;
use engine_native::OpenOptions;
use target::{Halt, Target};
use tools::live_opening::KernelRequest;
use tools::{Category, OpenReport, OpenRequest, ToolError};
use worker::{Factories, Opener};

use super::{refused, report, variable};

pub(super) fn factories() -> Factories {
    Factories { engine: "native", prepare: None, open: Box::new(open), operations: Vec::new() }
}

fn open(
    request: &OpenRequest,
    opener: &dyn Opener,
    halt: &Halt,
) -> Result<(Box<dyn Target>, OpenReport), ToolError> {
    if let OpenRequest::Kernel(kernel) = request {
        return attach(kernel, opener, halt);
    }
    let OpenRequest::Dump { path, symbol_path, image_path, image_base, network, .. } = request else {
        return Err(ToolError::new(
            Category::Unsupported,
            "the native engine opens dumps, images and kernels; engine dbgeng debugs processes",
        ));
    };
    opener.step("opening the dump");
    let options = OpenOptions {
        symbol_path: symbol_path.clone().or_else(|| variable("_NT_SYMBOL_PATH")),
        image_path: image_path.clone().or_else(|| variable("_NT_EXECUTABLE_IMAGE_PATH")),
        image_base: *image_base,
        network: *network,
    };
    let target = engine_native::open_within(Path::new(path), &options, halt)
        .map_err(|error| refused(path, error.category, error.reason, error.message))?;
    opener.committed();
    opener.step("reading what it says of itself");
    let report = report(&*target, "native", String::new());
    Ok((target, report))
}

/// What the attach says on its way.
struct Steps<'a>(&'a dyn Opener);

impl kd_client::Watch for Steps<'_> {
    fn connected(&self) {
        self.0.committed();
    }
    fn step(&self, text: &str) {
        self.0.step(text);
    }
}

fn attach(
    request: &KernelRequest,
    opener: &dyn Opener,
    halt: &Halt,
) -> Result<(Box<dyn Target>, OpenReport), ToolError> {
    let transport = request.connection.transport();
    if !transport.native_dials() {
        return Err(no_kernels(transport));
    }
    let symbols = OpenOptions {
        symbol_path: request.symbol_path.clone().or_else(|| variable("_NT_SYMBOL_PATH")),
        image_path: request.image_path.clone().or_else(|| variable("_NT_EXECUTABLE_IMAGE_PATH")),
        image_base: None,
        network: request.network,
    };
    let options = kd_client::Options { symbols, ..kd_client::Options::default() };
    let attached = kd_client::attach(&request.connection, &options, &Steps(opener), halt);
    let target = attached.map_err(|error| {
        let (category, reason) = error.category();
        refused(&request.connection.to_string(), category, reason, error.to_string())
    })?;
    let report = report(&*target, "native", String::new());
    Ok((target, report))
}

fn no_kernels(transport: &Transport) -> ToolError {
    let message = if transport.dbgeng_dials() {
        format!("the native engine does not dial {}; engine dbgeng does", transport.words())
    } else {
        format!("neither engine dials {}", transport.words())
    };
    ToolError::new(Category::Unsupported, message).because("no_transport")
}
