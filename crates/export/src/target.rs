//! Export targets: UDP, multicast groups, TCP, files.
//!
//! Text form: `udp:HOST[:PORT]`, `tcp:HOST[:PORT]`, `multicast:INTERFACE[:PORT][,ttl=N]`, `file:PATH`. An IPv6 address
//! as host is in brackets.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The exported data type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExportKind {
    /// Flow records.
    Flows,
    /// Rows of a time series.
    Series,
}

/// The IPFIX port (RFC 7011, section 10.2.2; the same for TCP), also of our multicast export.
pub const IPFIX_PORT: u16 = 4739;

/// The usual port of NetFlow v9.
pub const NETFLOW_PORT: u16 = 2055;

/// Default multicast TTL: packets stay in the local network.
pub const TTL: u8 = 1;

/// The multicast group of a data type and an interface: 239.128 or 239.129, then the interface number. M3OMon uses
/// 224.128 and 224.129; RFC 2365 reserves 239/8 for local use.
pub fn group(kind: ExportKind, interface: u16) -> Ipv4Addr {
    let [high, low] = interface.to_be_bytes();
    let second = match kind {
        ExportKind::Flows => 128,
        ExportKind::Series => 129,
    };
    Ipv4Addr::new(239, second, high, low)
}

/// An export target; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One collector, by UDP.
    Udp {
        /// Its name or address.
        host: String,
        /// The destination port; `None` for the default port.
        port: Option<u16>,
    },
    /// Multicast: one [`group`] for each data type and interface.
    Multicast {
        /// The egress interface; empty if the kernel chooses.
        interface: String,
        /// The destination port; `None` for the default port.
        port: Option<u16>,
        /// The multicast TTL.
        ttl: u8,
    },
    /// One collector, by TCP.
    Tcp {
        /// Its name or address.
        host: String,
        /// The destination port; `None` for the default port.
        port: Option<u16>,
    },
    /// A file (RFC 5655). Messages are appended after the last complete message of an existing file.
    File(PathBuf),
}

impl Target {
    /// True if the sender notices every loss: TCP and files.
    pub fn is_reliable(&self) -> bool {
        matches!(self, Self::Tcp { .. } | Self::File(_))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |f: &mut fmt::Formatter<'_>, kind: &str, host: &str, port: Option<u16>| {
            let [open, close] = if host.contains(':') { ["[", "]"] } else { ["", ""] };
            write!(f, "{kind}:{open}{host}{close}")?;
            port.map_or(Ok(()), |p| write!(f, ":{p}"))
        };
        match self {
            Self::Udp { host: h, port } => host(f, "udp", h, *port),
            Self::Tcp { host: h, port } => host(f, "tcp", h, *port),
            Self::Multicast { interface, port, ttl } => {
                host(f, "multicast", interface, *port)?;
                if *ttl == TTL { Ok(()) } else { write!(f, ",ttl={ttl}") }
            }
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// The reason why a text is not a valid target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTargetError {
    text: String,
    reason: &'static str,
}

impl fmt::Display for ParseTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}: {}; write udp:HOST[:PORT], tcp:HOST[:PORT], multicast:INTERFACE[:PORT][,ttl=N] or file:PATH",
            self.text, self.reason
        )
    }
}

impl std::error::Error for ParseTargetError {}

impl FromStr for Target {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        let invalid = |reason| ParseTargetError { text: text.to_owned(), reason };
        let (kind, rest) = text.split_once(':').ok_or_else(|| invalid("the address of the target is missing"))?;
        match kind {
            "udp" | "tcp" => {
                let (host, port) = host_and_port(rest).map_err(invalid)?;
                if host.is_empty() {
                    return Err(invalid("the host is missing"));
                }
                Ok(if kind == "udp" { Self::Udp { host, port } } else { Self::Tcp { host, port } })
            }
            "multicast" => {
                let (rest, ttl) = match rest.split_once(",ttl=") {
                    None => (rest, TTL),
                    Some((rest, ttl)) => {
                        let ttl = ttl.parse().ok().filter(|t| *t > 0);
                        (rest, ttl.ok_or_else(|| invalid("ttl must be a number from 1 to 255"))?)
                    }
                };
                let (interface, port) = host_and_port(rest).map_err(invalid)?;
                Ok(Self::Multicast { interface, port, ttl })
            }
            "file" if rest.is_empty() => Err(invalid("the path is missing")),
            "file" => Ok(Self::File(PathBuf::from(rest))),
            _ => Err(invalid("unknown transport")),
        }
    }
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, tail) = rest.split_once(']').ok_or("a bracket is not closed")?;
            match tail.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if tail.is_empty() => (host, None),
                None => return Err("only :PORT may follow the bracket"),
            }
        }
        None if text.matches(':').count() > 1 => return Err("an IPv6 address must be in brackets"),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.contains(',') {
        return Err("only ttl=N (multicast), kinds= and fields= may follow a comma, each once");
    }
    let number = |p: &str| p.parse().ok().filter(|p| *p > 0).ok_or("the port must be a number from 1 to 65535");
    Ok((host.to_owned(), port.map(number).transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_targets_are_rejected_with_a_reason() {
        for (text, part) in [
            ("udp", "address of the target"),
            ("sctp:host", "unknown transport"),
            ("udp:", "host is missing"),
            ("udp:host:0", "65535"),
            ("tcp:host:x", "65535"),
            ("udp:2001:db8::1", "brackets"),
            ("udp:[2001:db8::1", "not closed"),
            ("multicast:eth0,ttl=0", "ttl"),
            ("file:", "path"),
            ("udp:192.0.2.1,kind=flows", "comma"),
        ] {
            let error = text.parse::<Target>().expect_err(text).to_string();
            assert!(error.contains(part) && error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn a_printed_target_parses_to_itself() {
        for text in [
            "udp:192.0.2.1",
            "udp:collector.example:9995",
            "tcp:[2001:db8::1]:4740",
            "tcp:[2001:db8::1]",
            "multicast:eth0",
            "multicast::4000",
            "multicast:eth0:4000,ttl=8",
            "file:flows.ipfix",
        ] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
        }
        assert_eq!(group(ExportKind::Series, 258), Ipv4Addr::new(239, 129, 1, 2));
    }
}
