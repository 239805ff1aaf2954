//! A wire between debugger and target that can be cut.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kd_sim::Simulator;

#[derive(Default)]
struct Switches {
    swallow: AtomicUsize,
    cut: AtomicBool,
    hang_up: AtomicBool,
}

pub(crate) struct Proxy {
    port: u16,
    switches: Arc<Switches>,
    thread: Cell<Option<JoinHandle<()>>>,
}

impl Proxy {
    pub(crate) fn before(simulator: &Simulator) -> Self {
        let target = simulator.endpoint().strip_prefix("tcp:").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let switches = Arc::<Switches>::default();
        let shared = Arc::clone(&switches);
        let thread = std::thread::spawn(move || {
            let (debugger, _) = listener.accept().unwrap();
            forward(debugger, TcpStream::connect(target).unwrap(), &shared);
        });
        Self { port, switches, thread: Cell::new(Some(thread)) }
    }

    pub(crate) fn connection(&self) -> String {
        format!("com:ipport={},port=127.0.0.1", self.port)
    }

    /// The first bytes of the debugger get lost.
    pub(crate) fn swallow_from_debugger(&self, bytes: usize) {
        self.switches.swallow.store(bytes, Ordering::Relaxed);
    }

    /// Nothing passes any more.
    pub(crate) fn cut(&self) {
        self.switches.cut.store(true, Ordering::Relaxed);
    }

    /// Returns when both sides are closed.
    pub(crate) fn hang_up(&self) {
        self.switches.hang_up.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn forward(mut debugger: TcpStream, mut target: TcpStream, switches: &Switches) {
    for stream in [&debugger, &target] {
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    let mut buffer = [0; 4096];
    while !switches.hang_up.load(Ordering::Relaxed) {
        for to_target in [true, false] {
            let from = if to_target { &mut debugger } else { &mut target };
            let read = match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => return,
            };
            let mut bytes = &buffer[..read];
            if to_target {
                let lost = switches.swallow.load(Ordering::Relaxed).min(bytes.len());
                switches.swallow.fetch_sub(lost, Ordering::Relaxed);
                bytes = &bytes[lost..];
            }
            if !switches.cut.load(Ordering::Relaxed) {
                let to = if to_target { &mut target } else { &mut debugger };
                if to.write_all(bytes).is_err() {
                    return;
                }
            }
        }
    }
    let _ = debugger.shutdown(Shutdown::Both);
    let _ = target.shutdown(Shutdown::Both);
}
