//! Every dump of the test data, compared with what Microsoft's DbgEng said of it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unreachable_pub)]
mod shared;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use shared::transcript::{OracleFrame, Transcript};
use shared::{Prepared, data, dumps, oracle};
use target::{Attribution, Context, ContextOf, Frame, Halt, SymbolState, Target, View};

/// Differences that were looked at: dump, a part of the difference's text, and why it stands.
const ACCEPTED: &[(&str, &str, &str)] = &[
    ("triage_arm32", "no registers", "32-bit kernel dumps are served as header facts only"),
    ("triage_arm32", "unloaded", "32-bit kernel dumps are served as header facts only"),
    ("negative/foreign", "refused", "dumps of other platforms are refused by decision 7"),
    ("syn_rdmp8", "opens, the oracle refuses", "DbgEng 15063 does not know dump type 8"),
    ("cxx_eh_x64", "_CxxThrowException+0x47, not", "DbgEng drops the underscore of the exported name"),
    (
        "wow64_release_full",
        ".ecxr: ",
        "the stored context is not a 32-bit one: DbgEng prints its bytes as if it were, ours validates",
    ),
];

struct Comparison<'a> {
    target: &'a dyn Target,
    oracle: &'a Transcript,
    differences: Vec<String>,
}

fn halt() -> Halt {
    Halt::within(Duration::from_secs(30))
}

impl Comparison<'_> {
    fn differ(&mut self, text: String) {
        self.differences.push(text);
    }

    fn modules(&mut self) {
        let ours = self.target.modules().map(|m| m.to_vec()).unwrap_or_default();
        let theirs = self.oracle.modules();
        for module in &theirs {
            match ours.iter().find(|m| m.base == module.start) {
                None => self.differ(format!("module {} at {:x} is missing", module.name, module.start)),
                Some(m) if m.end() != module.end => {
                    self.differ(format!(
                        "module {} ends at {:x}, not {:x}",
                        module.name,
                        m.end(),
                        module.end
                    ));
                }
                Some(m) if m.name != module.name => {
                    self.differ(format!("module {:x} is called {}, not {}", m.base, m.name, module.name));
                }
                Some(_) => {}
            }
        }
        for module in &ours {
            if !theirs.iter().any(|m| m.start == module.base) {
                self.differ(format!("module {} at {:x} is ours alone", module.name, module.base));
            }
        }
        let unloaded = self.target.unloaded_modules().unwrap();
        for module in self.oracle.unloaded() {
            let found = unloaded.iter().any(|m| {
                m.base == module.start && m.base + m.size == module.end && m.image_name == module.name
            });
            if !found {
                self.differ(format!("unloaded {} at {:x} is missing", module.name, module.start));
            }
        }
    }

    fn registers(&mut self, what: &str, theirs: &BTreeMap<String, u64>, ours: Option<&Context>) {
        if theirs.is_empty() {
            return;
        }
        let Some(ours) = ours else {
            self.differ(format!("{what}: no registers"));
            return;
        };
        for (name, value) in theirs {
            // On x86 the oracle prints iopl with the flags; that is no register of its own.
            if name == "iopl" || !Context::is_register(ours.machine, name) {
                continue;
            }
            if ours.by_name(name) != Some(*value) {
                self.differ(format!("{what}: {name} is {:x?}, not {value:x}", ours.by_name(name)));
            }
        }
    }

    fn event(&mut self) {
        let Some(theirs) = self.oracle.exception() else { return };
        let ours = self.target.stored_event().unwrap();
        let Some(event) = ours else {
            // The oracle invents a break at 0 where nothing is stored.
            if (theirs.code, theirs.address) != (0x8000_0003, 0) {
                self.differ("no stored event".to_owned());
            }
            return;
        };
        let record = &event.record;
        if (record.code, record.address) != (theirs.code, theirs.address) {
            self.differ(format!(
                "exception {:x} at {:x}, not {:x} at {:x}",
                record.code, record.address, theirs.code, theirs.address
            ));
        }
        if record.parameters != theirs.parameters {
            self.differ(format!(
                "exception parameters {:x?}, not {:x?}",
                record.parameters, theirs.parameters
            ));
        }
        if let Some((pid, tid)) = self.oracle.last_event() {
            let own = self.target.facts().process.as_ref().and_then(|p| p.pid);
            if own.is_some_and(|own| own != pid) || event.thread != Some(tid) {
                self.differ(format!("last event of {own:x?}.{:x?}, not {pid:x}.{tid:x}", event.thread));
            }
        }
    }

    fn times(&mut self) {
        let Some(facts) = self.target.facts().dump.clone() else { return };
        if facts.time != self.oracle.time {
            self.differ(format!("time {:?}, not {:?}", facts.time, self.oracle.time));
        }
        if self.oracle.uptime_ms.is_some() && facts.uptime_ms != self.oracle.uptime_ms {
            self.differ(format!("uptime {:?}, not {:?}", facts.uptime_ms, self.oracle.uptime_ms));
        }
    }

    fn bug_check(&mut self) {
        let Some((code, parameters)) = self.oracle.bug_check() else { return };
        let ours = self.target.bug_check().unwrap();
        if !ours.as_ref().is_some_and(|b| b.code == code && b.parameters == parameters) {
            self.differ(format!("bug check {ours:x?}, not {code:x} {parameters:x?}"));
        }
    }

    fn threads(&mut self) {
        let ours = self.target.threads().unwrap();
        let theirs = self.oracle.threads();
        if !theirs.is_empty() && ours.len() != theirs.len() {
            self.differ(format!("{} threads, not {}", ours.len(), theirs.len()));
        }
        for (ours, theirs) in ours.iter().zip(&theirs) {
            if ours.system_id != theirs.tid || ours.teb != Some(theirs.teb) {
                self.differ(format!(
                    "thread {:x} teb {:x?}, not {:x} {:x}",
                    ours.system_id, ours.teb, theirs.tid, theirs.teb
                ));
            }
            if ours.suspend_count != Some(theirs.suspend) {
                self.differ(format!(
                    "thread {:x} suspend {:?}, not {}",
                    ours.system_id, ours.suspend_count, theirs.suspend
                ));
            }
            let context = self.target.context(ContextOf::Thread(ours.system_id), View::Default).unwrap();
            let Some(context) = context else {
                self.differ(format!("thread {:x} has no context", ours.system_id));
                continue;
            };
            let mut frames = theirs.frames.clone();
            set_first_ip(&mut frames, context.ip());
            self.stack(&format!("thread {:x}", ours.system_id), &frames, &context);
        }
    }

    fn stack(&mut self, what: &str, theirs: &[OracleFrame], context: &Context) {
        let physical = theirs.iter().filter(|f| !f.inline).count();
        if physical == 0 || theirs.first().is_some_and(|f| f.ip == 0) {
            return;
        }
        let stack = match self.target.stack(context, (physical + 16).min(256), &halt()) {
            Ok(stack) => stack,
            Err(error) => {
                self.differ(format!("{what}: no stack: {error}"));
                return;
            }
        };
        let mut at = 0;
        let mut before: Option<&OracleFrame> = None;
        let mut raw_before = false;
        for (index, frame) in theirs.iter().enumerate() {
            let same = |f: &Frame| {
                f.ip == frame.ip
                    && f.inline == frame.inline
                    && (frame.inline || context.machine.pointer_size() == 4 || f.sp == frame.sp)
            };
            match stack.frames[at..].iter().position(same) {
                Some(skipped) => {
                    // Where the oracle read raw words, ours may know better.
                    if skipped > 0 && !raw_before {
                        let extra: Vec<String> =
                            stack.frames[at..at + skipped].iter().map(describe).collect();
                        self.differ(format!("{what}: before #{index} {} ours has {extra:?}", frame.place));
                    }
                    let ours = stack.frames[at + skipped].clone();
                    self.place(what, index, frame, &ours);
                    at += skipped + 1;
                    raw_before = false;
                }
                None if is_raw_word(frame, before, context) => raw_before = true,
                None => {
                    let here = stack.frames.get(at).map(describe);
                    self.differ(format!(
                        "{what}: #{index} {} at {:x} (sp {:x}) is missing; ours there: {here:?}, end {:?}",
                        frame.place, frame.ip, frame.sp, stack.end
                    ));
                    break;
                }
            }
            if !frame.inline {
                before = Some(frame);
            }
        }
    }

    /// The name of a frame both have.
    fn place(&mut self, what: &str, index: usize, theirs: &OracleFrame, ours: &Frame) {
        let place = target::FrameInfo::new(index, ours).place();
        if place == theirs.place || theirs.place.starts_with("0x") {
            return;
        }
        // Names from export tables are the oracle's guesses; ours are bounded by unwind data.
        if let Attribution::Module { base, .. } = &ours.attribution {
            let state = self.target.symbol_status(*base, false).map(|s| s.state);
            let theirs_pdb =
                self.oracle.modules().iter().any(|m| m.start == *base && m.symbols.contains("pdb symbols"));
            if !theirs_pdb
                && matches!(state, Ok(SymbolState::Export | SymbolState::None))
                && ours.symbol.is_none()
            {
                return;
            }
        }
        self.differ(format!("{what}: #{index} is {place}, not {}", theirs.place));
    }
}

fn set_first_ip(frames: &mut [OracleFrame], ip: u64) {
    for frame in frames {
        frame.ip = ip;
        if !frame.inline {
            break;
        }
    }
}

fn describe(frame: &Frame) -> String {
    format!(
        "{} ip {:x} sp {:x} {:?}",
        target::FrameInfo::new(0, frame).place(),
        frame.ip,
        frame.sp,
        frame.found
    )
}

/// Without unwind data DbgEng takes every word of the stack for a frame.
fn is_raw_word(frame: &OracleFrame, before: Option<&OracleFrame>, context: &Context) -> bool {
    let nowhere = frame.place.starts_with("0x");
    let next_word = before.is_some_and(|b| frame.sp == b.sp + 8);
    nowhere || (context.machine.pointer_size() == 8 && next_word)
}

fn compare(data: &Path, dump: &str) -> Vec<String> {
    let Some(transcript) = oracle(data, dump) else { return vec!["no transcript".to_owned()] };
    let mut prepared = Prepared::new(data, dump);
    if dump.contains("cxx_eh_x64") {
        // The oracle ran where this dump was made and had the system's images.
        let Some(images) = shared::wine_images() else { return Vec::new() };
        prepared.options.image_path = Some(images);
    }
    let target = match engine_native::open(&prepared.path, &prepared.options) {
        Ok(target) => target,
        Err(_) if transcript.refused => return Vec::new(),
        Err(error) => return vec![format!("refused: {error}")],
    };
    if transcript.refused {
        return vec!["opens, the oracle refuses".to_owned()];
    }
    let mut c = Comparison { target: target.as_ref(), oracle: &transcript, differences: Vec::new() };
    c.times();
    c.event();
    c.bug_check();
    let kernel = target.facts().kind.is_kernel();
    let event_thread = target.selection().thread;
    let own = match event_thread {
        Some(id) => target.context(ContextOf::Thread(id), View::Default).ok().flatten(),
        None if kernel => target.context(ContextOf::Selected, View::Default).ok().flatten(),
        None => None,
    };
    c.registers("r", &transcript.registers(), own.as_ref());
    if let Some(context) = &own {
        c.stack("k", &transcript.stack(), context);
    }
    if !kernel {
        let stored = target.stored_event().unwrap().and_then(|e| e.context);
        c.registers(".ecxr", &transcript.exception_registers(), stored.as_ref());
        if let Some(context) = &stored {
            c.stack(".ecxr k", &transcript.exception_stack(), context);
        }
        c.threads();
    }
    // Last, so that symbol states are those the stacks led to.
    c.modules();
    c.differences
}

#[test]
fn every_dump_agrees_with_the_oracle() {
    let Some(data) = data() else { return };
    let only = std::env::var("ORACLE_ONLY").unwrap_or_default();
    let mut open = 0;
    let mut used = vec![shared::wine_images().is_none(); ACCEPTED.len()];
    for dump in dumps(&data).iter().filter(|d| d.contains(&only)) {
        for difference in compare(&data, dump) {
            let accepted =
                ACCEPTED.iter().position(|(d, text, _)| dump.contains(d) && difference.contains(text));
            match accepted {
                Some(row) => used[row] = true,
                None => {
                    open += 1;
                    println!("{dump}: {difference}");
                }
            }
        }
    }
    let idle: Vec<_> = ACCEPTED.iter().zip(&used).filter(|(_, used)| !**used).map(|(row, _)| row).collect();
    assert!(!only.is_empty() || idle.is_empty(), "accepted differences that no longer occur: {idle:?}");
    assert_eq!(open, 0, "differences that nobody accepted");
}
