//! The assertions of a step.

use std::time::Duration;

use crate::act::{Acted, dump, guarded, verdict_word};
use crate::step::{Check, CheckKind, Step};
use crate::subject::{Failure, Subject};
use crate::validate::hex;

/// How the checks of a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    Hold,
    /// Something was learned about the target: it is not so.
    Unmet(String),
    /// Nothing was learned.
    Failed(String),
}

const NO_TIME: &str = "ran out of time before its assertions could be checked";

/// Asks the checks in order; the first that does not hold ends them.
pub(crate) fn checked(subject: &mut dyn Subject, step: &Step, acted: &Acted, deadline: Duration) -> Checked {
    let text = if step.expect.iter().any(of_text) { text(acted) } else { String::new() };
    for (index, check) in step.expect.iter().enumerate() {
        let asked = guarded(|| one(subject, check, acted, &text, deadline)).unwrap_or_else(Checked::Failed);
        match asked {
            Checked::Hold => {}
            Checked::Unmet(why) => return Checked::Unmet(format!("check {}: {why}", index + 1)),
            Checked::Failed(why) if why == NO_TIME => return Checked::Failed(why),
            Checked::Failed(why) => return Checked::Failed(format!("check {}: {why}", index + 1)),
        }
    }
    Checked::Hold
}

fn of_text(check: &Check) -> bool {
    matches!(check.check, CheckKind::Contains | CheckKind::NotContains)
}

/// The whole output, lower case: of a read all of it, of an evaluation its value.
fn text(acted: &Acted) -> String {
    let mut text = match &acted.bytes {
        Some(bytes) if acted.beyond > 0 => dump(0, bytes),
        _ => acted.done.output.clone(),
    };
    if let Some(value) = acted.value {
        text.push_str(&format!("{value:#018x}"));
    }
    text.make_ascii_lowercase();
    text
}

fn no_time(subject: &dyn Subject, deadline: Duration) -> bool {
    subject.elapsed() >= deadline
}

fn one(subject: &mut dyn Subject, check: &Check, acted: &Acted, text: &str, deadline: Duration) -> Checked {
    if no_time(subject, deadline) {
        return Checked::Failed(NO_TIME.to_owned());
    }
    let equals = check.equals.as_deref().unwrap_or_default();
    match check.check {
        CheckKind::Contains | CheckKind::NotContains => {
            let wanted = check.text.as_deref().unwrap_or_default();
            let found = text.contains(&wanted.to_ascii_lowercase());
            match (found, check.check == CheckKind::Contains) {
                (true, true) | (false, false) => Checked::Hold,
                (true, false) => Checked::Unmet(format!("the output contains {wanted:?}")),
                (false, true) => Checked::Unmet(format!("the output does not contain {wanted:?}")),
            }
        }
        CheckKind::Verdict => match acted.done.verdict.map(verdict_word) {
            Some(word) if word == equals => Checked::Hold,
            Some(word) => Checked::Unmet(format!("the verdict is {word}, not {equals}")),
            None => Checked::Failed("there is no verdict".to_owned()),
        },
        CheckKind::Bytes => bytes(acted, equals),
        CheckKind::Eval => {
            let expr = check.expr.as_deref().unwrap_or_default();
            evaluated(subject, expr, equals, deadline)
        }
    }
}

fn bytes(acted: &Acted, equals: &str) -> Checked {
    let (Some(read), Ok(wanted)) = (&acted.bytes, hex(equals)) else {
        return Checked::Failed("there are no bytes to compare".to_owned());
    };
    if *read == wanted {
        return Checked::Hold;
    }
    if read.len() != wanted.len() {
        return Checked::Unmet(format!("{} bytes were read, {} are to be equal", read.len(), wanted.len()));
    }
    let at = read.iter().zip(&wanted).position(|(a, b)| a != b).unwrap_or_default();
    Checked::Unmet(format!("byte {at} is {:02x}, not {:02x}", read[at], wanted[at]))
}

/// Parentheses, so that `@rcx > 0x1000` can equal 1.
fn evaluated(subject: &mut dyn Subject, expr: &str, equals: &str, deadline: Duration) -> Checked {
    let mut half = |text: &str| -> Result<u64, Checked> {
        // No floor here: that is for what must run.
        let left = deadline.saturating_sub(subject.elapsed());
        if left.is_zero() {
            return Err(Checked::Failed(NO_TIME.to_owned()));
        }
        let said = |failure: Failure| Checked::Failed(format!("{text} has no value: {}", failure.message));
        subject.eval(&format!("({text})"), left).map_err(said)
    };
    let values = half(expr).and_then(|left| Ok((left, half(equals)?)));
    match values {
        Err(why) => why,
        Ok((left, right)) if left == right => Checked::Hold,
        Ok((left, right)) => Checked::Unmet(format!("{expr} is {left:#x}, not {right:#x} ({equals})")),
    }
}
