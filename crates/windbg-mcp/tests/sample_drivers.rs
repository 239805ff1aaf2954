//! Drivers of the shared data, asked about through the served tools.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod mcp;

use mcp::{Client, Era};
use serde_json::{Value, json};

/// `ioctl_map` of a driver in `data/drivers`, every code listed, and the session's kind.
fn map(name: &str) -> Option<(Value, Value)> {
    let Some(path) = test_data::shared().map(|data| data.join("drivers").join(name)).filter(|p| p.is_file())
    else {
        test_data::not_run(&format!("drivers/{name} is not here"));
        return None;
    };
    let mut client = Client::start(Era::Handshake("2025-11-25"));
    let opened = client.ok("open_dump", json!({ "path": path }));
    let map = client.ok("ioctl_map", json!({ "session_id": opened["session_id"] }));
    Some((opened, map))
}

fn codes(map: &Value) -> Vec<&str> {
    map["codes"].as_array().unwrap().iter().map(|row| row["code"].as_str().unwrap()).collect()
}

#[test]
fn sioctl_takes_its_four_codes() {
    let Some((opened, map)) = map("sioctl_x64.sys") else { return };
    assert_eq!(opened["kind"], "image");
    assert_eq!(codes(&map), ["0x9c402401", "0x9c402406", "0x9c402408", "0x9c40240f"]);
    let verified = |row: &Value| row["sites"].as_array().unwrap().iter().all(|site| site["verified"] == true);
    assert!(map["codes"].as_array().unwrap().iter().all(|row| verified(row) && row["accepted"] == true));
    let told = ["complete", "code_proved", "code_count", "unproved_count"].map(|field| map[field].clone());
    assert_eq!(told, [json!(true), json!(true), json!(4), json!(0)], "{map}");
}

/// Its DriverEntry stops the machine: no handler, no code, and that is the whole answer.
#[test]
fn bsod_takes_none() {
    let Some((opened, map)) = map("bsod_x64.sys") else { return };
    assert_eq!(opened["kind"], "image");
    assert_eq!(codes(&map), [""; 0]);
    assert_eq!([&map["code_count"], &map["site_count"]], [0, 0]);
    assert_eq!(map["complete"], true, "{map}");
    for list in ["maps", "patterns", "unresolved", "untracked", "disputed"] {
        assert!(map.get(list).and_then(Value::as_array).is_none_or(Vec::is_empty), "{list}: {map}");
    }
    let note = map["note"].as_str().unwrap();
    assert!(note.contains("gets no request"), "{note}");
}
