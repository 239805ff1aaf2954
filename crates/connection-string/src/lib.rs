//! How a debugger is told which remote target to dial: `net:port=50000,key=a.b.c.d`,
//! `com:pipe,port=\\.\pipe\kd`, `com:port=COM1,baud=115200`, `com:ipport=4444,port=host`,
//! `unix:path=/run/vm.sock`, `gdb:host:1234`, and what DbgEng alone dials: `1394:`, `usb:`, `usb2:`,
//! `exdi:` (spec 71 section 2; the last four after Microsoft's "Setting Up Kernel-Mode Debugging").
//!
//! Both engines take the same text. Parsing is strict and opens nothing; a refusal says which item is
//! wrong by its place and never repeats what was given, because a key can stand anywhere by mistake.
//!
//! ```
//! use connection_string::{Connection, Endpoint, Transport};
//!
//! let dialled = Connection::parse(r"com:pipe,port=\\.\PIPE\Kd")?;
//! assert!(matches!(dialled.transport(), Transport::Pipe { .. }));
//! assert!(dialled.endpoint().conflicts(&Connection::parse(r"com:pipe,port=\\localhost\pipe\kd")?.endpoint()));
//! let net = Connection::parse("net:port=50000,key=w1.x2.y3.z4")?;
//! assert_eq!(net.to_string(), "net:port=50000,key=***");
//! assert_eq!(net.endpoint(), Endpoint::Kdnet(50000));
//! # Ok::<(), connection_string::ConnectionError>(())
//! ```

mod endpoint;
mod parse;

use std::fmt;
use std::time::Duration;

pub use endpoint::Endpoint;
pub use parse::{ConnectionError, LONGEST};
pub use redaction::Secret;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How the target is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// KDNET: listen on a UDP port of this machine; with a target, invite it first.
    Net { port: u16, key: Secret, target: Option<String> },
    /// A KD byte stream over a named pipe whose client the debugger is; `path` is `\\HOST\pipe\NAME`.
    Pipe { path: String, resets: Option<u32>, reconnect: bool },
    /// A serial device: `COM1`, `/dev/ttyS0`.
    Serial { device: String, baud: u32 },
    /// A KD byte stream over TCP; the debugger connects.
    Tcp { host: String, port: u16 },
    /// A KD byte stream over a Unix socket; the debugger connects.
    Unix { path: String },
    /// GDB's remote protocol over TCP; the debugger connects.
    Gdb { host: String, port: u16 },
    /// `1394:channel=N`.
    FireWire { channel: u8 },
    /// `usb:targetname=NAME`, `usb2:targetname=NAME`.
    Usb { target_name: String },
    /// `exdi:CLSID={...},...`: a hardware or hypervisor probe behind Microsoft's interface.
    Exdi,
}

impl Transport {
    /// Whether Microsoft's DbgEng dials it.
    #[must_use]
    pub fn dbgeng_dials(&self) -> bool {
        !matches!(self, Self::Unix { .. } | Self::Gdb { .. })
    }

    /// Whether the native engine dials it.
    #[must_use]
    pub fn native_dials(&self) -> bool {
        matches!(self, Self::Tcp { .. } | Self::Unix { .. })
    }

    /// Whether it is one of those that only DbgEng can ever dial.
    #[must_use]
    pub fn only_dbgeng_dials(&self) -> bool {
        matches!(self, Self::FireWire { .. } | Self::Usb { .. } | Self::Exdi)
    }

    /// What it is called in answers: `KDNET`, `a named pipe`.
    #[must_use]
    pub fn words(&self) -> &'static str {
        match self {
            Self::Net { .. } => "KDNET",
            Self::Pipe { .. } => "a named pipe",
            Self::Serial { .. } => "a serial line",
            Self::Tcp { .. } => "KD over TCP",
            Self::Unix { .. } => "KD over a Unix socket",
            Self::Gdb { .. } => "GDB's remote protocol",
            Self::FireWire { .. } => "IEEE 1394",
            Self::Usb { .. } => "USB",
            Self::Exdi => "EXDI",
        }
    }
}

/// A connection string that parsed. Prints with its key as `***`; serialises as it was given, for the
/// private channel to the worker and nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    text: String,
    transport: Transport,
    timeout: Option<Duration>,
}

impl Connection {
    /// Parses `text`, blanks around it aside. A key in it is a known secret from here on
    /// ([`redaction::mask_secrets`]).
    ///
    /// # Errors
    /// [`ConnectionError`], which repeats nothing of `text`.
    pub fn parse(text: &str) -> Result<Self, ConnectionError> {
        parse::parse(text)
    }

    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// `timeout=MS` of a byte stream: how long one answer of the other side is waited for.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// What is reserved while somebody controls the target.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::of(&self.transport)
    }

    /// The string itself, key and all, for the one place that hands it to an engine.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&parse::without_key(&self.text))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({self})")
    }
}

impl Serialize for Connection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Connection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
