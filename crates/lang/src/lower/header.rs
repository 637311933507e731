//! Emits reads of packet headers: of addresses, ports, and the fields that programs use as properties.

use super::{Addresses, Lower, PacketScopeInfo};
use crate::term::{HeaderField, Prop};
use ir::{Cmp, Fact, Inst, Label, Layer, Meta, Op, Reg, Var};

/// Protocols that have ports.
pub const WITH_PORTS: [u8; 3] = [TCP, UDP, SCTP];
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP6: u8 = 58;
pub const SCTP: u8 = 132;

/// The bits above the IPv4 address in the low word of an IPv4-mapped IPv6 address.
pub(super) const MAPPED: u64 = 0xffff_0000_0000;

impl Lower {
    /// The value of the property; jumps to `none` if the packet does not have the property.
    pub(super) fn prop(&mut self, prop: &Prop, scope: PacketScopeInfo, none: Label) -> Reg {
        match prop {
            Prop::Header(field) => self.header_field(*field, scope.layer(), none),
            Prop::Bytes(offset, size) => {
                self.b.fits(None, *offset, (*size).into(), none);
                self.b.load(None, *offset, *size)
            }
            Prop::Length => self.b.meta(Meta::WireLen),
            Prop::Mark => self.b.get(Var::Mark),
            Prop::State => self.b.get(Var::State),
            Prop::VlanId => {
                let tag = self.b.meta(Meta::Vlan);
                self.b.require(tag, Cmp::Ne, 0, none);
                self.b.op(Op::And, tag, 0xfff)
            }
            Prop::Flow(flow_map) => {
                let map = self.map(flow_map, scope);
                let key = self.key(flow_map.key, scope, none);
                let to = self.b.reg();
                self.b.push(Inst::MapGet { to, map, key });
                to
            }
            Prop::Op(inner, op, by) => {
                let value = self.prop(inner, scope, none);
                self.b.op(*op, value, *by)
            }
        }
    }

    fn header_field(&mut self, field: HeaderField, layer: Layer, none: Label) -> Reg {
        match field {
            HeaderField::EtherType => {
                let value = self.b.fact(layer, Fact::Ethertype);
                self.b.require(value, Cmp::Ne, 0, none);
                value
            }
            HeaderField::IpProtocol => {
                let family = self.b.fact(layer, Fact::Family);
                self.b.require(family, Cmp::Ne, 0, none);
                self.b.fact(layer, Fact::Protocol)
            }
            HeaderField::IpTos => self.ip_field(layer, (1, 1, 0), Some((0, 2, 4)), none),
            HeaderField::IpTtl => self.ip_field(layer, (8, 1, 0), Some((7, 1, 0)), none),
            HeaderField::IpId => self.ip_field(layer, (4, 2, 0), None, none),
            HeaderField::IpFragment => self.ip_field(layer, (6, 2, 0), None, none),
            HeaderField::IpTotalLen => self.ip_total_len(layer, none),
            HeaderField::SrcPort(tcp) => self.transport_field(layer, tcp, 0, 2, none),
            HeaderField::DstPort(tcp) => self.transport_field(layer, tcp, 2, 2, none),
            HeaderField::TcpFlags => self.transport_field(layer, true, 13, 1, none),
            HeaderField::TcpWindow => self.transport_field(layer, true, 14, 2, none),
            HeaderField::TcpHeaderLen => {
                let word = self.transport_field(layer, true, 12, 1, none);
                let words = self.b.op(Op::Shr, word, 4);
                self.b.op(Op::Shl, words, 2)
            }
            HeaderField::UdpLen => self.transport_field(layer, false, 4, 2, none),
            HeaderField::IcmpType => self.icmp_field(layer, 0, none),
            HeaderField::IcmpCode => self.icmp_field(layer, 1, none),
        }
    }

    /// Reads a field of the IPv4 or of the IPv6 header. Each of the two tuples contains the offset of the field, its
    /// width in bytes, and a shift count. The IPv6 field is shifted right by the shift count, and its low byte is the
    /// value. The shift count of the IPv4 field is not used.
    fn ip_field(&mut self, layer: Layer, v4: (u32, u8, u64), v6: Option<(u32, u8, u64)>, none: Label) -> Reg {
        let (family, l3, out) = (self.b.fact(layer, Fact::Family), self.b.fact(layer, Fact::L3), self.b.reg());
        let (not_4, end) = (self.b.label(), self.b.label());
        self.b.require(family, Cmp::Eq, 4, not_4);
        self.b.fits(Some(l3), v4.0, v4.1.into(), none);
        self.b.push(Inst::Load { to: out, base: Some(l3), offset: v4.0, width: v4.1 });
        self.b.jump(end);
        self.b.place(not_4);
        match v6 {
            Some((offset, width, shift)) => {
                self.b.require(family, Cmp::Eq, 6, none);
                self.b.fits(Some(l3), offset, width.into(), none);
                let field = self.b.load(Some(l3), offset, width);
                let down = self.b.op(Op::Shr, field, shift);
                self.b.push(Inst::Op { to: out, op: Op::And, a: down, b: 0xff.into() });
            }
            None => self.b.jump(none),
        }
        self.b.place(end);
        out
    }

    fn ip_total_len(&mut self, layer: Layer, none: Label) -> Reg {
        let (family, l3, out) = (self.b.fact(layer, Fact::Family), self.b.fact(layer, Fact::L3), self.b.reg());
        let (not_4, end) = (self.b.label(), self.b.label());
        self.b.require(family, Cmp::Eq, 4, not_4);
        self.b.fits(Some(l3), 2, 2, none);
        self.b.push(Inst::Load { to: out, base: Some(l3), offset: 2, width: 2 });
        self.b.jump(end);
        self.b.place(not_4);
        self.b.require(family, Cmp::Eq, 6, none);
        self.b.fits(Some(l3), 4, 2, none);
        let payload = self.b.load(Some(l3), 4, 2);
        self.b.push(Inst::Op { to: out, op: Op::Add, a: payload, b: 40.into() });
        self.b.place(end);
        out
    }

    fn transport_field(&mut self, layer: Layer, tcp: bool, offset: u32, width: u8, none: Label) -> Reg {
        let protocol = self.b.fact(layer, Fact::Protocol);
        self.b.require(protocol, Cmp::Eq, u64::from(if tcp { TCP } else { UDP }), none);
        let l4 = self.l4(layer, none);
        self.b.fits(Some(l4), offset, width.into(), none);
        self.b.load(Some(l4), offset, width)
    }

    fn icmp_field(&mut self, layer: Layer, offset: u32, none: Label) -> Reg {
        let (protocol, is) = (self.b.fact(layer, Fact::Protocol), self.b.label());
        let other = self.b.label();
        self.b.branch(protocol, Cmp::Eq, u64::from(ICMP), is, other);
        self.b.place(other);
        self.b.branch(protocol, Cmp::Eq, u64::from(ICMP6), is, none);
        self.b.place(is);
        let l4 = self.l4(layer, none);
        self.b.fits(Some(l4), offset, 1, none);
        self.b.load(Some(l4), offset, 1)
    }

    /// Returns source and destination address, each as two 64-bit words; an IPv4 address in its IPv6 form.
    pub(super) fn addresses(&mut self, layer: Layer, none: Label) -> Addresses {
        let (family, l3) = (self.b.fact(layer, Fact::Family), self.b.fact(layer, Fact::L3));
        self.addresses_at(family, l3, none)
    }

    /// Returns source and destination address from the header at offset `l3` of an IP packet of version `family`.
    pub(super) fn addresses_at(&mut self, family: Reg, l3: Reg, none: Label) -> Addresses {
        let [sh, sl, dh, dl] = [(); 4].map(|()| self.b.reg());
        let (not_4, end) = (self.b.label(), self.b.label());
        self.b.require(family, Cmp::Eq, 4, not_4);
        self.b.fits(Some(l3), 12, 8, none);
        for (hi, lo, offset) in [(sh, sl, 12), (dh, dl, 16)] {
            let address = self.b.load(Some(l3), offset, 4);
            self.b.push(Inst::Const { to: hi, value: 0 });
            self.b.push(Inst::Op { to: lo, op: Op::Or, a: address, b: MAPPED.into() });
        }
        self.b.jump(end);
        self.b.place(not_4);
        self.b.require(family, Cmp::Eq, 6, none);
        self.b.fits(Some(l3), 8, 32, none);
        for (to, offset) in [(sh, 8), (sl, 16), (dh, 24), (dl, 32)] {
            self.b.push(Inst::Load { to, base: Some(l3), offset, width: 8 });
        }
        self.b.place(end);
        Addresses { src: [sh, sl], dst: [dh, dl] }
    }

    /// Returns source and destination port; both are 0 if the packet has no ports.
    pub(super) fn ports(&mut self, layer: Layer) -> (Reg, Reg) {
        let (src, dst) = (self.b.constant(0), self.b.constant(0));
        let (ported, end) = (self.b.label(), self.b.label());
        let protocol = self.b.fact(layer, Fact::Protocol);
        // The flow hash includes the ports of these protocols: TCP, UDP, SCTP, DCCP (33) and UDP-Lite (136).
        for known in [TCP, UDP, SCTP, 33, 136] {
            let next = self.b.label();
            self.b.branch(protocol, Cmp::Eq, u64::from(known), ported, next);
            self.b.place(next);
        }
        self.b.jump(end);
        self.b.place(ported);
        let l4 = self.l4(layer, end);
        self.b.fits(Some(l4), 0, 4, end);
        self.b.push(Inst::Load { to: src, base: Some(l4), offset: 0, width: 2 });
        self.b.push(Inst::Load { to: dst, base: Some(l4), offset: 2, width: 2 });
        self.b.place(end);
        (src, dst)
    }

    /// Both MAC addresses, source first.
    pub(super) fn macs(&mut self, none: Label) -> (Reg, Reg) {
        let ethernet = self.b.meta(Meta::Ethernet);
        self.b.require(ethernet, Cmp::Ne, 0, none);
        self.b.fits(None, 0, 12, none);
        (self.b.load(None, 6, 6), self.b.load(None, 0, 6))
    }
}
