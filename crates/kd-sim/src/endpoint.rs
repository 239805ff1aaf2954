//! A machine behind a socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kd_api::Api;
use kd_target::{Options, Server, Summary};
use kd_wire::TargetOptions;

use crate::faults::{Faults, Written};
use crate::machine::Machine;
use crate::record::{Direction, FrameRecord, Recorder};
use crate::scenario::{Scenario, ScenarioError};

/// How long a running machine waits for bytes between two slices, and a stopped one.
const RUNNING: Duration = Duration::from_millis(1);
const STOPPED: Duration = Duration::from_millis(20);
/// How late a delayed packet is.
const DELAY: Duration = Duration::from_millis(300);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    /// The socket is made, and removed at the end; Unix only.
    Unix(PathBuf),
}

impl Listen {
    /// Any free port of this machine.
    #[must_use]
    pub fn local() -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
    }
}

/// What a simulator saw.
#[derive(Clone, Debug)]
pub struct Report {
    pub summary: Summary,
    pub frames: Vec<FrameRecord>,
}

/// What both the simulator's thread and its owner look at.
#[derive(Debug)]
struct Shared {
    server: Server<Machine>,
    recorder: Recorder,
}

/// A machine that is served on a thread of its own, one debugger at a time. Dropping it ends it.
#[derive(Debug)]
pub struct Simulator {
    shared: Arc<Mutex<Shared>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    endpoint: String,
    connection: String,
    remove: Option<PathBuf>,
}

impl Simulator {
    /// Builds the machine and listens.
    ///
    /// # Errors
    /// The scenario is no machine, or the endpoint is taken.
    pub fn start(scenario: &Scenario, listen: &Listen) -> Result<Self, StartError> {
        let machine = Machine::build(scenario)?;
        let options = Options {
            link: TargetOptions { repeat: Duration::from_millis(scenario.repeat_ms.max(1)) },
            refused: scenario.refused.iter().map(|api| Api(api.0 as u32)).collect(),
        };
        let shared = Arc::new(Mutex::new(Shared {
            server: Server::new(machine, options),
            recorder: Recorder::default(),
        }));
        let end = Arc::new(AtomicBool::new(false));
        let listener = Listener::bind(listen)?;
        let (endpoint, connection) = listener.names()?;
        let serving = Serving {
            shared: Arc::clone(&shared),
            end: Arc::clone(&end),
            faults: Faults::new(scenario.faults.clone()),
            began: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("kd-sim".into())
            .spawn(move || serving.accept(&listener))
            .map_err(StartError::Io)?;
        let remove = match listen {
            Listen::Unix(path) => Some(path.clone()),
            Listen::Tcp(_) => None,
        };
        Ok(Self { shared, end, thread: Some(thread), endpoint, connection, remove })
    }

    /// `tcp:ADDRESS:PORT` or `unix:PATH`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The debugger's connection string.
    #[must_use]
    pub fn connection(&self) -> &str {
        &self.connection
    }

    /// One JSON line for whoever started the program.
    #[must_use]
    pub fn announcement(&self) -> String {
        serde_json::json!({ "endpoint": self.endpoint, "connection": self.connection }).to_string()
    }

    /// Looks at the machine, or changes it, between two slices.
    pub fn with_machine<T>(&self, look: impl FnOnce(&mut Machine) -> T) -> T {
        look(lock(&self.shared).server.backend())
    }

    /// Whether the machine runs.
    #[must_use]
    pub fn running(&self) -> bool {
        lock(&self.shared).server.running()
    }

    /// What happened so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let shared = lock(&self.shared);
        Report { summary: shared.server.summary().clone(), frames: shared.recorder.frames.clone() }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(path) = &self.remove {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Why a simulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("the simulator cannot listen: {0}")]
    Io(#[from] std::io::Error),
    #[error("Unix sockets are not to be had here")]
    NoUnixSockets,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

/// A connection.
trait Stream: Read + Write {
    fn set_read_bound(&self, bound: Duration) -> std::io::Result<()>;
}

impl Stream for TcpStream {
    fn set_read_bound(&self, bound: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(bound))
    }
}

#[cfg(unix)]
impl Stream for std::os::unix::net::UnixStream {
    fn set_read_bound(&self, bound: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(bound))
    }
}

impl Listener {
    fn bind(listen: &Listen) -> Result<Self, StartError> {
        match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            #[cfg(unix)]
            Listen::Unix(path) => {
                let listener = std::os::unix::net::UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(listener, path.clone()))
            }
            #[cfg(not(unix))]
            Listen::Unix(_) => Err(StartError::NoUnixSockets),
        }
    }

    fn names(&self) -> std::io::Result<(String, String)> {
        match self {
            Self::Tcp(listener) => {
                let address = listener.local_addr()?;
                let connection = format!("com:ipport={},port={},timeout=1000", address.port(), address.ip());
                Ok((format!("tcp:{address}"), connection))
            }
            #[cfg(unix)]
            Self::Unix(_, path) => {
                Ok((format!("unix:{}", path.display()), format!("unix:path={}", path.display())))
            }
        }
    }

    /// A debugger that connected, if one did.
    fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// The thread's own.
struct Serving {
    shared: Arc<Mutex<Shared>>,
    end: Arc<AtomicBool>,
    faults: Faults,
    began: Instant,
}

impl Serving {
    fn accept(mut self, listener: &Listener) {
        while !self.end.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok(mut stream) => {
                    lock(&self.shared).recorder.connected();
                    // However it ends, the next debugger may come.
                    let _ = self.serve(&mut *stream);
                    lock(&self.shared).server.disconnected();
                }
                Err(_) => {
                    // A machine runs on with nobody there.
                    lock(&self.shared).server.poll(self.began.elapsed());
                    std::thread::sleep(STOPPED);
                }
            }
        }
    }

    fn serve(&mut self, stream: &mut dyn Stream) -> std::io::Result<()> {
        let mut buffer = [0; 4096];
        while !self.end.load(Ordering::Relaxed) {
            let bound = if lock(&self.shared).server.running() { RUNNING } else { STOPPED };
            stream.set_read_bound(bound)?;
            let read = match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
            };
            let out = self.turn(buffer.get(..read).unwrap_or_default());
            for frame in out {
                match self.faults.apply(frame) {
                    Written::Disconnect => return Ok(()),
                    Written::Later(frame) => {
                        std::thread::sleep(DELAY);
                        stream.write_all(&frame)?;
                    }
                    Written::Parts(parts) => {
                        for part in parts {
                            stream.write_all(&part)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// What the server makes of the bytes that came.
    fn turn(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let now = self.began.elapsed();
        let mut shared = lock(&self.shared);
        let Shared { server, recorder } = &mut *shared;
        recorder.bytes(Direction::FromDebugger, bytes, now);
        server.receive(bytes, now);
        server.poll(now);
        let mut out = Vec::new();
        while let Some(frame) = server.next_output() {
            recorder.bytes(Direction::FromTarget, &frame, now);
            out.push(frame);
        }
        out
    }
}
