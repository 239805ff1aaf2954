//! What went wrong in an expression, where, in WinDbg's words where it has them.

use target::TargetError;

/// An expression that has no value. Positions are byte offsets into the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("Couldn't resolve error at '{token}'")]
    Unresolved { token: String, position: usize },
    #[error("Bad register error at '{token}'")]
    NoRegister { token: String, position: usize },
    #[error("Syntax error at '{token}': {expected}")]
    Syntax { token: String, position: usize, expected: &'static str },
    #[error("Numeric value too large error in '{token}'")]
    TooLarge { token: String, position: usize },
    #[error("Divide by zero error")]
    DivideByZero { position: usize },
    #[error("'{token}' is not served here: {why}")]
    NotServed { token: String, position: usize, why: &'static str },
    #[error("the expression is too {0}")]
    TooMuch(&'static str),
    /// The target could not answer: memory, registers or symbols.
    #[error("Memory access error at '{token}': {source}")]
    Target { token: String, position: usize, source: TargetError },
}

impl ExpressionError {
    /// Where in the text, as a byte offset.
    #[must_use]
    pub fn position(&self) -> usize {
        match self {
            Self::Unresolved { position, .. }
            | Self::NoRegister { position, .. }
            | Self::Syntax { position, .. }
            | Self::TooLarge { position, .. }
            | Self::DivideByZero { position }
            | Self::NotServed { position, .. }
            | Self::Target { position, .. } => *position,
            Self::TooMuch(_) => 0,
        }
    }

    /// The name without an address, as it stands in the text.
    #[must_use]
    pub fn unresolved(&self) -> Option<&str> {
        match self {
            Self::Unresolved { token, .. } => Some(token),
            _ => None,
        }
    }

    /// The text with a caret below the position, then the message; of a long text what is around
    /// the position.
    #[must_use]
    pub fn with_caret(&self, text: &str) -> String {
        let before = text.get(..self.position()).unwrap_or(text);
        let column = before.chars().count();
        let skipped = if text.chars().count() > SHOWN { column.saturating_sub(SHOWN / 2) } else { 0 };
        let window: String = text.chars().skip(skipped).take(SHOWN).collect();
        format!("{window}\n{:>width$} {}", "^", short(self), width = column - skipped + 1)
    }
}

/// Characters of an expression, or of what is wrong with it, that a message shows.
const SHOWN: usize = 240;

fn short(error: &ExpressionError) -> String {
    let whole = error.to_string();
    match whole.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &whole[..end]),
        None => whole,
    }
}

impl From<ExpressionError> for TargetError {
    fn from(error: ExpressionError) -> Self {
        let message = short(&error);
        match error {
            ExpressionError::Target { source, .. } => source,
            ExpressionError::Unresolved { .. } => Self::failed_because("unresolved_symbol", message),
            ExpressionError::NotServed { .. } => Self::unsupported("expression_form", message),
            _ => Self::InvalidArgument(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shown_around_the_position() {
        let text = format!("{}?{}", "1+".repeat(20_000), "+1".repeat(20_000));
        let error =
            ExpressionError::Syntax { token: "x".repeat(9000), position: 40_000, expected: "a number" };
        let shown = error.with_caret(&text);
        assert!(shown.len() < 1000, "{} bytes", shown.len());
        let (line, below) = shown.split_once('\n').unwrap();
        assert_eq!(line.chars().nth(below.find('^').unwrap()), Some('?'), "{shown}");
        let short = ExpressionError::DivideByZero { position: 1 };
        assert_eq!(short.with_caret("1/0"), "1/0\n ^ Divide by zero error");
    }
}
