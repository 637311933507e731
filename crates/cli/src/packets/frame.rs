//! One packet as a line of text or as JSON; both use the same fields.

use crate::style::{Paint, StylePart};
use query::{FoundPacket, Origin};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use wire::{Arp, Family, FlowKey, Fragment, Headers, Icmp, IpProtocol, Ipv4, Ipv6, Tcp, Udp, link, tcp_flags};

/// A packet as printed by `--json`; fields that do not apply are omitted.
#[derive(Default, Serialize)]
pub struct Packet<'a> {
    schema_version: u64,
    time: String,
    interface: &'a str,
    queue: u16,
    /// Bytes on the wire.
    length: u32,
    /// Bytes kept.
    captured: usize,
    link_type: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    /// `ip`, `ip6`, `arp`, or the number of another ethertype.
    #[serde(skip_serializing_if = "Option::is_none")]
    ethertype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    src: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u8>,
    /// `first` or `later`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fragment: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<Segment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icmp: Option<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arp: Option<Resolution>,
    /// Length of the TCP or UDP payload according to the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<usize>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    malformed: bool,
    /// Packets lost on this queue since the previous packet in the result.
    #[serde(skip_serializing_if = "is_zero")]
    lost_before: u64,
}

#[derive(Serialize)]
struct Segment {
    /// The TCP flags as tcpdump writes them: `S`, `S.`, `P.`, `F.`, `R`, `.`.
    flags: String,
    seq: u32,
    ack: u32,
    window: u16,
}

#[derive(Serialize)]
struct Message {
    #[serde(rename = "type")]
    kind: u8,
    code: u8,
}

#[derive(Serialize)]
struct Resolution {
    operation: u16,
    sender: String,
    sender_mac: String,
    target: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl<'a> Packet<'a> {
    /// Decodes a found packet into the fields that are printed. `origin` is the interface and queue of the packet.
    pub fn of(found: &FoundPacket<'_>, origin: &'a Origin) -> Self {
        let (frame, headers) = (found.data, Headers::of(found.data, found.wire_len, found.link_type));
        let mut packet = Self {
            schema_version: export::text::SCHEMA_VERSION,
            time: found.ts.to_string(),
            interface: &origin.interface,
            queue: origin.queue,
            length: found.wire_len,
            captured: frame.len(),
            link_type: found.link_type,
            vlan: headers.vlan(),
            malformed: headers.malformed(),
            lost_before: found.lost,
            ..Self::default()
        };
        if headers.ethertype().0 != 0 {
            packet.ethertype = Some(headers.ethertype().to_string());
        }
        packet.internet(frame, &headers);
        if headers.family() == Family::Other && headers.ethertype() == wire::EtherType::ARP {
            packet.resolution(frame, &headers, found.link_type);
        }
        packet
    }

    fn internet(&mut self, frame: &[u8], headers: &Headers) {
        let Some(flow) = FlowKey::of(frame, headers) else { return };
        (self.src, self.dst) = (Some(flow.src), Some(flow.dst));
        self.protocol = Some(flow.protocol.to_string());
        let l3 = usize::from(headers.l3());
        // The offset of the end of the datagram, counted from the first byte of its IP header.
        let end = match headers.family() {
            Family::V4 => Ipv4::parse(frame, l3).ok().map(|ip| {
                self.ttl = Some(ip.ttl());
                usize::from(ip.total_len())
            }),
            Family::V6 => Ipv6::parse(frame, l3).ok().map(|ip| {
                self.ttl = Some(ip.hop_limit());
                Ipv6::LEN + usize::from(ip.payload_len())
            }),
            Family::Other => None,
        };
        self.fragment = match headers.fragment() {
            Fragment::Whole => None,
            Fragment::First => Some("first"),
            Fragment::Later => Some("later"),
        };
        let l4 = usize::from(headers.l4());
        if l4 == 0 {
            return;
        }
        if flow.protocol.has_ports() && frame.len() >= l4 + 4 {
            // The flow key of a fragment lacks ports, so that all fragments share it; the ports are read from the first
            // fragment.
            let port = |at: usize| Some(u16::from_be_bytes([frame[at], frame[at + 1]]));
            (self.src_port, self.dst_port) = (port(l4), port(l4 + 2));
        }
        match flow.protocol {
            IpProtocol::TCP => {
                if let Ok(tcp) = Tcp::parse(frame, l4) {
                    let header = l4 - l3 + Tcp::LEN + tcp.options().len();
                    self.payload = end.and_then(|end| end.checked_sub(header));
                    let flags = flags(tcp.flags());
                    self.tcp = Some(Segment { flags, seq: tcp.seq(), ack: tcp.ack(), window: tcp.window() });
                }
            }
            IpProtocol::UDP => {
                let udp = Udp::parse(frame, l4).ok();
                self.payload = udp.map(|udp| usize::from(udp.len()).saturating_sub(Udp::LEN));
            }
            IpProtocol::ICMP | IpProtocol::ICMPV6 => {
                let icmp = Icmp::parse(frame, l4).ok();
                self.icmp = icmp.map(|icmp| Message { kind: icmp.kind(), code: icmp.code() });
            }
            _ => {}
        }
    }

    fn resolution(&mut self, frame: &[u8], headers: &Headers, link_type: u16) {
        // The decoder returns no offset for ARP: its header follows the Ethertype that ends the link header and the
        // VLAN tags.
        let at = match (headers.l3(), link_type) {
            (l3, _) if l3 > 0 => usize::from(l3),
            (_, link::ETHERNET) => 14,
            _ => return,
        };
        if let Ok(arp) = Arp::parse(frame, at) {
            self.arp = Some(Resolution {
                operation: arp.operation(),
                sender: arp.sender_ip().to_string(),
                sender_mac: arp.sender_mac().to_string(),
                target: arp.target_ip().to_string(),
            });
        }
    }
}

/// The TCP flags in the notation of tcpdump.
fn flags(bits: u8) -> String {
    const FLAG_LETTERS: [(u8, char); 8] = [
        (tcp_flags::FIN, 'F'),
        (tcp_flags::SYN, 'S'),
        (tcp_flags::RST, 'R'),
        (tcp_flags::PSH, 'P'),
        (tcp_flags::ACK, '.'),
        (tcp_flags::URG, 'U'),
        (tcp_flags::ECE, 'E'),
        (tcp_flags::CWR, 'W'),
    ];
    let shown: String = FLAG_LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| letter).collect();
    if shown.is_empty() { "none".to_owned() } else { shown }
}

/// A packet as a line of text: see [`Packet::line`].
pub struct Line<'a> {
    packet: &'a Packet<'a>,
    time: &'a str,
    paint: Paint,
}

impl Packet<'_> {
    /// `2026-11-21T10:42:00.000000007Z eth1 q0 74 B 10.0.0.1:443 > 10.0.0.2:4000 tcp [S.] seq 1 ack 2 win 512, 0 B`;
    /// `time` replaces the timestamp if it is not to be in UTC.
    pub fn line<'a>(&'a self, time: Option<&'a str>, paint: Paint) -> Line<'a> {
        Line { packet: self, time: time.unwrap_or(&self.time), paint }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.paint.part(StylePart::Faint, self.time), self.packet.interface)?;
        self.packet.text(f, self.paint)
    }
}

impl Packet<'_> {
    /// Writes the part of the line that follows the time and the interface.
    fn text(&self, f: &mut fmt::Formatter<'_>, paint: Paint) -> fmt::Result {
        if self.queue > 0 {
            write!(f, " q{}", self.queue)?;
        }
        write!(f, " {} B ", self.length)?;
        if let Some(vlan) = self.vlan {
            write!(f, "vlan {vlan} ")?;
        }
        match (self.src, self.dst, &self.protocol) {
            (Some(src), Some(dst), Some(protocol)) => {
                write!(f, "{}", End(src, self.src_port))?;
                f.write_str(" > ")?;
                write!(f, "{}", End(dst, self.dst_port))?;
                write!(f, " {protocol}")?;
            }
            _ => f.write_str(self.ethertype.as_deref().unwrap_or("no headers"))?,
        }
        if let Some(fragment) = self.fragment {
            write!(f, " {fragment} fragment")?;
        }
        if let Some(tcp) = &self.tcp {
            let flags = format!("[{}]", tcp.flags);
            let flags =
                if tcp.flags.contains('R') { paint.part(StylePart::Bad, &flags) } else { flags.as_str().into() };
            write!(f, " {flags} seq {} ack {} win {}", tcp.seq, tcp.ack, tcp.window)?;
        }
        if let Some(payload) = self.payload {
            write!(f, ", {payload} B")?;
        }
        if let Some(icmp) = &self.icmp {
            let six = self.src.is_some_and(|a| a.is_ipv6());
            match meaning(six, icmp.kind) {
                Some(text) => write!(f, " {text}")?,
                None => write!(f, " type {}", icmp.kind)?,
            }
            write!(f, " code {}", icmp.code)?;
        }
        match &self.arp {
            Some(Resolution { operation: 1, sender, target, .. }) => write!(f, " who has {target}? tell {sender}")?,
            Some(Resolution { operation: 2, sender, sender_mac, .. }) => write!(f, " {sender} is at {sender_mac}")?,
            Some(other) => write!(f, " operation {}", other.operation)?,
            None => {}
        }
        if self.captured < self.length as usize {
            write!(f, " (truncated to {} B)", self.captured)?;
        }
        if self.malformed {
            write!(f, " {}", paint.part(StylePart::Notable, "(malformed)"))?;
        }
        if self.lost_before > 0 {
            let lost = format!("({} lost before it)", base::units::show_count(self.lost_before));
            write!(f, " {}", paint.part(StylePart::Bad, &lost))?;
        }
        Ok(())
    }
}

/// An address with an optional port.
struct End(IpAddr, Option<u16>);

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (IpAddr::V6(a), Some(port)) => write!(f, "[{a}]:{port}"),
            (a, Some(port)) => write!(f, "{a}:{port}"),
            (a, None) => a.fmt(f),
        }
    }
}

/// The names of common ICMP messages (RFC 792, 4443, 4861).
fn meaning(six: bool, kind: u8) -> Option<&'static str> {
    Some(match (six, kind) {
        (false, 0) | (true, 129) => "echo reply",
        (false, 8) | (true, 128) => "echo request",
        (false, 3) | (true, 1) => "unreachable",
        (false, 5) | (true, 137) => "redirect",
        (false, 11) | (true, 3) => "time exceeded",
        (false, 12) | (true, 4) => "parameter problem",
        (true, 2) => "packet too big",
        (true, 133) => "router solicitation",
        (true, 134) => "router advertisement",
        (true, 135) => "neighbour solicitation",
        (true, 136) => "neighbour advertisement",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Prng, Timestamp};
    use wire::build::Frame;

    fn origin(queue: u16) -> Origin {
        Origin {
            interface: "eth1".into(),
            queue,
            link_type: 1,
            snaplen: 0,
            filter: String::new(),
            timestamp_source: String::new(),
        }
    }

    fn shown(frame: &[u8], wire_len: u32, lost: u64) -> (String, serde_json::Value) {
        let ts = Timestamp::from_secs_nanos(1_795_257_720, 7);
        let found =
            FoundPacket { ts, wire_len, data: frame, link_type: link::ETHERNET, origin: 0, lost, position: None };
        let origin = origin(3);
        let packet = Packet::of(&found, &origin);
        (packet.line(None, Paint::default()).to_string(), serde_json::to_value(&packet).expect("an object"))
    }

    #[test]
    fn the_line_and_the_json_object_have_the_same_fields() {
        let mut buffer = [0; 90];
        let frame = Frame::tcp4([10, 0, 0, 1], 443, [10, 0, 0, 2], 4000).fill(&mut buffer).to_vec();
        let (line, object) = shown(&frame, 1514, 12);
        assert!(
            line.starts_with("2026-11-21T10:42:00.000000007Z eth1 q3 1514 B 10.0.0.1:443 > 10.0.0.2:4000 tcp ["),
            "{line}"
        );
        assert!(line.ends_with("(truncated to 90 B) (12 lost before it)"), "{line}");
        assert_eq!((&object["src"], &object["dst_port"]), (&"10.0.0.1".into(), &4000.into()));
        assert_eq!((&object["lost_before"], &object["captured"]), (&12.into(), &90.into()));
        let frame = Frame::udp6(1u128, 53, 2u128, 53).fill(&mut buffer).to_vec();
        let (line, object) = shown(&frame, 90, 0);
        assert!(line.contains("[::1]:53 > [::2]:53 udp, "), "{line}");
        assert_eq!((&object["ethertype"], object.get("lost_before")), (&"ip6".into(), None));
        let frame = Frame::icmp4([10, 0, 0, 1], [10, 0, 0, 2], 8, 0, [0; 4]).fill(&mut buffer).to_vec();
        assert!(shown(&frame, 90, 0).0.contains("10.0.0.1 > 10.0.0.2 icmp echo request code 0"));
        let mut arp = vec![0xff; 12];
        arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0, 0, 1, 10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
        assert!(shown(&arp, 42, 0).0.contains("arp who has 10.0.0.9? tell 10.0.0.7"), "{}", shown(&arp, 42, 0).0);
    }

    #[test]
    fn any_bytes_give_a_line_and_an_object() {
        let mut prng = Prng::new(12);
        for _ in 0..20_000 {
            let mut bytes = vec![0; prng.below(120) as usize];
            prng.fill(&mut bytes);
            if bytes.len() > 14 {
                let kinds: [[u8; 2]; 4] = [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]];
                bytes[12..14].copy_from_slice(&kinds[prng.below(4) as usize]);
            }
            let (line, object) = shown(&bytes, bytes.len() as u32, 0);
            assert!(!line.contains('\n') && object.is_object());
        }
    }
}
