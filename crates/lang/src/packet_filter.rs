//! Translates a tcpdump filter ([`LinkFilter`]) to the IR, so that filters run as machine code and in the kernel. If a
//! filter loads a byte that was not captured, the complete filter rejects the packet, even if the load is inside a
//! `not`.

use filter::anylink::AnyLinkTest;
use filter::test::{ByteLocation, HeaderOffset, Test, Tunnel, TunnelRef};
use filter::tree::{self, AddressProtocol, Dir, Version};
use filter::{BRIDGED, Base, LinkFilter, Number};
use ir::{self, Builder, Cmp, Fact, Inst, Label, Layer, Meta, Op, Program, Reg};
use std::fmt;

/// The reason why a filter cannot be translated: the filter searches a list of headers or tags of any length, for which
/// the IR would need a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterLoops;

const LOOPS: &str = "`protochain N` and `anylink vlan N` follow headers in a loop, and a program has no loops; use \
    `is_l4_proto` or `is_tcp` of the language or `anylink proto 6`, which skip all extension headers, or `vlan N`, \
    which tests the first tag";

impl fmt::Display for FilterLoops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LOOPS)
    }
}

impl std::error::Error for FilterLoops {}

/// A program that passes the packets that the filter matches and drops the others.
///
/// # Errors
/// If the filter requires a loop.
pub fn program(filter: &LinkFilter) -> Result<Program, FilterLoops> {
    if filter.test().loops() {
        return Err(FilterLoops);
    }
    let mut b = Builder::default();
    b.stage(filter.text());
    let (yes, no) = (b.label(), b.label());
    emit(&mut b, filter, yes, no);
    b.place(no);
    b.discard();
    b.place(yes);
    Ok(b.finish())
}

/// The filter as a predicate in another program: jumps to `yes` if it matches, otherwise to `no`.
pub(crate) fn emit(b: &mut Builder, filter: &LinkFilter, yes: Label, no: Label) {
    b.tables().filter.get_or_insert_with(|| (filter.text().to_owned(), filter.link_type()));
    let test = filter.test();
    let tunnels = (0..test.tunnels()).map(|_| [(); 3].map(|()| b.constant(NOWHERE))).collect();
    Emit { b, reject: no, tunnels }.test(test, yes, no);
}

/// Offset of the tunnel headers in a frame without a tunnel: beyond the end of every frame.
const NOWHERE: u64 = WORD;

const fn cmp(of: tree::Cmp) -> Cmp {
    match of {
        tree::Cmp::Eq => Cmp::Eq,
        tree::Cmp::Ne => Cmp::Ne,
        tree::Cmp::Lt => Cmp::Lt,
        tree::Cmp::Le => Cmp::Le,
        tree::Cmp::Gt => Cmp::Gt,
        tree::Cmp::Ge => Cmp::Ge,
    }
}

const fn op(of: tree::Op) -> Op {
    match of {
        tree::Op::Add => Op::Add,
        tree::Op::Sub => Op::Sub,
        tree::Op::Mul => Op::Mul,
        tree::Op::Div => Op::Div,
        tree::Op::Rem => Op::Rem,
        tree::Op::And => Op::And,
        tree::Op::Or => Op::Or,
        tree::Op::Xor => Op::Xor,
        tree::Op::Shl => Op::Shl,
        tree::Op::Shr => Op::Shr,
    }
}

const fn family(version: Version) -> u64 {
    match version {
        Version::V4 => 4,
        Version::V6 => 6,
    }
}

struct Emit<'a> {
    b: &'a mut Builder,
    reject: Label,
    /// For each tunnel, the offsets of the ethertype, the link header and the network header.
    tunnels: Vec<[Reg; 3]>,
}

/// Mask for the 32-bit arithmetic of filters.
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
            Test::Field { place, width, mask, cmp: how, value } => {
                let mut field = self.field(*place, *width);
                if *mask != u64::MAX {
                    field = self.b.op(Op::And, field, *mask);
                }
                self.b.branch(field, cmp(*how), *value, yes, no);
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
            Test::Deep(deep) => self.deep(deep, yes, no),
            // Never reached, because a filter with a chain test (`protochain`) is rejected before its translation.
            Test::Chain(_) => self.b.jump(no),
            Test::Relation(left, how, right) => {
                let left = self.number(left);
                match right.constant() {
                    Some(right) => self.b.branch(left, cmp(*how), u64::from(right), yes, no),
                    None => {
                        let right = self.number(right);
                        self.b.branch(left, cmp(*how), right, yes, no);
                    }
                }
            }
        }
    }

    /// Emits a test of the results of [`wire::Headers`]. If the tested header is absent, the test is false; unlike a
    /// load of a byte that was not captured, it does not make the complete filter reject the packet.
    fn deep(&mut self, deep: &AnyLinkTest, yes: Label, no: Label) {
        let fact = |b: &mut Builder, fact| b.fact(Layer::Outer, fact);
        let is = |b: &mut Builder, what, value: u64| {
            let found = fact(b, what);
            b.require(found, Cmp::Eq, value, no);
        };
        match *deep {
            // Only a VLAN test without an ID occurs here, because a filter with `anylink vlan ID` is rejected before
            // its translation.
            AnyLinkTest::Vlan(_) => {
                let tag = self.b.meta(Meta::Vlan);
                self.b.require(tag, Cmp::Ne, 0, no);
            }
            AnyLinkTest::EtherType(ethertype) => is(self.b, Fact::Ethertype, ethertype.into()),
            AnyLinkTest::Version(version) => is(self.b, Fact::Family, family(version)),
            AnyLinkTest::Protocol(version, protocol) => {
                let found = fact(self.b, Fact::Family);
                match version {
                    Some(version) => self.b.require(found, Cmp::Eq, family(version), no),
                    None => self.b.require(found, Cmp::Ne, 0, no),
                }
                is(self.b, Fact::Protocol, protocol.into());
            }
            AnyLinkTest::Address4 { within, dir, address, mask } => {
                let (ip, arp, look) = (self.b.label(), self.b.label(), self.b.label());
                let at = |of: &mut Self, src, dst| {
                    let l3 = fact(of.b, Fact::L3);
                    of.ends(l3, [src, dst], 4, dir, [(u64::from(mask), u64::from(address))], yes, no);
                };
                let found = fact(self.b, Fact::Family);
                self.b.branch(found, Cmp::Eq, 4, ip, arp);
                self.b.place(ip);
                if matches!(within, None | Some(AddressProtocol::Ip)) {
                    at(self, 12, 16)
                } else {
                    self.b.jump(no)
                }
                self.b.place(arp);
                let (l3, ethertype) = (fact(self.b, Fact::L3), fact(self.b, Fact::Ethertype));
                self.b.require(l3, Cmp::Ne, 0, no);
                let carriers: &[u64] = match within {
                    None => &[0x0806, 0x8035],
                    Some(AddressProtocol::Arp) => &[0x0806],
                    Some(AddressProtocol::Rarp) => &[0x8035],
                    Some(AddressProtocol::Ip) => &[],
                };
                for carrier in carriers {
                    let other = self.b.label();
                    self.b.branch(ethertype, Cmp::Eq, *carrier, look, other);
                    self.b.place(other);
                }
                self.b.jump(no);
                self.b.place(look);
                if self.b.is_live() {
                    at(self, 14, 24);
                }
                return;
            }
            AnyLinkTest::Address6 { dir, address, mask } => {
                is(self.b, Fact::Family, 6);
                let l3 = fact(self.b, Fact::L3);
                let halves = [64, 0].map(|by| ((mask >> by) as u64, (address >> by) as u64));
                self.ends(l3, [8, 24], 8, dir, halves, yes, no);
                return;
            }
            AnyLinkTest::Ports { of, dir, low, high } => {
                let found = fact(self.b, Fact::Family);
                self.b.require(found, Cmp::Ne, 0, no);
                let protocol = fact(self.b, Fact::Protocol);
                let has = self.b.label();
                for wanted in of.map_or(vec![6, 17, 132], |of| vec![of]) {
                    let other = self.b.label();
                    self.b.branch(protocol, Cmp::Eq, u64::from(wanted), has, other);
                    self.b.place(other);
                }
                self.b.jump(no);
                self.b.place(has);
                let l4 = fact(self.b, Fact::L4);
                self.b.require(l4, Cmp::Ne, 0, no);
                self.b.fits(Some(l4), 0, 4, no);
                let ports = [0, 2].map(|at| self.b.load(Some(l4), at, 2));
                self.either(dir, yes, no, |of, end, no| {
                    of.b.require(ports[end], Cmp::Ge, u64::from(low), no);
                    of.b.require(ports[end], Cmp::Le, u64::from(high), no);
                });
                return;
            }
        }
        self.b.jump(yes);
    }

    /// Compares address words at an offset from a header. All words have the same width; each is combined with its mask
    /// and compared with a value.
    #[expect(clippy::too_many_arguments, reason = "the parameters describe one test and its two labels")]
    fn ends<const N: usize>(
        &mut self,
        header: Reg,
        at: [u32; 2],
        width: u8,
        dir: Dir,
        words: [(u64, u64); N],
        yes: Label,
        no: Label,
    ) {
        let len = u32::from(width) * N as u32;
        self.b.fits(Some(header), at[1], len, no);
        self.either(dir, yes, no, |of, end, no| {
            for (i, (mask, value)) in (0..).zip(words) {
                if mask != 0 {
                    let word = of.b.load(Some(header), at[end] + i * u32::from(width), width);
                    let word = of.b.op(Op::And, word, mask);
                    of.b.require(word, Cmp::Eq, value, no);
                }
            }
        });
    }

    /// Applies a test to source (0) and destination (1); the test falls through or jumps to a label.
    fn either(&mut self, dir: Dir, yes: Label, no: Label, test: impl Fn(&mut Self, usize, Label)) {
        match dir {
            Dir::Src => test(self, 0, no),
            Dir::Dst => test(self, 1, no),
            Dir::Both => {
                test(self, 0, no);
                test(self, 1, no);
            }
            Dir::Either => {
                let other = self.b.label();
                test(self, 0, other);
                self.b.jump(yes);
                self.b.place(other);
                if self.b.is_live() {
                    test(self, 1, no);
                }
            }
        }
        self.b.jump(yes);
    }

    /// Tests for a Geneve tunnel (RFC 8926 §3.4), and computes the offsets of its headers.
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

    /// The header from which an offset counts; `None` for the start of the frame.
    fn start(&self, from: Option<TunnelRef>) -> Option<Reg> {
        let inside = from?;
        let [kind, link, payload] = self.tunnels[usize::from(inside.tunnel())];
        Some(match inside {
            TunnelRef::Kind(_) => kind,
            TunnelRef::Link(_) => link,
            TunnelRef::Payload(_) => payload,
        })
    }

    fn field(&mut self, place: ByteLocation, width: u8) -> Reg {
        let (base, offset) = match place {
            ByteLocation::At(spot) => (self.start(spot.from), spot.at),
            ByteLocation::BehindIpv4 { header, offset } => (Some(self.ipv4_len(header)), header.at + offset),
        };
        self.b.fits(base, offset, width.into(), self.reject);
        self.b.load(base, offset, width)
    }

    /// Returns the length of the IPv4 header at `header`. If `header` is relative to a tunnel header, adds the offset
    /// of the tunnel header in the frame.
    fn ipv4_len(&mut self, header: HeaderOffset) -> Reg {
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
            Number::Op(operator, a, b) => {
                let (a, b, operator) = (self.number(a), self.number(b), op(*operator));
                match operator {
                    Op::Div | Op::Rem => self.b.require(b, Cmp::Ne, 0, self.reject),
                    // A shift by 32 or more bits yields 0, also if the shift count is limited to 63: a right shift
                    // leaves no bit of a 32-bit number, and a left shift leaves only bits above the low 32 bits, which
                    // the mask clears.
                    Op::Shl | Op::Shr => {
                        let by = self.b.op(Op::Min, b, 63);
                        let moved = self.b.op(operator, a, by);
                        return self.b.op(Op::And, moved, WORD);
                    }
                    _ => (),
                }
                let result = self.b.op(operator, a, b);
                if matches!(operator, Op::Add | Op::Sub | Op::Mul) { self.b.op(Op::And, result, WORD) } else { result }
            }
            Number::Load { base, index, width } => {
                let (offset, header) = match base {
                    Base::At(spot) => (spot.at, self.start(spot.from)),
                    Base::BehindIpv4(header) => (header.at, Some(self.ipv4_len(*header))),
                    Base::Network { may_begin } => {
                        let l3 = self.b.fact(Layer::Outer, Fact::L3);
                        if !may_begin {
                            self.b.require(l3, Cmp::Ne, 0, self.reject);
                        }
                        (0, Some(l3))
                    }
                    Base::Transport => {
                        let l4 = self.b.fact(Layer::Outer, Fact::L4);
                        self.b.require(l4, Cmp::Ne, 0, self.reject);
                        (0, Some(l4))
                    }
                };
                // If the offset is relative to a tunnel header and the frame has no such tunnel, the filter rejects the
                // frame.
                if let (Base::At(HeaderOffset { from: Some(_), .. }), Some(start)) = (base, header) {
                    self.b.require(start, Cmp::Ne, NOWHERE, self.reject);
                }
                // A constant index is added to the offset at compile time, so a negative constant reads before the
                // base.
                let (index, offset) = match index.constant().map(|n| offset.wrapping_add(n)) {
                    Some(n) if n <= ir::MAX_OFFSET / 2 => {
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
                // Registers have 32 bits, and a load does not wrap around: a negative index reads beyond the end of
                // every frame.
                let at = self.b.op(Op::And, at, WORD);
                self.b.fits(Some(at), offset, (*width).into(), self.reject);
                self.b.load(Some(at), offset, *width)
            }
        }
    }
}
