//! Emits code that steers packets. It computes keyed hashes with 64-bit arithmetic only, so every back end computes the
//! same hash.
//!
//! The flow hash is that of [`wire::FlowHasher`] over the innermost packet. For an unfragmented packet without a
//! tunnel, it is equal to the hash in the packet descriptor. Every other hash begins with a state that depends on the
//! hash key and a salt, and computes `state = mix(state ^ word)` for each word of its input. Because of the salts,
//! hashes of different kinds over the same address are independent.

use super::header::MAPPED;
use super::pred::MAC_ALL;
use super::{Addresses, Lower, PacketScopeInfo};
use crate::term::{Gtp, Steering, Voip};
use ir::Prefix;
use ir::{Cmp, Fact, Inst, Label, Layer, Meta, Op, Reg, Var, VerdictKind};

/// The salts of the hashes. All functions that hash a single address share a salt, so that they steer a host's packets
/// to the same member.
mod salt {
    pub const ADDRESS: u64 = 0x10;
    pub const PAIR: u64 = 0x11;
    pub const MAC: u64 = 0x12;
    pub const MACS: u64 = 0x13;
    pub const BYTES: u64 = 0x14;
    pub const KEY: u64 = 0x15;
    pub const MEDIA: u64 = 0x16;
    pub const VLAN: u64 = 0x17;
}

/// The low word of 255.255.255.255 in its IPv6 form.
const IP_ALL: u64 = MAPPED | 0xffff_ffff;

impl Lower {
    pub(super) fn steering(&mut self, steer: &Steering, scope: PacketScopeInfo, dropped: Option<Label>) {
        let (none, end) = (self.b.label(), self.b.label());
        let layer = scope.flow_layer();
        let scope = PacketScopeInfo { leads: true, ..scope };
        let datagram = self.datagram(steer, scope).map(|datagram| (datagram, self.before(datagram)));
        match steer {
            Steering::RoundRobin => self.pick_meta(Meta::Sequence),
            Steering::Queue => self.pick_meta(Meta::Queue),
            Steering::To(member) => {
                self.b.set(Var::Hash, u64::from(*member));
                self.b.set(Var::Kind, VerdictKind::Pick as u64);
            }
            Steering::Rss => {
                let hash = self.b.meta(Meta::Rss);
                self.steering_by_one(hash);
            }
            Steering::Link => {
                let (src, dst) = self.macs(none);
                self.unless_mac_broadcast(src, dst, end);
                let (low, high) = (self.b.op(Op::Min, src, dst), self.b.op(Op::Max, src, dst));
                let hash = self.hash(salt::MACS, &[low, high]);
                self.steering_by_one(hash);
            }
            Steering::LocalLink(gateway) => self.local_link(*gateway, none, end),
            Steering::DoubleMac => {
                let (src, dst) = self.macs(none);
                self.unless_mac_broadcast(src, dst, end);
                let (dst, src) = (self.hash(salt::MAC, &[dst]), self.hash(salt::MAC, &[src]));
                self.steering_by_two(dst, src);
            }
            Steering::Vlan => {
                let tag = self.b.meta(Meta::Vlan);
                self.b.require(tag, Cmp::Ne, 0, none);
                let hash = self.hash(salt::VLAN, &[tag]);
                self.steering_by_one(hash);
            }
            Steering::Pair => {
                let a = self.addresses(layer, none);
                self.unless_ip_broadcast(a.src, end);
                self.unless_ip_broadcast(a.dst, end);
                let (low, high) = self.ordered(&a.src, &a.dst);
                let hash = self.hash(salt::PAIR, &[low[0], low[1], high[0], high[1]]);
                self.steering_by_one(hash);
            }
            Steering::DoubleIp => {
                let a = self.addresses(layer, none);
                let (src, dst) = (self.hash(salt::ADDRESS, &a.src), self.hash(salt::ADDRESS, &a.dst));
                self.steering_by_two(src, dst);
            }
            Steering::Local(net, bits) => {
                let a = self.addresses(layer, none);
                self.local(*net, *bits, &a, none, end);
            }
            Steering::Flow => {
                let hash = self.flow_hash(layer, none);
                self.steering_by_one(hash);
            }
            Steering::Bytes(offset, size) => {
                let word = self.bytes(*offset, *size, none);
                let hash = self.hash(salt::BYTES, &[word]);
                self.steering_by_one(hash);
            }
            Steering::SymmetricBytes(one, other, size) => {
                let (a, b) = (self.bytes(*one, *size, none), self.bytes(*other, *size, none));
                let (low, high) = (self.b.op(Op::Min, a, b), self.b.op(Op::Max, a, b));
                let hash = self.hash(salt::BYTES, &[low, high]);
                self.steering_by_one(hash);
            }
            Steering::DoubleBytes(one, other, size) => {
                let (a, b) = (self.bytes(*one, *size, none), self.bytes(*other, *size, none));
                let (a, b) = (self.hash(salt::BYTES, &[a]), self.hash(salt::BYTES, &[b]));
                self.steering_by_two(a, b);
            }
            Steering::Key(key) => {
                let words = self.key(key.both_ways(), scope, none);
                let hash = self.hash(salt::KEY, &words);
                self.steering_by_one(hash);
            }
            Steering::Common => {
                // The common key is computed on the layer (innermost or outermost packet) that the keys of the maps
                // use, even if the enclosing action applies to another layer.
                if let Some(key) = self.common {
                    let scope =
                        PacketScopeInfo { outside: key.is_outside(), leads: true, ..PacketScopeInfo::default() };
                    let words = self.key(key.both_ways(), scope, none);
                    let hash = self.hash(salt::KEY, &words);
                    self.steering_by_one(hash);
                }
            }
            Steering::Rtp(signalling) => self.rtp(*signalling, scope.layer(), none, end),
            Steering::GtpUser(net) => self.gtp_user(*net, scope.layer(), none, end),
        }
        match datagram {
            Some((datagram, before)) => self.together(datagram, before, none, end, dropped),
            None => {
                self.b.jump(end);
                self.b.place(none);
                if self.b.is_live() {
                    self.discard(dropped);
                }
                self.b.place(end);
            }
        }
    }

    fn pick_meta(&mut self, meta: Meta) {
        let n = self.b.meta(meta);
        self.b.set(Var::Hash, n);
        self.b.set(Var::Kind, VerdictKind::Pick as u64);
    }

    pub(super) fn steering_by_one(&mut self, hash: Reg) {
        self.b.set(Var::Hash, hash);
        self.b.set(Var::Kind, VerdictKind::Steer as u64);
    }

    pub(super) fn steering_by_two(&mut self, hash: Reg, hash2: Reg) {
        self.b.set(Var::Hash, hash);
        self.b.set(Var::Hash2, hash2);
        self.b.set(Var::Kind, VerdictKind::DoubleSteer as u64);
    }

    fn bytes(&mut self, offset: u32, size: u8, none: Label) -> Reg {
        self.b.fits(None, offset, size.into(), none);
        self.b.load(None, offset, size)
    }

    /// Emits code that hashes these words with this salt. The result is a 32-bit hash that is never 0.
    fn hash(&mut self, salt: u64, words: &[Reg]) -> Reg {
        let key = self.b.meta(Meta::HashKey);
        let mut state = self.b.op(Op::Add, key, salt);
        for word in words {
            let mixed = self.b.op(Op::Xor, state, *word);
            state = self.b.mix(mixed);
        }
        self.shorten(state)
    }

    fn shorten(&mut self, state: Reg) -> Reg {
        let high = self.b.op(Op::Shr, state, 32);
        self.b.op(Op::Max, high, 1)
    }

    /// The hash of [`wire::FlowHasher`].
    fn flow_hash(&mut self, layer: Layer, none: Label) -> Reg {
        let (family, l3) = (self.b.fact(layer, Fact::Family), self.b.fact(layer, Fact::L3));
        let (src_port, dst_port) = self.ports(layer);
        let (protocol, key) = (self.b.fact(layer, Fact::Protocol), self.b.meta(Meta::HashKey));
        let (out, not_4, end) = (self.b.reg(), self.b.label(), self.b.label());

        self.b.require(family, Cmp::Eq, 4, not_4);
        self.b.fits(Some(l3), 12, 8, none);
        let mut ends = [(12, src_port), (16, dst_port)].map(|(offset, port)| {
            let address = self.b.load(Some(l3), offset, 4);
            let moved = self.b.op(Op::Shl, address, 16);
            self.b.op(Op::Or, moved, port)
        });
        ends = [self.b.op(Op::Min, ends[0], ends[1]), self.b.op(Op::Max, ends[0], ends[1])];
        let moved = self.b.op(Op::Shl, protocol, 48);
        let second = self.b.op(Op::Or, ends[1], moved);
        let state = self.fold(key, ends[0], second);
        let hash = self.shorten(state);
        self.b.push(Inst::Copy { to: out, from: hash });
        self.b.jump(end);

        self.b.place(not_4);
        self.b.require(family, Cmp::Eq, 6, none);
        self.b.fits(Some(l3), 8, 32, none);
        let [sh, sl, dh, dl] = [8, 16, 24, 32].map(|offset| self.b.load(Some(l3), offset, 8));
        let (low, high) = self.ordered(&[sh, sl, src_port], &[dh, dl, dst_port]);
        let key_1 = self.b.op(Op::Add, key, 1);
        let (low_end, high_end) = (self.fold(key, low[0], low[1]), self.fold(key_1, high[0], high[1]));
        let (up, down) = (self.b.op(Op::Shl, high_end, 32), self.b.op(Op::Shr, high_end, 32));
        let turned = self.b.op(Op::Or, up, down);
        let ends = self.b.op(Op::Add, low_end, turned);
        let moved = self.b.op(Op::Shl, high[2], 16);
        let ports = self.b.op(Op::Or, low[2], moved);
        let moved = self.b.op(Op::Shl, protocol, 32);
        let rest = self.b.op(Op::Or, ports, moved);
        let sum = self.b.op(Op::Add, ends, rest);
        let state = self.b.mix(sum);
        let hash = self.shorten(state);
        self.b.push(Inst::Copy { to: out, from: hash });
        self.b.place(end);
        out
    }

    fn fold(&mut self, key: Reg, first: Reg, second: Reg) -> Reg {
        let keyed = self.b.op(Op::Xor, key, first);
        let mixed = self.b.mix(keyed);
        let sum = self.b.op(Op::Add, mixed, second);
        self.b.mix(sum)
    }

    /// Delivers the packet to all classes and jumps to `end` if one of the MAC addresses is the broadcast address.
    fn unless_mac_broadcast(&mut self, src: Reg, dst: Reg, end: Label) {
        let (all, not_src, one) = (self.b.label(), self.b.label(), self.b.label());
        self.b.branch(src, Cmp::Eq, MAC_ALL, all, not_src);
        self.b.place(not_src);
        self.b.branch(dst, Cmp::Eq, MAC_ALL, all, one);
        self.b.place(all);
        self.broadcast();
        self.b.jump(end);
        self.b.place(one);
    }

    /// Delivers the packet to all classes and jumps to `end` if `address` is the IPv4 address 255.255.255.255.
    fn unless_ip_broadcast(&mut self, address: [Reg; 2], end: Label) {
        let (all, one) = (self.b.label(), self.b.label());
        self.b.require(address[0], Cmp::Eq, 0, one);
        self.b.branch(address[1], Cmp::Eq, IP_ALL, all, one);
        self.b.place(all);
        self.broadcast();
        self.b.jump(end);
        self.b.place(one);
    }

    fn local_link(&mut self, gateway: [u8; 6], none: Label, end: Label) {
        let gateway = gateway.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let (src, dst) = self.macs(none);
        self.unless_mac_broadcast(src, dst, end);
        let (hash_src, hash_dst) = (self.hash(salt::MAC, &[src]), self.hash(salt::MAC, &[dst]));
        let (up, not_up, down, inside) = (self.b.label(), self.b.label(), self.b.label(), self.b.label());
        self.b.branch(dst, Cmp::Eq, gateway, up, not_up);
        self.b.place(up);
        self.steering_by_one(hash_src);
        self.b.jump(end);
        self.b.place(not_up);
        self.b.branch(src, Cmp::Eq, gateway, down, inside);
        self.b.place(down);
        self.steering_by_one(hash_dst);
        self.b.jump(end);
        self.b.place(inside);
        self.steering_by_two(hash_src, hash_dst);
    }

    /// Steers by the addresses that are in a network; the first `bits` bits of each are hashed.
    fn local(&mut self, net: Prefix, bits: u8, a: &Addresses, none: Label, end: Label) {
        let counted = Prefix::new(net.address(), bits.min(if net.is_v4() { 32 } else { 128 })).unwrap_or(net);
        let (_, mask) = counted.words();
        let hash = |s: &mut Self, address: [Reg; 2]| {
            let words = [s.b.op(Op::And, address[0], mask[0]), s.b.op(Op::And, address[1], mask[1])];
            s.hash(salt::ADDRESS, &words)
        };
        let (hash_src, hash_dst) = (hash(self, a.src), hash(self, a.dst));
        let (from, not_from, both, only_from, only_to) =
            (self.b.label(), self.b.label(), self.b.label(), self.b.label(), self.b.label());
        self.in_prefix(a.src, net, from, not_from);
        self.b.place(from);
        self.in_prefix(a.dst, net, both, only_from);
        self.b.place(not_from);
        self.in_prefix(a.dst, net, only_to, none);
        self.b.place(both);
        self.steering_by_two(hash_src, hash_dst);
        self.b.jump(end);
        self.b.place(only_from);
        self.steering_by_one(hash_src);
        self.b.jump(end);
        self.b.place(only_to);
        self.steering_by_one(hash_dst);
    }

    /// Steers RTP and RTCP by addresses and by ports without their lowest bit, because the RTP and RTCP ports of a call
    /// differ only in that bit.
    fn rtp(&mut self, signalling: bool, layer: Layer, none: Label, end: Label) {
        let (media, not_rtp) = (self.b.label(), self.b.label());
        if signalling {
            let (sip, not_sip) = (self.b.label(), self.b.label());
            self.voip(Voip::Sip, layer, sip, not_sip);
            self.b.place(sip);
            self.broadcast();
            self.b.jump(end);
            self.b.place(not_sip);
        }
        self.voip(Voip::Rtp, layer, media, not_rtp);
        self.b.place(not_rtp);
        self.voip(Voip::Rtcp, layer, media, none);
        self.b.place(media);
        let a = self.addresses(layer, none);
        // The ports of a first fragment are used too: the datagram belongs to the VoIP call with these ports, and its
        // later fragments are steered like the first fragment.
        let (src, dst) = self.port_pair(layer, none);
        let (src, dst) = (self.b.op(Op::Shr, src, 1), self.b.op(Op::Shr, dst, 1));
        let (low, high) = self.ordered(&[a.src[0], a.src[1], src], &[a.dst[0], a.dst[1], dst]);
        let hash = self.hash(salt::MEDIA, &[low, high].concat());
        self.steering_by_one(hash);
    }

    /// Delivers GTP control messages to all classes, and steers user packets by the subscriber's address in the packet
    /// directly inside the GTP tunnel, even if that packet is a tunnel too.
    fn gtp_user(&mut self, net: Prefix, layer: Layer, none: Label, end: Label) {
        let (control, not_control, user, tunnelled) = (self.b.label(), self.b.label(), self.b.label(), self.b.label());
        self.gtp(Gtp::Control, layer, control, not_control);
        self.b.place(control);
        self.broadcast();
        self.b.jump(end);
        self.b.place(not_control);
        self.gtp(Gtp::User, layer, user, none);
        self.b.place(user);
        let depth = self.b.meta(Meta::Depth);
        self.b.branch(depth, Cmp::Ne, 0, tunnelled, none);
        self.b.place(tunnelled);
        let user = self.inside_gtp(layer, none);
        let first = self.b.load(Some(user), 0, 1);
        let version = self.b.op(Op::Shr, first, 4);
        let a = self.addresses_at(version, user, none);
        self.local(net, if net.is_v4() { 32 } else { 128 }, &a, none, end);
    }

    /// The offset of the packet in a G-PDU (3GPP TS 29.281 §5.1, and §5.2 for the extension headers); the first byte of
    /// the packet was captured. [`wire::Decoded`] has validated the rest of the GTP header, because it found a tunnel.
    fn inside_gtp(&mut self, layer: Layer, none: Label) -> Reg {
        const HEADER: u64 = 8 + 8;
        const FLAGS: u32 = 8;
        const OPTIONAL: u64 = 7;
        const EXTENDED: u64 = 4;
        // 3GPP has defined six types of extension headers; no message contains more than two extension headers.
        const MAX_EXTENSIONS: usize = 6;
        let l4 = self.l4(layer, none);
        self.b.fits(Some(l4), FLAGS, 1, none);
        let flags = self.b.load(Some(l4), FLAGS, 1);
        let (at, optional, end) = (self.b.op(Op::Add, l4, HEADER), self.b.label(), self.b.label());
        self.b.branch(flags, Cmp::AnyBit, OPTIONAL, optional, end);
        self.b.place(optional);
        self.b.push(Inst::Op { to: at, op: Op::Add, a: at, b: 4.into() });
        self.b.require(flags, Cmp::AnyBit, EXTENDED, end);
        // The byte before a GTP extension header contains its type, or 0 if no extension header follows; the first byte
        // of the extension header is its length in units of four bytes.
        for more in (0..=MAX_EXTENSIONS).rev() {
            let before = self.b.op(Op::Sub, at, 1);
            self.b.fits(Some(before), 0, 2, none);
            let (kind, words) = (self.b.load(Some(before), 0, 1), self.b.load(Some(before), 1, 1));
            self.b.require(kind, Cmp::Ne, 0, end);
            if more == 0 {
                self.b.jump(none);
                break;
            }
            self.b.require(words, Cmp::Ne, 0, none);
            let bytes = self.b.op(Op::Shl, words, 2);
            self.b.push(Inst::Op { to: at, op: Op::Add, a: at, b: bytes.into() });
        }
        self.b.place(end);
        self.b.fits(Some(at), 0, 1, none);
        at
    }
}
