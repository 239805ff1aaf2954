//! An HTTP server on 127.0.0.1 for one test: a table of answers and a record of what was asked.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Default)]
pub(crate) struct Answer {
    status: u16,
    body: Vec<u8>,
    headers: Vec<String>,
    /// Declared instead of the body's own length.
    claimed: Option<usize>,
    framing: Framing,
    stalls: bool,
    lingers: bool,
}

#[derive(Clone, Copy, Default)]
enum Framing {
    #[default]
    Length,
    None,
    /// With or without the last chunk.
    Chunked(bool),
}

impl Answer {
    pub(crate) fn ok(body: &[u8]) -> Self {
        Self { status: 200, body: body.to_vec(), ..Self::default() }
    }
    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }
    pub(crate) fn redirect(location: &str) -> Self {
        Self { status: 302, headers: vec![format!("Location: {location}")], ..Self::default() }
    }
    pub(crate) fn claiming(self, length: usize) -> Self {
        Self { claimed: Some(length), ..self }
    }
    pub(crate) fn without_length(self) -> Self {
        Self { framing: Framing::None, ..self }
    }
    pub(crate) fn chunked(self, whole: bool) -> Self {
        Self { framing: Framing::Chunked(whole), ..self }
    }
    /// Sends half of the body, then nothing for a while.
    pub(crate) fn stalling(self) -> Self {
        Self { stalls: true, ..self }
    }

    /// Promises to keep the connection, then closes it all the same, a little later.
    pub(crate) fn lingering(self) -> Self {
        Self { lingers: true, ..self }
    }

    fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let connection = if self.lingers { "keep-alive" } else { "close" };
        let mut head = format!("HTTP/1.1 {} x\r\nConnection: {connection}\r\n", self.status);
        for header in &self.headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        match self.framing {
            Framing::Length => {
                head.push_str(&format!("Content-Length: {}\r\n", self.claimed.unwrap_or(self.body.len())));
            }
            Framing::Chunked(_) => head.push_str("Transfer-Encoding: chunked\r\n"),
            Framing::None => {}
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        match self.framing {
            Framing::Chunked(whole) => {
                stream.write_all(format!("{:x}\r\n", self.body.len()).as_bytes())?;
                stream.write_all(&self.body)?;
                stream.write_all(if whole { b"\r\n0\r\n\r\n" } else { b"\r\n" })
            }
            _ if self.stalls => {
                stream.write_all(&self.body[..self.body.len() / 2])?;
                std::thread::sleep(Duration::from_secs(5));
                Ok(())
            }
            _ if self.lingers => {
                stream.write_all(&self.body)?;
                std::thread::sleep(Duration::from_millis(100));
                Ok(())
            }
            _ => stream.write_all(&self.body),
        }
    }
}

#[derive(Default)]
struct Shared {
    answers: HashMap<String, Answer>,
    asked: Vec<String>,
    agents: Vec<String>,
}

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

impl Server {
    /// Serves until the process ends.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&served);
                std::thread::spawn(move || serve_one(stream, &shared));
            }
        });
        Self { address, shared }
    }
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
    pub(crate) fn serve(&self, path: &str, answer: Answer) {
        self.shared.lock().unwrap().answers.insert(path.to_owned(), answer);
    }
    pub(crate) fn forget(&self, path: &str) {
        self.shared.lock().unwrap().answers.remove(path);
    }
    pub(crate) fn asked(&self) -> Vec<String> {
        self.shared.lock().unwrap().asked.clone()
    }
    pub(crate) fn agents(&self) -> Vec<String> {
        self.shared.lock().unwrap().agents.clone()
    }
}

fn serve_one(mut stream: TcpStream, shared: &Mutex<Shared>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    let agent = lines
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("user-agent: ").map(str::to_owned));
    let path = request.split(' ').nth(1).unwrap_or("").to_owned();
    let answer = {
        let mut shared = shared.lock().unwrap();
        shared.agents.extend(agent);
        shared.asked.push(path.clone());
        shared.answers.get(&path).cloned().unwrap_or_else(|| Answer::status(404))
    };
    // The client may have gone: that is its right.
    let _ = answer.send(&mut stream);
}

/// The URL of a listener that never accepts and whose backlog is full, and what keeps it so.
pub(crate) fn silent() -> (String, (TcpListener, Vec<TcpStream>)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while held.len() < 8192 {
        match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            Ok(stream) => held.push(stream),
            Err(_) => break,
        }
    }
    (format!("http://{address}"), (listener, held))
}
