//! Both sockets against a peer of the test's own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use connection_string::Connection;
use kd_transport::{ByteStream, TransportError, connect};
use target::Halt;

fn halt() -> Halt {
    Halt::within(Duration::from_secs(10))
}

fn dial(text: &str, halt: &Halt) -> Result<kd_transport::SocketStream, TransportError> {
    connect(Connection::parse(text).unwrap().transport(), halt)
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!("com:ipport={},port=127.0.0.1", listener.local_addr().unwrap().port());
    (listener, text)
}

fn exchange(stream: &mut dyn ByteStream, peer: &mut (impl Read + Write)) {
    let mut buffer = [0; 16];
    assert_eq!(stream.read(&mut buffer, Duration::from_millis(5)).unwrap(), 0, "nothing was sent yet");
    peer.write_all(b"from the target").unwrap();
    assert_eq!(stream.read(&mut buffer, Duration::from_secs(5)).unwrap(), 15);
    assert_eq!(&buffer[..15], b"from the target");
    stream.write(b"to it").unwrap();
    let mut back = [0; 5];
    peer.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"to it");
}

#[test]
fn tcp_carries_both_ways_and_tells_when_it_is_closed() {
    let (listener, text) = listen();
    let mut stream = dial(&text, &halt()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    exchange(&mut stream, &mut peer);
    drop(peer);
    let closed = stream.read(&mut [0; 4], Duration::from_secs(5));
    assert!(matches!(closed, Err(TransportError::Closed)), "{closed:?}");
}

#[cfg(unix)]
#[test]
fn unix_sockets_carry_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kd.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut stream = dial(&format!("unix:path={}", path.display()), &halt()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    exchange(&mut stream, &mut peer);
}

#[test]
fn a_peer_that_takes_nothing_does_not_hold_a_write_for_ever() {
    let (listener, text) = listen();
    let mut stream = dial(&text, &halt()).unwrap();
    let _peer = listener.accept().unwrap();
    let much = vec![0; 64 << 20];
    assert!(matches!(stream.write(&much), Err(TransportError::Stuck)));
}

#[test]
fn nobody_there_is_said_at_once_and_names_the_place() {
    let (listener, text) = listen();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = dial(&text, &halt()).err().unwrap().to_string();
    assert!(error.contains(&format!("127.0.0.1 port {port}")), "{error}");
}

#[test]
fn a_connect_ends_when_it_is_told_to() {
    let stopped = Halt::unbounded();
    stopped.flag().store(true, Ordering::Relaxed);
    // An address of the documentation's: nobody answers.
    let ended = dial("com:ipport=9,port=192.0.2.1", &stopped);
    assert!(matches!(ended, Err(TransportError::Halted)));
}

#[test]
fn other_connections_name_who_dials_them() {
    for text in [r"com:pipe,port=\\.\pipe\kd", "com:port=COM1,baud=115200", "net:port=50000,key=1.2.3.4"] {
        let error = dial(text, &halt()).err().unwrap();
        assert!(matches!(error, TransportError::Unsupported { .. }), "{text}");
        assert!(error.to_string().contains("dbgeng"), "{error}");
    }
}
