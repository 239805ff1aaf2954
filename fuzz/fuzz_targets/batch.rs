#![no_main]
//! Any JSON as a batch: a batch that travels, or problems; and any text as a command to classify.

fn nearest<'a>(_: &str, words: &[&'a str]) -> Option<&'a str> {
    words.first().copied()
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = batch::changes(text);
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else { return };
    if let Ok(batch) = batch::parse(&value, nearest) {
        let again = serde_json::to_value(&batch).ok().and_then(|value| batch::parse(&value, nearest).ok());
        assert_eq!(again.as_ref(), Some(&batch));
    }
});
