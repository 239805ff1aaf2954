#![no_main]
//! The filter over any text: it ends, and a second pass finds nothing new.

use libfuzzer_sys::fuzz_target;
use redaction::{Filter, Redactor, mask_pairs};

fuzz_target!(|text: &str| {
    let rules = "builtin = ['user_paths', 'tokens', 'private_keys', 'mail', 'ipv4', 'ipv6']";
    let Ok(filter) = Filter::parse(rules) else { return };
    let redactor = Redactor::with(filter);
    let once = redactor.text(text).into_owned();
    let _ = redactor.text(&once);
    let masked = mask_pairs(text).into_owned();
    assert_eq!(mask_pairs(&masked), masked);
    let mut value = serde_json::json!({ "text": text, "data": "00" });
    redactor.value(&mut value, &redaction::Shape::untyped());
});
