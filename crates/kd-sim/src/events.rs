//! What a machine does beside executing.

use serde::{Deserialize, Serialize};

use crate::scenario::Hex;

/// Something that happens once the debugger let the machine run for the `at`-th time (from 1), before it
/// executes anything (0: at once, if it starts running). Several of the same `at` happen one after the
/// other; after a stop among them, the next one waits for the next continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scripted {
    pub at: u32,
    pub what: Occurrence,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Occurrence {
    /// Text is printed.
    Print(String),
    /// A line is asked for, `most` bytes at most; it is printed back.
    GetString { prompt: String, most: u32 },
    /// A driver is loaded: an image of the module list, and a stop.
    Load { path: String, base: Hex, size: u32 },
    /// A module is unloaded: a stop; the list keeps it.
    Unload { path: String, base: Hex },
    /// A stop whose text a debugger might run.
    CommandString(String),
    /// A file of the debugger's machine is wanted.
    File(String),
    /// A bug check: `KiBugCheckData` and the stop of its break.
    BugCheck { code: u32, parameters: [Hex; 4] },
    /// "Forget every module", then the machine starts again, stopped as at first.
    Reboot,
    /// The machine falls silent for ever.
    Silence,
}
