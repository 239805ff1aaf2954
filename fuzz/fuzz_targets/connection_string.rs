#![no_main]
//! Connection strings: parsed or refused, printed without their key, the same again from themselves.

use connection_string::Connection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(connection) = Connection::parse(text) else { return };
    let shown = connection.to_string();
    if let connection_string::Transport::Net { key, .. } = connection.transport() {
        assert!(!shown.split([',', ':']).any(|item| item.ends_with(&format!("={}", key.expose()))
            && item.len() > 4
            && item[..4].eq_ignore_ascii_case("key=")));
    }
    let again = Connection::parse(connection.expose()).expect("what parsed parses");
    assert!(again == connection && again.endpoint().conflicts(&connection.endpoint()));
});
