//! Interprets packet filters. A program is a list of steps. Each step is a test with two targets: the next step if the
//! test is true, and the next step if it is false. All targets are later steps, so execution terminates.
//!
//! If a step loads a byte that was not captured, the frame is rejected at once, even under `not`, as in libpcap.

use crate::anylink::chunk;
use crate::number::{Base, Number};
use crate::offsets::BRIDGED;
use crate::test::{ByteLocation, Chain, HeaderOffset, Test, Tunnel, TunnelRef};
use crate::tree::Cmp;
use wire::Headers;

/// The target of a step that ends the program with the result that the frame matches.
const ACCEPT: u32 = u32::MAX;
/// The target of a step that ends the program with the result that the frame does not match.
const REJECT: u32 = u32::MAX - 1;

/// Maximum number of headers that `protochain` follows. (libpcap has no limit: on a chain that leads back to itself it
/// never terminates.)
const MAX_CHAIN: usize = 1000;

/// The offset of the headers of a tunnel that the frame does not contain. It is beyond the end of every frame.
const NOWHERE: u32 = u32::MAX;

/// The frame under test.
pub struct Frame<'a> {
    pub bytes: &'a [u8],
    pub wire_len: u32,
    pub headers: &'a Headers,
    pub outgoing: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    test: Leaf,
    yes: u32,
    no: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum Leaf {
    /// A comparison of bytes at a constant offset, the most frequent kind of test.
    Field {
        at: u32,
        width: u8,
        cmp: Cmp,
        mask: u64,
        value: u64,
    },
    Other(Box<Test>),
}

/// A list of steps in which all targets are later steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    steps: Box<[Step]>,
    start: u32,
    tunnels: usize,
}

impl Program {
    pub fn of(test: &Test) -> Self {
        let mut steps = Vec::new();
        let start = emit(test, ACCEPT, REJECT, &mut steps);
        // The steps are created from the last to the first, because a step can refer only to steps that exist already.
        steps.reverse();
        let count = steps.len() as u32;
        let turned = |to: u32| if to < REJECT { count - 1 - to } else { to };
        for step in &mut steps {
            (step.yes, step.no) = (turned(step.yes), turned(step.no));
        }
        for i in (0..steps.len()).rev() {
            let (yes, no) = (skip(&steps, i, true), skip(&steps, i, false));
            (steps[i].yes, steps[i].no) = (yes, no);
        }
        Self { start: turned(start), steps: steps.into(), tunnels: test.tunnels().into() }
    }

    #[inline]
    pub fn run(&self, frame: &Frame<'_>) -> bool {
        // Few filters contain a tunnel primitive, and an empty vector needs no allocation.
        let mut tunnels = vec![[NOWHERE; 3]; self.tunnels];
        let mut at = self.start;
        while let Some(step) = self.steps.get(at as usize) {
            let holds = match &step.test {
                Leaf::Field { at, width, cmp, mask, value } => {
                    let Some(field) = read(frame.bytes, *at, *width) else { return false };
                    cmp.holds(field & mask, *value)
                }
                Leaf::Other(test) => match (Eval { frame, tunnels: &mut tunnels }).test(test) {
                    Some(holds) => holds,
                    None => return false,
                },
            };
            at = if holds { step.yes } else { step.no };
        }
        at == ACCEPT
    }
}

/// Emits steps for `test`, with the targets `yes` and `no`, and returns the index of the first of these steps.
fn emit(test: &Test, yes: u32, no: u32, steps: &mut Vec<Step>) -> u32 {
    let leaf = match test {
        Test::Always(true) => return yes,
        Test::Always(false) => return no,
        Test::Not(inner) => return emit(inner, no, yes, steps),
        Test::And(left, right) => {
            let then = emit(right, yes, no, steps);
            return emit(left, then, no, steps);
        }
        Test::Or(left, right) => {
            let otherwise = emit(right, yes, no, steps);
            return emit(left, yes, otherwise, steps);
        }
        Test::Field { place: ByteLocation::At(HeaderOffset { from: None, at }), width, mask, cmp, value } => {
            Leaf::Field { at: *at, width: *width, cmp: *cmp, mask: *mask, value: *value }
        }
        other => Leaf::Other(Box::new(other.clone())),
    };
    steps.push(Step { test: leaf, yes, no });
    steps.len() as u32 - 1
}

/// The target of step `i` for this result. Steps are skipped that test the same bytes and whose result follows from
/// that of step `i`.
fn skip(steps: &[Step], i: usize, holds: bool) -> u32 {
    let mut to = if holds { steps[i].yes } else { steps[i].no };
    let Leaf::Field { at, width, cmp: Cmp::Eq, mask, value } = steps[i].test else { return to };
    while let Some(Step { test: Leaf::Field { at: a, width: w, cmp: Cmp::Eq, mask: m, value: v }, yes, no }) =
        steps.get(to as usize)
    {
        if (at, width, mask) != (*a, *w, *m) {
            break;
        }
        match (holds, value == *v) {
            (_, true) => to = if holds { *yes } else { *no },
            (true, false) => to = *no,
            (false, false) => break,
        }
    }
    to
}

/// The number in the bytes at this offset; `None` if the bytes were not captured.
#[inline(always)]
fn read(frame: &[u8], at: u32, width: u8) -> Option<u64> {
    let at = at as usize;
    Some(match width {
        1 => u64::from(*frame.get(at)?),
        2 => u64::from(u16::from_be_bytes(chunk(frame, at)?)),
        4 => u64::from(u32::from_be_bytes(chunk(frame, at)?)),
        6 => {
            let [a, b, c, d, e, f]: [u8; 6] = chunk(frame, at)?;
            u64::from_be_bytes([0, 0, a, b, c, d, e, f])
        }
        _ => u64::from_be_bytes(chunk(frame, at)?),
    })
}

struct Eval<'a> {
    frame: &'a Frame<'a>,
    /// For each tunnel primitive of the filter: the offsets of the ethertype, the link header and the network header.
    tunnels: &'a mut [[u32; 3]],
}

/// True if a test holds for a frame. This function evaluates the test directly, without compiling it to steps.
pub fn holds(test: &Test, frame: &Frame<'_>) -> bool {
    let mut tunnels = vec![[NOWHERE; 3]; test.tunnels().into()];
    Eval { frame, tunnels: &mut tunnels }.test(test).unwrap_or(false)
}

/// The functions of `Eval` return `None` if they read a byte that was not captured.
impl Eval<'_> {
    fn test(&mut self, test: &Test) -> Option<bool> {
        Some(match test {
            Test::Always(is) => *is,
            Test::Not(inner) => !self.test(inner)?,
            Test::And(a, b) => self.test(a)? && self.test(b)?,
            Test::Or(a, b) => self.test(a)? || self.test(b)?,
            Test::Field { place, width, mask, cmp, value } => {
                let at = match place {
                    ByteLocation::At(offset) => self.spot(*offset)?,
                    ByteLocation::BehindIpv4 { header, offset } => self.behind(*header)?.checked_add(*offset)?,
                };
                cmp.holds(read(self.frame.bytes, at, *width)? & mask, *value)
            }
            Test::Outgoing => self.frame.outgoing,
            Test::Tunnel(tunnel) => self.tunnel(tunnel)?,
            Test::HasLink(number) => {
                let [_, link, payload] = self.tunnels[usize::from(*number)];
                link != payload
            }
            Test::Relation(left, cmp, right) => cmp.holds(self.number(left)?.into(), self.number(right)?.into()),
            Test::Chain(chain) => self.chain(chain)?,
            Test::Deep(deep) => deep.holds(self.frame.bytes, self.frame.headers),
        })
    }

    fn spot(&self, spot: HeaderOffset) -> Option<u32> {
        let start = match spot.from {
            None => 0,
            Some(inside) => {
                let [kind, link, payload] = self.tunnels[usize::from(inside.tunnel())];
                match inside {
                    TunnelRef::Kind(_) => kind,
                    TunnelRef::Link(_) => link,
                    TunnelRef::Payload(_) => payload,
                }
            }
        };
        // If the frame does not contain the tunnel, an offset from a header of the tunnel does not exist.
        if spot.from.is_some() && start == NOWHERE { None } else { start.checked_add(spot.at) }
    }

    /// The offset of the first byte after the IPv4 header that begins at this offset.
    fn behind(&self, header: HeaderOffset) -> Option<u32> {
        let at = self.spot(header)?;
        let first = read(self.frame.bytes, at, 1)?;
        at.checked_add((first as u32 & 0xf) * 4)
    }

    /// Tests for a Geneve tunnel (RFC 8926 §3.4), and stores the offsets of its headers for later tests.
    fn tunnel(&mut self, tunnel: &Tunnel) -> Option<bool> {
        const UDP_HEADER: u32 = 8;
        let at = if self.test(&tunnel.over_ip)? {
            self.behind(tunnel.network)?
        } else if self.test(&tunnel.over_ip6)? {
            self.spot(tunnel.network)? + 40
        } else {
            return Some(false);
        } + UDP_HEADER;
        let (options, carried) = (read(self.frame.bytes, at, 1)? as u32 & 0x3f, read(self.frame.bytes, at + 2, 2)?);
        let link = at + 8 + 4 * options;
        self.tunnels[usize::from(tunnel.number)] =
            if carried == BRIDGED { [link + 12, link, link + 14] } else { [at + 2, link, link] };
        Some(true)
    }

    /// Follows the chain of extension headers as libpcap does (`gen_protochain`). Like libpcap, it computes the
    /// position after an authentication header from the start of the packet and not from that header.
    fn chain(&self, chain: &Chain) -> Option<bool> {
        const NO_NEXT: u32 = 59;
        const AH: u32 = 51;
        let start = self.spot(chain.header)?;
        let byte = |at: u32| read(self.frame.bytes, start.checked_add(at)?, 1).map(|b| b as u32);
        let (mut is, mut at) = if chain.is_v6 { (byte(6)?, 40) } else { (byte(9)?, (byte(0)? & 0xf) * 4) };
        for _ in 0..MAX_CHAIN {
            match is {
                is if is == chain.protocol || is == NO_NEXT => break,
                0 | 43 | 44 | 60 if chain.is_v6 => (is, at) = (byte(at)?, at + (byte(at + 1)? + 1) * 8),
                AH => (is, at) = (byte(at)?, (byte(at + 1)? + 2) * 4),
                _ => break,
            }
        }
        Some(is == chain.protocol)
    }

    fn number(&self, number: &Number) -> Option<u32> {
        match number {
            Number::Is(n) => Some(*n),
            Number::Len => Some(self.frame.wire_len),
            Number::Op(op, a, b) => op.apply(self.number(a)?, self.number(b)?),
            Number::Load { base, index, width } => {
                let (start, fixed) = match base {
                    Base::At(HeaderOffset { from, at }) => (self.spot(HeaderOffset { from: *from, at: 0 })?, *at),
                    Base::BehindIpv4(header) => (self.behind(*header)? - header.at, header.at),
                    Base::Network { may_begin } => {
                        (Some(u32::from(self.frame.headers.l3())).filter(|at| *at > 0 || *may_begin)?, 0)
                    }
                    Base::Transport => (Some(u32::from(self.frame.headers.l4())).filter(|at| *at > 0)?, 0),
                };
                // The offset is computed as in libpcap. A constant index is added at compile time by libpcap's
                // optimiser, so a negative constant reads before the base. Any other index is an unsigned 32-bit
                // register, and a load does not wrap around, so a negative index reads beyond the end of every frame.
                let at = match index.constant() {
                    Some(n) => fixed.wrapping_add(n).wrapping_add(start),
                    None => self.number(index)?.wrapping_add(start).checked_add(fixed)?,
                };
                read(self.frame.bytes, at, *width).map(|n| n as u32)
            }
        }
    }
}
