//! Emits predicates. The code of a predicate jumps to one label if the predicate is true, and to another if it is
//! false.

use super::header::{SCTP, TCP, UDP, WITH_PORTS};
use super::{Lower, PacketScopeInfo};
use crate::term::{Endpoint, Gtp, Pred, Voip};
use ir::Prefix;
use ir::{Cmp, Fact, FragmentScope, Inst, Label, Layer, Meta, Op, Reg, Set};

/// The broadcast MAC address.
pub(super) const MAC_ALL: u64 = 0xffff_ffff_ffff;
/// The group bit of a MAC address.
const MAC_GROUP: u64 = 0x0100_0000_0000;

impl Lower {
    /// Jumps to `yes` if the predicate holds, otherwise to `no`.
    pub(super) fn pred(&mut self, p: &Pred, scope: PacketScopeInfo, yes: Label, no: Label) {
        match p {
            Pred::Always(is) => self.b.jump(if *is { yes } else { no }),
            Pred::Not(p) => self.pred(p, scope, no, yes),
            Pred::And(p, q) => {
                let both = self.b.label();
                self.pred(p, scope, both, no);
                self.b.place(both);
                self.pred(q, scope, yes, no);
            }
            Pred::Or(p, q) => {
                let neither = self.b.label();
                self.pred(p, scope, yes, neither);
                self.b.place(neither);
                self.pred(q, scope, yes, no);
            }
            Pred::Xor(p, q) => {
                let (p, q) = (self.truth(p, scope), self.truth(q, scope));
                self.b.branch(p, Cmp::Ne, q, yes, no);
            }
            Pred::Compare(prop, cmp, value) => {
                let number = self.prop(prop, scope, no);
                self.b.branch(number, *cmp, *value, yes, no);
            }
            Pred::Ip(version) => {
                let family = self.b.fact(scope.layer(), Fact::Family);
                match version {
                    Some(v) => self.b.branch(family, Cmp::Eq, u64::from(*v), yes, no),
                    None => self.b.branch(family, Cmp::Ne, 0, yes, no),
                }
            }
            Pred::Transport(version, protocols, header) => {
                self.transport(*version, protocols, *header, scope.layer(), yes, no);
            }
            // Ethertype 0 stands for a frame without ethertype, for which every comparison is false.
            Pred::EtherType(0) => self.b.jump(no),
            Pred::EtherType(value) => {
                let ethertype = self.b.fact(scope.layer(), Fact::Ethertype);
                self.b.branch(ethertype, Cmp::Eq, u64::from(*value), yes, no);
            }
            Pred::Protocol(value) => {
                let family = self.b.fact(scope.layer(), Fact::Family);
                self.b.require(family, Cmp::Ne, 0, no);
                let protocol = self.b.fact(scope.layer(), Fact::Protocol);
                self.b.branch(protocol, Cmp::Eq, u64::from(*value), yes, no);
            }
            Pred::Port(end, low, high) => self.port(*end, (*low).into(), (*high).into(), scope, yes, no),
            Pred::FlowPort(end, port) => {
                let parts = if scope.outside { FragmentScope::Outer } else { FragmentScope::Enclosing };
                let (src, dst) = self.datagram_ports(scope.flow_layer(), parts);
                let is = |s: &mut Self, value, yes, no| s.b.branch(value, Cmp::Eq, u64::from(*port), yes, no);
                self.ends(*end, scope, src, dst, yes, no, is);
            }
            Pred::Address(end, prefixes) => self.address(*end, prefixes, scope, yes, no),
            Pred::Host(end) => self.member(*end, &Set::Host, scope, yes, no),
            Pred::Outgoing => {
                let outgoing = self.b.meta(Meta::Outgoing);
                self.b.branch(outgoing, Cmp::Ne, 0, yes, no);
            }
            Pred::Duplicate(class) => {
                let found = self.b.meta(Meta::Duplicate);
                match class {
                    Some(class) => self.b.branch(found, Cmp::Eq, *class as u64, yes, no),
                    None => self.b.branch(found, Cmp::Ne, 0, yes, no),
                }
            }
            Pred::Fragment(first, later) => {
                let fragment = self.b.fact(scope.layer(), Fact::Fragment);
                match (first, later) {
                    (true, true) => self.b.branch(fragment, Cmp::Ne, 0, yes, no),
                    (true, false) => self.b.branch(fragment, Cmp::Eq, 1, yes, no),
                    (false, true) => self.b.branch(fragment, Cmp::Eq, 2, yes, no),
                    (false, false) => self.b.jump(no),
                }
            }
            Pred::Vlan(ids) => {
                let tag = self.b.meta(Meta::Vlan);
                self.b.require(tag, Cmp::Ne, 0, no);
                let id = self.b.op(Op::And, tag, 0xfff);
                self.any_of(ids.iter().map(|id| u64::from(*id)), id, yes);
                self.b.jump(if ids.is_empty() { yes } else { no });
            }
            Pred::Mac { end, broadcast } => {
                let (src, dst) = self.macs(no);
                let (cmp, bits) = if *broadcast { (Cmp::Eq, MAC_ALL) } else { (Cmp::AllBits, MAC_GROUP) };
                self.ends(*end, scope, src, dst, yes, no, |s, mac, yes, no| s.b.branch(mac, cmp, bits, yes, no));
            }
            Pred::Voip(kind) => self.voip(*kind, scope.layer(), yes, no),
            Pred::Gtp(kind) => self.gtp(*kind, scope.layer(), yes, no),
            Pred::Known(flow_map) => {
                let map = self.map(flow_map, scope);
                let key = self.key(flow_map.key, scope, no);
                let to = self.b.reg();
                self.b.push(Inst::Has { to, map, key });
                self.b.branch(to, Cmp::Ne, 0, yes, no);
            }
            Pred::Filter(filter) => crate::packet_filter::emit(&mut self.b, filter, yes, no),
        }
    }

    /// The truth value of a predicate, 1 or 0, in a register.
    fn truth(&mut self, p: &Pred, scope: PacketScopeInfo) -> Reg {
        let out = self.b.constant(0);
        let (yes, end) = (self.b.label(), self.b.label());
        self.pred(p, scope, yes, end);
        self.b.place(yes);
        self.b.push(Inst::Const { to: out, value: 1 });
        self.b.place(end);
        out
    }

    /// Jumps to `yes` if the register has one of the values; otherwise continues.
    fn any_of(&mut self, values: impl IntoIterator<Item = u64>, reg: Reg, yes: Label) {
        for value in values {
            let next = self.b.label();
            self.b.branch(reg, Cmp::Eq, value, yes, next);
            self.b.place(next);
        }
    }

    /// Jumps to `yes` if `test` succeeds for a selected endpoint: the source, the destination, or at least one of the
    /// two.
    #[expect(clippy::too_many_arguments, reason = "the arguments include two values, two labels and the test")]
    fn ends<T>(
        &mut self,
        end: Endpoint,
        scope: PacketScopeInfo,
        src: T,
        dst: T,
        yes: Label,
        no: Label,
        test: impl Fn(&mut Self, T, Label, Label),
    ) {
        match scope.ends(end) {
            (true, true) => {
                let other = self.b.label();
                test(self, src, yes, other);
                self.b.place(other);
                test(self, dst, yes, no);
            }
            (true, false) => test(self, src, yes, no),
            _ => test(self, dst, yes, no),
        }
    }

    fn transport(&mut self, version: Option<u8>, protocols: &[u8], header: u32, layer: Layer, yes: Label, no: Label) {
        if let Some(version) = version {
            let family = self.b.fact(layer, Fact::Family);
            self.b.require(family, Cmp::Eq, u64::from(version), no);
        }
        let (protocol, is) = (self.b.fact(layer, Fact::Protocol), self.b.label());
        self.any_of(protocols.iter().map(|p| u64::from(*p)), protocol, is);
        self.b.jump(no);
        self.b.place(is);
        let l4 = self.l4(layer, no);
        self.b.fits(Some(l4), 0, header, no);
        self.b.jump(yes);
    }

    /// Returns the source port and the destination port of a TCP, UDP or SCTP packet; jumps to `none` for other
    /// packets.
    pub(super) fn port_pair(&mut self, layer: Layer, none: Label) -> (Reg, Reg) {
        let (protocol, is) = (self.b.fact(layer, Fact::Protocol), self.b.label());
        self.any_of(WITH_PORTS.map(u64::from), protocol, is);
        self.b.jump(none);
        self.b.place(is);
        let l4 = self.l4(layer, none);
        self.b.fits(Some(l4), 0, 4, none);
        (self.b.load(Some(l4), 0, 2), self.b.load(Some(l4), 2, 2))
    }

    fn port(&mut self, end: Endpoint, low: u64, high: u64, scope: PacketScopeInfo, yes: Label, no: Label) {
        let (src, dst) = self.port_pair(scope.layer(), no);
        self.ends(end, scope, src, dst, yes, no, |s, port, yes, no| {
            if low == high {
                return s.b.branch(port, Cmp::Eq, low, yes, no);
            }
            s.b.require(port, Cmp::Ge, low, no);
            s.b.branch(port, Cmp::Le, high, yes, no);
        });
    }

    fn address(&mut self, end: Endpoint, prefixes: &[Prefix], scope: PacketScopeInfo, yes: Label, no: Label) {
        let [prefix] = prefixes else {
            return self.member(end, &Set::of_prefixes(prefixes.iter().copied()), scope, yes, no);
        };
        let a = self.addresses(scope.layer(), no);
        self.ends(end, scope, a.src, a.dst, yes, no, |s, address, yes, no| s.in_prefix(address, *prefix, yes, no));
    }

    /// Jumps to `yes` if the address is in the network, otherwise to `no`.
    pub(super) fn in_prefix(&mut self, address: [Reg; 2], prefix: Prefix, yes: Label, no: Label) {
        let ([hi, lo], [mask_hi, mask_lo]) = prefix.words();
        let masked = |s: &mut Self, reg, mask| if mask == u64::MAX { reg } else { s.b.op(Op::And, reg, mask) };
        if mask_hi != 0 {
            let high = masked(self, address[0], mask_hi);
            self.b.require(high, Cmp::Eq, hi, no);
        }
        if mask_lo == 0 {
            return self.b.jump(yes);
        }
        let low = masked(self, address[1], mask_lo);
        self.b.branch(low, Cmp::Eq, lo, yes, no);
    }

    fn member(&mut self, end: Endpoint, set: &Set, scope: PacketScopeInfo, yes: Label, no: Label) {
        let set = self.b.set_table(set);
        let a = self.addresses(scope.layer(), no);
        self.ends(end, scope, a.src, a.dst, yes, no, |s, [hi, lo], yes, no| {
            let to = s.b.reg();
            s.b.push(Inst::Member { to, set, hi, lo });
            s.b.branch(to, Cmp::Ne, 0, yes, no);
        });
    }

    /// Recognises VoIP packets. SIP is recognised by its port. RTP and RTCP packets (RFC 3550) have UDP ports of 1024
    /// or more, and version 2. RTCP has two odd ports and a packet type of RTCP. RTP has two even ports and a known
    /// payload type, or one odd and one even port.
    pub(super) fn voip(&mut self, kind: Voip, layer: Layer, yes: Label, no: Label) {
        const SIP: [u64; 2] = [5060, 5061];
        const REPORTS: (u64, u64) = (200, 204);
        const VIDEO: [u64; 7] = [25, 26, 28, 31, 32, 33, 34];
        let (src, dst) = self.port_pair(layer, no);
        if kind == Voip::Sip {
            self.any_of(SIP, src, yes);
            self.any_of(SIP, dst, yes);
            return self.b.jump(no);
        }
        self.any_of(SIP, src, no);
        self.any_of(SIP, dst, no);
        let protocol = self.b.fact(layer, Fact::Protocol);
        self.b.require(protocol, Cmp::Eq, u64::from(UDP), no);
        self.b.require(src, Cmp::Ge, 1024, no);
        self.b.require(dst, Cmp::Ge, 1024, no);
        let l4 = self.l4(layer, no);
        self.b.fits(Some(l4), 8, 2, no);
        let version = self.b.load(Some(l4), 8, 1);
        let version = self.b.op(Op::Shr, version, 6);
        self.b.require(version, Cmp::Eq, 2, no);
        let (kind_byte, odd_src) = (self.b.load(Some(l4), 9, 1), self.b.op(Op::And, src, 1));
        let odd_dst = self.b.op(Op::And, dst, 1);
        let (both, either) = (self.b.op(Op::And, odd_src, odd_dst), self.b.op(Op::Or, odd_src, odd_dst));
        let (odd, not_odd) = (self.b.label(), self.b.label());
        self.b.branch(both, Cmp::Ne, 0, odd, not_odd);
        self.b.place(odd);
        if kind == Voip::Rtcp {
            self.b.require(kind_byte, Cmp::Ge, REPORTS.0, no);
            self.b.branch(kind_byte, Cmp::Le, REPORTS.1, yes, no);
            self.b.place(not_odd);
            return self.b.jump(no);
        }
        self.b.jump(no);
        self.b.place(not_odd);
        let (even, mixed) = (self.b.label(), yes);
        self.b.branch(either, Cmp::Eq, 0, even, mixed);
        self.b.place(even);
        let payload_type = self.b.op(Op::And, kind_byte, 0x7f);
        let (audio, more) = (self.b.label(), self.b.label());
        self.b.branch(payload_type, Cmp::Lt, 19, audio, more);
        self.b.place(audio);
        self.b.jump(yes);
        self.b.place(more);
        self.any_of(VIDEO, payload_type, yes);
        self.b.branch(payload_type, Cmp::Gt, 95, yes, no);
    }

    /// Recognises GTP packets by their ports; user-plane packets also by the message type (3GPP TS 29.281 and 29.274).
    pub(super) fn gtp(&mut self, kind: Gtp, layer: Layer, yes: Label, no: Label) {
        const CONTROL: u64 = 2123;
        const USER: u64 = 2152;
        const G_PDU: u64 = 255;
        let (src, dst) = self.port_pair(layer, no);
        let protocol = self.b.fact(layer, Fact::Protocol);
        self.b.require(protocol, Cmp::Eq, u64::from(UDP), no);
        let (control, user, user_port) = (self.b.label(), self.b.label(), self.b.label());
        self.any_of([CONTROL], src, control);
        self.any_of([CONTROL], dst, control);
        self.any_of([USER], src, user_port);
        self.any_of([USER], dst, user_port);
        self.b.jump(no);
        self.b.place(user_port);
        let l4 = self.l4(layer, no);
        self.b.fits(Some(l4), 8, 2, no);
        let message = self.b.load(Some(l4), 9, 1);
        self.b.branch(message, Cmp::Eq, G_PDU, user, control);
        self.b.place(control);
        self.b.jump(if kind == Gtp::User { no } else { yes });
        self.b.place(user);
        self.b.jump(if kind == Gtp::Control { no } else { yes });
    }
}

const _: () = assert!(TCP == WITH_PORTS[0] && SCTP == WITH_PORTS[2]);
