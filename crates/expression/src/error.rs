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

    /// The text with a caret below the position, then the message.
    #[must_use]
    pub fn with_caret(&self, text: &str) -> String {
        let before = text.get(..self.position()).unwrap_or(text);
        let column = before.chars().count();
        format!("{text}\n{:>width$} {self}", "^", width = column + 1)
    }
}

impl From<ExpressionError> for TargetError {
    fn from(error: ExpressionError) -> Self {
        let message = error.to_string();
        match error {
            ExpressionError::Target { source, .. } => source,
            ExpressionError::Unresolved { .. } => Self::failed_because("unresolved_symbol", message),
            ExpressionError::NotServed { .. } => Self::unsupported("expression_form", message),
            _ => Self::InvalidArgument(message),
        }
    }
}
