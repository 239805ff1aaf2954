//! Our own engine, on every system.

use std::path::Path;

use connection_string::Transport;
use engine_native::OpenOptions;
use target::{Halt, Target};
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
        return Err(no_kernels(kernel.connection.transport()));
    }
    let OpenRequest::Dump { path, symbol_path, image_path, image_base, network, .. } = request else {
        return Err(ToolError::new(
            Category::Unsupported,
            "the native engine opens dumps and images only; engine dbgeng debugs processes",
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

fn no_kernels(transport: &Transport) -> ToolError {
    let message = if transport.dbgeng_dials() {
        format!("the native engine does not dial {}; engine dbgeng does", transport.words())
    } else {
        format!("neither engine dials {}", transport.words())
    };
    ToolError::new(Category::Unsupported, message).because("no_transport")
}
