//! A frame parser that computes the expected results of tests. It shares no code with the header parser that programs
//! use. The test parser declines every frame for which the two parsers may give different results: truncated and
//! malformed frames, tunnels, and frames with MPLS labels.

/// The parsed headers of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    pub ethertype: u16,
    pub ip: Option<Ip>,
}

/// A complete IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ip {
    pub src: u128,
    pub dst: u128,
    pub protocol: u8,
    /// The fragmentation: `None` for an unfragmented packet, `Some(true)` for a later fragment, `Some(false)` for a
    /// first fragment.
    pub fragment: Option<Later>,
    /// The value that identifies the datagram together with the addresses: the IP identification, and for IPv4 also the
    /// protocol.
    pub id: u64,
    /// The bytes from the start of the transport header; for a later fragment, its payload.
    pub body: Vec<u8>,
}

pub type Later = bool;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;
/// The prefix of IPv4-mapped IPv6 addresses (RFC 4291 §2.5.5.2).
pub const MAPPED: u128 = 0xffff_0000_0000;
/// Maximum offset of the transport header. The limit is that of the header parser, `wire::Headers`: byte 255, counted
/// from the start of the link header.
const FARTHEST: usize = 200;
/// Protocols and ports that may carry a tunnel.
const TUNNELS: [u8; 8] = [4, 41, 47, 51, 97, 115, 135, 137];
const TUNNEL_PORTS: [u16; 9] = [2152, 3544, 4754, 4789, 4790, 5072, 6081, 6635, 8472];

impl Plain {
    /// Parses a frame; `None` if the parser declines the frame.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let mut at = 12;
        let mut ethertype = word(frame, at)?;
        while matches!(ethertype, 0x8100 | 0x88a8 | 0x9100) {
            at += 4;
            ethertype = word(frame, at)?;
        }
        let ip = match ethertype {
            0x0800 => Some(ip4(&frame[at + 2..])?),
            0x86dd => Some(ip6(&frame[at + 2..])?),
            0x0806 => None,
            _ => return None,
        };
        Some(Self { ethertype, ip })
    }
}

impl Ip {
    /// Parses an IP packet that has no link header.
    pub fn of_packet(packet: &[u8]) -> Option<Self> {
        if packet.first()? >> 4 == 4 { ip4(packet) } else { ip6(packet) }
    }

    /// The ports of TCP, UDP and SCTP packets, including first fragments.
    pub fn ports(&self) -> Option<[u16; 2]> {
        let has = matches!(self.protocol, TCP | UDP | SCTP) && self.fragment != Some(true);
        has.then(|| Some([word(&self.body, 0)?, word(&self.body, 2)?])).flatten()
    }

    pub fn has_port(&self, port: u16) -> bool {
        self.ports().is_some_and(|p| p.contains(&port))
    }

    /// The flags of the TCP header, if the header is complete.
    pub fn tcp_flags(&self) -> Option<u8> {
        (self.protocol == TCP && self.fragment != Some(true) && self.body.len() >= 20).then(|| self.body[13])
    }

    /// The key by which unfragmented packets and first fragments are steered; it is equal for both directions of a
    /// flow.
    pub fn flow(&self) -> Vec<u8> {
        self.both_ways(self.ports().unwrap_or_default())
    }

    /// The flow key with the ports of the datagram; it is equal for both directions of a flow, because the lesser
    /// endpoint comes first.
    pub fn both_ways(&self, [sport, dport]: [u16; 2]) -> Vec<u8> {
        let (a, b) = ((self.src, sport), (self.dst, dport));
        let ends = [a.min(b), a.max(b)];
        let mut key: Vec<u8> = ends
            .iter()
            .flat_map(|(address, port)| [&address.to_be_bytes()[..], &port.to_be_bytes()].concat())
            .collect();
        key.push(self.protocol);
        key
    }

    /// The flow key of one direction; the opposite direction has another key.
    pub fn one_way(&self, ports: [u16; 2]) -> (u128, u128, [u16; 2], u8) {
        (self.src, self.dst, ports, self.protocol)
    }

    /// A key that consists of the source and the destination address; it is equal for both directions of a flow.
    pub fn pair(&self) -> Vec<u8> {
        let ends = [self.src.min(self.dst), self.src.max(self.dst)];
        ends.iter().flat_map(|a| a.to_be_bytes()).collect()
    }

    pub fn dst_port(&self) -> u16 {
        self.ports().unwrap_or_default()[1]
    }
}

/// The IPv4-mapped IPv6 address.
pub fn v4(address: [u8; 4]) -> u128 {
    MAPPED | u128::from(u32::from_be_bytes(address))
}

/// True if the address is in the network `network` with this prefix length.
pub fn inside(address: u128, net: [u8; 4], bits: u32) -> bool {
    (address ^ v4(net)) >> (32 - bits) == 0
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn ip4(packet: &[u8]) -> Option<Ip> {
    let header = usize::from(packet.first()? & 15) * 4;
    let total = usize::from(word(packet, 2)?);
    if packet[0] >> 4 != 4 || header < 20 || total < header || packet.len() < total {
        return None;
    }
    let address = |at: usize| Some(v4(packet.get(at..at + 4)?.try_into().ok()?));
    let (more, offset) = (packet[6] & 0x20 != 0, word(packet, 6)? & 0x1fff);
    let fragment = if offset > 0 { Some(true) } else { more.then_some(false) };
    upper(Ip {
        src: address(12)?,
        dst: address(16)?,
        protocol: packet[9],
        fragment,
        id: u64::from(word(packet, 4)?) << 8 | u64::from(packet[9]),
        body: packet[header..total].to_vec(),
    })
}

fn ip6(packet: &[u8]) -> Option<Ip> {
    let total = 40 + usize::from(word(packet, 4)?);
    if packet[0] >> 4 != 6 || packet.len() < total {
        return None;
    }
    let address = |at: usize| Some(u128::from_be_bytes(packet.get(at..at + 16)?.try_into().ok()?));
    let (mut next, mut at, mut fragment, mut id) = (packet[6], 40, None, 0);
    // In a later fragment, the fragment header is followed by payload and not by another header.
    while matches!(next, 0 | 43 | 44 | 60) && fragment != Some(true) {
        let header = packet.get(at..at + 8)?;
        let len = if next == 44 { 8 } else { 8 + 8 * usize::from(header[1]) };
        if next == 44 {
            let (offset, more) = (word(header, 2)? >> 3, header[3] & 1 == 1);
            fragment = if offset > 0 { Some(true) } else { more.then_some(false) };
            id = u64::from(word(header, 4)?) << 16 | u64::from(word(header, 6)?);
        }
        next = header[0];
        at += len;
    }
    if at > FARTHEST {
        return None;
    }
    let body = packet.get(at..total)?.to_vec();
    upper(Ip { src: address(8)?, dst: address(24)?, protocol: next, fragment, id, body })
}

/// Returns the packet, or `None` if it may be a tunnel packet or if its transport header is incomplete.
fn upper(ip: Ip) -> Option<Ip> {
    let need = match ip.protocol {
        TCP => 20,
        UDP | 1 | 58 => 8,
        SCTP => 12,
        _ => 0,
    };
    let short = ip.fragment != Some(true) && ip.body.len() < need;
    // Later fragments of UDP are accepted: their datagram may be a tunnel, but no parser can detect it, because a later
    // fragment contains no ports.
    let hidden =
        TUNNELS.contains(&ip.protocol) || ip.ports().is_some_and(|p| p.iter().any(|p| TUNNEL_PORTS.contains(p)));
    (!short && !hidden).then_some(ip)
}
