//! What parses, what is refused and in which words, which strings are one endpoint, and that no key
//! gets out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use connection_string::{Connection, ConnectionError, Endpoint, Transport};
use proptest::prelude::*;

fn transport(text: &str) -> Transport {
    Connection::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).transport().clone()
}

fn refusal(text: &str) -> ConnectionError {
    Connection::parse(text).expect_err(text)
}

#[test]
fn every_form_parses() {
    assert!(matches!(transport(" NET:Port=50000,KEY=1.2.3.4,target=vm "),
        Transport::Net { port: 50000, target: Some(host), .. } if host == "vm"));
    assert_eq!(
        transport(r"com:pipe,port=\\.\pipe\kd,resets=0,reconnect"),
        Transport::Pipe { path: r"\\.\pipe\kd".into(), resets: Some(0), reconnect: true }
    );
    assert_eq!(
        transport("com:port=COM1,baud=115200"),
        Transport::Serial { device: "COM1".into(), baud: 115_200 }
    );
    assert_eq!(
        transport("com:ipport=4444,port=127.0.0.1"),
        Transport::Tcp { host: "127.0.0.1".into(), port: 4444 }
    );
    assert_eq!(transport("unix:path=/run/vm.sock"), Transport::Unix { path: "/run/vm.sock".into() });
    assert_eq!(transport("gdb:localhost:1234"), Transport::Gdb { host: "localhost".into(), port: 1234 });
    assert_eq!(transport("gdb:[::1]:1234"), Transport::Gdb { host: "[::1]".into(), port: 1234 });
    assert_eq!(transport("1394:channel=62"), Transport::FireWire { channel: 62 });
    assert_eq!(transport("usb:targetname=lab"), Transport::Usb { target_name: "lab".into() });
    assert_eq!(
        transport("exdi:CLSID={29f9906e-9dbe-4d4b-b0fb-6acf7fb6d014},Kd=Guess,ForceX86"),
        Transport::Exdi
    );
    let timed = Connection::parse("com:ipport=1,port=h,timeout=250").unwrap();
    assert_eq!(timed.timeout(), Some(Duration::from_millis(250)));
}

#[test]
fn what_is_wrong_is_said_by_its_place() {
    for (text, says) in [
        ("", "1 to 1024 bytes"),
        ("bogus:x=1", "begins with its scheme"),
        ("port=50000", "begins with its scheme"),
        ("net:port=50000", "needs key,"),
        ("net:key=1.2.3.4", "needs port,"),
        ("net:port=0,key=1.2.3.4", "1 to 65535"),
        ("net:port=65536,key=1.2.3.4", "1 to 65535"),
        ("net:port=+1,key=1.2.3.4", "1 to 65535"),
        ("net:port=1,key=1.2.3", "four groups"),
        ("net:port=1,key=1.2.3.4.5", "four groups"),
        ("net:port=1,key=12345678901234.2.3.4", "four groups"),
        ("net:port=1,key=1.2.3.4,key=1.2.3.4", "key twice"),
        ("net:port=1,1.2.3.4", "item 2 "),
        ("net:port=1,kye=1.2.3.4", "item 2 "),
        ("net:port=1,key=1.2.3.4,", "item 3 "),
        ("net:port=1, key=1.2.3.4", "no blanks"),
        ("net:port=1;key=1.2.3.4", "commas separate"),
        ("net:port=1,key=1.2.3.4,target=a/b", "host name"),
        ("com:ipport=1,port=h,timeout=0", "600000"),
        ("com:ipport=1,port=h,timeout=600001", "600000"),
        ("net:port=1,key=1.2.3.4,timeout=5", "item 3 "),
        ("com:pipe", "needs port,"),
        (r"com:pipe,port=\\.\mailslot\x", "pipe\\NAME"),
        (r"com:pipe,port=\\.\pipe\", "pipe\\NAME"),
        ("com:pipe,port=kd", "pipe\\NAME"),
        (r"com:pipe,port=\\.\pipe\x,pipe", "pipe twice"),
        (r"com:pipe=1,port=\\.\pipe\x", "item 1 "),
        ("com:port=COM1", "needs baud,"),
        ("com:port=COM1,baud=fast", "bits per second"),
        ("com:ipport=99999,port=h", "1 to 65535"),
        ("com:ipport=1", "needs port,"),
        ("com:modem", "item 1 "),
        ("unix:path=run/x", "absolute"),
        ("unix:/run/x", "item 1 "),
        ("gdb:1234", "HOST:PORT"),
        ("gdb:tcp:localhost:1234", "host name"),
        ("gdb:h:0", "1 to 65535"),
        ("1394:channel=63", "0 to 62"),
        ("usb:name=x", "item 1 "),
        ("exdi:Kd=Guess", "needs CLSID,"),
        ("kd:tcp:127.0.0.1:1", "begins with its scheme"),
    ] {
        let said = refusal(text).to_string();
        assert!(said.contains(says), "{text}: {said}");
    }
    assert!(refusal(&format!("unix:path=/{}", "x".repeat(1024))).to_string().contains("1024"));
}

#[test]
fn spellings_of_one_endpoint_conflict_and_others_do_not() {
    let endpoint = |text: &str| Connection::parse(text).unwrap().endpoint();
    for (one, other) in [
        ("net:port=50000,key=1.2.3.4", "NET:key=5.6.7.8,port=50000,target=vm"),
        (r"com:pipe,port=\\.\pipe\Kd", r"com:port=\\LOCALHOST\PIPE\kD,pipe,reconnect"),
        (r"com:pipe,port=\\.\pipe\kd", "com:pipe,port=//127.0.0.1/pipe/kd"),
        ("com:port=com1,baud=9600", r"com:port=\\.\COM1,baud=115200"),
        ("com:port=/dev/ttyS0,baud=9600", "com:port=/DEV/ttys0,baud=9600"),
        ("com:ipport=4444,port=localhost", "com:ipport=4444,port=127.0.0.1"),
        ("com:ipport=4444,port=[::1]", "gdb:LOCALHOST.:4444"),
        ("unix:path=/run/./vm", "unix:path=//run/vm"),
        ("1394:channel=1", "1394:channel=1,symlink=x"),
        ("usb:targetname=Lab", "usb2:targetname=lab"),
        ("exdi:CLSID={1}", "net:port=1,key=1.2.3.4"),
    ] {
        assert!(endpoint(one).conflicts(&endpoint(other)), "{one} and {other}");
        assert!(endpoint(other).conflicts(&endpoint(one)), "{other} and {one}");
    }
    for (one, other) in [
        ("net:port=50000,key=1.2.3.4", "net:port=50001,key=1.2.3.4"),
        (r"com:pipe,port=\\.\pipe\a", r"com:pipe,port=\\.\pipe\b"),
        (r"com:pipe,port=\\.\pipe\a", r"com:pipe,port=\\vmhost\pipe\a"),
        ("com:ipport=4444,port=a", "com:ipport=4444,port=b"),
        ("net:port=4444,key=1.2.3.4", "com:ipport=4444,port=localhost"),
    ] {
        assert!(!endpoint(one).conflicts(&endpoint(other)), "{one} and {other}");
    }
    assert_eq!(endpoint("gdb:Host:1"), Endpoint::Tcp("host".into(), 1));
}

#[test]
fn a_key_is_printed_nowhere_and_masked_from_then_on() {
    let text = "net:port=50000,Key=q9w8.e7r6.t5y4.u3i2,target=vm";
    let connection = Connection::parse(text).unwrap();
    let shown = format!("{connection} {connection:?} {:?}", connection.transport());
    assert!(shown.starts_with("net:port=50000,Key=***,target=vm"), "{shown}");
    assert!(!shown.contains("q9w8"), "{shown}");
    assert_eq!(redaction::mask_secrets("x q9w8.e7r6.t5y4.u3i2 y"), "x <redacted> y");
    assert_eq!(connection.expose(), text);
    let sent = serde_json::to_string(&connection).unwrap();
    assert_eq!(serde_json::from_str::<Connection>(&sent).unwrap(), connection);
}

/// Words no refusal may hold, in every place of a string.
const KEY: &str = "zz91.zz92.zz93.zz94";

proptest! {
    #[test]
    fn anything_parses_or_is_refused_and_no_refusal_holds_the_key(
        scheme in prop::sample::select(vec!["net", "com", "unix", "gdb", "1394", "usb", "exdi", "bogus", ""]),
        before in "[ -~]{0,12}",
        name in prop::sample::select(vec!["key=", "KEY=", "kye=", "", "port=", "password=", "key=="]),
        after in "[ -~]{0,12}",
    ) {
        let text = format!("{scheme}:port=1,{before}{name}{KEY}{after}");
        match Connection::parse(&text) {
            Err(error) => prop_assert!(!error.to_string().contains("zz9"), "{}", error),
            Ok(connection) => {
                if matches!(connection.transport(), Transport::Net { .. }) {
                    let shown = format!("{connection} {connection:?}");
                    prop_assert!(!shown.contains("zz92"), "{}", shown);
                }
            }
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,64}") {
        let _ = Connection::parse(&text).map(|connection| (connection.to_string(), connection.endpoint()));
    }

    #[test]
    fn what_parses_parses_again_to_the_same(
        port in 1u16..,
        key in "[0-9a-z]{1,13}(\\.[0-9a-z]{1,13}){3}",
        upper: bool,
    ) {
        let text = format!("net:port={port},key={key}");
        let text = if upper { text.replace("net:port", "NET:PORT") } else { text };
        let connection = Connection::parse(&text).unwrap();
        prop_assert_eq!(connection.endpoint(), Endpoint::Kdnet(port));
        prop_assert!(!connection.to_string().contains(&key) );
        prop_assert_eq!(Connection::parse(connection.expose()).unwrap(), connection);
    }
}
