//! Symbol servers over HTTP(S): one file asked for in its three forms, redirects followed by rule,
//! bodies taken whole or not at all, and dead hosts remembered.

use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use target::Halt;

use crate::body::{self, Pumped};
use crate::host;
use crate::negative;
use crate::search::{Hunt, Outcome};
use crate::store::{self, POINTER_LIMIT, Pointer};
use crate::unpack::{self, SIZE_LIMIT};

pub use crate::host::{HOST_DOWN_FOR, REACH_BUDGET};

/// Waiting for the head of an answer once connected, redirects and a second try included.
pub const HEAD_BUDGET: Duration = Duration::from_secs(5);
/// How soon a break is heard.
pub(crate) const POLL: Duration = Duration::from_millis(20);
const REDIRECTS_LIMIT: usize = 5;

pub(crate) fn is_http(url: &str) -> bool {
    let lower = url.get(..8).unwrap_or(url).to_ascii_lowercase();
    lower.starts_with("http://") || lower.starts_with("https://")
}
fn is_https(url: &str) -> bool {
    url.get(..8).is_some_and(|head| head.eq_ignore_ascii_case("https://"))
}

/// Why a URL gave no file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// 404: the server has no such file.
    Absent,
    HostDown,
    /// The host could not be reached: it is down from now on.
    Unreachable(String),
    Failed(String),
}

impl Refusal {
    fn outcome(self) -> Outcome {
        match self {
            Self::Absent => Outcome::Absent,
            Self::HostDown => Outcome::HostDown,
            Self::Unreachable(why) | Self::Failed(why) => Outcome::Failed(why),
        }
    }
}

/// An answer's body and its length; `None` when it is chunked, whose end is marked.
struct Answer<B> {
    body: B,
    length: Option<u64>,
}

impl Hunt<'_> {
    pub(crate) fn look_on_server(&mut self, root: &str, left: &[PathBuf]) -> bool {
        if left.is_empty() && self.was_kept() {
            return true;
        }
        if !self.settings.network {
            self.note(root, Outcome::NetworkOff);
            return false;
        }
        let (name, key) = (self.wanted.file_name().to_owned(), self.wanted.key());
        let markers = left.first().unwrap_or(&self.settings.default_store).clone();
        let asked = format!("{root}/{name}/{key}");
        if negative::is_absent(&markers, &asked) {
            self.note(asked, Outcome::AbsentAsRemembered);
            return false;
        }
        let two_tier = match self.is_two_tier(root) {
            Ok(two_tier) => two_tier,
            Err(refusal) => {
                self.note(root, refusal.outcome());
                return false;
            }
        };
        let mut all_absent = true;
        for (name, key) in spellings(&name, &key) {
            let folder = format!("{root}/{}", encode(&store::relative(&name, &key, two_tier)));
            for file in [name.clone(), store::compressed_name(&name), "file.ptr".to_owned()] {
                if self.stopped() {
                    return false;
                }
                let url = format!("{folder}/{}", encode(std::slice::from_ref(&file)));
                match self.ask(&url) {
                    Ok(answer) if file == "file.ptr" => return self.read_pointer(&url, answer, root, left),
                    Ok(answer) => {
                        if self.take(url, answer, file.ends_with('_'), left) {
                            return true;
                        }
                        all_absent = false;
                    }
                    Err(Refusal::Absent) => {}
                    Err(Refusal::Failed(why)) => {
                        all_absent = false;
                        self.note(url, Outcome::Failed(why));
                    }
                    Err(refusal) => {
                        self.note(root, refusal.outcome());
                        return false;
                    }
                }
            }
        }
        if all_absent {
            negative::remember(&markers, &asked);
            self.note(asked, Outcome::Absent);
        }
        false
    }

    /// Whether the server's root is two-tier; asked once per server and process.
    fn is_two_tier(&mut self, root: &str) -> Result<bool, Refusal> {
        if let Some(known) = host::two_tier(root) {
            return Ok(known);
        }
        let answer = match self.ask(&format!("{root}/index2.txt")) {
            Ok(_) => true,
            Err(Refusal::Absent | Refusal::Failed(_)) => false,
            Err(refusal) => return Err(refusal),
        };
        host::remember_two_tier(root, answer);
        Ok(answer)
    }

    /// Takes a whole body into a store.
    fn take(&mut self, url: String, answer: Answer<Pumped>, compressed: bool, left: &[PathBuf]) -> bool {
        self.keep(url, left, move |part, halt| {
            if !compressed {
                return receive(answer, part, halt);
            }
            let mut packed = tempfile::tempfile()?;
            receive(answer, &mut packed, halt)?;
            packed.rewind()?;
            unpack::unpack_from(packed, part, halt)
        })
    }

    fn read_pointer(&mut self, url: &str, answer: Answer<Pumped>, root: &str, left: &[PathBuf]) -> bool {
        let mut bytes = Vec::new();
        if let Err(error) = answer.body.take(POINTER_LIMIT).read_to_end(&mut bytes) {
            self.note(url, Outcome::Failed(error.to_string()));
            return false;
        }
        match Pointer::parse(&bytes) {
            Pointer::Message(text) => {
                self.note(url, Outcome::Message(text));
                false
            }
            Pointer::Path(text) if is_http(&text) => self.fetch_pointed(&text, Some(root), left),
            Pointer::Path(text) => {
                let why = format!("it points to {text}; a server may only point to a URL");
                self.note(url, Outcome::Failed(why));
                false
            }
        }
    }

    /// Fetches the URL a `file.ptr` gives; from a server by the rule for redirects.
    pub(crate) fn fetch_pointed(&mut self, url: &str, from: Option<&str>, left: &[PathBuf]) -> bool {
        if !self.settings.network {
            self.note(url, Outcome::NetworkOff);
            return false;
        }
        if let Some(why) = from.and_then(|from| forbidden_hop(from, url)) {
            self.note(url, Outcome::Failed(why));
            return false;
        }
        match self.ask(url) {
            Ok(answer) => self.take(url.to_owned(), answer, url.ends_with('_'), left),
            Err(refusal) => {
                self.note(url, refusal.outcome());
                false
            }
        }
    }

    /// GET on a thread of its own, so that a break is heard while the network is silent.
    fn ask(&self, url: &str) -> Result<Answer<Pumped>, Refusal> {
        let (sender, receiver) = mpsc::channel();
        let (chunks, pieces) = mpsc::sync_channel(4);
        let wanted = url.to_owned();
        let spawned =
            std::thread::Builder::new().name("symbol-server".to_owned()).spawn(move || match get(&wanted) {
                Err(refusal) => drop(sender.send(Err(refusal))),
                Ok(answer) => {
                    if sender.send(Ok(answer.length)).is_ok() {
                        body::pump(answer.body, &chunks);
                    }
                }
            });
        if let Err(error) = spawned {
            return Err(Refusal::Failed(error.to_string()));
        }
        loop {
            match receiver.recv_timeout(POLL) {
                Ok(Ok(length)) => {
                    let body = Pumped::new(pieces, self.halt.clone(), host::Host::of(url));
                    return Ok(Answer { body, length });
                }
                Ok(Err(refusal)) => return Err(refusal),
                Err(mpsc::RecvTimeoutError::Timeout) if self.halt.stop().is_none() => {}
                Err(_) => return Err(Refusal::Failed("cut short".to_owned())),
            }
        }
    }
}

/// Copies a body and makes sure that it is whole.
fn receive(mut answer: Answer<Pumped>, to: &mut dyn io::Write, halt: &Halt) -> io::Result<()> {
    let copied = unpack::copy(&mut answer.body, to, halt)?;
    match answer.length {
        Some(length) if length != copied => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the body ended after {copied} of {length} bytes"),
        )),
        _ => Ok(()),
    }
}

/// As given, then all-lowercase.
fn spellings(name: &str, key: &str) -> Vec<(String, String)> {
    let given = (name.to_owned(), key.to_owned());
    let lower = (name.to_lowercase(), key.to_lowercase());
    if given == lower { vec![given] } else { vec![given, lower] }
}

/// Path segments as a URL carries them.
fn encode(parts: &[String]) -> String {
    let mut url = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            url.push('/');
        }
        for byte in part.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                url.push(char::from(byte));
            } else {
                url.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    url
}

/// One GET, redirects included. What a server lets us wait for nothing is held against it.
fn get(url: &str) -> Result<Answer<impl io::Read + use<>>, Refusal> {
    let started = Instant::now();
    let answer = follow(url, started + REACH_BUDGET + HEAD_BUDGET);
    if let (Err(_), Some(host)) = (&answer, host::Host::of(url)) {
        host.made_us_wait(started.elapsed());
    }
    answer
}

fn follow(url: &str, until: Instant) -> Result<Answer<impl io::Read + use<>>, Refusal> {
    let mut url = url.to_owned();
    for _ in 0..=REDIRECTS_LIMIT {
        let response = get_once(&url, until)?;
        let status = response.status().as_u16();
        if !(300..400).contains(&status) || status == 304 {
            return judge_answer(status, response);
        }
        let location = response.headers().get("location").and_then(|l| l.to_str().ok());
        let Some(next) = location.and_then(|l| resolve(&url, l)) else {
            return Err(Refusal::Failed(format!("HTTP {status} without a usable Location")));
        };
        if let Some(why) = forbidden_hop(&url, &next) {
            return Err(Refusal::Failed(why));
        }
        url = next;
    }
    Err(Refusal::Failed(format!("more than {REDIRECTS_LIMIT} redirects")))
}

fn judge_answer(
    status: u16,
    response: ureq::http::Response<ureq::Body>,
) -> Result<Answer<impl io::Read + use<>>, Refusal> {
    match status {
        200 => {}
        404 => return Err(Refusal::Absent),
        _ => return Err(Refusal::Failed(format!("HTTP {status}"))),
    }
    let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let chunked = header("transfer-encoding").is_some_and(|v| v.to_ascii_lowercase().contains("chunked"));
    let length = header("content-length").and_then(|v| v.trim().parse::<u64>().ok()).filter(|_| !chunked);
    if length.is_none() && !chunked {
        // Ended by closing the connection: whether such a body is whole cannot be known.
        return Err(Refusal::Failed("the answer does not say how long it is".to_owned()));
    }
    if length.is_some_and(|l| l > SIZE_LIMIT) {
        return Err(Refusal::Failed("larger than 4 GiB".to_owned()));
    }
    let body = response.into_body().into_with_config().limit(u64::MAX).reader();
    Ok(Answer { body, length })
}

fn get_once(url: &str, until: Instant) -> Result<ureq::http::Response<ureq::Body>, Refusal> {
    let host = host::Host::of(url).ok_or_else(|| Refusal::Failed("not a usable URL".to_owned()))?;
    if host.is_down() {
        return Err(Refusal::HostDown);
    }
    let agent = host::agent();
    let proxied = agent.config().proxy().is_some() && !host.is_loopback();
    let connect_within = if proxied { REACH_BUDGET } else { host.look_up().map_err(|w| host.down(w))? };
    let ask = || {
        let left = until.saturating_duration_since(Instant::now()).max(POLL);
        let request = agent.get(url).config();
        let request = if proxied { request } else { request.proxy(None) };
        request
            .timeout_resolve(Some(connect_within))
            .timeout_connect(Some(connect_within))
            .timeout_recv_response(Some(left.min(HEAD_BUDGET)))
            .timeout_per_read(Some(body::IDLE))
            .build()
            .call()
    };
    // A kept connection may have been closed by the other side just now: that is no dead host.
    let asked = Instant::now();
    let answer = match ask() {
        Err(ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::Protocol(_))
            if asked.elapsed() < host::PROMPT =>
        {
            ask()
        }
        answer => answer,
    };
    match answer {
        Ok(response) => Ok(response),
        Err(
            error @ (ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Io(_)),
        ) => Err(host.down(error.to_string())),
        Err(error) => Err(Refusal::Failed(error.to_string())),
    }
}

impl host::Host {
    /// Marks it as down and says why.
    fn down(&self, why: String) -> Refusal {
        self.mark_down();
        Refusal::Unreachable(format!("{why}; not asked again for {} s", HOST_DOWN_FOR.as_secs()))
    }
}

/// A `Location` against the URL it came from.
fn resolve(base: &str, location: &str) -> Option<String> {
    if is_http(location) {
        return Some(location.to_owned());
    }
    let (scheme, rest) = base.split_once("://")?;
    if let Some(rest) = location.strip_prefix("//") {
        return Some(format!("{scheme}://{rest}"));
    }
    if location.split(['/', '?', '#']).next().is_some_and(|first| first.contains(':')) {
        return None;
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if location.starts_with('/') {
        return Some(format!("{scheme}://{authority}{location}"));
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let slash = if folder.is_empty() { "" } else { "/" };
    Some(format!("{scheme}://{authority}/{folder}{slash}{location}"))
}

/// Why one URL may not send us to another: never from https to http, to another host only by https.
fn forbidden_hop(from: &str, to: &str) -> Option<String> {
    if is_https(from) && !is_https(to) {
        return Some(format!("it sends from https to {to}, which is not followed"));
    }
    let same = match (host::Host::of(from), host::Host::of(to)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    };
    (!same && !is_https(to)).then(|| format!("it sends to another host without https: {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        let base = "http://h:1/a/b/c";
        assert_eq!(resolve(base, "https://x/y").unwrap(), "https://x/y");
        assert_eq!(resolve(base, "//x/y").unwrap(), "http://x/y");
        assert_eq!(resolve(base, "/y").unwrap(), "http://h:1/y");
        assert_eq!(resolve(base, "y").unwrap(), "http://h:1/a/b/y");
        assert_eq!(resolve("http://h", "y").unwrap(), "http://h/y");
        assert_eq!(resolve(base, "file:///etc/passwd"), None);
    }

    #[test]
    fn hops() {
        assert!(forbidden_hop("https://a/x", "http://a/x").is_some());
        assert!(forbidden_hop("http://a/x", "http://b/x").is_some());
        assert!(forbidden_hop("http://a/x", "http://a:81/x").is_some());
        assert!(forbidden_hop("http://a/x", "https://b/x").is_none());
        assert!(forbidden_hop("https://a/x", "https://b/x").is_none());
        assert!(forbidden_hop("http://A:80/x", "http://a/y").is_none());
    }

    #[test]
    fn segments_are_encoded() {
        assert_eq!(encode(&["a b#c".into(), "é%".into()]), "a%20b%23c/%C3%A9%25");
    }
}
