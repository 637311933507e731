//! Emits code that steers fragments. A later fragment lacks the headers that determine the steering, so it is steered
//! like the first fragment of its datagram.
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
//! The code after the test `fragment?` runs for fragments only. For an unfragmented packet the test costs one
//! comparison with a packet fact, or nothing if the compiler has proved that the packet is not a fragment.

use super::{Lower, PacketScopeInfo};
use crate::term::Steering;
use ir::fragment_tracker::NONE;
use ir::key::Field;
use ir::{Cmp, Fact, FragmentScope, Inst, Label, Layer, Meta, Op, Reg, Var, VerdictKind};

/// Defines the number that fragment tracking stores for a datagram. The number contains the ports of the datagram or
/// its steering hashes. For steering, the low 32 bits are the first hash and the high 32 bits are the second hash; 0
/// means that the datagram is not steered.
mod number {
    /// The number that is stored for a datagram that is delivered to all classes. No datagram that is steered by one or
    /// two hashes has this number, because a hash is never 0.
    pub const ALL: u64 = 1 << 32;
    /// The greatest single hash.
    pub const MAX: u64 = 0xffff_ffff;
    /// This bit is set in the number that contains the ports of a datagram. Without the bit, the number for two ports 0
    /// would be 0, which stands for a datagram without a number.
    pub const PORTS: u64 = 1 << 32;
}

/// The parameters of a steering function that uses header fields which later fragments lack, such as ports.
#[derive(Clone, Copy)]
pub(super) struct FragmentSteering {
    /// Selects which of the nested IP packets is tracked if it is a fragment.
    parts: FragmentScope,
    /// The form: a 24-bit number that identifies the steering function with its parameters. Fragment tracking stores
    /// separate numbers for each form.
    form: u32,
    /// True if the headers of a later fragment alone may fail the condition of the steering function although its first
    /// fragment satisfies it.
    selects: bool,
    /// True if the headers of a later fragment alone may satisfy the condition of the steering function although its
    /// first fragment fails it. This can occur in a tunnel: the inner headers of a later fragment are unknown, so the
    /// addresses of the tunnel endpoints are tested instead.
    mistakes: bool,
    /// `doubles` is true if the steering function may steer a packet to two members; `casts` is true if it may deliver
    /// a packet to all classes.
    doubles: bool,
    casts: bool,
}

/// The variables of the verdict record that must be restored if the number that fragment tracking has stored for the
/// datagram determines the steering, and for each variable the register with its value from before the steering. These
/// are the variables that the steering by the packet's own headers may have written and that the steering by the stored
/// number does not write.
type SavedVariables = Vec<(Var, Reg)>;

impl Lower {
    /// Returns the parameters for fragments if the steering function uses header fields that later fragments lack
    /// (ports, or headers inside a tunnel); otherwise `None`.
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
            // These functions read the bytes at a fixed offset of the frame, and do so in later fragments too.
            Steering::Bytes(..) | Steering::SymmetricBytes(..) | Steering::DoubleBytes(..) => return None,
        };
        // If a program with the same steering function replaces this program, `text` is the same in both programs, and
        // thus the form too. So the new program finds the numbers that were stored for datagrams before the swap.
        let text = format!("{steer:?} {layer:?} {:?}", self.common);
        let parts = if layer == Layer::Inner { FragmentScope::Enclosing } else { FragmentScope::Outer };
        let selects = matches!(steer, Steering::Local(..) | Steering::Rtp(_) | Steering::GtpUser(_));
        let mistakes = matches!(steer, Steering::Local(..));
        let doubles = matches!(steer, Steering::DoubleIp | Steering::Local(..) | Steering::GtpUser(_));
        let casts = matches!(steer, Steering::Pair | Steering::Rtp(true) | Steering::GtpUser(_));
        follows.then_some(FragmentSteering { parts, form: form(&text), selects, mistakes, doubles, casts })
    }

    /// Returns source and destination port of the packet's datagram, which its first fragment contains. Both are 0 if
    /// the protocol has no ports, and for every fragment of a datagram of which a later fragment arrived before the
    /// first.
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

    /// Emits code that saves some variables of the verdict record before a packet is steered: the variables that this
    /// steering function overwrites for some packets only.
    pub(super) fn before(
        &mut self,
        FragmentSteering { doubles, casts, mistakes, .. }: FragmentSteering,
    ) -> SavedVariables {
        let vars = [(casts, Var::Classes), (casts || mistakes, Var::Hash), (doubles, Var::Hash2)];
        vars.into_iter().filter(|(differs, _)| *differs).map(|(_, var)| (var, self.b.get(var))).collect()
    }

    /// Emits code that steers all fragments of a datagram alike (see the diagram at the top of this file). Execution
    /// arrives here and at `end` with a steered packet, and continues after this code. Execution arrives at `none` with
    /// a packet that fails the condition of the steering function; the packet is dropped (jump to `dropped`), unless
    /// fragment tracking has stored a steering for its datagram.
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

/// Returns the form, a 24-bit hash of this text. The text describes a steering function with its parameters, or a query
/// of ports.
fn form(text: &str) -> u32 {
    text.bytes().fold(0, |state, byte| base::hash::combine(state, byte.into())) as u32 & 0xff_ffff
}
