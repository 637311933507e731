//! Fragments in steering: a later fragment lacks headers that determine the steering, so it follows the first fragment
//! of its datagram.
//!
//! ```text
//! steered ───── fragment? ── no ────────────────────────────────────────────────► on
//!                   │ yes                                                         ▲
//!                   ▼                                                             │
//!              this packet's steering as a number ─► Datagram ─► number as steering
//!                                                       ▲  │ none
//! not steered ─ fragment? ── yes: none ─────────────────┘  ▼
//!                   └ no ────────────────────────────► dropped
//! ```
//! The code behind the test runs for fragments only. For other packets the test costs one comparison with a packet
//! fact, or nothing if they are known not to be fragments.

use super::{Lower, PacketScopeInfo};
use crate::term::Steering;
use ir::fragment_tracker::NONE;
use ir::key::Field;
use ir::{Cmp, Fact, FragmentScope, Inst, Label, Layer, Meta, Op, Reg, Var, VerdictKind};

/// The number that is stored for a datagram: ports or steering. For steering, the low 32 bits are the hash and the high
/// 32 bits the second hash; 0 means that the packet is not steered.
mod number {
    /// Broadcast. Differs from all pairs of hashes, because a hash is never 0.
    pub const ALL: u64 = 1 << 32;
    /// The greatest single hash.
    pub const MAX: u64 = 0xffff_ffff;
    /// Marks a pair of ports, which may both be 0.
    pub const PORTS: u64 = 1 << 32;
}

/// A form of steering by values that later fragments lack.
#[derive(Clone, Copy)]
pub(super) struct FragmentSteering {
    /// Selects the packet whose datagram is tracked.
    parts: FragmentScope,
    /// The form, which separates the stored numbers from those of other forms.
    form: u32,
    /// A later fragment alone may fail the condition of the steering although its first fragment satisfies it.
    selects: bool,
    /// A later fragment alone may satisfy the condition although its first fragment fails it: in a tunnel, by the
    /// endpoints of the tunnel.
    mistakes: bool,
    /// `doubles`: may steer to two members. `casts`: may broadcast.
    doubles: bool,
    casts: bool,
}

/// Variables that the packet's own steering may have written and the datagram's steering does not, with their values
/// before.
type SavedVariables = Vec<(Var, Reg)>;

impl Lower {
    /// The parameters for steering by values that later fragments lack (ports, and packets in tunnels); otherwise
    /// `None`.
    pub(super) fn datagram(&self, steer: &Steering, scope: PacketScopeInfo) -> Option<FragmentSteering> {
        const PORTS: [Field; 4] = [Field::SrcPort, Field::DstPort, Field::IcmpType, Field::IcmpCode];
        const FRAME: [Field; 3] = [Field::EthSrc, Field::EthDst, Field::Vlan];
        let by_key = |key: ir::Key, layer| match layer {
            Layer::Outer => key.fields().any(|f| PORTS.contains(&f)),
            Layer::Inner => key.fields().any(|f| !FRAME.contains(&f)),
        };
        let layer = scope.flow_layer();
        let (layer, follows) = match steer {
            Steering::Pair | Steering::DoubleIp | Steering::Local(..) => (layer, layer == Layer::Inner),
            Steering::Flow => (layer, true),
            Steering::Key(key) => (layer, by_key(*key, layer)),
            Steering::Common => {
                let key = self.common.unwrap_or_default();
                let layer = if key.is_outside() { Layer::Outer } else { Layer::Inner };
                (layer, by_key(key, layer))
            }
            Steering::Rtp(_) | Steering::GtpUser(_) => (scope.layer(), true),
            Steering::RoundRobin | Steering::Rss | Steering::Queue | Steering::To(_) => return None,
            Steering::Link | Steering::LocalLink(_) | Steering::DoubleMac | Steering::Vlan => return None,
            // These bytes are read at the same offset of every frame, also in later fragments.
            Steering::Bytes(..) | Steering::SymmetricBytes(..) | Steering::DoubleBytes(..) => return None,
        };
        // Equal forms have equal texts, also in a program that replaces this program.
        let text = format!("{steer:?} {layer:?} {:?}", self.common);
        let parts = if layer == Layer::Inner { FragmentScope::Enclosing } else { FragmentScope::Outer };
        let selects = matches!(steer, Steering::Local(..) | Steering::Rtp(_) | Steering::GtpUser(_));
        let mistakes = matches!(steer, Steering::Local(..));
        let doubles = matches!(steer, Steering::DoubleIp | Steering::Local(..) | Steering::GtpUser(_));
        let casts = matches!(steer, Steering::Pair | Steering::Rtp(true) | Steering::GtpUser(_));
        follows.then_some(FragmentSteering { parts, form: form(&text), selects, mistakes, doubles, casts })
    }

    /// Source and destination port of the packet's datagram, from its first fragment. Both are 0 if there are no ports,
    /// and for all fragments of a datagram of which a later fragment arrived first.
    pub(super) fn datagram_ports(&mut self, layer: Layer, parts: FragmentScope) -> (Reg, Reg) {
        let (src, dst) = self.ports(layer);
        let (part, on) = (self.b.label(), self.b.label());
        self.if_fragment(parts, part, on);
        self.b.place(part);
        let moved = self.b.op(Op::Shl, src, 16);
        let own = self.b.op(Op::Or, moved, dst);
        let own = self.b.op(Op::Or, own, number::PORTS);
        let (to, form) = (self.b.reg(), form(&format!("ports {parts:?}")));
        self.b.push(Inst::Datagram { to, parts, form, value: own.into() });
        self.b.push(Inst::Op { to: dst, op: Op::And, a: to, b: 0xffff.into() });
        let moved = self.b.op(Op::Shr, to, 16);
        self.b.push(Inst::Op { to: src, op: Op::And, a: moved, b: 0xffff.into() });
        self.b.place(on);
        (src, dst)
    }

    /// Reads, before a packet is steered, the variables that not every result of this steering writes.
    pub(super) fn before(
        &mut self,
        FragmentSteering { doubles, casts, mistakes, .. }: FragmentSteering,
    ) -> SavedVariables {
        let vars = [(casts, Var::Classes), (casts || mistakes, Var::Hash), (doubles, Var::Hash2)];
        vars.into_iter().filter(|(differs, _)| *differs).map(|(_, var)| (var, self.b.get(var))).collect()
    }

    /// Makes the fragments of a datagram follow the same steering. Here and at `end`, the packet is steered and
    /// continues behind this code. At `none`, the packet fails the condition of the steering and goes to `dropped`,
    /// unless its datagram is steered. See the module.
    pub(super) fn together(
        &mut self,
        datagram: FragmentSteering,
        before: SavedVariables,
        none: Label,
        end: Label,
        dropped: Option<Label>,
    ) {
        let FragmentSteering { parts, form, selects, mistakes, .. } = datagram;
        let (number, on) = (self.b.reg(), self.b.label());
        let [part, lookup, known, lost] = [(); 4].map(|()| self.b.label());
        self.b.jump(end);
        self.b.place(none);
        if self.b.is_live() {
            if selects {
                let unknown = self.b.label();
                self.if_fragment(parts, unknown, lost);
                self.b.place(unknown);
                let value = if mistakes { NONE } else { 0 }.into();
                self.b.push(Inst::Datagram { to: number, parts, form, value });
                self.b.branch(number, Cmp::Ne, 0, known, lost);
                self.b.place(lost);
            }
            self.discard(dropped);
        }
        self.b.place(end);
        if self.b.is_live() {
            self.if_fragment(parts, part, on);
            self.b.place(part);
            self.steering_to_number(datagram, number, lookup);
            self.b.place(lookup);
            let value = number.into();
            self.b.push(Inst::Datagram { to: number, parts, form, value });
            if mistakes {
                let not_steered = self.b.label();
                self.b.branch(number, Cmp::Ne, 0, known, not_steered);
                self.b.place(not_steered);
                before.iter().for_each(|(var, was)| self.b.set(*var, *was));
                self.discard(dropped);
            }
        }
        self.b.place(known);
        if self.b.is_live() {
            before.into_iter().for_each(|(var, was)| self.b.set(var, was));
            self.steering_from_number(datagram, number, on);
        }
        self.b.place(on);
    }

    fn if_fragment(&mut self, parts: FragmentScope, yes: Label, no: Label) {
        let part = match parts {
            FragmentScope::Outer => self.b.fact(Layer::Outer, Fact::Fragment),
            FragmentScope::Inner => self.b.fact(Layer::Inner, Fact::Fragment),
            FragmentScope::Enclosing => self.b.meta(Meta::Part),
        };
        self.b.branch(part, Cmp::Ne, 0, yes, no);
    }

    fn steering_to_number(
        &mut self,
        FragmentSteering { doubles, casts, .. }: FragmentSteering,
        number: Reg,
        then: Label,
    ) {
        let kind = self.b.get(Var::Kind);
        if casts {
            let (all, some) = (self.b.label(), self.b.label());
            self.b.branch(kind, Cmp::Eq, VerdictKind::Copy as u64, all, some);
            self.b.place(all);
            self.b.push(Inst::Const { to: number, value: number::ALL });
            self.b.jump(then);
            self.b.place(some);
        }
        let hash = self.b.get(Var::Hash);
        self.b.push(Inst::Copy { to: number, from: hash });
        if doubles {
            self.b.require(kind, Cmp::Eq, VerdictKind::DoubleSteer as u64, then);
            let hash2 = self.b.get(Var::Hash2);
            let above = self.b.op(Op::Shl, hash2, 32);
            self.b.push(Inst::Op { to: number, op: Op::Or, a: above, b: hash.into() });
        }
    }

    fn steering_from_number(
        &mut self,
        FragmentSteering { doubles, casts, .. }: FragmentSteering,
        number: Reg,
        on: Label,
    ) {
        if casts {
            let (all, some) = (self.b.label(), self.b.label());
            self.b.branch(number, Cmp::Eq, number::ALL, all, some);
            self.b.place(all);
            self.broadcast();
            self.b.jump(on);
            self.b.place(some);
        }
        if doubles {
            let (one, two) = (self.b.label(), self.b.label());
            self.b.branch(number, Cmp::Gt, number::MAX, two, one);
            self.b.place(two);
            let (hash, hash2) = (self.b.op(Op::And, number, number::MAX), self.b.op(Op::Shr, number, 32));
            self.steering_by_two(hash, hash2);
            self.b.jump(on);
            self.b.place(one);
        }
        self.steering_by_one(number);
    }
}

/// The form with this text: a hash that separates kinds of steering and port queries.
fn form(text: &str) -> u32 {
    text.bytes().fold(0, |state, byte| base::hash::combine(state, byte.into())) as u32 & 0xff_ffff
}
