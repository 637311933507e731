//! Changes of frames before they are sent: MAC addresses, VLAN tags, IP addresses, checksums.
//!
//! IP addresses are changed in the outermost IP header, in ARP messages for IPv4, and in the packet that an ICMP error
//! quotes. Headers inside tunnels are not changed. Checksums are updated incrementally (RFC 1624), so that correct
//! checksums stay correct and wrong checksums stay wrong; `fix_checksums` computes them anew.
//!
//! Invariant: a change of addresses is a function of the two addresses of the packet, of the pass over the capture and
//! of the number of the copy, and is the same for both directions. So the packets of a flow remain a flow, and replies
//! go to the address that the request came from. Random addresses, which are made only if the user requests them, are
//! the exception: they depend on the number of the frame. Addresses are changed in this order: prefixes, masks of
//! flows, masks of copies, random addresses.

mod addresses;
mod checksums;
mod link;
mod packet;
mod random;

pub use addresses::{ParsePrefixMapError, PrefixMap};
pub use link::{MacRewrite, ParseVlanEditError, VlanEdit};
pub use random::{ParseRandomAddressError, RandomAddress};

use addresses::AddressMapper;
use wire::{EtherType, Headers};

/// The largest number of copies of each packet.
pub const MAX_COPIES: u32 = 1 << 16;

/// The largest number of prefixes that are replaced.
pub const MAX_PREFIXES: usize = 64;

/// The changes to make; the default makes none.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// For each interface, the new MAC addresses of its frames.
    pub macs: [MacRewrite; 2],
    /// The change of VLAN tags.
    pub vlan: Option<VlanEdit>,
    /// Prefixes of IP addresses that are replaced, at most [`MAX_PREFIXES`]. The first prefix that contains an address
    /// applies.
    pub prefixes: Vec<PrefixMap>,
    /// Number of low address bits (1 to 32) in which both addresses of each flow are changed by a mask. Each pass over
    /// the capture has a different mask for the flow.
    pub flow_depth: Option<u8>,
    /// Number of copies of each packet, 1 to [`MAX_COPIES`]; 0 counts as 1. The addresses of each copy except the first
    /// are changed by a mask; no two copies have the same mask.
    pub copies: u32,
    /// Random source addresses.
    pub random_source: Option<RandomAddress>,
    /// Random destination addresses.
    pub random_destination: Option<RandomAddress>,
    /// Seed of the masks of flows and of the random addresses.
    pub seed: u64,
    /// If true, the checksums of IPv4, TCP, UDP and ICMP are computed anew. Transport checksums of fragments and of
    /// truncated packets cannot be computed.
    pub fix_checksums: bool,
}

impl Rewrite {
    /// True if frames are sent unchanged.
    pub fn is_none(&self) -> bool {
        self.macs.iter().all(MacRewrite::is_none) && self.vlan.is_none() && !self.changes_packets()
    }

    /// Number of copies of each packet, at least 1.
    pub fn copies(&self) -> u32 {
        self.copies.clamp(1, MAX_COPIES)
    }

    /// True if bytes after the link header change.
    fn changes_packets(&self) -> bool {
        self.changes_addresses() || self.fix_checksums
    }

    fn changes_addresses(&self) -> bool {
        !self.prefixes.is_empty()
            || self.flow_depth.is_some()
            || self.copies() > 1
            || self.random_source.is_some()
            || self.random_destination.is_some()
    }
}

/// The position of a frame in the replay, on which its changes depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The interface that sends the frame: 0 or 1.
    pub output: usize,
    /// Number of the pass over the capture, from 0.
    pub pass: u64,
    /// Number of the copy of the packet, from 0; copy 0 has no mask.
    pub copy: u32,
    /// Number of the frame in the replay, from 0.
    pub number: u64,
}

/// Counters of frames in which a change could not be made. Each copy of a packet counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RewriteCounts {
    /// Frames whose addresses should change, but which have no address: they contain neither IP nor ARP for IPv4, or
    /// their IP header was not captured completely.
    pub without_addresses: u64,
    /// Frames whose VLAN tag should be changed or removed, but which have no VLAN tag.
    pub without_tag: u64,
    /// Frames whose transport checksum should be computed but cannot be computed: fragments, truncated packets and
    /// source-routed IPv6 packets.
    pub without_checksum: u64,
}

impl RewriteCounts {
    /// Adds the counters of other frames.
    pub fn add(&mut self, other: &Self) {
        self.without_addresses += other.without_addresses;
        self.without_tag += other.without_tag;
        self.without_checksum += other.without_checksum;
    }
}

#[cfg(test)]
mod tests;

/// Rewrites Ethernet frames.
#[derive(Clone, Debug)]
pub struct Rewriter {
    rewrite: Rewrite,
    addresses: AddressMapper,
}

impl Rewriter {
    /// A rewriter that makes these changes.
    pub fn new(rewrite: Rewrite) -> Self {
        let addresses = AddressMapper::new(&rewrite);
        Self { rewrite, addresses }
    }

    /// The changes that this rewriter makes.
    pub fn rewrite(&self) -> &Rewrite {
        &self.rewrite
    }

    /// Number of bytes by which [`Rewriter::append`] makes this frame longer (positive) or shorter.
    pub fn growth(&self, frame: &[u8]) -> isize {
        self.rewrite.vlan.map_or(0, |vlan| vlan.growth(frame))
    }

    /// Appends the changed frame to `out`. `frame` begins with an Ethernet header; `wire_len` is its length on the
    /// wire.
    pub fn append(
        &self,
        frame: &[u8],
        wire_len: u32,
        position: Position,
        out: &mut Vec<u8>,
        counts: &mut RewriteCounts,
    ) {
        let begin = out.len();
        counts.without_tag += u64::from(!link::append(frame, self.rewrite.vlan, out));
        let frame_out = &mut out[begin..];
        self.rewrite.macs[position.output].apply(frame_out);
        if !self.rewrite.changes_packets() {
            return;
        }
        let grown = frame_out.len().saturating_sub(frame.len()) as u32;
        let headers = Headers::of(frame_out, wire_len + grown, wire::link::ETHERNET);
        if self.rewrite.changes_addresses() {
            let changed = match headers.ethertype() {
                EtherType::ARP => packet::arp(frame_out, &headers, &self.addresses, position),
                _ => packet::ip(frame_out, &headers, &self.addresses, position),
            };
            counts.without_addresses += u64::from(!changed);
        }
        if self.rewrite.fix_checksums {
            counts.without_checksum += u64::from(!checksums::fix(frame_out, &headers));
        }
    }
}
