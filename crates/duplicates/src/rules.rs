//! The rules that decide whether a packet is a copy of an earlier packet, and of which class.
//!
//! Both regions have the same length, and the hashes of the bytes that no class changes are equal. The rules compare
//! the stored bytes and assign each differing byte to a field. Every rule and the false positives that it prevents are
//! in the documentation of the crate.

use crate::compared::{Compared, PORTS, tcp, translated_fields, v4, v6};
use crate::table::{Head, Kind};
use crate::{Class, Settings};
use base::Timestamp;
use std::time::Duration;
use wire::IpProtocol;

/// The outcome of a comparison with one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The packet is another packet, or a copy of a class that is not enabled.
    Different,
    /// The packets are equal, but nothing shows that they are copies of one packet.
    Repeat,
    /// The packet is a copy.
    Copy(Class),
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub verdict: Verdict,
    pub ttl_drop: u8,
    pub is_tos_changed: bool,
    /// True if the packets are equal in all that is compared, also in interface and VLAN tags. A record of such a
    /// packet replaces the older record.
    pub is_identical: bool,
}

/// The fields in which two regions differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Differences {
    tos: bool,
    ttl: bool,
    source: bool,
    destination: bool,
    source_port: bool,
    destination_port: bool,
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
        let is_network_explained = found.tos || found.ttl || address;
        let is_transport_explained = address || found.source_port || found.destination_port;
        found.other |= found.network_sum && !is_network_explained || found.transport_sum && !is_transport_explained;
        found
    }

    fn add(&mut self, at: usize, bits: u8, compared: &Compared) {
        let field = match compared.head.kind {
            Kind::V4 => match at {
                v4::TOS => Some(&mut self.tos),
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
enum Macs {
    /// One of the packets has no Ethernet header.
    Unknown,
    Equal,
    /// Both addresses differ; the destination may be the same multicast address.
    Differ,
    /// One address differs.
    Mixed,
}

fn macs(old: &Head, new: &Head) -> Macs {
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

/// The time between two packets, in either order: merged captures can be out of order.
pub(crate) fn distance(a: Timestamp, b: Timestamp) -> Duration {
    Duration::from_nanos(a.nanos().abs_diff(b.nanos()))
}

/// Compares a packet with a record that has the same key.
pub(crate) fn compare(settings: &Settings, old: &Head, stored: &[u8], new: &Candidate<'_>) -> Comparison {
    let compared = new.compared;
    let mut out = Comparison { verdict: Verdict::Different, ttl_drop: 0, is_tos_changed: false, is_identical: false };
    if (old.wire, old.len, old.kind) != (compared.head.wire, compared.head.len, compared.head.kind) {
        return out;
    }
    let differences = Differences::of(stored, &new.region[..stored.len()], compared);
    if differences.other {
        return out;
    }
    let macs = macs(old, &compared.head);
    if differences.none() {
        let is_same_frame = old.has_macs == compared.head.has_macs
            && matches!(macs, Macs::Equal | Macs::Unknown)
            && old.outer == compared.head.outer;
        let verdict = if is_same_frame {
            out.is_identical = (old.vlans, old.interface) == (compared.head.vlans, new.compared.head.interface);
            if is_copy(settings, old, new) { Verdict::Copy(Class::Switching) } else { Verdict::Repeat }
        } else {
            encapsulated(old, compared, macs)
        };
        out.verdict = enabled(settings, verdict);
        return out;
    }
    let at = if compared.head.kind == Kind::V4 { v4::TTL } else { v6::HOPS };
    let (before, after) = (stored[at], new.region[at]);
    let is_reversed = after > before
        && settings.unordered_interfaces
        && compared.is_identified
        && old.interface != compared.head.interface
        && !differences.is_translated();
    if after >= before && !is_reversed {
        return out;
    }
    let is_other_link = match macs {
        Macs::Differ => true,
        Macs::Unknown => compared.is_identified,
        Macs::Equal | Macs::Mixed => false,
    };
    if !is_other_link {
        return out;
    }
    let verdict = if !differences.is_translated() {
        Verdict::Copy(Class::Routing)
    } else if differences.is_one_side() && (compared.is_identified || compared.protocol == IpProtocol::TCP) {
        Verdict::Copy(Class::Nat)
    } else {
        Verdict::Different
    };
    Comparison {
        verdict: enabled(settings, verdict),
        ttl_drop: before.abs_diff(after),
        is_tos_changed: differences.tos,
        is_identical: false,
    }
}

/// Removes classes that are not enabled.
fn enabled(settings: &Settings, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Copy(class) if !settings.classes.contains(class) => Verdict::Different,
        Verdict::Repeat if !settings.classes.contains(Class::Switching) => Verdict::Different,
        verdict => verdict,
    }
}

/// True if there is evidence that two equal frames are copies of one frame, not two frames of a sender.
fn is_copy(settings: &Settings, old: &Head, new: &Candidate<'_>) -> bool {
    let compared = new.compared;
    let time = distance(old.ts, new.compared.head.ts);
    compared.is_identified
        || old.vlans != compared.head.vlans
        || settings.mirrored_interfaces && old.interface != new.compared.head.interface
        || compared.occupies_sequence && time <= settings.retransmission_window
        || !settings.repeat_window.is_zero() && time <= settings.repeat_window
}

/// The verdict about two equal packets, at least one of them in a tunnel or below labels, whose link or tunnel headers
/// differ.
fn encapsulated(old: &Head, new: &Compared, macs: Macs) -> Verdict {
    let is_encapsulated = old.outer != 0 || new.head.outer != 0;
    let is_forwarded = old.outer == 0 || new.head.outer == 0 || new.head.outer_ttl < old.outer_ttl;
    if new.is_identified && is_encapsulated && is_forwarded && matches!(macs, Macs::Differ | Macs::Unknown) {
        Verdict::Copy(Class::Routing)
    } else {
        Verdict::Different
    }
}

/// Compares a packet with a record that has the same hash of ports and payload: true if a proxy sent the segment again.
pub(crate) fn is_proxied(old: &Head, stored: &[u8], new: &Candidate<'_>) -> bool {
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
        && matches!(macs(old, &compared.head), Macs::Differ | Macs::Unknown)
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
