//! Steering in the model: determines which members of a group receive a packet.
//!
//! The flow hash is that of [`wire::FlowHasher`]. Every other hash is computed as follows. The initial state is the sum
//! of the hash key and the number of the input type ([`HashInput`]). For each word of the input, the new state is
//! `mix(state ^ word)`. The hash is the upper half of the final state; if the upper half is 0, the hash is 1.

use super::address::{is_in, wide};
use super::view::{View, ip};
use super::{ParsedPacket, Run};
use base::hash::mix64;
use ir::Prefix;
use ir::VerdictKind;
use lang::term::{Gtp, Steering, Voip};
use std::net::IpAddr;
use wire::{Family, FlowHasher, Fragment};

/// The kind of input of a hash, which determines the initial state of the hash.
#[derive(Clone, Copy)]
enum HashInput {
    Address = 0x10,
    Pair = 0x11,
    Mac = 0x12,
    Macs = 0x13,
    Bytes = 0x14,
    Key = 0x15,
    Media = 0x16,
    Vlan = 0x17,
}

/// The members to which a steering function delivers a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeringTarget {
    /// To this member.
    Member(u32),
    /// Delivers to all members of all classes except the class `management`.
    All,
    /// Delivers to the member that this hash selects.
    One(u32),
    /// Delivers to the two members that these hashes select.
    Two(u32, u32),
}

impl Run<'_> {
    /// Steers the packet. Returns `None` if the packet lacks the input of the steering function; the packet is then
    /// dropped.
    pub(super) fn steering(&mut self, steer: &Steering, scope: ParsedPacket) -> Option<()> {
        match self.followed(steer, scope)? {
            SteeringTarget::Member(member) => (self.kind, self.record.hash) = (VerdictKind::Pick, member),
            SteeringTarget::All => self.broadcast(),
            SteeringTarget::One(hash) => (self.kind, self.record.hash) = (VerdictKind::Steer, hash),
            SteeringTarget::Two(hash, hash2) => {
                (self.kind, self.record.hash, self.record.hash2) = (VerdictKind::DoubleSteer, hash, hash2);
            }
        }
        Some(())
    }

    /// The steering target that the packet would have without fragment tracking.
    pub(super) fn target(&self, steer: &Steering, scope: ParsedPacket) -> Option<SteeringTarget> {
        let (flows, selected) = (self.flows_of(scope), self.layer_for(scope));
        let source = &self.packet.facts;
        Some(match *steer {
            Steering::RoundRobin => SteeringTarget::Member(self.number as u32),
            Steering::Queue => SteeringTarget::Member(source.queue.into()),
            Steering::To(member) => SteeringTarget::Member(member),
            Steering::Rss => SteeringTarget::One(source.rss),
            Steering::Vlan => SteeringTarget::One(self.hash(HashInput::Vlan, &[u64::from(self.view.vlan?) | 1 << 12])),
            Steering::Link | Steering::DoubleMac | Steering::LocalLink(_) if self.view.macs?.contains(&[0xff; 6]) => {
                SteeringTarget::All
            }
            Steering::Link => {
                let [a, b] = self.view.macs?.map(number);
                SteeringTarget::One(self.hash(HashInput::Macs, &[a.min(b), a.max(b)]))
            }
            Steering::DoubleMac => {
                let [src, dst] = self.view.macs?.map(|mac| self.hash(HashInput::Mac, &[number(mac)]));
                SteeringTarget::Two(dst, src)
            }
            Steering::LocalLink(gateway) => {
                let macs = self.view.macs?;
                let [src, dst] = macs.map(|mac| self.hash(HashInput::Mac, &[number(mac)]));
                match macs.map(|mac| mac == gateway) {
                    [_, true] => SteeringTarget::One(src),
                    [true, false] => SteeringTarget::One(dst),
                    [false, false] => SteeringTarget::Two(src, dst),
                }
            }
            Steering::Pair => {
                let ends = [flows.ip?.src, flows.ip?.dst];
                if ends.contains(&IpAddr::from([255; 4])) {
                    return Some(SteeringTarget::All);
                }
                let [a, b] = ends.map(wide);
                SteeringTarget::One(self.hash(HashInput::Pair, &[words(a.min(b)), words(a.max(b))].concat()))
            }
            Steering::DoubleIp => {
                let [src, dst] = [flows.ip?.src, flows.ip?.dst].map(|a| self.hash(HashInput::Address, &words(wide(a))));
                SteeringTarget::Two(src, dst)
            }
            Steering::Local(net, bits) => return self.local(net, bits, flows.ip?.src, flows.ip?.dst),
            Steering::Flow => {
                SteeringTarget::One(FlowHasher::new(self.world.hash_key).hash_key(&self.view.flow(&flows.ip?)))
            }
            Steering::Bytes(at, size) => SteeringTarget::One(self.hash(HashInput::Bytes, &[self.bytes(at, size)?])),
            Steering::SymmetricBytes(one, other, size) => {
                let (a, b) = (self.bytes(one, size)?, self.bytes(other, size)?);
                SteeringTarget::One(self.hash(HashInput::Bytes, &[a.min(b), a.max(b)]))
            }
            Steering::DoubleBytes(one, other, size) => {
                let [a, b] = [self.bytes(one, size)?, self.bytes(other, size)?];
                SteeringTarget::Two(self.hash(HashInput::Bytes, &[a]), self.hash(HashInput::Bytes, &[b]))
            }
            Steering::Key(key) => {
                SteeringTarget::One(self.hash(HashInput::Key, &self.key(key.both_ways(), flows, self.ports_of(flows))?))
            }
            Steering::Common => {
                let key = self.world.common.expect("a program with `steer_common` has a common key");
                // The common key is computed on the packet (innermost or outermost) from which the keys of the flow
                // maps are computed, even if `scope` selects another packet.
                let layer = self.flows_of(ParsedPacket { outside: key.is_outside(), ..ParsedPacket::default() });
                SteeringTarget::One(self.hash(HashInput::Key, &self.key(key.both_ways(), layer, self.ports_of(layer))?))
            }
            Steering::Rtp(signalling) => {
                let ip = selected.ip?;
                if self.is_voip(&ip, Voip::Rtp) || self.is_voip(&ip, Voip::Rtcp) {
                    // RTP and RTCP of a call use two adjacent ports that differ only in the lowest bit.
                    let [src, dst] = self.view.ports(&ip)?.map(|port| port / 2);
                    let (a, b) = ((wide(ip.src), src), (wide(ip.dst), dst));
                    let ends = [a.min(b), a.max(b)];
                    let of_end = |(address, port): (u128, u16)| [&words(address)[..], &[port.into()]].concat();
                    SteeringTarget::One(self.hash(HashInput::Media, &ends.map(of_end).concat()))
                } else if signalling && self.is_voip(&ip, Voip::Sip) {
                    SteeringTarget::All
                } else {
                    return None;
                }
            }
            Steering::GtpUser(net) => {
                let ip = selected.ip?;
                if self.is_gtp(&ip, Gtp::Control) {
                    SteeringTarget::All
                } else if self.is_gtp(&ip, Gtp::User) && self.view.tunnels > 0 {
                    let at = inside_gtp(&self.view, ip.above?)?;
                    let [src, dst] = ends_at(self.view.bytes, at)?;
                    return self.local(net, if net.is_v4() { 32 } else { 128 }, src, dst);
                } else {
                    return None;
                }
            }
        })
    }

    /// Steers by those addresses of the packet that are in the network: the source, the destination, or both. Returns
    /// `None` if neither address is in the network.
    fn local(&self, net: Prefix, bits: u8, src: IpAddr, dst: IpAddr) -> Option<SteeringTarget> {
        let hash = |address: IpAddr| {
            let dropped = u32::from(if net.is_v4() { 32 } else { 128 } - bits);
            let kept = u128::MAX.checked_shl(dropped).unwrap_or(0);
            self.hash(HashInput::Address, &words(wide(address) & kept))
        };
        let (from, to) = (hash(src), hash(dst));
        match [src, dst].map(|a| is_in(a, net)) {
            [true, true] => Some(SteeringTarget::Two(from, to)),
            [true, false] => Some(SteeringTarget::One(from)),
            [false, true] => Some(SteeringTarget::One(to)),
            [false, false] => None,
        }
    }

    fn bytes(&self, at: u32, size: u8) -> Option<u64> {
        self.view.number(at as usize, size.into())
    }

    fn hash(&self, of: HashInput, words: &[u64]) -> u32 {
        let start = self.world.hash_key.wrapping_add(of as u64);
        let state = words.iter().fold(start, |state, word| mix64(state ^ word));
        ((state >> 32) as u32).max(1)
    }
}

fn number(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn words(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// Offset of the user's packet in a G-PDU (3GPP TS 29.281 §5) that follows the UDP header at offset `udp`.
fn inside_gtp(view: &View<'_>, udp: usize) -> Option<usize> {
    let flags = view.number(udp + 8, 1)?;
    let mut at = udp + 8 + 8;
    if flags & 7 != 0 {
        at += 4;
        let mut next = view.number(at - 1, 1)?;
        while flags & 4 != 0 && next != 0 {
            let bytes = view.number(at, 1)? as usize * 4;
            at += if bytes == 0 { return None } else { bytes };
            next = view.number(at - 1, 1)?;
        }
    }
    Some(at)
}

/// The addresses of the IP packet at offset `at`.
pub(super) fn ends_at(bytes: &[u8], at: usize) -> Option<[IpAddr; 2]> {
    let family = match bytes.get(at)? >> 4 {
        4 => Family::V4,
        6 => Family::V6,
        _ => return None,
    };
    let packet = ip(bytes, family, at, 0, Fragment::Whole, None)?;
    Some([packet.src, packet.dst])
}
