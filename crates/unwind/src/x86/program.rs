//! FrameData programs: postfix over 32-bit variables, `^` reads memory, `=` assigns
//! (`$T0 .raSearch = $eip $T0 ^ = $esp $T0 4 + =`).

use std::collections::{HashMap, HashSet};

/// Reads a 32-bit word of the target.
pub type Machine<'a> = &'a dyn Fn(u32) -> Option<u32>;

/// Longest program evaluated, in tokens; real ones have some thirty.
const MAX_TOKENS: usize = 512;

/// Why a program gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramError {
    Malformed,
    /// A variable was used that has no value.
    Undefined,
    Unreadable(u32),
}

enum Value<'a> {
    Number(u32),
    Variable(&'a str),
}

/// Runs `text` and changes `variables`; answers the names it assigned.
pub fn evaluate<'a>(
    text: &'a str,
    variables: &mut HashMap<String, u32>,
    read: Machine<'_>,
) -> Result<HashSet<&'a str>, ProgramError> {
    let mut stack: Vec<Value<'a>> = Vec::new();
    let mut assigned = HashSet::new();
    for token in tokens(text).take(MAX_TOKENS) {
        match token {
            "+" | "-" | "*" | "/" | "%" | "@" => {
                let right = number(stack.pop(), variables)?;
                let left = number(stack.pop(), variables)?;
                stack.push(Value::Number(arithmetic(token, left, right)?));
            }
            "^" => {
                let address = number(stack.pop(), variables)?;
                let value = read(address).ok_or(ProgramError::Unreadable(address))?;
                stack.push(Value::Number(value));
            }
            "=" => {
                let value = number(stack.pop(), variables)?;
                let Some(Value::Variable(name)) = stack.pop() else { return Err(ProgramError::Malformed) };
                variables.insert(name.to_owned(), value);
                assigned.insert(name);
            }
            _ if token.starts_with(['$', '.']) => stack.push(Value::Variable(register(token))),
            _ => stack.push(Value::Number(literal(token)?)),
        }
    }
    if stack.is_empty() { Ok(assigned) } else { Err(ProgramError::Malformed) }
}

/// Compilers run operators and names together (`+ =$eip $T0`), so an operator always ends a token.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        let first = rest.chars().next()?;
        let negative = first == '-' && rest[1..].starts_with(|c: char| c.is_ascii_digit());
        let length = if OPERATORS.contains(&first) && !negative {
            1
        } else {
            let skip = first.len_utf8();
            rest[skip..]
                .find(|c: char| c.is_ascii_whitespace() || OPERATORS.contains(&c))
                .map_or(rest.len(), |end| skip + end)
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        Some(token)
    })
}

const OPERATORS: [char; 8] = ['+', '-', '*', '/', '%', '@', '^', '='];

/// Names of registers that are written by CodeView number (cvconst.h).
fn register(name: &str) -> &str {
    match name {
        "$20" => "$ebx",
        "$21" => "$esp",
        "$22" => "$ebp",
        "$23" => "$esi",
        "$24" => "$edi",
        "$33" => "$eip",
        other => other,
    }
}

fn number(value: Option<Value<'_>>, variables: &HashMap<String, u32>) -> Result<u32, ProgramError> {
    match value {
        Some(Value::Number(number)) => Ok(number),
        Some(Value::Variable(name)) => variables.get(name).copied().ok_or(ProgramError::Undefined),
        None => Err(ProgramError::Malformed),
    }
}

fn arithmetic(operator: &str, left: u32, right: u32) -> Result<u32, ProgramError> {
    match operator {
        "+" => Ok(left.wrapping_add(right)),
        "-" => Ok(left.wrapping_sub(right)),
        "*" => Ok(left.wrapping_mul(right)),
        "/" => left.checked_div(right).ok_or(ProgramError::Malformed),
        "%" => left.checked_rem(right).ok_or(ProgramError::Malformed),
        // Aligns down.
        _ => Ok(left & right.wrapping_neg()),
    }
}

/// Decimal, or hexadecimal with `0x`; negative numbers wrap.
fn literal(token: &str) -> Result<u32, ProgramError> {
    let (negative, digits) = match token.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, token),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let value = value.map_err(|_| ProgramError::Malformed)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_a_real_pdb() {
        let text = "$T0 $ebp = $eip $T0 4 + ^ = $ebp $T0 ^ = $esp $T0 8 + = $ebx $T0 28 - ^ =";
        let mut variables = HashMap::from([("$ebp".to_owned(), 0x1000)]);
        let memory = HashMap::from([(0x1000u32, 0x1100u32), (0x1004, 0x401234), (0xfe4, 7)]);
        let assigned = evaluate(text, &mut variables, &|a| memory.get(&a).copied()).unwrap();
        assert_eq!(variables["$eip"], 0x401234);
        assert_eq!(variables["$ebp"], 0x1100);
        assert_eq!(variables["$esp"], 0x1008);
        assert_eq!(variables["$ebx"], 7);
        assert!(assigned.contains("$ebx") && !assigned.contains("$esi"));
    }

    #[test]
    fn names_run_into_operators_and_registers_have_numbers() {
        let text = "$T0 $ebp 204 + =$eip $T0 4 + ^ =  $20 $T0 -4 + ^ =";
        let mut variables = HashMap::from([("$ebp".to_owned(), 0x1000)]);
        let assigned = evaluate(text, &mut variables, &|a| Some(a)).unwrap();
        assert_eq!((variables["$eip"], variables["$ebx"]), (0x10d0, 0x10c8));
        assert!(assigned.contains("$ebx"));
    }

    #[test]
    fn broken_programs_are_refused() {
        let run = |text: &str| evaluate(text, &mut HashMap::new(), &|_| None).err();
        assert_eq!(run("1 +"), Some(ProgramError::Malformed));
        assert_eq!(run("$T0 $T1 ="), Some(ProgramError::Undefined));
        assert_eq!(run("$T0 4 ^ ="), Some(ProgramError::Unreadable(4)));
        assert_eq!(run("$T0 1 0 / ="), Some(ProgramError::Malformed));
        assert_eq!(run("1"), Some(ProgramError::Malformed));
        assert_eq!(run("$T0 15 8 @ ="), None);
    }
}
