//! A panic costs its job and says where it was.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Logs every panic with its place, and keeps that for the error of the job.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(|info| {
        let what = info.payload_as_str().unwrap_or("no message");
        let text = match info.location() {
            Some(place) => format!("{what} at {}:{}", place.file(), place.line()),
            None => what.to_owned(),
        };
        tracing::error!("panic: {text}");
        // A panic inside a panic's own hook would end the process.
        let _ = LAST.try_with(|last| {
            if let Ok(mut last) = last.try_borrow_mut() {
                *last = Some(text);
            }
        });
    }));
}

/// Runs `job`; a panic in it becomes `Err` with its message and place.
pub(crate) fn guard<T>(job: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|_| {
        LAST.with(|last| last.borrow_mut().take()).unwrap_or_else(|| "a panic without a message".to_owned())
    })
}
