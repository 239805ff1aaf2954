//! JSON to a batch, or everything that is wrong with it. Written by hand over the value, so that a
//! key no operation takes is refused with its place, the keys that would do and the nearest one.

use serde_json::{Map, Value};

use crate::step::{Batch, Check, CheckKind, Op, Restore, Step};
use crate::validate;

/// Finds the word of a list that is closest to a mistyped one.
pub type Nearest = for<'a> fn(&str, &[&'a str]) -> Option<&'a str>;

pub(crate) const MOST_STEPS: usize = 64;
pub(crate) const MOST_CHECKS: usize = 16;
/// Problems looked for; nobody mends more at once.
const MOST_PROBLEMS: usize = 16;
const LONGEST_COMMAND: usize = 65_536;
const LONGEST_TEXT: usize = 4096;
const LONGEST_LABEL: usize = 200;
/// 4096 bytes in hex.
const LONGEST_BYTES: usize = 8192;
const MOST_READ: u64 = 1 << 20;
const LONGEST_WAIT_MS: u64 = 3_600_000;

/// Reads the blocks and `timeout_ms` of `value`; other members (the session) are not looked at.
///
/// # Errors
/// Every problem found, at most 16, each naming block, step, key or field (spec 20 section 2.4).
pub fn parse(value: &Value, nearest: Nearest) -> Result<Batch, Vec<String>> {
    let mut parser = Parser { problems: Vec::new(), nearest };
    let steps = parser.block(value, "steps");
    let always = parser.block(value, "always");
    let timeout_ms = parser.timeout(value.get("timeout_ms"));
    if parser.problems.is_empty() && steps.is_empty() {
        parser.problems.push(format!("steps has 0 entries; it takes 1 to {MOST_STEPS}"));
    }
    let batch = Batch { steps, always, timeout_ms };
    if parser.problems.is_empty() {
        parser.problems = validate::problems(&batch);
    }
    parser.problems.truncate(MOST_PROBLEMS);
    if parser.problems.is_empty() { Ok(batch) } else { Err(parser.problems) }
}

struct Parser {
    problems: Vec<String>,
    nearest: Nearest,
}

/// One object and where it stands.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    place: String,
}

impl Fields<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }
}

/// An integer, also written as `64.0`.
fn integer(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|f| f.fract() == 0.0 && (0.0..9.0e15).contains(f))?;
        Some(float as u64)
    })
}

impl Parser {
    fn problem(&mut self, text: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(text);
        }
    }

    fn timeout(&mut self, value: Option<&Value>) -> Option<u64> {
        let value = value.filter(|value| !value.is_null())?;
        let read = integer(value);
        if read.is_none() {
            self.problem("timeout_ms must be an integer of milliseconds".to_owned());
        }
        read
    }

    fn block(&mut self, value: &Value, block: &'static str) -> Vec<Step> {
        let rows = match value.get(block) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(rows)) => rows,
            Some(_) => {
                self.problem(format!("{block} must be an array of steps"));
                return Vec::new();
            }
        };
        if rows.len() > MOST_STEPS {
            self.problem(format!("{block} has {} entries; at most {MOST_STEPS}", rows.len()));
            return Vec::new();
        }
        let numbered = rows.iter().enumerate();
        numbered.filter_map(|(index, row)| self.step(row, format!("{block}, step {}", index + 1))).collect()
    }

    fn step(&mut self, row: &Value, place: String) -> Option<Step> {
        let Value::Object(map) = row else {
            self.problem(format!("{place} must be an object with an op"));
            return None;
        };
        let names = Op::ALL.map(Op::name);
        let op = self.word(map, "op", &place, &names).and_then(|at| Op::ALL.get(at).copied())?;
        let fields = Fields { map, place: format!("{place} ({})", op.name()) };
        let (required, optional) = op.own();
        let allowed: Vec<&str> =
            [&["op"], required, optional, &["name", "expect"]].concat().into_iter().collect();
        self.keys(&fields, &allowed, op.name(), |key| {
            Op::ALL
                .into_iter()
                .find(|other| other.own().0.contains(&key) || other.own().1.contains(&key))
                .map(Op::name)
        });
        for key in required.iter().filter(|key| fields.get(key).is_none()) {
            self.problem(format!(
                "{}: {key} is missing; {} needs {}",
                fields.place,
                op.name(),
                required.join(", ")
            ));
        }
        Some(Step {
            op,
            name: self.text(&fields, "name", LONGEST_LABEL),
            command: self.text(&fields, "command", LONGEST_COMMAND),
            address: self.text(&fields, "address", LONGEST_TEXT),
            expr: self.text(&fields, "expr", LONGEST_TEXT),
            size: self.number(&fields, "size", MOST_READ).and_then(|size| u32::try_from(size).ok()),
            bytes: self.text(&fields, "bytes", LONGEST_BYTES),
            restore: self.restore(&fields),
            timeout_ms: self.number(&fields, "timeout_ms", LONGEST_WAIT_MS),
            capture: self.text(&fields, "capture", LONGEST_TEXT),
            expect: self.checks(&fields),
        })
    }

    /// Where the value of `key` stands in `words`.
    fn word(&mut self, map: &Map<String, Value>, key: &str, place: &str, words: &[&str]) -> Option<usize> {
        let value = map.get(key).and_then(Value::as_str);
        let at = value.and_then(|value| words.iter().position(|word| *word == value));
        if at.is_none() {
            let shown = match value {
                Some(word) => format!("{key} {:?} is not known", word.chars().take(64).collect::<String>()),
                None => format!("{key} is missing"),
            };
            let near = value.and_then(|value| (self.nearest)(value, words));
            let near = near.map(|near| format!(" (did you mean \"{near}\"?)")).unwrap_or_default();
            self.problem(format!("{place}: {shown}; it is one of {}{near}", words.join(", ")));
        }
        at
    }

    fn keys<'o>(
        &mut self,
        fields: &Fields<'_>,
        allowed: &[&str],
        what: &str,
        owner: impl Fn(&str) -> Option<&'o str>,
    ) {
        let unknown: Vec<&String> =
            fields.map.keys().filter(|key| !allowed.contains(&key.as_str())).collect();
        for key in unknown.into_iter().take(MOST_PROBLEMS) {
            let shown: String = key.chars().take(64).collect();
            let why = match owner(&shown) {
                Some(other) => format!("\"{shown}\" belongs to {other}"),
                None => format!("unknown key \"{shown}\""),
            };
            let near = (self.nearest)(&shown, allowed);
            let near = near.map(|near| format!(" (did you mean \"{near}\"?)")).unwrap_or_default();
            self.problem(format!("{}: {why}; {what} takes {}{near}", fields.place, allowed.join(", ")));
        }
    }

    fn text(&mut self, fields: &Fields<'_>, key: &str, most: usize) -> Option<String> {
        let value = fields.get(key)?;
        let Some(text) = value.as_str() else {
            self.problem(format!("{}: {key} must be a string", fields.place));
            return None;
        };
        let length = text.chars().count();
        if length > most {
            self.problem(format!("{}: {key} is {length} characters long; at most {most}", fields.place));
            return None;
        }
        Some(text.to_owned())
    }

    fn number(&mut self, fields: &Fields<'_>, key: &str, most: u64) -> Option<u64> {
        let value = fields.get(key)?;
        let number = integer(value).filter(|number| (1..=most).contains(number));
        if number.is_none() {
            self.problem(format!("{}: {key} must be an integer from 1 to {most}", fields.place));
        }
        number
    }

    fn restore(&mut self, fields: &Fields<'_>) -> Option<Restore> {
        fields.get("restore")?;
        let words = ["always", "on_failure", "never"];
        let at = self.word(fields.map, "restore", &fields.place, &words)?;
        [Restore::Always, Restore::OnFailure, Restore::Never].get(at).copied()
    }

    fn checks(&mut self, fields: &Fields<'_>) -> Vec<Check> {
        let rows = match fields.get("expect") {
            None => return Vec::new(),
            Some(Value::Array(rows)) => rows,
            Some(_) => {
                self.problem(format!("{}: expect must be an array of checks", fields.place));
                return Vec::new();
            }
        };
        if rows.len() > MOST_CHECKS {
            self.problem(format!(
                "{}: expect has {} checks; at most {MOST_CHECKS}",
                fields.place,
                rows.len()
            ));
            return Vec::new();
        }
        let numbered = rows.iter().enumerate();
        numbered
            .filter_map(|(index, row)| self.check(row, format!("{}, check {}", fields.place, index + 1)))
            .collect()
    }

    fn check(&mut self, row: &Value, place: String) -> Option<Check> {
        let Value::Object(map) = row else {
            self.problem(format!("{place} must be an object with a check"));
            return None;
        };
        let names = CheckKind::ALL.map(CheckKind::name);
        let kind = self.word(map, "check", &place, &names).and_then(|at| CheckKind::ALL.get(at).copied())?;
        let fields = Fields { map, place: format!("{place} ({})", kind.name()) };
        let allowed: Vec<&str> = [&["check"], kind.own()].concat();
        self.keys(&fields, &allowed, kind.name(), |key| {
            CheckKind::ALL.into_iter().find(|other| other.own().contains(&key)).map(CheckKind::name)
        });
        for key in kind.own().iter().filter(|key| fields.get(key).is_none()) {
            self.problem(format!("{}: {key} is missing", fields.place));
        }
        Some(Check {
            check: kind,
            text: self.text(&fields, "text", LONGEST_TEXT),
            expr: self.text(&fields, "expr", LONGEST_TEXT),
            // Of a `bytes` check it can be as long as what is read; beyond this an `eval` tells less.
            equals: self.text(&fields, "equals", LONGEST_BYTES),
        })
    }
}
