//! The one table of accepted differences between the native engine and Microsoft's DbgEng. A row says
//! where it holds and why the two may differ there; a row that nothing needs any more is a failure of
//! the test, so that the table stays what it says.

use crate::fields::Difference;
use crate::glob::fits;

/// A difference somebody looked at.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Dump, question and field; `*` is any run of characters.
    pub dump: &'static str,
    pub question: &'static str,
    pub field: &'static str,
    /// What the two values must be besides.
    pub when: fn(&Difference) -> bool,
    /// Why it stands, for a debugger engineer.
    pub because: &'static str,
}

impl Row {
    fn covers(&self, dump: &str, difference: &Difference) -> bool {
        fits(self.dump, dump)
            && fits(self.question, &difference.question)
            && fits(self.field, &difference.field)
            && (self.when)(difference)
    }
}

/// The index of the first row that covers a difference of `dump`.
#[must_use]
pub fn accepted(dump: &str, difference: &Difference) -> Option<usize> {
    ACCEPTED.iter().position(|row| row.covers(dump, difference))
}

/// Whatever the values are.
fn any(_: &Difference) -> bool {
    true
}

pub const ACCEPTED: &[Row] = &[];
