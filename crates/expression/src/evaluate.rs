//! The evaluator: precedence climbing over 64-bit unsigned arithmetic, as the debugger's MASM
//! evaluator does it. Depth and length are bounded.

use crate::error::ExpressionError;
use crate::scope::Scope;
use crate::token::{self, Number};

/// Bytes of an expression.
const LENGTH_LIMIT: usize = 4096;
/// Nested parentheses and unary operators.
const DEPTH_LIMIT: usize = 64;

type Result<T> = std::result::Result<T, ExpressionError>;

/// The value of the whole text. On a 32-bit scope a negative result is cut to 32 bits.
pub fn evaluate(text: &str, scope: &dyn Scope) -> Result<u64> {
    let mut parser = Parser::new(text, scope)?;
    let value = parser.binary(0)?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.syntax("an operator or the end"));
    }
    Ok(narrow(value, scope))
}

/// The value of the longest expression `text` starts with, and the bytes it took. What follows (`L10`
/// after an address) is the caller's.
pub fn evaluate_prefix(text: &str, scope: &dyn Scope) -> Result<(u64, usize)> {
    let mut parser = Parser::new(text, scope)?;
    let value = parser.binary(0)?;
    Ok((narrow(value, scope), parser.at))
}

/// Addresses of 32-bit targets are zero-extended everywhere.
fn narrow(value: u64, scope: &dyn Scope) -> u64 {
    if scope.pointer_size() == 4 && value >= 0xffff_ffff_8000_0000 { value & 0xffff_ffff } else { value }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Or,
    Xor,
    And,
    Equal,
    NotEqual,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// Longest first. Binding strengths are those of the debugger's help ("MASM Numbers and Operators").
const OPERATORS: [(&str, Op, u8); 22] = [
    (">>>", Op::ShiftRightSigned, 5),
    (">>", Op::ShiftRight, 5),
    ("<<", Op::ShiftLeft, 5),
    (">=", Op::GreaterOrEqual, 4),
    ("<=", Op::LessOrEqual, 4),
    ("==", Op::Equal, 4),
    ("!=", Op::NotEqual, 4),
    ("=", Op::Equal, 4),
    (">", Op::Greater, 4),
    ("<", Op::Less, 4),
    ("+", Op::Add, 6),
    ("-", Op::Subtract, 6),
    ("*", Op::Multiply, 7),
    ("/", Op::Divide, 7),
    ("%", Op::Modulo, 7),
    ("&", Op::And, 3),
    ("^", Op::Xor, 2),
    ("|", Op::Or, 1),
    ("mod", Op::Modulo, 7),
    ("and", Op::And, 3),
    ("xor", Op::Xor, 2),
    ("or", Op::Or, 1),
];

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    scope: &'a dyn Scope,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, scope: &'a dyn Scope) -> Result<Self> {
        if text.len() > LENGTH_LIMIT {
            return Err(ExpressionError::TooMuch("long (4096 bytes at most)"));
        }
        Ok(Self { text, at: 0, depth: 0, scope })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    /// The word or character at the position, for messages.
    fn token_here(&self) -> String {
        let rest = self.rest();
        let end = token::word_end(rest);
        let end = if end > 0 { end } else { rest.chars().next().map_or(0, char::len_utf8) };
        if rest.is_empty() { "<EOL>".to_owned() } else { rest[..end].to_owned() }
    }
    fn syntax(&self, expected: &'static str) -> ExpressionError {
        ExpressionError::Syntax { token: self.token_here(), position: self.at, expected }
    }
    fn unanswered(position: usize, token: &str, source: target::TargetError) -> ExpressionError {
        ExpressionError::Target { token: token.to_owned(), position, source }
    }

    fn operator(&self) -> Option<(Op, u8, usize)> {
        let rest = self.rest();
        OPERATORS.iter().find_map(|&(spelling, op, strength)| {
            let head = rest.get(..spelling.len())?;
            let word = spelling.starts_with(char::is_alphabetic);
            let ends = !word || !rest[spelling.len()..].starts_with(token::is_word);
            (head.eq_ignore_ascii_case(spelling) && ends).then_some((op, strength, spelling.len()))
        })
    }

    /// Operators that bind more tightly than `floor`, left to right.
    fn binary(&mut self, floor: u8) -> Result<u64> {
        let mut left = self.unary()?;
        loop {
            let before = self.at;
            self.skip_space();
            let position = self.at;
            let Some((op, strength, length)) = self.operator().filter(|(_, s, _)| *s > floor) else {
                self.at = before;
                return Ok(left);
            };
            self.at += length;
            self.enter()?;
            let right = self.binary(strength)?;
            self.depth -= 1;
            left = apply(op, left, right).ok_or(ExpressionError::DivideByZero { position })?;
        }
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err(ExpressionError::TooMuch("deep (64 levels at most)"));
        }
        Ok(())
    }

    fn unary(&mut self) -> Result<u64> {
        self.skip_space();
        self.enter()?;
        let value = self.unary_inner()?;
        self.depth -= 1;
        Ok(value)
    }

    fn unary_inner(&mut self) -> Result<u64> {
        let rest = self.rest();
        if let Some(sign) = rest.chars().next().filter(|c| matches!(c, '+' | '-' | '~')) {
            self.at += 1;
            let value = self.unary()?;
            return Ok(match sign {
                '-' => value.wrapping_neg(),
                '~' => !value,
                _ => value,
            });
        }
        if let Some(inner) = rest.strip_prefix('(') {
            self.at = self.text.len() - inner.len();
            let value = self.binary(0)?;
            self.skip_space();
            if !self.rest().starts_with(')') {
                return Err(self.syntax("')'"));
            }
            self.at += 1;
            return Ok(value);
        }
        let start = self.at;
        let word = &rest[..token::word_end(rest)];
        if let Some(function) = Function::named(word) {
            self.at += word.len();
            let value = self.unary()?;
            return function.apply(value, self.scope).map_err(|source| Self::unanswered(start, word, source));
        }
        self.operand()
    }

    fn operand(&mut self) -> Result<u64> {
        let rest = self.rest();
        let start = self.at;
        if rest.is_empty() {
            return Err(self.syntax("a number, a register or a symbol"));
        }
        if rest.starts_with("@@") {
            return Err(ExpressionError::NotServed {
                token: "@@".to_owned(),
                position: start,
                why: "C++ expressions can change the target",
            });
        }
        if let Some(quoted) = rest.strip_prefix("@!\"") {
            let Some(end) = quoted.find('"') else { return Err(self.syntax("'\"' at the end of the name")) };
            self.at += 3 + end + 1;
            return self.symbol(&quoted[..end], start);
        }
        if let Some(name) = rest.strip_prefix('@') {
            let end = token::word_end(name);
            self.at += 1 + end;
            return self.register(&name[..end], start);
        }
        if rest.starts_with('$') {
            let end = token::word_end(rest);
            self.at += end;
            return self.register(&rest[..end], start);
        }
        if rest.starts_with('`') && !rest.contains('\'') {
            return Err(ExpressionError::NotServed {
                token: self.token_here(),
                position: start,
                why: "source line expressions",
            });
        }
        self.name_or_number()
    }

    fn name_or_number(&mut self) -> Result<u64> {
        let rest = self.rest();
        let start = self.at;
        let ends = token::symbol_ends(rest);
        let shortest = ends.first().copied().unwrap_or(0);
        if shortest == 0 {
            return Err(self.syntax("a number, a register or a symbol"));
        }
        let word = &rest[..shortest];
        match token::number(word) {
            Number::Value(value) => {
                self.at += shortest;
                return Ok(value);
            }
            Number::TooLarge => {
                return Err(ExpressionError::TooLarge { token: word.to_owned(), position: start });
            }
            Number::Not => {}
        }
        if !word.contains(['!', ':', '.']) {
            let known = self.scope.register(word).map_err(|e| Self::unanswered(start, word, e))?;
            if let Some(value) = known {
                self.at += shortest;
                return Ok(value);
            }
        }
        for &end in ends.iter().rev() {
            let name = &rest[..end];
            if let Some(value) = self.scope.symbol(name).map_err(|e| Self::unanswered(start, name, e))? {
                self.at += end;
                return Ok(value);
            }
        }
        Err(ExpressionError::Unresolved { token: word.to_owned(), position: start })
    }

    fn symbol(&self, name: &str, position: usize) -> Result<u64> {
        let found = self.scope.symbol(name).map_err(|e| Self::unanswered(position, name, e))?;
        found.ok_or_else(|| ExpressionError::Unresolved { token: name.to_owned(), position })
    }

    fn register(&self, name: &str, position: usize) -> Result<u64> {
        let found = match name.strip_prefix('$') {
            Some(pseudo) => self.scope.pseudo(&pseudo.to_ascii_lowercase()),
            None => self.scope.register(name),
        };
        let found = found.map_err(|e| Self::unanswered(position, name, e))?;
        found.ok_or_else(|| ExpressionError::NoRegister { token: name.to_owned(), position })
    }
}

fn apply(op: Op, left: u64, right: u64) -> Option<u64> {
    let shift = u32::try_from(right).ok().filter(|&s| s < 64);
    Some(match op {
        Op::Add => left.wrapping_add(right),
        Op::Subtract => left.wrapping_sub(right),
        Op::Multiply => left.wrapping_mul(right),
        Op::Divide => left.checked_div(right)?,
        Op::Modulo => left.checked_rem(right)?,
        Op::And => left & right,
        Op::Or => left | right,
        Op::Xor => left ^ right,
        Op::ShiftLeft => shift.map_or(0, |s| left << s),
        Op::ShiftRight => shift.map_or(0, |s| left >> s),
        Op::ShiftRightSigned => (left.cast_signed() >> shift.unwrap_or(63)).cast_unsigned(),
        Op::Equal => u64::from(left == right),
        Op::NotEqual => u64::from(left != right),
        Op::Less => u64::from(left < right),
        Op::Greater => u64::from(left > right),
        Op::LessOrEqual => u64::from(left <= right),
        Op::GreaterOrEqual => u64::from(left >= right),
    })
}

#[derive(Clone, Copy)]
enum Function {
    Not,
    High,
    Low,
    /// Reads this many bytes; 0 for a pointer.
    Read(u8),
}

impl Function {
    fn named(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "not" => Self::Not,
            "hi" => Self::High,
            "low" => Self::Low,
            "by" => Self::Read(1),
            "wo" => Self::Read(2),
            "dwo" => Self::Read(4),
            "qwo" => Self::Read(8),
            "poi" => Self::Read(0),
            _ => return None,
        })
    }

    fn apply(self, value: u64, scope: &dyn Scope) -> target::Result<u64> {
        match self {
            Self::Not => Ok(u64::from(value == 0)),
            Self::High => Ok(value >> 16 & 0xffff),
            Self::Low => Ok(value & 0xffff),
            Self::Read(0) => scope.read(value, scope.pointer_size()),
            Self::Read(size) => scope.read(value, size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use target::{MemoryExt as _, RegionMemory, TargetError};

    struct Fixed {
        pointer_size: u8,
        memory: RegionMemory,
    }

    impl Scope for Fixed {
        fn register(&self, name: &str) -> target::Result<Option<u64>> {
            match name.to_ascii_lowercase().as_str() {
                "rip" => Ok(Some(0x40_1000)),
                "eax" | "ah" => Ok(Some(0xffff_ffff)),
                "xmm0" => Err(TargetError::failed("not available")),
                _ => Ok(None),
            }
        }
        fn pseudo(&self, name: &str) -> target::Result<Option<u64>> {
            Ok(match name {
                "ip" => Some(0x40_1000),
                "t0" => Some(7),
                _ => None,
            })
        }
        fn symbol(&self, name: &str) -> target::Result<Option<u64>> {
            Ok(match name {
                "nt" => Some(0x1_0000),
                "nt!KeBugCheckEx" | "main" => Some(0x1_2340),
                "m!v<int,a<int> >::operator[]" => Some(0x2000),
                "m!v<3>::x" => Some(0x3000),
                "m!v" => Some(2),
                "m!`anonymous namespace'::f" => Some(0x4000),
                "m!weird name" => Some(0x5000),
                "m!main.cold" => Some(0x6000),
                _ => None,
            })
        }
        fn read(&self, address: u64, size: u8) -> target::Result<u64> {
            let mut bytes = [0; 8];
            self.memory.read_exact(address, &mut bytes[..usize::from(size)])?;
            Ok(u64::from_le_bytes(bytes))
        }
        fn pointer_size(&self) -> u8 {
            self.pointer_size
        }
    }

    fn scope(pointer_size: u8) -> Fixed {
        let mut memory = RegionMemory::new();
        memory.add(0x40_1000, [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        memory.add(0x50_0000, 0x40_1000u64.to_le_bytes());
        Fixed { pointer_size, memory }
    }
    fn value(text: &str) -> Result<u64> {
        evaluate(text, &scope(8))
    }

    #[test]
    fn values() {
        for (text, expected) in [
            ("10", 0x10),
            ("0n10 + 0x10 + 0y11 + 0t10", 10 + 16 + 3 + 8),
            ("fffff804`7ba00000", 0xffff_f804_7ba0_0000),
            ("nt!KeBugCheckEx+0x14", 0x1_2354),
            ("nt", 0x1_0000),
            ("main", 0x1_2340),
            ("@rip", 0x40_1000),
            ("rip", 0x40_1000),
            ("RIP", 0x40_1000),
            ("$ip", 0x40_1000),
            ("@$ip+1", 0x40_1001),
            ("@$t0", 7),
            ("m!v<int,a<int> >::operator[]+8", 0x2008),
            ("m!v<3>::x", 0x3000),
            ("m!v<3", 1),
            ("m!v<3>1", 0),
            ("m!`anonymous namespace'::f", 0x4000),
            ("m!main.cold", 0x6000),
            ("@!\"m!weird name\" + 1", 0x5001),
            ("poi(rip)", 0x8877_6655_4433_2211),
            ("poi(poi(500000))", 0x8877_6655_4433_2211),
            ("by rip", 0x11),
            ("wo(rip)", 0x2211),
            ("dwo(rip)", 0x4433_2211),
            ("qwo(@rip)", 0x8877_6655_4433_2211),
            ("poi rip + 1", 0x8877_6655_4433_2212),
            ("hi(12345678)", 0x1234),
            ("low 12345678", 0x5678),
            ("not 0", 1),
            ("not 5", 0),
            ("-1", u64::MAX),
            ("~0", u64::MAX),
            ("- -1", 1),
            ("2+3*4", 14),
            ("(2+3)*4", 20),
            ("0n10-3-2", 5),
            ("7 mod 4 % 2", 1),
            ("1<<4|1", 0x11),
            ("f0 >> 4", 0xf),
            ("ffffffffffffffff >>> 4", u64::MAX),
            ("1 << 40", 0),
            ("1 << 0n64", 0),
            ("6 & 3 ^ 1 | 8", 0xb),
            ("6 and 3 xor 1 or 8", 0xb),
            ("1 == 1", 1),
            ("1 = 2", 0),
            ("1 != 2", 1),
            ("2 >= 2 & 3 <= 2", 0),
            ("ah", 10),
            ("@ah", 0xffff_ffff),
            ("add", 0xadd),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_has_no_value_says_where() {
        for (text, message, position) in [
            ("foo", "Couldn't resolve error at 'foo'", 0),
            ("1 + nt!Nope*2", "Couldn't resolve error at 'nt!Nope'", 4),
            ("@foo", "Bad register error at 'foo'", 0),
            ("$foo", "Bad register error at '$foo'", 0),
            ("", "Syntax error at '<EOL>': a number, a register or a symbol", 0),
            ("1+", "Syntax error at '<EOL>': a number, a register or a symbol", 2),
            ("(1", "Syntax error at '<EOL>': ')'", 2),
            ("1 2", "Syntax error at '2': an operator or the end", 2),
            ("@rip; .echo hi", "Syntax error at ';': an operator or the end", 4),
            ("1/0", "Divide by zero error", 1),
            ("1 mod 0", "Divide by zero error", 2),
            ("11111111111111111", "Numeric value too large error in '11111111111111111'", 0),
            ("@@c++(1)", "'@@' is not served here: C++ expressions can change the target", 0),
            ("poi(0)", "Memory access error at 'poi': cannot read 0x0000000000000000: not in the dump", 0),
            ("@xmm0", "Memory access error at 'xmm0': not available", 0),
        ] {
            let error = value(text).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.position()), (message, position), "{text}");
        }
        let error = value("1 + foo").unwrap_err();
        assert_eq!(error.with_caret("1 + foo"), "1 + foo\n    ^ Couldn't resolve error at 'foo'");
    }

    #[test]
    fn a_prefix_stops_where_the_next_argument_starts() {
        let prefix =
            |text: &str| evaluate_prefix(text, &scope(8)).map(|(v, end)| (v, text[end..].to_owned()));
        assert_eq!(prefix("rip L10"), Ok((0x40_1000, " L10".into())));
        assert_eq!(prefix("rip+4 l?5"), Ok((0x40_1004, " l?5".into())));
        assert_eq!(prefix("10 20"), Ok((0x10, " 20".into())));
        assert_eq!(prefix("10 - 8 x"), Ok((8, " x".into())));
    }

    #[test]
    fn results_of_32_bit_targets_are_addresses() {
        let narrow = scope(4);
        assert_eq!(evaluate("-1", &narrow), Ok(0xffff_ffff));
        assert_eq!(evaluate("poi(rip)", &narrow), Ok(0x4433_2211));
    }

    #[test]
    fn depth_and_length_are_bounded() {
        for text in ["(".repeat(5000), "(".repeat(3000), "-".repeat(3000), "1+".repeat(2000)] {
            assert!(value(&text).is_err());
        }
        assert_eq!(value(&format!("{}1{}", "(".repeat(30), ")".repeat(30))), Ok(1));
        assert_eq!(value(&vec!["1"; 2000].join("+")), Ok(2000));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

        #[test]
        fn any_text_is_answered(text in "[-0-9a-f@$!:<>()`'~+*/&|^=. nmtvpoi\"xé]{0,40}") {
            let _ = value(&text);
            if let Ok((_, end)) = evaluate_prefix(&text, &scope(4)) {
                proptest::prop_assert!(text.is_char_boundary(end));
            }
            if let Err(error) = value(&text) {
                let _ = error.with_caret(&text);
            }
        }

        #[test]
        fn arithmetic_is_the_machines(a: u64, b: u64) {
            proptest::prop_assert_eq!(value(&format!("0x{a:x}+0x{b:x}")), Ok(a.wrapping_add(b)));
            proptest::prop_assert_eq!(value(&format!("0n{a}*0x{b:x}")), Ok(a.wrapping_mul(b)));
            proptest::prop_assert_eq!(value(&format!("{a:x} & {b:x}")), Ok(a & b));
        }
    }
}
