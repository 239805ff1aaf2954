#![no_main]
//! Expressions, the operand guard and address tokens: any text is answered.

use expression::{Scope, evaluate, evaluate_prefix, guard, parse_address};
use libfuzzer_sys::fuzz_target;

struct Every;

impl Scope for Every {
    fn register(&self, name: &str) -> target::Result<Option<u64>> {
        Ok((name.len() == 3).then_some(name.len() as u64))
    }
    fn pseudo(&self, name: &str) -> target::Result<Option<u64>> {
        self.register(name)
    }
    fn symbol(&self, name: &str) -> target::Result<Option<u64>> {
        Ok(name.contains('!').then_some(0x1000))
    }
    fn read(&self, address: u64, _: u8) -> target::Result<u64> {
        Ok(!address)
    }
    fn pointer_size(&self) -> u8 {
        8
    }
}

fuzz_target!(|text: &str| {
    let _ = evaluate(text, &Every);
    if let Ok((_, end)) = evaluate_prefix(text, &Every) {
        assert!(text.is_char_boundary(end));
    }
    let _ = guard(text, "field");
    let _ = parse_address(text);
});
