//! `k` and its letters, `.frame`, and the stack as text for whoever else needs it.

use target::{Context, Found, Frame, MemoryExt as _, Result, Stack, Target, TargetError, WalkEnd};

use crate::notation::{Notation, frame_place};
use crate::registers;
use crate::run::{FRAMES, FRAMES_LIMIT, Run, usage};

/// The longest cycle of frames that is collapsed (mutual recursion).
const CYCLE_LIMIT: usize = 8;
/// Repetitions before frames are collapsed.
const REPEATS: usize = 4;

/// What a row of the stack shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Frame numbers (`kn`).
    pub numbers: bool,
    /// The first words a callee sees as arguments (`kb`, `kv`).
    pub arguments: bool,
    /// Stack pointer and return address; without them only the call sites (`kc`).
    pub addresses: bool,
    /// Of 64-bit stacks with arguments, the stack pointer too (`kv`).
    pub stack_pointer: bool,
    /// Source files and lines (not `kL`).
    pub source: bool,
}

impl Default for Columns {
    fn default() -> Self {
        Self { numbers: false, arguments: false, addresses: true, stack_pointer: true, source: true }
    }
}

/// Whether a word is `k` with known letters: b v p P n L c.
pub(crate) fn is_stack_verb(verb: &str) -> bool {
    let Some(letters) = verb.strip_prefix(['k', 'K']) else { return false };
    letters.len() <= 5 && letters.chars().all(|c| "bBvVpPnNlLcC".contains(c))
}

fn columns(letters: &str) -> Columns {
    let has = |c: char| letters.contains(c) || letters.contains(c.to_ascii_uppercase());
    Columns {
        numbers: has('n'),
        arguments: has('b') || has('v'),
        addresses: !has('c'),
        stack_pointer: has('v') || !has('b'),
        source: !has('l'),
    }
}

/// `k [COUNT]` in all its spellings; `command` is the whole command.
pub(crate) fn k(run: &mut Run<'_>, command: &str) -> Result<()> {
    let end = command.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(command.len());
    let columns = columns(&command[1..end]);
    let mut rest = command[end..].trim();
    // kn may also be written `k n`.
    let mut numbers = columns.numbers;
    if let Some(after) = rest.strip_prefix(['n', 'N']).filter(|r| r.is_empty() || r.starts_with(' ')) {
        numbers = true;
        rest = after.trim();
    }
    if rest.starts_with('=') {
        return Err(TargetError::unsupported(
            "command_form",
            "k = BASE STACK IP is not served: set a context with .cxr or .trap, then k",
        ));
    }
    let count = match rest {
        "" => FRAMES,
        text => usize::try_from(run.evaluate(text.trim_start_matches(['L', 'l']))?).unwrap_or(usize::MAX),
    };
    if count == 0 || count > FRAMES_LIMIT {
        return Err(usage(format!("a frame count is 1 to {FRAMES_LIMIT:#x}")));
    }
    if run.session.context.is_some() {
        run.say("  *** Stack trace for last set context - .thread/.cxr resets it");
    }
    let stack = run.stack(count)?;
    let text = stack_text(run.target, &stack, Columns { numbers, ..columns });
    run.say_block(&text);
    match stack.end {
        WalkEnd::Interrupted => Err(TargetError::Interrupted),
        WalkEnd::Deadline => Err(TargetError::Deadline("the stack walk")),
        _ => Ok(()),
    }
}

/// A walked stack as WinDbg prints it. Long runs of equal frames are collapsed; guesses and lost walks
/// are marked.
#[must_use]
pub fn stack_text(target: &dyn Target, stack: &Stack, columns: Columns) -> String {
    let machine = stack
        .frames
        .iter()
        .find_map(|f| f.context.as_ref().map(|c| c.machine))
        .unwrap_or_else(|| target.facts().machine);
    let rows = Rows { target, notation: Notation::of(machine), frames: &stack.frames, columns };
    let mut text = rows.header();
    let sites: Vec<String> = stack.frames.iter().map(|f| frame_place(target, rows.notation, f)).collect();
    let (mut warned, mut scanned) = (false, false);
    let mut index = 0;
    while index < stack.frames.len() {
        if !scanned && stack.frames[index].found == Found::Scan {
            scanned = true;
            text.push_str(
                "WARNING: The following frames were found by scanning the stack: guesses, not a walk.\n",
            );
        } else if !warned && !scanned && rows.lacks_unwind_data(index) {
            warned = true;
            text.push_str(
                "WARNING: Stack unwind information not available. Following frames may be wrong.\n",
            );
        }
        let (cycle, repeats) = repetition(&sites[index..]);
        for (offset, site) in sites[index..index + cycle].iter().enumerate() {
            text.push_str(&rows.row(index + offset, site));
            text.push('\n');
        }
        if repeats > 1 {
            let which = if cycle == 1 { "frame".to_owned() } else { format!("{cycle} frames") };
            text.push_str(&format!("      … the {which} above repeated {} times\n", repeats - 1));
        }
        index += cycle * repeats;
    }
    match stack.end {
        WalkEnd::Lost(why) => text.push_str(&format!("(the walk ends here: {why})\n")),
        // Taken for a leaf, with no more reason than that nothing covers it.
        WalkEnd::Outermost if rows.alone_and_bare() => {
            text.push_str("(the walk ends here: no unwind data covers this function)\n");
        }
        _ => {}
    }
    text
}

/// The length of a cycle the sites start with and how often it comes in a row; `(1, 1)` for none
/// worth collapsing.
fn repetition(sites: &[String]) -> (usize, usize) {
    for cycle in 1..=CYCLE_LIMIT.min(sites.len() / REPEATS) {
        let equal = sites.iter().zip(&sites[cycle..]).take_while(|(a, b)| a == b).count();
        let repeats = 1 + equal / cycle;
        if repeats > REPEATS {
            return (cycle, repeats);
        }
    }
    (1, 1)
}

struct Rows<'a> {
    target: &'a dyn Target,
    notation: Notation,
    frames: &'a [Frame],
    columns: Columns,
}

impl Rows<'_> {
    fn header(&self) -> String {
        let numbers = if self.columns.numbers { " # " } else { "" };
        let columns = match (self.columns.addresses, self.columns.arguments, self.notation.is_32_bit()) {
            (false, ..) => "Call Site".to_owned(),
            (true, false, true) => "ChildEBP RetAddr  ".to_owned(),
            (true, true, true) => "ChildEBP RetAddr  Args to Child              ".to_owned(),
            (true, false, false) => "Child-SP          RetAddr           Call Site".to_owned(),
            (true, true, false) => {
                let sp = if self.columns.stack_pointer { "Child-SP          " } else { "" };
                format!("{sp}RetAddr           : {:<72}: Call Site", "Args to Child")
            }
        };
        format!("{numbers}{columns}\n")
    }

    fn row(&self, index: usize, site: &str) -> String {
        let frame = &self.frames[index];
        let number = if self.columns.numbers { format!("{index:02x} ") } else { String::new() };
        let source = match &frame.source {
            Some(source) if self.columns.source => format!(" [{} @ {}] ", source.file, source.line),
            _ => String::new(),
        };
        let scan = if frame.found == Found::Scan { " (scan)" } else { "" };
        if !self.columns.addresses {
            return format!("{number}{site}{scan}{source}");
        }
        let blank = if self.notation.is_32_bit() { "--------" } else { "--------`--------" };
        let (sp, ret) = match (frame.inline, self.notation.is_32_bit()) {
            (true, true) => ("(Inline)".to_owned(), blank.to_owned()),
            (true, false) => ("(Inline Function)".to_owned(), blank.to_owned()),
            (false, true) => {
                (self.notation.address(self.child_ebp(index)), self.notation.address(frame.return_address))
            }
            (false, false) => (self.notation.address(frame.sp), self.notation.address(frame.return_address)),
        };
        if !self.columns.arguments {
            return format!("{number}{sp} {ret} {site}{scan}{source}");
        }
        let arguments = if frame.inline {
            let count = if self.notation.is_32_bit() { 3 } else { 4 };
            vec![blank.to_owned(); count].join(" ")
        } else {
            self.arguments(index)
        };
        if self.notation.is_32_bit() {
            return format!("{number}{sp} {ret} {arguments} {site}{scan}{source}");
        }
        match (self.columns.stack_pointer, frame.inline) {
            (true, _) => format!("{number}{sp} {ret} : {arguments} : {site}{scan}{source}"),
            (false, true) => format!("{number}{sp} : {arguments} : {site}{scan}{source}"),
            (false, false) => format!("{number}{ret} : {arguments} : {site}{scan}{source}"),
        }
    }

    /// The stack pointer once this frame's function has returned: the next physical frame's.
    fn caller_sp(&self, index: usize) -> Option<u64> {
        self.frames[index + 1..].iter().find(|f| !f.inline).map(|f| f.sp)
    }

    /// Where the frame pointer of an x86 frame is or would be: two words below the caller's stack
    /// pointer, checked against the return address that must lie between.
    fn child_ebp(&self, index: usize) -> u64 {
        let frame = &self.frames[index];
        let fp = frame.context.as_ref().and_then(|c| c.fp());
        let holds_return = |ebp: &u64| {
            self.target.read_u32(ebp.wrapping_add(4)).is_ok_and(|w| u64::from(w) == frame.return_address)
        };
        let from_caller = self.caller_sp(index).map(|sp| sp.wrapping_sub(8));
        fp.filter(|_| frame.return_address != 0 || from_caller.is_none())
            .filter(holds_return)
            .or(from_caller.filter(holds_return))
            .or(from_caller)
            .or(fp)
            .unwrap_or(frame.sp)
    }

    fn arguments(&self, index: usize) -> String {
        let (start, count, size) = if self.notation.is_32_bit() {
            (Some(self.child_ebp(index).wrapping_add(8)), 3, 4u8)
        } else {
            (self.caller_sp(index), 4, 8u8)
        };
        let word = |n: u64| {
            let at = start?.wrapping_add(n * u64::from(size));
            self.target.read_pointer(at, size).ok().map(|w| self.notation.address(w))
        };
        let unknown = if size == 4 { "????????" } else { "????????`????????" };
        let words: Vec<String> = (0..count).map(|n| word(n).unwrap_or_else(|| unknown.to_owned())).collect();
        words.join(" ")
    }

    /// Whether the way from this frame to its caller was found without unwind data.
    /// Whether the only frame is in code that nothing is known of.
    fn alone_and_bare(&self) -> bool {
        let mut physical = self.frames.iter().filter(|frame| !frame.inline);
        let (first, more) = (physical.next(), physical.next());
        let bare =
            |f: &Frame| f.symbol.is_none() && !matches!(self.target.function_bounds(f.ip), Ok(Some(_)));
        first.is_some_and(bare) && more.is_none()
    }

    fn lacks_unwind_data(&self, index: usize) -> bool {
        let frame = &self.frames[index];
        if frame.inline || frame.symbol.is_some() {
            return false;
        }
        let caller = self.frames[index + 1..].iter().find(|f| !f.inline);
        caller.is_some_and(|c| matches!(c.found, Found::FramePointer | Found::Scan))
    }
}

/// `.frame [/c] [/r] [NUMBER]`: shows a frame and makes it the one `dv` works on.
pub(crate) fn frame(run: &mut Run<'_>, arguments: &str) -> Result<()> {
    let (mut show_registers, mut set_context, mut number) = (false, false, None);
    for word in arguments.split_whitespace() {
        match word {
            "/r" => show_registers = true,
            "/c" => set_context = true,
            _ if word.starts_with('/') => {
                return Err(usage(format!("{word}: only .frame /r and /c are served")));
            }
            _ => number = Some(usize::try_from(run.evaluate(word)?).unwrap_or(usize::MAX)),
        }
    }
    let index = number.unwrap_or(run.session.frame);
    let stack = run.stack(index.saturating_add(2).min(FRAMES_LIMIT))?;
    let Some(frame) = stack.frames.get(index) else {
        return Err(TargetError::failed_because(
            "no_frame",
            format!("Cannot find frame {index:#x}, previous scope unchanged"),
        ));
    };
    let notation = run.notation();
    let rows = Rows {
        target: run.target,
        notation,
        frames: &stack.frames,
        columns: Columns { numbers: true, ..Columns::default() },
    };
    let line = rows.row(index, &frame_place(run.target, notation, frame));
    run.say(line);
    run.session.frame = index;
    if !show_registers && !set_context {
        return Ok(());
    }
    let context: Context = match &frame.context {
        Some(context) => (**context).clone(),
        None => {
            return Err(TargetError::failed_because(
                "no_context",
                "the registers of this frame are not known",
            ));
        }
    };
    if set_context {
        run.session.context = Some(context.clone());
        run.session.frame = 0;
    }
    registers::block(run, &context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles() {
        let sites = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        assert_eq!(repetition(&sites("aaaaaab")), (1, 6));
        assert_eq!(repetition(&sites("abababababab")), (2, 6));
        assert_eq!(repetition(&sites("abababababac")), (2, 5));
        assert_eq!(repetition(&sites("aaab")), (1, 1));
        assert_eq!(repetition(&sites("")), (1, 1));
        assert_eq!(repetition(&sites("abcd")), (1, 1));
    }

    #[test]
    fn letters() {
        assert!(is_stack_verb("kvn") && is_stack_verb("k") && is_stack_verb("kPL"));
        assert!(!is_stack_verb("kd") && !is_stack_verb("xk") && !is_stack_verb("kbbbbbb"));
        assert!(!columns("L").source && columns("b").source);
        assert!(!columns("b").stack_pointer && columns("v").stack_pointer);
    }
}
