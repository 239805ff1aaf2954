//! Which strings reach the same target: two controllers of one target stop and start it behind each
//! other's back.

use std::net::IpAddr;

use crate::Transport;
use crate::parse::pipe;

/// One spelling of where a target is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The UDP port of this machine that KDNET targets dial.
    Kdnet(u16),
    /// `host\name`, lower case; this machine is `.`.
    Pipe(String),
    /// The device, lower case and without `\\.\`.
    Serial(String),
    /// Host and TCP port.
    Tcp(String, u16),
    /// The socket's path.
    Unix(String),
    FireWire(u8),
    Usb(String),
    /// Nobody but the engine knows where it leads.
    Unknown,
}

impl Endpoint {
    pub(crate) fn of(transport: &Transport) -> Self {
        match transport {
            Transport::Net { port, .. } => Self::Kdnet(*port),
            Transport::Pipe { path, .. } => match pipe(path) {
                Some((server, name)) => {
                    let server = host(&server);
                    let here = server == "." || server == LOOPBACK;
                    Self::Pipe(format!("{}\\{name}", if here { "." } else { &server }))
                }
                None => Self::Unknown,
            },
            Transport::Serial { device, .. } => {
                let device = device.replace('/', "\\").to_lowercase();
                Self::Serial(device.strip_prefix("\\\\.\\").unwrap_or(&device).to_owned())
            }
            Transport::Tcp { host: name, port } | Transport::Gdb { host: name, port } => {
                Self::Tcp(host(name), *port)
            }
            Transport::Unix { path } => Self::Unix(tidy(path)),
            Transport::FireWire { channel } => Self::FireWire(*channel),
            Transport::Usb { target_name } => Self::Usb(target_name.to_lowercase()),
            Transport::Exdi => Self::Unknown,
        }
    }

    /// Whether both may be the same target. One that is not known may be any.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        self == other || *self == Self::Unknown || *other == Self::Unknown
    }
}

const LOOPBACK: &str = "127.0.0.1";

/// A host in one spelling.
fn host(name: &str) -> String {
    let name = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = name.parse::<IpAddr>() {
        let address = address.to_canonical();
        return if address.is_loopback() { LOOPBACK.to_owned() } else { address.to_string() };
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    match name.as_str() {
        "localhost" => LOOPBACK.to_owned(),
        // `\\.\pipe`
        "" => ".".to_owned(),
        _ => name,
    }
}

/// A path without empty and `.` parts.
fn tidy(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.fold(String::new(), |path, part| format!("{path}/{part}"))
}
