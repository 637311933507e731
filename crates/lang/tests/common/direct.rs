//! The terms evaluated directly, without the intermediate form and with the header walk of another room: a second opinion on what a
//! program means. It knows the words that the random programs of the tests use, and no others.

use netgrain_lang::Prefix;
use netgrain_lang::ir::{ANY_CLASS, Cmp, DEFAULT_CLASS, Kind, mapped, wide};
use netgrain_lang::term::{Act, End, HeaderField, Look, Pred, Prop, Steer};
use std::net::IpAddr;
use wire::{Family, FlowKey, Fragment, Headers, link};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    pub kind: Kind,
    pub classes: u64,
    pub pick: u32,
    pub mark: u32,
    pub state: u32,
    pub kernel: bool,
    pub forwards: Vec<String>,
    pub counters: Vec<(u8, u64)>,
}

pub struct Direct<'a> {
    pub bytes: &'a [u8],
    pub wire_len: u32,
    pub fate: Fate,
    headers: Headers,
    end: Option<End>,
}

impl<'a> Direct<'a> {
    pub fn new(bytes: &'a [u8], wire_len: u32) -> Self {
        let fate = Fate {
            kind: Kind::Copy,
            classes: DEFAULT_CLASS,
            pick: 0,
            mark: 0,
            state: 0,
            kernel: false,
            forwards: vec![],
            counters: vec![],
        };
        Self { bytes, wire_len, fate, headers: Headers::of(bytes, wire_len, link::ETHERNET), end: None }
    }

    /// Whether the act passes the packet.
    pub fn act(&mut self, act: &Act) -> bool {
        match act {
            Act::Unit => true,
            Act::Drop => false,
            Act::Filter(p) => self.pred(p),
            Act::If(p, a, b) => {
                if self.pred(p) {
                    self.act(a)
                } else {
                    self.act(b)
                }
            }
            Act::Case(prop, arms, other) => {
                let value = self.prop(prop);
                let arm = arms.iter().find(|a| Some(a.0) == value).map_or(&**other, |a| &a.1);
                self.act(arm)
            }
            Act::Seq(steps) => steps.iter().all(|s| self.act(&s.1)),
            Act::Inv(inner) => {
                let passed = self.act(inner);
                if !passed {
                    self.fate.kind = Kind::Copy;
                }
                !passed
            }
            Act::Par(acts) => {
                let before = (self.fate.kind, self.fate.classes, self.fate.pick);
                acts.iter().enumerate().any(|(i, a)| {
                    if i > 0 {
                        (self.fate.kind, self.fate.classes, self.fate.pick) = before;
                    }
                    self.act(a)
                })
            }
            Act::Within(look, inner) => {
                let end = match look {
                    Look::Src => End::Src,
                    Look::Dst => End::Dst,
                    other => unreachable!("{other:?} is not made"),
                };
                let before = self.end.replace(end);
                let passed = self.act(inner);
                self.end = before;
                passed
            }
            Act::Broadcast => {
                (self.fate.kind, self.fate.classes) = (Kind::Copy, ANY_CLASS);
                true
            }
            Act::Classify(class) => {
                self.fate.classes = 1 << class;
                true
            }
            Act::Steer(Steer::To(n)) => {
                (self.fate.kind, self.fate.pick) = (Kind::Pick, *n);
                true
            }
            Act::Forward(device) => {
                self.fate.forwards.push(device.clone());
                true
            }
            Act::Kernel => {
                self.fate.kernel = true;
                true
            }
            Act::Mark(mark) => {
                self.fate.mark = *mark;
                true
            }
            Act::State(state) => {
                self.fate.state = *state;
                true
            }
            Act::Count(counter, by) => {
                self.fate.counters.push((*counter, *by));
                true
            }
            other => unreachable!("{other:?} is not made"),
        }
    }

    fn ends(&self, end: End) -> (bool, bool) {
        let end = if end == End::Any { self.end.unwrap_or(End::Any) } else { end };
        (end != End::Dst, end != End::Src)
    }

    pub fn pred(&self, p: &Pred) -> bool {
        match p {
            Pred::Always(is) => *is,
            Pred::Not(p) => !self.pred(p),
            Pred::And(p, q) => self.pred(p) && self.pred(q),
            Pred::Or(p, q) => self.pred(p) || self.pred(q),
            Pred::Xor(p, q) => self.pred(p) != self.pred(q),
            Pred::Compare(prop, cmp, value) => self.prop(prop).is_some_and(|p| match cmp {
                Cmp::Eq => p == *value,
                Cmp::Ne => p != *value,
                Cmp::Lt => p < *value,
                Cmp::Le => p <= *value,
                Cmp::Gt => p > *value,
                Cmp::Ge => p >= *value,
                Cmp::AnyBit => p & value > 0,
                Cmp::AllBits => p | value == p,
            }),
            Pred::Ip(None) => self.headers.family() != Family::Other,
            Pred::Ip(Some(4)) => self.headers.family() == Family::V4,
            Pred::Ip(Some(_)) => self.headers.family() == Family::V6,
            Pred::Transport(None, protocols, header) => {
                let l4 = usize::from(self.headers.l4());
                l4 > 0
                    && self.headers.protocol().is_some_and(|p| protocols.contains(&p.0))
                    && self.bytes.len() >= l4 + *header as usize
            }
            Pred::Port(end, low, high) => {
                let key = FlowKey::of(self.bytes, &self.headers);
                let has = key.filter(|k| [6, 17, 132].contains(&k.protocol.0));
                // The key has no ports of fragments, the question has those of the first.
                let l4 = usize::from(self.headers.l4());
                let ports = self.bytes.get(l4..l4 + 4).filter(|_| l4 > 0 && has.is_some());
                ports.is_some_and(|p| {
                    let is = |at: usize| (*low..=*high).contains(&u16::from_be_bytes([p[at], p[at + 1]]));
                    let (src, dst) = self.ends(*end);
                    src && is(0) || dst && is(2)
                })
            }
            Pred::Address(end, nets) => FlowKey::of(self.bytes, &self.headers).is_some_and(|k| {
                let (src, dst) = self.ends(*end);
                src && inside(k.src, nets) || dst && inside(k.dst, nets)
            }),
            Pred::Fragment(first, later) => match self.headers.fragment() {
                Fragment::Whole => false,
                Fragment::First => *first,
                Fragment::Later => *later,
            },
            Pred::Vlan(ids) => self.headers.vlan().is_some_and(|v| ids.is_empty() || ids.contains(&v)),
            other => unreachable!("{other:?} is not made"),
        }
    }

    fn prop(&self, p: &Prop) -> Option<u64> {
        let l3 = usize::from(self.headers.l3());
        let byte = |at: usize| self.bytes.get(at).map(|b| u64::from(*b));
        match p {
            Prop::Length => Some(self.wire_len.into()),
            Prop::Mark => Some(self.fate.mark.into()),
            Prop::State => Some(self.fate.state.into()),
            Prop::Header(HeaderField::IpTtl) => match self.headers.family() {
                Family::V4 => byte(l3 + 8),
                Family::V6 => byte(l3 + 7),
                Family::Other => None,
            },
            Prop::Header(HeaderField::IpTos) => match self.headers.family() {
                Family::V4 => byte(l3 + 1),
                Family::V6 => Some(byte(l3)? << 4 & 0xf0 | byte(l3 + 1)? >> 4),
                Family::Other => None,
            },
            Prop::Bytes(offset, size) => {
                let at = *offset as usize;
                let bytes = self.bytes.get(at..at + usize::from(*size))?;
                Some(bytes.iter().fold(0, |n, b| n * 256 + u64::from(*b)))
            }
            other => unreachable!("{other:?} is not made"),
        }
    }
}

fn inside(address: IpAddr, nets: &[Prefix]) -> bool {
    let number = match address {
        IpAddr::V4(a) => mapped(a),
        IpAddr::V6(a) => wide(a),
    };
    nets.iter().any(|n| n.range().0 <= number && number <= n.range().1)
}
