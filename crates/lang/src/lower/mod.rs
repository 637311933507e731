//! Lowering: translates terms to the IR.
//!
//! The code of an action falls through if the action passes the packet, and jumps if it drops the packet. The code of a
//! predicate jumps to one of two labels. The code of a property falls through with the value of the property in a
//! register, or jumps if the packet does not have the property. `PacketScopeInfo` selects the part of the packet (layer
//! and endpoint) to which actions, predicates and properties apply.

mod fragment;
mod header;
mod key;
mod pred;
mod steering;

use crate::term::{ActionTerm, Endpoint, FlowMap, LogItem, PacketScope, Prop};
use ir::key::Key;
use ir::{
    ANY_CLASS, Builder, Cmp, Detection, Fact, Inst, Label, Layer, Log, Map, Meta, Operand, Program, Reg, Var,
    VerdictKind,
};
use std::sync::Arc;

/// Lowers an action to a program. [`crate::term::Steering::Common`] does not steer in this program; it only passes the
/// packet.
pub fn lower(act: &ActionTerm) -> Program {
    lower_by(act, None)
}

/// Lowers an action to a program; `common` is the common key of all flow maps of the action.
pub fn lower_by(act: &ActionTerm, common: Option<Key>) -> Program {
    let mut lower = Lower { b: Builder::default(), maps: Vec::new(), common };
    let one = [(String::from("main"), act.clone())];
    let steps = match act {
        ActionTerm::Seq(steps) if steps.iter().all(|s| !s.0.is_empty()) => &steps[..],
        _ => &one,
    };
    for (text, step) in steps {
        lower.b.stage(text);
        lower.act(step, PacketScopeInfo::default(), None);
    }
    if steps.is_empty() {
        lower.b.stage("unit");
    }
    lower.b.finish()
}

/// The part of the packet to which actions and predicates apply.
#[derive(Clone, Copy, Debug, Default)]
struct PacketScopeInfo {
    /// Number of tunnels that must enclose the packet; if it is not 0, the innermost packet is selected.
    tunnels: u8,
    /// True if hashes and keys use the outermost packet instead of the innermost packet.
    outside: bool,
    /// The endpoint to which predicates about both endpoints are restricted; `None` without a restriction.
    end: Option<Endpoint>,
    /// True for the key of a steering function: the key then contains the ports of a first fragment, because later
    /// fragments are steered like the first fragment.
    leads: bool,
}

impl PacketScopeInfo {
    /// The IP packet of the frame (innermost or outermost) to which predicates and properties apply.
    const fn layer(self) -> Layer {
        if self.tunnels > 0 { Layer::Inner } else { Layer::Outer }
    }

    /// The IP packet of the frame to which hashes and keys apply: the innermost packet, or the outermost packet if
    /// `outside` is set.
    const fn flow_layer(self) -> Layer {
        if self.outside { Layer::Outer } else { Layer::Inner }
    }

    /// Returns two truth values. The first is true if a predicate about the endpoint `end` tests the source in this
    /// scope; the second is true if the predicate tests the destination.
    fn ends(self, end: Endpoint) -> (bool, bool) {
        let end = if end == Endpoint::Any { self.end.unwrap_or(Endpoint::Any) } else { end };
        (end != Endpoint::Dst, end != Endpoint::Src)
    }
}

/// The two addresses of an IP packet, each as two words.
struct Addresses {
    src: [Reg; 2],
    dst: [Reg; 2],
}

struct Lower {
    b: Builder,
    maps: Vec<(Arc<FlowMap>, Key)>,
    common: Option<Key>,
}

impl Lower {
    /// Emits an action. The code falls through if the action passes the packet, and jumps to `dropped` (or ends the
    /// program) if the action drops the packet.
    fn act(&mut self, act: &ActionTerm, scope: PacketScopeInfo, dropped: Option<Label>) {
        match act {
            ActionTerm::Unit => (),
            ActionTerm::Drop => self.discard(dropped),
            ActionTerm::Filter(p) => {
                let (yes, no) = (self.b.label(), self.b.label());
                self.pred(p, scope, yes, no);
                self.b.place(no);
                if self.b.is_live() {
                    self.discard(dropped);
                }
                self.b.place(yes);
            }
            ActionTerm::If(p, then, other) => {
                let (yes, no, end) = (self.b.label(), self.b.label(), self.b.label());
                self.pred(p, scope, yes, no);
                self.b.place(yes);
                self.act(then, scope, dropped);
                self.b.jump(end);
                self.b.place(no);
                self.act(other, scope, dropped);
                self.b.place(end);
            }
            ActionTerm::Case(prop, arms, other) => self.case(prop, arms, other, scope, dropped),
            ActionTerm::Seq(steps) => steps.iter().for_each(|(_, step)| self.act(step, scope, dropped)),
            ActionTerm::Inv(inner) => {
                let inverted = self.b.label();
                self.act(inner, scope, Some(inverted));
                self.discard(dropped);
                self.b.place(inverted);
                self.b.set(Var::Kind, VerdictKind::Copy as u64);
            }
            ActionTerm::Par(acts) => self.par(acts, scope, dropped),
            ActionTerm::Within(look, inner) => self.within(*look, inner, scope, dropped),
            ActionTerm::Broadcast => self.broadcast(),
            ActionTerm::Classify(class) => self.b.set(Var::Classes, 1 << class),
            ActionTerm::Steer(steer) => self.steering(steer, scope, dropped),
            ActionTerm::Forward(interface) => {
                let interface = self.b.egress_interface(interface);
                self.b.push(Inst::Forward { interface });
            }
            ActionTerm::Link(interfaces) => {
                for name in interfaces {
                    let (interface, next) = (self.b.egress_interface(name), self.b.label());
                    let ingress = self.b.meta(Meta::Ingress);
                    self.b.require(ingress, Cmp::Ne, u64::from(interface) + 1, next);
                    self.b.push(Inst::Forward { interface });
                    self.b.place(next);
                }
            }
            ActionTerm::Kernel => self.b.push(Inst::Kernel),
            ActionTerm::Log(LogItem::Text(text)) => {
                let text = self.b.message(text);
                self.b.push(Inst::Log(Log::Message(text)));
            }
            ActionTerm::Log(LogItem::Of(log)) => self.b.push(Inst::Log(*log)),
            ActionTerm::Mark(mark) => self.b.set(Var::Mark, u64::from(*mark)),
            ActionTerm::State(state) => self.b.set(Var::State, u64::from(*state)),
            ActionTerm::Count(counter, by) => self.b.push(Inst::Count { counter: *counter, by: Operand::Imm(*by) }),
            ActionTerm::Unique(window) => {
                let (to, unique) = (self.b.reg(), self.b.label());
                let detectors = &mut self.b.tables().detectors;
                detectors.push(Detection { window: *window });
                let detector = detectors.len() as u16 - 1;
                self.b.push(Inst::Duplicate { to, detector });
                let copy = self.b.label();
                self.b.branch(to, Cmp::Ne, 0, copy, unique);
                self.b.place(copy);
                self.discard(dropped);
                self.b.place(unique);
            }
            ActionTerm::Put(map, value) => self.on_flow(map, scope, |b, map, key| {
                b.push(Inst::MapPut { map, key, value: Operand::Imm(*value) });
            }),
            ActionTerm::Add(map, by) => self.on_flow(map, scope, |b, map, key| {
                let to = b.reg();
                b.push(Inst::MapAdd { to, map, key, by: Operand::Imm(*by) });
            }),
            ActionTerm::Forget(map) => self.on_flow(map, scope, |b, map, key| b.push(Inst::MapDelete { map, key })),
        }
    }

    fn discard(&mut self, dropped: Option<Label>) {
        match dropped {
            Some(label) => self.b.jump(label),
            None => self.b.discard(),
        }
    }

    fn broadcast(&mut self) {
        self.b.set(Var::Classes, ANY_CLASS);
        self.b.set(Var::Kind, VerdictKind::Copy as u64);
    }

    fn case(
        &mut self,
        prop: &Prop,
        arms: &[(u64, ActionTerm)],
        other: &ActionTerm,
        scope: PacketScopeInfo,
        dropped: Option<Label>,
    ) {
        let (end, none) = (self.b.label(), self.b.label());
        let value = self.prop(prop, scope, none);
        for (number, act) in arms {
            let next = self.b.label();
            self.b.require(value, Cmp::Eq, *number, next);
            self.act(act, scope, dropped);
            self.b.jump(end);
            self.b.place(next);
        }
        self.b.place(none);
        self.act(other, scope, dropped);
        self.b.place(end);
    }

    fn par(&mut self, acts: &[ActionTerm], scope: PacketScopeInfo, dropped: Option<Label>) {
        const OUTCOME: [Var; 4] = [Var::Kind, Var::Classes, Var::Hash, Var::Hash2];
        let end = self.b.label();
        let saved = OUTCOME.map(|var| self.b.get(var));
        for (i, act) in acts.iter().enumerate() {
            if i + 1 == acts.len() {
                self.act(act, scope, dropped);
                break;
            }
            let next = self.b.label();
            self.act(act, scope, Some(next));
            self.b.jump(end);
            self.b.place(next);
            for (var, value) in OUTCOME.into_iter().zip(saved) {
                self.b.set(var, value);
            }
        }
        self.b.place(end);
    }

    fn within(&mut self, look: PacketScope, inner: &ActionTerm, mut scope: PacketScopeInfo, dropped: Option<Label>) {
        match look {
            PacketScope::Src => scope.end = Some(Endpoint::Src),
            PacketScope::Dst => scope.end = Some(Endpoint::Dst),
            PacketScope::Outside => (scope.outside, scope.tunnels) = (true, 0),
            PacketScope::Inside => {
                (scope.outside, scope.tunnels) = (false, scope.tunnels.saturating_add(1));
                let (depth, shallow, deep) = (self.b.meta(Meta::Depth), self.b.label(), self.b.label());
                self.b.branch(depth, Cmp::Ge, u64::from(scope.tunnels), deep, shallow);
                self.b.place(shallow);
                self.discard(dropped);
                self.b.place(deep);
            }
        }
        self.act(inner, scope, dropped);
    }

    /// Returns the index of a flow map in the program; adds the map to the program if it is new. The key of a map
    /// states whether the innermost or the outermost packet defines its flows. So a flow map that is used both inside
    /// and outside of `outer` becomes two maps with the same name, and the program is rejected.
    fn map(&mut self, map: &Arc<FlowMap>, scope: PacketScopeInfo) -> u16 {
        let key = if scope.outside { map.key.outside() } else { map.key };
        if let Some(known) = self.maps.iter().position(|(m, k)| m == map && *k == key) {
            return known as u16;
        }
        self.maps.push((map.clone(), key));
        let (words, expiry) = (key::words(key), map.expiry);
        let (name, capacity) = (map.name.clone(), map.capacity);
        self.b.tables().maps.push(Map { name, key, words, capacity, expiry });
        self.maps.len() as u16 - 1
    }

    /// Applies `what` to the entry of the packet's flow; does nothing if the packet has no flow.
    fn on_flow(&mut self, map: &Arc<FlowMap>, scope: PacketScopeInfo, what: impl FnOnce(&mut Builder, u16, Vec<Reg>)) {
        let (index, none) = (self.map(map, scope), self.b.label());
        let key = self.key(map.key, scope, none);
        what(&mut self.b, index, key);
        self.b.place(none);
    }

    /// Returns the offset of the transport header; jumps to `none` if the packet has no transport header.
    fn l4(&mut self, layer: Layer, none: Label) -> Reg {
        let l4 = self.b.fact(layer, Fact::L4);
        self.b.require(l4, Cmp::Ne, 0, none);
        l4
    }
}
