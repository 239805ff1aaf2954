//! What happens meanwhile, on standard error and only where that is a terminal.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use indicatif::{ProgressBar, ProgressStyle};
use supervisor::ProgressSink;

/// A bar for several dumps, a spinner for one; nothing where standard error is no terminal.
pub(crate) fn bar(dumps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = if dumps > 1 {
        (ProgressBar::new(dumps as u64), "{bar:30} {pos}/{len} {wide_msg}")
    } else {
        (ProgressBar::new_spinner(), "{spinner} {wide_msg}")
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A call's progress as the bar's message.
pub(crate) struct Told {
    pub(crate) bar: ProgressBar,
    pub(crate) name: String,
}

impl Told {
    pub(crate) fn sink(bar: &ProgressBar, name: &str) -> Option<Arc<dyn ProgressSink>> {
        if bar.is_hidden() {
            return None;
        }
        Some(Arc::new(Self { bar: bar.clone(), name: name.to_owned() }))
    }
}

#[async_trait]
impl ProgressSink for Told {
    async fn progress(&self, _: f64, message: &str) {
        self.bar.set_message(format!("{}: {message}", self.name));
    }
}
