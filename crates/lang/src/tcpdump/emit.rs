//! From tests to the intermediate form. A byte that is not there ends the whole filter, past every `not`.

use super::arith::{Base, Number};
use super::offsets::BRIDGED;
use super::test::{Inside, Place, Spot, Test, Tunnel};
use crate::ir::{Builder, Cmp, Inst, Label, Meta, Op, Reg};

/// To `yes` if the test holds, else to `no`.
pub fn emit(b: &mut Builder, test: &Test, yes: Label, no: Label) {
    let tunnels = (0..test.tunnels()).map(|_| [(); 3].map(|()| b.constant(NOWHERE))).collect();
    Emit { b, reject: no, tunnels }.test(test, yes, no);
}

/// Where what a tunnel carries lies, of a frame that is none: behind the end of all frames.
const NOWHERE: u64 = WORD;

struct Emit<'a> {
    b: &'a mut Builder,
    reject: Label,
    /// What was found in each tunnel: the ethertype, the link header, the network header.
    tunnels: Vec<[Reg; 3]>,
}

/// Arithmetic of filters has 32 bits.
const WORD: u64 = 0xffff_ffff;

impl Emit<'_> {
    fn test(&mut self, test: &Test, yes: Label, no: Label) {
        match test {
            Test::Always(is) => self.b.jump(if *is { yes } else { no }),
            Test::Not(t) => self.test(t, no, yes),
            Test::And(s, t) => {
                let both = self.b.label();
                self.test(s, both, no);
                self.b.place(both);
                self.test(t, yes, no);
            }
            Test::Or(s, t) => {
                let neither = self.b.label();
                self.test(s, yes, neither);
                self.b.place(neither);
                self.test(t, yes, no);
            }
            Test::Field { place, width, mask, cmp, value } => {
                let mut field = self.field(*place, *width);
                if *mask != u64::MAX {
                    field = self.b.op(Op::And, field, *mask);
                }
                self.b.branch(field, *cmp, *value, yes, no);
            }
            Test::Outgoing => {
                let outgoing = self.b.meta(Meta::Outgoing);
                self.b.branch(outgoing, Cmp::Ne, 0, yes, no);
            }
            Test::Tunnel(tunnel) => self.tunnel(tunnel, yes, no),
            Test::HasLink(number) => {
                let [_, link, payload] = self.tunnels[usize::from(*number)];
                self.b.branch(link, Cmp::Ne, payload, yes, no);
            }
            Test::Relation(left, cmp, right) => {
                let left = self.number(left);
                match right.constant() {
                    Some(right) => self.b.branch(left, *cmp, u64::from(right), yes, no),
                    None => {
                        let right = self.number(right);
                        self.b.branch(left, *cmp, right, yes, no);
                    }
                }
            }
        }
    }

    /// The frame is a tunnel of Geneve: finds what is in it (RFC 8926 §3.4).
    fn tunnel(&mut self, tunnel: &Tunnel, yes: Label, no: Label) {
        const UDP_HEADER: u64 = 8;
        const HEADER: u64 = 8;
        const TYPE: u64 = 2;
        const ETHERTYPE: u64 = 12;
        let [kind, link, payload] = self.tunnels[usize::from(tunnel.number)];
        let set = |b: &mut Builder, to: Reg, from: Reg, plus: u64| {
            b.push(Inst::Op { to, op: Op::Add, a: from, b: plus.into() })
        };
        let (ip, not_ip, ip6, found) = (self.b.label(), self.b.label(), self.b.label(), self.b.label());
        let at = self.b.reg();
        self.test(&tunnel.over_ip, ip, not_ip);
        self.b.place(ip);
        let len = self.ipv4_len(tunnel.network);
        set(self.b, at, len, u64::from(tunnel.network.at) + UDP_HEADER);
        self.b.jump(found);
        self.b.place(not_ip);
        self.test(&tunnel.over_ip6, ip6, no);
        self.b.place(ip6);
        let start = self.start(tunnel.network.from);
        let start = match start {
            Some(start) => start,
            None => self.b.constant(0),
        };
        set(self.b, at, start, u64::from(tunnel.network.at) + 40 + UDP_HEADER);
        self.b.place(found);
        if !self.b.is_live() {
            return;
        }
        self.b.fits(Some(at), 0, 4, self.reject);
        let (options, carried) = (self.b.load(Some(at), 0, 1), self.b.load(Some(at), 2, 2));
        let words = self.b.op(Op::And, options, 0x3f);
        let bytes = self.b.op(Op::Shl, words, 2);
        let end = self.b.op(Op::Add, at, bytes);
        set(self.b, link, end, HEADER);
        let (bridged, routed) = (self.b.label(), self.b.label());
        self.b.branch(carried, Cmp::Eq, BRIDGED, bridged, routed);
        self.b.place(bridged);
        set(self.b, kind, link, ETHERTYPE);
        set(self.b, payload, link, ETHERTYPE + 2);
        self.b.jump(yes);
        self.b.place(routed);
        set(self.b, kind, at, TYPE);
        set(self.b, payload, link, 0);
        self.b.jump(yes);
    }

    /// What a spot counts from, if not from the start of the frame.
    fn start(&self, from: Option<Inside>) -> Option<Reg> {
        let inside = from?;
        let [kind, link, payload] = self.tunnels[usize::from(inside.tunnel())];
        Some(match inside {
            Inside::Kind(_) => kind,
            Inside::Link(_) => link,
            Inside::Payload(_) => payload,
        })
    }

    fn field(&mut self, place: Place, width: u8) -> Reg {
        let (base, offset) = match place {
            Place::At(spot) => (self.start(spot.from), spot.at),
            Place::BehindIpv4 { header, offset } => (Some(self.ipv4_len(header)), header.at + offset),
        };
        self.b.fits(base, offset, width.into(), self.reject);
        self.b.load(base, offset, width)
    }

    /// Bytes of the header of IPv4, and those before what its spot counts from.
    fn ipv4_len(&mut self, header: Spot) -> Reg {
        let start = self.start(header.from);
        self.b.fits(start, header.at, 1, self.reject);
        let first = self.b.load(start, header.at, 1);
        let words = self.b.op(Op::And, first, 0xf);
        let bytes = self.b.op(Op::Shl, words, 2);
        match start {
            Some(start) => self.b.op(Op::Add, bytes, start),
            None => bytes,
        }
    }

    fn number(&mut self, n: &Number) -> Reg {
        if let Some(n) = n.constant() {
            return self.b.constant(n.into());
        }
        match n {
            Number::Is(n) => self.b.constant((*n).into()),
            Number::Len => self.b.meta(Meta::WireLen),
            Number::Op(op, a, b) => {
                let (a, b) = (self.number(a), self.number(b));
                match op {
                    Op::Div | Op::Rem => self.b.require(b, Cmp::Ne, 0, self.reject),
                    // A shift by 32 or more leaves nothing: then it is done by 63, which leaves nothing of 32 bits to the right;
                    // to the left the low 32 bits are what counts.
                    Op::Shl | Op::Shr => {
                        let by = self.b.op(Op::Min, b, 63);
                        let moved = self.b.op(*op, a, by);
                        return self.b.op(Op::And, moved, WORD);
                    }
                    _ => (),
                }
                let result = self.b.op(*op, a, b);
                if matches!(op, Op::Add | Op::Sub | Op::Mul) { self.b.op(Op::And, result, WORD) } else { result }
            }
            Number::Load { base, index, width } => {
                let (offset, header) = match base {
                    Base::At(spot) => (spot.at, self.start(spot.from)),
                    Base::BehindIpv4(header) => (header.at, Some(self.ipv4_len(*header))),
                };
                // Nothing is found at a distance from nowhere.
                if let (Base::At(Spot { from: Some(_), .. }), Some(start)) = (base, header) {
                    self.b.require(start, Cmp::Ne, NOWHERE, self.reject);
                }
                // A constant is added to the offset when the filter is made, and there a negative one leads back.
                let (index, offset) = match index.constant().map(|n| offset.wrapping_add(n)) {
                    Some(n) if n <= crate::ir::MAX_OFFSET / 2 => {
                        self.b.fits(header, n, (*width).into(), self.reject);
                        return self.b.load(header, n, *width);
                    }
                    Some(n) => (self.b.constant(n.into()), 0),
                    None => (self.number(index), offset),
                };
                let mut at = index;
                if let Some(header) = header {
                    at = self.b.op(Op::Add, at, header);
                }
                // Registers have 32 bits, and what is added to them in a load does not wrap: behind a negative index lies nothing.
                let at = self.b.op(Op::And, at, WORD);
                self.b.fits(Some(at), offset, (*width).into(), self.reject);
                self.b.load(Some(at), offset, *width)
            }
        }
    }
}
