//! One line being run: the target, the session, and the text so far.

use std::fmt::Write as _;

use target::{Context, ContextOf, Halt, Result, Selection, Stack, Target, TargetError, TargetKind, View};

use expression::TargetScope;

use crate::notation::Notation;
use crate::session::Session;

/// Bytes of output kept (spec 10 section 6.10).
const OUTPUT_LIMIT: usize = 8 << 20;
/// Frames of a stack unless a count is given.
pub(crate) const FRAMES: usize = 0x100;
/// The largest frame count a command may ask for.
pub(crate) const FRAMES_LIMIT: usize = 0xffff;

pub(crate) struct Run<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) target: &'a dyn Target,
    pub(crate) halt: &'a Halt,
    /// The selected thread's own registers, see [`Run::own_registers`].
    base: Option<Context>,
    text: String,
    full: bool,
}

impl<'a> Run<'a> {
    pub(crate) fn new(session: &'a mut Session, target: &'a dyn Target, halt: &'a Halt) -> Self {
        let base = Self::own_registers(target);
        Self { session, target, halt, base, text: String::new(), full: false }
    }

    /// The registers a thread of a dump was saved with. Those stored with its exception are what other
    /// tools show; a debugger's commands see them after `.ecxr` only.
    fn own_registers(target: &dyn Target) -> Option<Context> {
        if target.facts().kind != TargetKind::UserDump {
            return None;
        }
        let thread = target.selection().thread?;
        target.context(ContextOf::Thread(thread), View::Default).ok().flatten()
    }

    /// Selects, and the registers with it.
    pub(crate) fn select(&mut self, selection: Selection) -> Result<()> {
        self.target.select(selection)?;
        self.base = Self::own_registers(self.target);
        Ok(())
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// One line of output.
    pub(crate) fn say(&mut self, line: impl std::fmt::Display) {
        if !self.full {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "{line}");
            self.full = self.text.len() > OUTPUT_LIMIT;
        }
    }
    /// Text that brings its own line breaks.
    pub(crate) fn say_block(&mut self, block: &str) {
        if !self.full {
            self.text.push_str(block);
            self.full = self.text.len() > OUTPUT_LIMIT;
        }
    }

    /// Whether to go on: loops ask once a row.
    pub(crate) fn check(&self) -> Result<()> {
        if self.full {
            return Err(TargetError::Deadline("the output"));
        }
        self.halt.check("the command")
    }

    /// The registers commands work on.
    pub(crate) fn context(&self) -> Result<Context> {
        if let Some(context) = &self.session.context {
            return Ok(context.clone());
        }
        self.selected_context()
    }
    pub(crate) fn selected_context(&self) -> Result<Context> {
        if let Some(own) = &self.base {
            return Ok(own.clone());
        }
        self.target
            .context(ContextOf::Selected, View::Default)?
            .ok_or_else(|| TargetError::failed_because("no_context", "there are no registers on this target"))
    }
    pub(crate) fn stack(&self, limit: usize) -> Result<Stack> {
        self.target.stack(&self.context()?, limit, self.halt)
    }
    pub(crate) fn notation(&self) -> Notation {
        Notation::of(self.session.context.as_ref().map_or(self.target.facts().machine, |c| c.machine))
    }

    pub(crate) fn evaluate(&self, text: &str) -> Result<u64> {
        let text = text.trim();
        if text == "." {
            return Ok(self.context()?.ip());
        }
        expression::evaluate(text, &self.scope()).map_err(|e| named(self.target, e, text))
    }
    /// The expression `text` starts with, and what follows it.
    pub(crate) fn evaluate_prefix<'t>(&self, text: &'t str) -> Result<(u64, &'t str)> {
        let text = text.trim_start();
        // The current instruction, as in `u .` and `ub . L4`.
        if let Some(rest) =
            text.strip_prefix('.').filter(|r| r.is_empty() || r.starts_with(char::is_whitespace))
        {
            return Ok((self.context()?.ip(), rest.trim_start()));
        }
        let (value, used) =
            expression::evaluate_prefix(text, &self.scope()).map_err(|e| named(self.target, e, text))?;
        Ok((value, text[used..].trim_start()))
    }
    pub(crate) fn scope(&self) -> TargetScope<'_> {
        TargetScope::new(self.target, self.halt)
            .with_context(self.session.context.as_ref().or(self.base.as_ref()))
            .with_user_registers(&self.session.user_registers)
    }
}

/// The error with the expression under a caret, except where the target itself failed.
fn named(target: &dyn Target, error: expression::ExpressionError, text: &str) -> TargetError {
    let mut shown = error.with_caret(text);
    if let Some(name) = error.unresolved() {
        shown.push_str(&format!("\n({})", expression::why_unresolved(target, name)));
    }
    match TargetError::from(error) {
        TargetError::InvalidArgument(_) => TargetError::InvalidArgument(shown),
        TargetError::Failed { reason: Some("unresolved_symbol"), .. } => {
            TargetError::failed_because("unresolved_symbol", shown)
        }
        other => other,
    }
}

/// A refusal of arguments.
pub(crate) fn usage(text: impl Into<String>) -> TargetError {
    TargetError::InvalidArgument(text.into())
}
