//! Emits code that computes the flow key of a packet: it packs header fields into 64-bit words.
//!
//! ```text
//! endpoint:  address (2 words, IPv4 in its IPv6 form)   link address   port
//! symmetric: the lesser endpoint first, compared in this order; only fields whose opposite field is in the key
//! words:     addresses · link addresses (a word each) · other fields, packed from the low bits into few words
//! ```
//! A packet without an IP header has no flow key if the key contains IP fields. In a packet without ports, or without
//! ICMP type and code, these fields of the key are 0. In the key of a map, a later fragment has the ports of its first
//! fragment. If a key is used for steering, a later fragment is steered like its first fragment (`fragment.rs`).

use super::header::{ICMP, ICMP6};
use super::{Lower, PacketScopeInfo};
use ir::key::{Field, Key};
use ir::{Cmp, Fact, FragmentScope, Inst, Label, Layer, Meta, Op, Reg};

/// Number of words of a key.
pub fn words(key: Key) -> u8 {
    let (mut words, mut free) = (0, 0);
    for field in key.fields() {
        match field.bits() {
            128 => words += 2,
            48 => words += 1,
            bits if bits <= free => free -= bits,
            bits => {
                words += 1;
                free = 64 - bits;
            }
        }
    }
    words
}

/// Selects the IP packet of a frame that is tested for fragmentation when a key of this layer is computed. Enclosing
/// packets are not tested: a later fragment of a tunnel packet contains no inner headers, so its key contains the
/// addresses of the tunnel.
const fn parts_of(layer: Layer) -> FragmentScope {
    match layer {
        Layer::Outer => FragmentScope::Outer,
        Layer::Inner => FragmentScope::Inner,
    }
}

/// A field and its registers: two for an address, one for other fields.
type HeldField = (Field, Vec<Reg>);

impl Lower {
    /// The words of the packet's key; jumps to `none` if a field is missing.
    pub(super) fn key(&mut self, key: Key, scope: PacketScopeInfo, none: Label) -> Vec<Reg> {
        let mut held = self.fields(key, scope, none);
        if key.is_symmetric() {
            self.put_in_order(key, &mut held);
        }
        let mut words: Vec<Reg> = Vec::new();
        let mut packed: Option<(usize, u32)> = None;
        for (field, regs) in held {
            let bits = field.bits();
            match packed {
                _ if bits >= 48 => words.extend(regs),
                Some((word, used)) if used + bits <= 64 => {
                    let moved = self.b.op(Op::Shl, regs[0], u64::from(used));
                    words[word] = self.b.op(Op::Or, words[word], moved);
                    packed = Some((word, used + bits));
                }
                _ => {
                    packed = Some((words.len(), bits));
                    words.push(regs[0]);
                }
            }
        }
        words
    }

    /// Reads each field of the key into registers; the result is in the order of [`Field::ALL`].
    fn fields(&mut self, key: Key, scope: PacketScopeInfo, none: Label) -> Vec<HeldField> {
        let layer = scope.flow_layer();
        let any = |fields: &[Field]| fields.iter().any(|f| key.has(*f));
        let macs = any(&[Field::EthSrc, Field::EthDst]).then(|| self.macs(none));
        let addresses = any(&[Field::IpSrc, Field::IpDst]).then(|| self.addresses(layer, none));
        let is_ip = [Field::IpProto, Field::IpEcn, Field::IpDscp, Field::SrcPort, Field::DstPort];
        if addresses.is_none() && any(&is_ip) {
            let family = self.b.fact(layer, Fact::Family);
            self.b.require(family, Cmp::Ne, 0, none);
        }
        let ports = any(&[Field::SrcPort, Field::DstPort])
            .then(|| if scope.leads { self.ports(layer) } else { self.datagram_ports(layer, parts_of(layer)) });
        let tos = any(&[Field::IpEcn, Field::IpDscp]).then(|| {
            let tos = crate::term::Prop::Header(crate::term::HeaderField::IpTos);
            let scope = PacketScopeInfo { tunnels: u8::from(layer == Layer::Inner), ..PacketScopeInfo::default() };
            self.prop(&tos, scope, none)
        });
        let icmp = any(&[Field::IcmpType, Field::IcmpCode]).then(|| self.icmp(layer));
        let mut held = Vec::new();
        for field in key.fields() {
            let regs = match field {
                Field::EthType => Some(vec![self.b.fact(layer, Fact::Ethertype)]),
                Field::EthSrc => macs.map(|m| vec![m.0]),
                Field::EthDst => macs.map(|m| vec![m.1]),
                Field::Vlan => {
                    let tag = self.b.meta(Meta::Vlan);
                    Some(vec![self.b.op(Op::And, tag, 0xfff)])
                }
                Field::IpSrc => addresses.as_ref().map(|a| a.src.to_vec()),
                Field::IpDst => addresses.as_ref().map(|a| a.dst.to_vec()),
                Field::IpProto => Some(vec![self.b.fact(layer, Fact::Protocol)]),
                Field::IpEcn => tos.map(|t| vec![self.b.op(Op::And, t, 0x03)]),
                Field::IpDscp => tos.map(|t| vec![self.b.op(Op::And, t, 0xfc)]),
                Field::SrcPort => ports.map(|p| vec![p.0]),
                Field::DstPort => ports.map(|p| vec![p.1]),
                Field::IcmpType => icmp.map(|i| vec![i.0]),
                Field::IcmpCode => icmp.map(|i| vec![i.1]),
            };
            held.extend(regs.map(|r| (field, r)));
        }
        held
    }

    /// ICMP type and code; 0 if there are none.
    fn icmp(&mut self, layer: Layer) -> (Reg, Reg) {
        let (kind, code) = (self.b.constant(0), self.b.constant(0));
        let (protocol, is, end) = (self.b.fact(layer, Fact::Protocol), self.b.label(), self.b.label());
        let other = self.b.label();
        self.b.branch(protocol, Cmp::Eq, u64::from(ICMP), is, other);
        self.b.place(other);
        self.b.branch(protocol, Cmp::Eq, u64::from(ICMP6), is, end);
        self.b.place(is);
        let l4 = self.l4(layer, end);
        self.b.fits(Some(l4), 0, 2, end);
        self.b.push(Inst::Load { to: kind, base: Some(l4), offset: 0, width: 1 });
        self.b.push(Inst::Load { to: code, base: Some(l4), offset: 1, width: 1 });
        self.b.place(end);
        (kind, code)
    }

    /// If the destination is less than the source, exchanges the fields of the two endpoints. Fields whose opposite
    /// field is not in the key are neither compared nor exchanged.
    fn put_in_order(&mut self, key: Key, held: &mut [HeldField]) {
        // Addresses are compared first: the two addresses of a packet usually differ, and then no other field must be
        // compared.
        let mut sending: Vec<Field> =
            key.paired().filter(|f| matches!(f, Field::EthSrc | Field::IpSrc | Field::SrcPort)).collect();
        sending.sort_by_key(|f| std::cmp::Reverse(f.bits()));
        let find = |held: &[HeldField], field| held.iter().find(|h| h.0 == field).map_or(vec![], |h| h.1.clone());
        let (mut src, mut dst) = (Vec::new(), Vec::new());
        for field in &sending {
            src.extend(find(held, *field));
            dst.extend(field.opposite().map_or(vec![], |o| find(held, o)));
        }
        let (low, high) = self.ordered(&src, &dst);
        for (field, regs) in held {
            let (from, ordered) = if sending.contains(field) { (&src, &low) } else { (&dst, &high) };
            for reg in regs {
                if let Some(at) = from.iter().position(|r| r == reg) {
                    *reg = ordered[at];
                }
            }
        }
    }

    /// Emits instructions that put two lists of words into lexicographic order. Returns the registers of the lower list
    /// and of the higher list; the order within each list is kept.
    pub(super) fn ordered(&mut self, a: &[Reg], b: &[Reg]) -> (Vec<Reg>, Vec<Reg>) {
        if let ([a], [b]) = (a, b) {
            return (vec![self.b.op(Op::Min, *a, *b)], vec![self.b.op(Op::Max, *a, *b)]);
        }
        let low: Vec<Reg> = a.iter().map(|_| self.b.reg()).collect();
        let high: Vec<Reg> = a.iter().map(|_| self.b.reg()).collect();
        let (keep, swap, end) = (self.b.label(), self.b.label(), self.b.label());
        for (x, y) in a.iter().zip(b) {
            let (more, next) = (self.b.label(), self.b.label());
            self.b.branch(*x, Cmp::Lt, *y, keep, more);
            self.b.place(more);
            self.b.branch(*x, Cmp::Gt, *y, swap, next);
            self.b.place(next);
        }
        self.b.place(keep);
        self.copies(&low, a);
        self.copies(&high, b);
        self.b.jump(end);
        self.b.place(swap);
        self.copies(&low, b);
        self.copies(&high, a);
        self.b.place(end);
        (low, high)
    }

    fn copies(&mut self, to: &[Reg], from: &[Reg]) {
        for (to, from) in to.iter().zip(from) {
            self.b.push(Inst::Copy { to: *to, from: *from });
        }
    }
}
