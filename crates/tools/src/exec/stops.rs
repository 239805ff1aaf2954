//! Stops in words.

use control::StopRecord;
use target::{Address, Rva};

use crate::table::quiet;

/// Where something stands, as records carry it.
pub(super) struct Place<'a> {
    pub(super) at: Option<Address>,
    pub(super) module: Option<&'a str>,
    pub(super) rva: Option<Rva>,
    pub(super) symbol: Option<&'a str>,
    pub(super) displacement: Option<Rva>,
    pub(super) thread: Option<u32>,
    pub(super) processor: Option<u32>,
}

impl Place<'_> {
    /// `0x… victim!poke+0x4 (victim+0x104) on thread 1`.
    pub(super) fn words(&self) -> String {
        let Some(at) = self.at else { return "where there is no register context".to_owned() };
        let mut text = at.to_string();
        if let (Some(symbol), Some(displacement)) = (self.symbol, self.displacement) {
            let displacement = if displacement.0 == 0 { String::new() } else { format!("+{displacement}") };
            text.push_str(&format!(" {}{displacement}", quiet(symbol)));
        }
        if let (Some(module), Some(rva)) = (self.module, self.rva) {
            text.push_str(&format!(" ({}+{rva})", quiet(module)));
        }
        match (self.processor, self.thread) {
            (Some(processor), _) => text.push_str(&format!(" on processor {processor}")),
            (None, Some(thread)) => text.push_str(&format!(" on thread {thread}")),
            (None, None) => {}
        }
        text
    }
}

/// What the engine printed, after whatever was said.
pub(super) fn printed(text: &mut String, output: &str) {
    let output = output.trim_end();
    if !output.is_empty() {
        text.push_str(&format!("\nPrinted meanwhile:\n{output}"));
    }
}

/// A stop record as text.
pub(super) fn text(stop: &StopRecord) -> String {
    let why = stop.reason.as_ref().map(|reason| quiet(&reason.describe()));
    let place = Place {
        at: stop.stopped_at,
        module: stop.module.as_deref(),
        rva: stop.rva,
        symbol: stop.symbol.as_deref(),
        displacement: stop.displacement,
        thread: stop.thread,
        processor: stop.processor,
    };
    let mut text = match (&why, stop.bound_ms) {
        (why, _) if stop.target_gone => {
            let why = why.as_deref().unwrap_or("it was let go");
            format!(
                "{}: the target is gone: {why}. The session holds nothing any more; end it.",
                stop.command
            )
        }
        (_, Some(bound)) => format!(
            "{}: {bound} ms passed and the target was broken in; it stands, where it happened to be, at {}.",
            stop.command,
            place.words()
        ),
        _ if stop.interrupted => {
            format!("{}: broken in on request at {}.", stop.command, place.words())
        }
        (Some(why), None) => format!("{}: stopped at {}: {why}.", stop.command, place.words()),
        (None, None) => format!("{}: stopped at {}.", stop.command, place.words()),
    };
    if let Some(thread) = stop.break_thread {
        text.push_str(&format!(" The break came through thread {thread}, which the debugger made."));
    }
    printed(&mut text, &stop.output);
    text
}
