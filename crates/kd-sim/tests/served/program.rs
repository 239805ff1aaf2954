//! Scenarios as JSON, the other endpoint, the program.

use kd_sim::Scenario;

#[test]
fn a_scenario_is_json() {
    let scenario = Scenario::with_processors(2);
    let text = serde_json::to_string(&scenario).unwrap();
    assert_eq!(Scenario::from_json(&text).unwrap(), scenario);
    let written = r#"{"build": 22621, "processors": [{"rip": "0xfffff80340000000", "registers": {"rsp": "0xfffff80360100000"}}],
        "events": [{"at": 1, "what": {"print": "hello"}}], "faults": [{"at": 3, "what": "drop"}]}"#;
    assert_eq!(Scenario::from_json(written).unwrap().build, 22621);
    assert!(Scenario::from_json(r#"{"bild": 1}"#).is_err());
}

#[test]
fn what_is_no_machine_is_refused() {
    let none = Scenario { processors: Vec::new(), ..Scenario::default() };
    let mut code = Scenario::default();
    code.code[0].bytes = "9".into();
    let mut register = Scenario::default();
    register.processors[0].registers.insert("rup".into(), kd_sim::Hex(1));
    for scenario in [none, code, register, Scenario::default().with_fixtures("/none".as_ref())] {
        assert!(kd_sim::Machine::build(&scenario).is_err(), "{scenario:?}");
    }
}

#[test]
fn the_fixtures_kernel_has_its_own_base_and_symbols() {
    let folder = test_data::fixture("ntkrnlmp.exe").parent().unwrap().to_owned();
    let machine = kd_sim::Machine::build(&Scenario::default().with_fixtures(&folder)).unwrap();
    let at = machine.symbol("KeBugCheckEx");
    assert!(at > Scenario::KERNEL_BASE && !machine.read(at, 16).is_empty());
    assert_eq!(machine.read(0xffff_f803_5000_0000, 2), b"MZ");
}

#[cfg(unix)]
#[test]
fn a_unix_socket_serves_the_same() {
    use crate::host::Host;
    use kd_sim::{Listen, Simulator};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kd");
    let simulator = Simulator::start(&Scenario::default(), &Listen::Unix(path.clone())).unwrap();
    assert_eq!(simulator.connection(), format!("unix:path={}", path.display()));
    let mut host = Host::connect(&simulator);
    assert_eq!(host.stop().program_counter, Scenario::CODE);
    drop(simulator);
    assert!(!path.exists());
}

#[cfg(unix)]
#[test]
fn the_program_announces_itself_and_ends_with_its_input() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_kd-sim"))
        .args(["--processors", "2", "--deadline-ms", "20000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    let endpoint = said["endpoint"].as_str().unwrap();
    let port = endpoint.rsplit(':').next().unwrap();
    assert_eq!(said["connection"], format!("com:ipport={port},port=127.0.0.1,timeout=1000"));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
