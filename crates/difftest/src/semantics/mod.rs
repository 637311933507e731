//! A second, independent model of the language: it evaluates the terms literally as `docs/reference/packet-language.md`
//! and the function table define them, on the headers that [`wire`] finds in the packet.
//!
//! The model uses neither the IR nor the packet facts, so it detects mistakes in lowering, in facts and in back ends.
//! It shares the front end, which produces the terms, and the tcpdump filters inside programs; other tests compare
//! those filters with tcpdump itself, and the model runs each filter as a program of its own.

mod address;
mod fragment;
mod key;
mod predicate;
mod steering;
mod table;
mod view;

pub use fragment::FragmentTracker;
pub use table::Table;

use crate::case::Packet;
use ir::{ANY_CLASS, COUNTERS, DEFAULT_CLASS, Log, VerdictKind};
use ir::{Key, Prefix};
use lang::term::{ActionTerm, Endpoint, LogItem, PacketScope};
use std::collections::BTreeMap;
use view::View;

/// The environment of a program: everything it can read besides its packets.
#[derive(Clone, Debug)]
pub struct ProgramContext {
    /// The key of the hash functions.
    pub hash_key: u64,
    /// The link type in pcap's numbering.
    pub link_type: u16,
    /// The addresses of the interface.
    pub host: Vec<Prefix>,
    /// Devices by their number in the program; the interface of the packet may be among them.
    pub devices: Vec<String>,
    /// The fields that the keys of all maps of the program share.
    pub common: Option<Key>,
}

/// The state of a program between packets.
#[derive(Clone, Debug)]
pub struct ProgramState {
    /// Maps by name.
    pub tables: BTreeMap<String, Table>,
    /// The group's counters.
    pub counters: [u64; COUNTERS as usize],
    /// State of fragmented datagrams.
    pub datagrams: FragmentTracker,
}

impl Default for ProgramState {
    fn default() -> Self {
        Self { tables: BTreeMap::new(), counters: [0; COUNTERS as usize], datagrams: FragmentTracker::default() }
    }
}

/// The values delivered with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Bit set of the classes whose members receive the packet.
    pub classes: u64,
    /// The hash that selects the member.
    pub hash: u32,
    /// The hash that selects the member of the second copy.
    pub hash2: u32,
    /// The mark.
    pub mark: u32,
    /// The state value of this program run.
    pub state: u32,
}

/// An action besides delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedAction {
    /// Forwarded a copy to this device. Executions that do not report the device use [`ObservedAction::SOME`].
    Forward(String),
    /// Wrote this text.
    Message(String),
    /// Wrote another log entry.
    Log(Log),
}

/// The verdict and the actions for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOutcome {
    /// The kind of verdict.
    pub kind: VerdictKind,
    /// The values delivered with the packet; `None` if the execution delivers the packet to no member.
    pub record: Option<Record>,
    /// True if the kernel's network stack receives a copy.
    pub kernel: bool,
    /// The actions, in order.
    pub done: Vec<ObservedAction>,
}

impl PacketOutcome {
    /// The outcome before the first stage.
    pub fn start(mark: u32) -> Self {
        let record = Record { classes: DEFAULT_CLASS, hash: 0, hash2: 0, mark, state: 0 };
        Self { kind: VerdictKind::Copy, record: Some(record), kernel: false, done: vec![] }
    }

    /// True if this outcome agrees with `seen`, the possibly incomplete outcome of an execution.
    pub fn is(&self, seen: &Self) -> bool {
        let record = seen.record.is_none() || self.record == seen.record;
        let same = |(a, b): (&ObservedAction, &ObservedAction)| {
            a == b
                || matches!((a, b), (ObservedAction::Forward(_), ObservedAction::Forward(to)) if to == ObservedAction::SOME)
        };
        let done = self.done.len() == seen.done.len() && self.done.iter().zip(&seen.done).all(same);
        record && done && (self.kind, self.kernel) == (seen.kind, seen.kernel)
    }
}

impl ObservedAction {
    /// The placeholder for a device that the execution did not report.
    pub const SOME: &str = "some device";
}

/// The stages of a program: the steps in its source, each with its source text.
pub fn stages(term: &ActionTerm) -> Vec<&ActionTerm> {
    match term {
        ActionTerm::Seq(steps) if steps.iter().all(|s| !s.0.is_empty()) => steps.iter().map(|s| &s.1).collect(),
        one => vec![one],
    }
}

/// Evaluates stages on a packet; `number` is the packet's sequence number at this worker.
pub fn run(
    stages: &[&ActionTerm],
    outcome: PacketOutcome,
    packet: &Packet,
    number: u64,
    world: &ProgramContext,
    memory: &mut ProgramState,
) -> PacketOutcome {
    let record = outcome.record.unwrap_or(Record { classes: 0, hash: 0, hash2: 0, mark: 0, state: 0 });
    let view = View::of(packet, world.link_type);
    let mut run = Run {
        view,
        packet,
        number,
        world,
        memory,
        kind: outcome.kind,
        record,
        kernel: outcome.kernel,
        done: outcome.done,
    };
    let passed = stages.iter().all(|act| run.act(act, ParsedPacket::default()));
    let kind = if passed { run.kind } else { VerdictKind::Drop };
    PacketOutcome { kind, record: Some(run.record), kernel: run.kernel, done: run.done }
}

/// The part of the packet that a term refers to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ParsedPacket {
    /// Number of enclosing `shift`.
    shifts: u8,
    /// True under an `outer` that is nearer than any `shift`.
    outside: bool,
    /// The endpoint, source or destination, that a predicate about either endpoint refers to.
    end: Option<Endpoint>,
}

impl ParsedPacket {
    /// Whether the predicate refers to the source, and whether to the destination.
    fn ends(self, end: Endpoint) -> (bool, bool) {
        match (end, self.end) {
            (Endpoint::Src, _) | (Endpoint::Any, Some(Endpoint::Src)) => (true, false),
            (Endpoint::Dst, _) | (Endpoint::Any, Some(Endpoint::Dst)) => (false, true),
            (Endpoint::Any, _) => (true, true),
        }
    }
}

struct Run<'a> {
    view: View<'a>,
    packet: &'a Packet,
    number: u64,
    world: &'a ProgramContext,
    memory: &'a mut ProgramState,
    kind: VerdictKind,
    record: Record,
    kernel: bool,
    done: Vec<ObservedAction>,
}

impl Run<'_> {
    /// Evaluates a term; true if the packet passes.
    fn act(&mut self, act: &ActionTerm, scope: ParsedPacket) -> bool {
        match act {
            ActionTerm::Unit => (),
            ActionTerm::Drop => return false,
            ActionTerm::Filter(p) => return self.holds(p, scope),
            ActionTerm::If(p, then, other) => {
                let chosen = if self.holds(p, scope) { then } else { other };
                return self.act(chosen, scope);
            }
            ActionTerm::Case(of, arms, other) => {
                let value = self.property(of, scope);
                let arm = arms.iter().find(|arm| Some(arm.0) == value);
                return self.act(arm.map_or(other, |arm| &arm.1), scope);
            }
            ActionTerm::Seq(steps) => return steps.iter().all(|step| self.act(&step.1, scope)),
            ActionTerm::Inv(inner) => {
                if self.act(inner, scope) {
                    return false;
                }
                self.kind = VerdictKind::Copy;
            }
            ActionTerm::Par(acts) => {
                // Each alternative starts with the original delivery; mark and state keep the changes of earlier
                // alternatives.
                let (kind, Record { classes, hash, hash2, .. }) = (self.kind, self.record);
                return acts.iter().any(|act| {
                    self.kind = kind;
                    self.record = Record { classes, hash, hash2, ..self.record };
                    self.act(act, scope)
                });
            }
            ActionTerm::Within(look, inner) => return self.within(*look, inner, scope),
            ActionTerm::Broadcast => self.broadcast(),
            ActionTerm::Classify(class) => self.record.classes = 1 << class,
            ActionTerm::Steer(steer) => return self.steering(steer, scope).is_some(),
            ActionTerm::Forward(device) => self.done.push(ObservedAction::Forward(device.clone())),
            ActionTerm::Link(devices) => {
                let ingress = usize::from(self.packet.facts.ingress);
                let from = ingress.checked_sub(1).and_then(|i| self.world.devices.get(i));
                self.done.extend(devices.iter().filter(|d| Some(*d) != from).cloned().map(ObservedAction::Forward));
            }
            ActionTerm::Kernel => self.kernel = true,
            ActionTerm::Log(LogItem::Text(text)) => self.done.push(ObservedAction::Message(text.clone())),
            ActionTerm::Log(LogItem::Of(log)) => self.done.push(ObservedAction::Log(*log)),
            ActionTerm::Mark(mark) => self.record.mark = *mark,
            ActionTerm::State(state) => self.record.state = *state,
            ActionTerm::Count(counter, by) => {
                let counter = &mut self.memory.counters[usize::from(*counter)];
                *counter = counter.wrapping_add(*by);
            }
            ActionTerm::Put(map, value) => self.on_flow(map, scope, |table, key, now| table.put(key, *value, now)),
            ActionTerm::Add(map, by) => self.on_flow(map, scope, |table, key, now| table.add(key, *by, now)),
            ActionTerm::Forget(map) => self.on_flow(map, scope, |table, key, _| table.forget(&key)),
        }
        true
    }

    fn within(&mut self, look: PacketScope, inner: &ActionTerm, mut scope: ParsedPacket) -> bool {
        match look {
            PacketScope::Src => scope.end = Some(Endpoint::Src),
            PacketScope::Dst => scope.end = Some(Endpoint::Dst),
            PacketScope::Outside => scope = ParsedPacket { outside: true, shifts: 0, ..scope },
            PacketScope::Inside => {
                scope = ParsedPacket { outside: false, shifts: scope.shifts.saturating_add(1), ..scope };
                if self.view.tunnels < scope.shifts {
                    return false;
                }
            }
        }
        self.act(inner, scope)
    }

    fn broadcast(&mut self) {
        (self.kind, self.record.classes) = (VerdictKind::Copy, ANY_CLASS);
    }
}
