//! The relation of two packets: which fields differ.
//!
//! Both regions have the same length, and the hashes of the bytes that no class changes are equal. The rules compare
//! the stored bytes and assign each differing byte to a field. [`crate::evidence`] decides whether packets with such a
//! relation are copies.

use crate::compared::Compared;
use crate::fields::{Kind, PORTS, QUERY_ID, tcp, translated_fields, v4, v6};
use crate::table::Head;
use wire::IpProtocol;

/// The relation of a packet to a record with the same hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Another packet.
    #[default]
    Different,
    /// The packets differ in the IPv4 identification, and otherwise only in fields that routers change: the sender sent
    /// the same bytes again.
    Sibling,
    /// All compared bytes are equal.
    Equal,
    /// The packets differ only in fields that routers change.
    Hop { before: u8, after: u8, is_tos_changed: bool },
}

/// The fields in which two regions differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Differences {
    tos: bool,
    id: bool,
    ttl: bool,
    source: bool,
    destination: bool,
    source_port: bool,
    destination_port: bool,
    /// The identifier of an ICMP query, which NAT changes (RFC 5508 section 3.1).
    query: bool,
    /// The checksum of the IPv4 header, or of the transport header.
    network_sum: bool,
    transport_sum: bool,
    /// A byte that no class changes.
    other: bool,
}

impl Differences {
    /// Compares two regions of equal length.
    fn of(old: &[u8], new: &[u8], compared: &Compared) -> Self {
        let mut found = Self::default();
        if old == new {
            return found;
        }
        for (at, (a, b)) in old.iter().zip(new).enumerate() {
            if a != b {
                found.add(at, a ^ b, compared);
            }
        }
        // A checksum alone does not change on the way.
        let address = found.source || found.destination;
        let is_network_explained = found.tos || found.id || found.ttl || address;
        // The checksum of ICMP over IPv4 does not contain the addresses (RFC 792).
        let is_address_explained = address && compared.protocol != IpProtocol::ICMP;
        let is_transport_explained = is_address_explained || found.source_port || found.destination_port || found.query;
        found.other |= found.query && !address;
        found.other |= found.network_sum && !is_network_explained || found.transport_sum && !is_transport_explained;
        found
    }

    fn add(&mut self, at: usize, bits: u8, compared: &Compared) {
        let field = match compared.head.kind {
            Kind::V4 => match at {
                v4::TOS => Some(&mut self.tos),
                v4::ID..v4::FLAGS => Some(&mut self.id),
                v4::TTL => Some(&mut self.ttl),
                v4::CHECKSUM..v4::SRC => Some(&mut self.network_sum),
                v4::SRC..v4::DST => Some(&mut self.source),
                v4::DST..v4::END => Some(&mut self.destination),
                _ => None,
            },
            Kind::V6 => match at {
                // The version and the flow label share bytes with the traffic class.
                0 if bits & 0xf0 == 0 => Some(&mut self.tos),
                1 if bits & 0x0f == 0 => Some(&mut self.tos),
                v6::HOPS => Some(&mut self.ttl),
                v6::SRC..v6::DST => Some(&mut self.source),
                v6::DST..v6::END => Some(&mut self.destination),
                _ => None,
            },
            Kind::Other => None,
        };
        *match field {
            Some(field) => field,
            None => self.transport_field(at, compared),
        } = true;
    }

    fn transport_field(&mut self, at: usize, compared: &Compared) -> &mut bool {
        let l4 = usize::from(compared.l4);
        let Some((ports, checksum)) = translated_fields(compared.protocol).filter(|_| l4 > 0 && at >= l4) else {
            return &mut self.other;
        };
        match at - l4 {
            offset if offset < ports / 2 => &mut self.source_port,
            offset if offset < ports => &mut self.destination_port,
            offset if (checksum..checksum + 2).contains(&offset) => &mut self.transport_sum,
            offset if compared.is_query && QUERY_ID.contains(&offset) => &mut self.query,
            _ => &mut self.other,
        }
    }

    fn none(&self) -> bool {
        *self == Self::default()
    }

    /// True if a byte differs that routers do not change.
    fn is_translated(&self) -> bool {
        self.source || self.destination || self.source_port || self.destination_port
    }

    /// True if the address, and perhaps the port, of exactly one side differs.
    fn is_one_side(&self) -> bool {
        let source = self.source && !self.destination && !self.destination_port;
        let destination = self.destination && !self.source && !self.source_port;
        source || destination
    }
}

/// How the MAC addresses of two copies differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Macs {
    /// One of the packets has no Ethernet header.
    Unknown,
    Equal,
    /// Both addresses differ; the destination may be the same multicast address.
    Differ,
    /// One address differs.
    Mixed,
}

pub(crate) fn macs(old: &Head, new: &Head) -> Macs {
    if !old.has_macs || !new.has_macs {
        return Macs::Unknown;
    }
    if old.macs == new.macs {
        return Macs::Equal;
    }
    let is_multicast = new.macs[0] & 1 != 0;
    match (old.macs[..6] != new.macs[..6], old.macs[6..] != new.macs[6..]) {
        (true, true) => Macs::Differ,
        (false, true) if is_multicast => Macs::Differ,
        _ => Macs::Mixed,
    }
}

/// The packet that is compared with records.
pub(crate) struct Candidate<'a> {
    pub compared: &'a Compared,
    pub region: &'a [u8],
}

/// Compares a packet with a record that has the same hash for the classes switching and routing.
pub(crate) fn relation(old: &Head, stored: &[u8], new: &Candidate<'_>) -> Relation {
    let compared = new.compared;
    if (old.len, old.kind) != (compared.head.len, compared.head.kind) {
        return Relation::Different;
    }
    let differences = Differences::of(stored, &new.region[..stored.len()], compared);
    if differences.other || differences.is_translated() {
        return Relation::Different;
    }
    if differences.none() {
        return Relation::Equal;
    }
    if differences.id {
        return Relation::Sibling;
    }
    let (before, after) = ttl(stored, new);
    Relation::Hop { before, after, is_tos_changed: differences.tos }
}

fn ttl(stored: &[u8], new: &Candidate<'_>) -> (u8, u8) {
    let at = if new.compared.head.kind == Kind::V4 { v4::TTL } else { v6::HOPS };
    (stored[at], new.region[at])
}

/// The change of a packet by a router that translates addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Translated {
    pub ttl_drop: u8,
    pub is_tos_changed: bool,
}

/// Compares a packet with a record that has the same hash for the class NAT.
pub(crate) fn translated(old: &Head, stored: &[u8], new: &Candidate<'_>) -> Option<Translated> {
    let compared = new.compared;
    if (old.len, old.kind) != (compared.head.len, compared.head.kind) || macs(old, &compared.head) != Macs::Differ {
        return None;
    }
    let differences = Differences::of(stored, &new.region[..stored.len()], compared);
    let (before, after) = ttl(stored, new);
    let is_translated = !differences.other && !differences.id && differences.is_one_side();
    let ttl_drop =
        before.checked_sub(after).filter(|drop| *drop > 0 && is_translated && compared.shows_binding(new.region))?;
    Some(Translated { ttl_drop, is_tos_changed: differences.tos })
}

/// A segment with less payload, in bytes, is never compared as the copy of a segment that a proxy sent again.
const PROXIED_MIN: u32 = 8;

/// Compares a packet with a record that has the same hash of ports and payload: the change if a proxy sent the segment
/// again.
pub(crate) fn proxied(old: &Head, stored: &[u8], new: &Candidate<'_>) -> Option<Translated> {
    if !is_proxied(old, stored, new) {
        return None;
    }
    let tos = |bytes: &[u8]| match new.compared.head.kind {
        Kind::V4 => bytes[v4::TOS],
        _ => bytes[0] << 4 | bytes[1] >> 4,
    };
    let (before, after) = ttl(stored, new);
    Some(Translated { ttl_drop: before.saturating_sub(after), is_tos_changed: tos(stored) != tos(new.region) })
}

fn is_proxied(old: &Head, stored: &[u8], new: &Candidate<'_>) -> bool {
    let (compared, region) = (new.compared, new.region);
    let (source, destination, end) = match compared.head.kind {
        Kind::V4 => (v4::SRC..v4::DST, v4::DST..v4::END, v4::END),
        Kind::V6 => (v6::SRC..v6::DST, v6::DST..v6::END, v6::END),
        Kind::Other => return false,
    };
    let l4 = usize::from(compared.l4);
    // Options and extension headers are not decoded a second time: only packets without them are compared.
    if old.kind != compared.head.kind || l4 != end || stored.len() < l4 + tcp::END || region.len() < l4 + tcp::END {
        return false;
    }
    let is_plain_tcp = match compared.head.kind {
        Kind::V4 => stored[0] == 0x45 && stored[v4::PROTOCOL] == IpProtocol::TCP.0,
        _ => stored[6] == IpProtocol::TCP.0,
    };
    let is_equal = |range: std::ops::Range<usize>| stored[range.clone()] == region[range];
    let is_nonzero = |range: std::ops::Range<usize>| region[range].iter().any(|byte| *byte != 0);
    let sequence = l4 + tcp::SEQUENCE..l4 + tcp::ACKNOWLEDGED;
    let acknowledged = l4 + tcp::ACKNOWLEDGED..l4 + tcp::OFFSET;
    is_plain_tcp
        && compared.payload_len >= PROXIED_MIN
        && compared.shows_binding(region)
        && macs(old, &compared.head) == Macs::Differ
        && is_equal(source) != is_equal(destination)
        && is_equal(l4..l4 + PORTS)
        && (is_equal(sequence) || is_nonzero(acknowledged.clone()) && is_equal(acknowledged))
        && is_payload_equal(stored, region, l4)
}

/// Compares the stored bytes of the payloads of two TCP segments, whose headers may have different lengths.
fn is_payload_equal(stored: &[u8], region: &[u8], l4: usize) -> bool {
    let payload = |bytes: &[u8]| l4 + usize::from(bytes[l4 + tcp::OFFSET] >> 4) * 4;
    let (a, b) = (payload(stored), payload(region));
    let (old, new) = (stored.get(a..).unwrap_or_default(), region.get(b..).unwrap_or_default());
    let len = old.len().min(new.len());
    old[..len] == new[..len]
}
