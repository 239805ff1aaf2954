//! The grammar: `scheme:` and items between commas, each `name=value` or a flag.

use std::time::Duration;

use redaction::Secret;

use crate::{Connection, Transport};

/// Longest string that is parsed, in bytes.
pub const LONGEST: usize = 1024;
/// Longest `timeout`, in milliseconds.
const LONGEST_TIMEOUT: u64 = 600_000;
/// Groups of a KDNET key, and digits of one: 64 bits in base 36.
const KEY_GROUPS: usize = 4;
const KEY_DIGITS: usize = 13;

/// Why a string is no connection string. Says where, never what stands there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    #[error("a connection string is 1 to {LONGEST} bytes; this one is {0}")]
    Length(usize),
    /// A blank has two readings, and each shows the key under the other.
    #[error(
        "a connection string holds no blanks, semicolons, quotes or control characters; commas separate its items"
    )]
    Characters,
    #[error(
        "a connection string begins with its scheme: net:port=N,key=***  com:pipe,port=\\\\HOST\\pipe\\NAME  \
         com:port=DEVICE,baud=N  com:ipport=N,port=HOST  unix:path=PATH  gdb:HOST:PORT  1394:channel=N  \
         usb:targetname=NAME  exdi:CLSID=ID"
    )]
    Scheme,
    #[error("item {place} of the {scheme}: string is none that it has: {known}")]
    UnknownItem { scheme: &'static str, place: usize, known: &'static str },
    #[error("the {scheme}: string names {name} twice")]
    Repeated { scheme: &'static str, name: &'static str },
    #[error("the {scheme}: string needs {name}, {wanted}")]
    Missing { scheme: &'static str, name: &'static str, wanted: &'static str },
    #[error("{name} of the {scheme}: string must be {wanted}")]
    Value { scheme: &'static str, name: &'static str, wanted: &'static str },
}

type Parsed<T> = Result<T, ConnectionError>;

/// A form of a scheme: what it is called, the names it knows (`!` before a flag), and those in words.
struct Form {
    scheme: &'static str,
    names: &'static [&'static str],
    known: &'static str,
}

const NET: Form = Form { scheme: "net", names: &["port", "key", "target"], known: "port, key, target" };
const PIPE: Form = Form {
    scheme: "com",
    names: &["!pipe", "port", "resets", "!reconnect", "timeout"],
    known: "pipe, port, resets, reconnect, timeout",
};
const SERIAL: Form =
    Form { scheme: "com", names: &["port", "baud", "timeout"], known: "port, baud, timeout" };
const TCP: Form =
    Form { scheme: "com", names: &["ipport", "port", "timeout"], known: "ipport, port, timeout" };
const UNIX: Form = Form { scheme: "unix", names: &["path"], known: "path" };
const FIREWIRE: Form = Form { scheme: "1394", names: &["channel", "symlink"], known: "channel, symlink" };
const USB: Form = Form { scheme: "usb", names: &["targetname"], known: "targetname" };
const EXDI: Form = Form {
    scheme: "exdi",
    names: &["CLSID", "Kd", "!ForceX86", "DataBreaks", "!Inproc", "ContextArch", "Pipe"],
    known: "CLSID, Kd, ForceX86, DataBreaks, Inproc, ContextArch, Pipe",
};

const PORT: &str = "1 to 65535";
const HOST: &str = "a host name or an address";

struct Items<'a> {
    form: &'static Form,
    found: Vec<(&'static str, &'a str)>,
}

impl<'a> Items<'a> {
    fn of(form: &'static Form, text: &'a str) -> Parsed<Self> {
        let mut found: Vec<(&'static str, &'a str)> = Vec::new();
        for (at, item) in text.split(',').enumerate() {
            let unknown =
                || ConnectionError::UnknownItem { scheme: form.scheme, place: at + 1, known: form.known };
            let (given, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (item, None),
            };
            let name = form.names.iter().copied().find(|known| {
                let flag = known.strip_prefix('!');
                flag.is_some() == value.is_none() && flag.unwrap_or(known).eq_ignore_ascii_case(given)
            });
            let name = name.map(|name| name.trim_start_matches('!')).ok_or_else(unknown)?;
            if found.iter().any(|(known, _)| *known == name) {
                return Err(ConnectionError::Repeated { scheme: form.scheme, name });
            }
            found.push((name, value.unwrap_or_default()));
        }
        Ok(Self { form, found })
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.found.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn bad(&self, name: &'static str, wanted: &'static str) -> ConnectionError {
        ConnectionError::Value { scheme: self.form.scheme, name, wanted }
    }

    fn need(&self, name: &'static str, wanted: &'static str) -> Parsed<&'a str> {
        self.get(name).filter(|value| !value.is_empty()).ok_or(ConnectionError::Missing {
            scheme: self.form.scheme,
            name,
            wanted,
        })
    }

    fn number(&self, name: &'static str, min: u64, max: u64, wanted: &'static str) -> Parsed<Option<u64>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        number(text, min, max).map(Some).ok_or_else(|| self.bad(name, wanted))
    }

    fn port(&self, name: &'static str) -> Parsed<u16> {
        port(self.need(name, PORT)?).ok_or_else(|| self.bad(name, PORT))
    }

    fn host(&self, name: &'static str, text: &str) -> Parsed<String> {
        if is_host(text) { Ok(text.to_owned()) } else { Err(self.bad(name, HOST)) }
    }

    fn timeout(&self) -> Parsed<Option<Duration>> {
        let given = self.number("timeout", 1, LONGEST_TIMEOUT, "1 to 600000 milliseconds")?;
        Ok(given.map(Duration::from_millis))
    }
}

/// Digits only: no sign, no blank.
fn number(text: &str, min: u64, max: u64) -> Option<u64> {
    let digits = (1..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|value| digits && (min..=max).contains(value))
}

fn port(text: &str) -> Option<u16> {
    number(text, 1, u64::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
}

/// A name or an address; IPv6 with or without brackets.
fn is_host(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=253).contains(&inner.len())
        && (inner.parse::<std::net::Ipv6Addr>().is_ok() || (inner == text && text.bytes().all(plain)))
}

/// `\\HOST\pipe\NAME`, any case, either slash.
pub(crate) fn pipe(path: &str) -> Option<(String, String)> {
    let path = path.replace('/', "\\");
    let (host, rest) = path.strip_prefix("\\\\")?.split_once('\\')?;
    let (word, name) = rest.split_once('\\')?;
    let whole = !name.is_empty() && (host == "." || is_host(host)) && word.eq_ignore_ascii_case("pipe");
    whole.then(|| (host.to_ascii_lowercase(), name.to_lowercase()))
}

fn is_key(text: &str) -> bool {
    let group = |group: &str| {
        (1..=KEY_DIGITS).contains(&group.len()) && group.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    text.split('.').count() == KEY_GROUPS && text.split('.').all(group)
}

pub(crate) fn parse(text: &str) -> Parsed<Connection> {
    let text = text.trim_matches(|c: char| c.is_whitespace());
    if text.is_empty() || text.len() > LONGEST {
        return Err(ConnectionError::Length(text.len()));
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, ';' | '"' | '\'')) {
        return Err(ConnectionError::Characters);
    }
    let (scheme, rest) = text.split_once(':').ok_or(ConnectionError::Scheme)?;
    let (transport, timeout) = match scheme.to_ascii_lowercase().as_str() {
        "net" => net(rest)?,
        "com" => com(rest)?,
        "unix" => unix(rest)?,
        "gdb" => (gdb(rest)?, None),
        "1394" => (firewire(rest)?, None),
        "usb" | "usb2" => (usb(rest)?, None),
        "exdi" => {
            Items::of(&EXDI, rest)?.need("CLSID", "{...}")?;
            (Transport::Exdi, None)
        }
        _ => return Err(ConnectionError::Scheme),
    };
    Ok(Connection { text: text.to_owned(), transport, timeout })
}

type Reached = (Transport, Option<Duration>);

fn net(text: &str) -> Parsed<Reached> {
    let items = Items::of(&NET, text)?;
    let port = items.port("port")?;
    const KEY: &str = "four groups of letters and digits with dots between";
    let key = items.need("key", KEY)?;
    if !is_key(key) {
        return Err(items.bad("key", KEY));
    }
    let target = items.get("target").map(|host| items.host("target", host)).transpose()?;
    Ok((Transport::Net { port, key: Secret::new(key), target }, None))
}

fn com(text: &str) -> Parsed<Reached> {
    let mut names = text.split(',').map(|item| item.split_once('=').map_or(item, |(name, _)| name));
    if text.split(',').any(|item| item.eq_ignore_ascii_case("pipe")) {
        let items = Items::of(&PIPE, text)?;
        const WANTED: &str = "\\\\HOST\\pipe\\NAME";
        let path = items.need("port", WANTED)?;
        pipe(path).ok_or_else(|| items.bad("port", WANTED))?;
        let resets = items.number("resets", 0, u64::from(u32::MAX), "a number")?;
        let resets = resets.and_then(|n| u32::try_from(n).ok());
        let reconnect = items.get("reconnect").is_some();
        return Ok((Transport::Pipe { path: path.to_owned(), resets, reconnect }, items.timeout()?));
    }
    if names.any(|name| name.eq_ignore_ascii_case("ipport")) {
        let items = Items::of(&TCP, text)?;
        let port = items.port("ipport")?;
        let host = items.host("port", items.need("port", HOST)?)?;
        return Ok((Transport::Tcp { host, port }, items.timeout()?));
    }
    let items = Items::of(&SERIAL, text)?;
    let device = items.need("port", "a device: COM1, /dev/ttyS0")?.to_owned();
    items.need("baud", "bits per second")?;
    let baud = items.number("baud", 1, 100_000_000, "a number of bits per second")?;
    let baud = baud.and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
    Ok((Transport::Serial { device, baud }, items.timeout()?))
}

fn unix(text: &str) -> Parsed<Reached> {
    let items = Items::of(&UNIX, text)?;
    let path = items.need("path", "PATH")?;
    if !path.starts_with('/') {
        return Err(items.bad("path", "an absolute path"));
    }
    Ok((Transport::Unix { path: path.to_owned() }, None))
}

fn gdb(text: &str) -> Parsed<Transport> {
    let bad = |name, wanted| ConnectionError::Value { scheme: "gdb", name, wanted };
    let (host, number) = text.rsplit_once(':').ok_or_else(|| bad("what follows", "HOST:PORT"))?;
    // Without its brackets an IPv6 address ends where nobody can say.
    if !is_host(host) || (host.contains(':') && !host.starts_with('[')) {
        return Err(bad("the host", HOST));
    }
    let port = port(number).ok_or_else(|| bad("the port", PORT))?;
    Ok(Transport::Gdb { host: host.to_owned(), port })
}

fn firewire(text: &str) -> Parsed<Transport> {
    let items = Items::of(&FIREWIRE, text)?;
    const CHANNEL: &str = "0 to 62";
    items.need("channel", CHANNEL)?;
    let channel = items.number("channel", 0, 62, CHANNEL)?.unwrap_or_default();
    Ok(Transport::FireWire { channel: u8::try_from(channel).unwrap_or_default() })
}

fn usb(text: &str) -> Parsed<Transport> {
    let target_name = Items::of(&USB, text)?.need("targetname", "NAME")?.to_owned();
    Ok(Transport::Usb { target_name })
}

/// A string that parsed, its key's value replaced.
pub(crate) fn without_key(text: &str) -> String {
    let Some((scheme, items)) = text.split_once(':') else { return String::new() };
    let shown = items.split(',').map(|item| match item.split_once('=') {
        Some((name, _)) if name.eq_ignore_ascii_case("key") => format!("{name}=***"),
        _ => item.to_owned(),
    });
    format!("{scheme}:{}", shown.collect::<Vec<_>>().join(","))
}
