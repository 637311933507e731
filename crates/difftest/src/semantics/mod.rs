//! A second, independent model of the packet language. It evaluates terms exactly as
//! `docs/reference/packet-language.md` and the function table define them, on the headers that [`wire`] finds in the
//! packet.
//!
//! The model uses neither the IR nor the packet facts, so it detects mistakes in lowering, in the facts and in back
//! ends. Model and back ends use the same front end, which produces the terms, and the same tcpdump filters inside
//! programs; other tests compare those filters with tcpdump itself. The model runs each filter as a separate program.

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
use base::Timestamp;
use duplicates::Detector;
use ir::{ANY_CLASS, COUNTERS, DEFAULT_CLASS, Log, VerdictKind};
use ir::{Key, Prefix};
use lang::term::{ActionTerm, Endpoint, LogItem, PacketScope};
use std::collections::BTreeMap;
use std::time::Duration;
use view::View;

/// The environment of a program: all values that the program can read, except its packets and its own state.
#[derive(Clone, Debug)]
pub struct ProgramContext {
    /// The secret key of the hashes that steer packets.
    pub hash_key: u64,
    /// The link type of the packets, as pcap numbers it.
    pub link_type: u16,
    /// The addresses of the interface on which the packets arrive.
    pub host: Vec<Prefix>,
    /// The names of the egress interfaces of the program, in the order in which the program numbers them. The interface
    /// on which a packet arrived may be among them.
    pub egress_interfaces: Vec<String>,
    /// The fields that the keys of all flow maps of the program have in common.
    pub common: Option<Key>,
}

/// The state that a program retains between packets.
#[derive(Clone, Debug)]
pub struct ProgramState {
    /// Maps by name.
    pub tables: BTreeMap<String, Table>,
    /// The group's counters.
    pub counters: [u64; COUNTERS as usize],
    /// State of fragmented datagrams.
    pub datagrams: FragmentTracker,
    /// The detectors of duplicates, by the address of their term.
    pub detectors: BTreeMap<usize, Detector>,
}

impl Default for ProgramState {
    fn default() -> Self {
        Self {
            tables: BTreeMap::new(),
            counters: [0; COUNTERS as usize],
            datagrams: FragmentTracker::default(),
            detectors: BTreeMap::new(),
        }
    }
}

/// The values that are delivered together with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The class mask: members of these classes receive the packet.
    pub classes: u64,
    /// The hash by which the member that receives the packet is selected.
    pub hash: u32,
    /// The hash by which the member that receives the second copy is selected.
    pub hash2: u32,
    /// The mark.
    pub mark: u32,
    /// The state variable (`put_state`), which lasts for the evaluation of one packet.
    pub state: u32,
}

/// An action besides delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedAction {
    /// A copy of the packet was forwarded to this interface. Executions that do not report the name of the interface
    /// use [`ObservedAction::SOME`].
    Forward(String),
    /// Wrote this text.
    Message(String),
    /// Wrote another log entry.
    Log(Log),
}

/// The verdict of a program for a packet, and the actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOutcome {
    /// The kind of verdict.
    pub kind: VerdictKind,
    /// The values, such as hash and mark, that are delivered to members together with the packet; `None` if the
    /// execution delivers the packet to no member.
    pub record: Option<Record>,
    /// True if the network stack of the host receives a copy.
    pub kernel: bool,
    /// The actions, in order.
    pub done: Vec<ObservedAction>,
}

impl PacketOutcome {
    /// The initial outcome of a packet, which the stages of the program change: a copy for the default class.
    pub fn start(mark: u32) -> Self {
        let record = Record { classes: DEFAULT_CLASS, hash: 0, hash2: 0, mark, state: 0 };
        Self { kind: VerdictKind::Copy, record: Some(record), kernel: false, done: vec![] }
    }

    /// True if this outcome agrees with `seen`, the outcome that an execution observed. An observed outcome may be
    /// incomplete.
    pub fn is(&self, seen: &Self) -> bool {
        let record = seen.record.is_none() || self.record == seen.record;
        let same = |(a, b): (&ObservedAction, &ObservedAction)| match (a, b) {
            (ObservedAction::Forward(_), ObservedAction::Forward(to)) if to == ObservedAction::SOME => true,
            _ => a == b,
        };
        let done = self.done.len() == seen.done.len() && self.done.iter().zip(&seen.done).all(same);
        record && done && (self.kind, self.kernel) == (seen.kind, seen.kernel)
    }
}

impl ObservedAction {
    /// The placeholder for the name of an interface that an execution did not report.
    pub const SOME: &str = "some interface";
}

/// The stages of a program: the steps in its source, each with its source text.
pub fn stages(term: &ActionTerm) -> Vec<&ActionTerm> {
    match term {
        ActionTerm::Seq(steps) if steps.iter().all(|s| !s.0.is_empty()) => steps.iter().map(|s| &s.1).collect(),
        one => vec![one],
    }
}

/// Evaluates the stages on a packet; `number` is the sequence number of the packet at this worker.
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

/// Selects the part of the packet (layer and endpoint) that a term tests or uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ParsedPacket {
    /// Number of enclosing `shift`.
    shifts: u8,
    /// True if an `outer` encloses the term, with no `shift` between the `outer` and the term.
    outside: bool,
    /// The endpoint (source or destination) that an enclosing term selects, if any. Predicates that otherwise test both
    /// endpoints then test only this endpoint.
    end: Option<Endpoint>,
}

impl ParsedPacket {
    /// Returns two truth values: the first is true if the predicate tests the source of the packet, and the second is
    /// true if the predicate tests the destination.
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
    /// Evaluates a term; returns true if the packet passes.
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
                // Before each alternative, kind, classes and hashes are reset to their values before the first
                // alternative. Mark and state are not reset, so changes by earlier alternatives remain.
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
            ActionTerm::Forward(interface) => self.done.push(ObservedAction::Forward(interface.clone())),
            ActionTerm::Link(interfaces) => {
                let ingress = usize::from(self.packet.facts.ingress);
                let from = ingress.checked_sub(1).and_then(|i| self.world.egress_interfaces.get(i));
                self.done.extend(interfaces.iter().filter(|d| Some(*d) != from).cloned().map(ObservedAction::Forward));
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
            ActionTerm::Unique(window) => return !self.is_duplicate(std::ptr::from_ref(act).addr(), *window),
            ActionTerm::Put(map, value) => self.on_flow(map, scope, |table, key, now| table.put(key, *value, now)),
            ActionTerm::Add(map, by) => self.on_flow(map, scope, |table, key, now| table.add(key, *by, now)),
            ActionTerm::Forget(map) => self.on_flow(map, scope, |table, key, _| table.forget(&key)),
        }
        true
    }

    /// True if the packet is a duplicate of a packet that the same term, at this address, compared before.
    fn is_duplicate(&mut self, term: usize, window: u64) -> bool {
        if self.view.macs.is_none() {
            return false;
        }
        let packet = duplicates::Packet {
            ts: Timestamp::from_nanos(self.packet.facts.time),
            data: &self.packet.bytes,
            wire_len: self.view.len,
            link_type: wire::link::ETHERNET,
            interface: self.packet.facts.port,
        };
        let detectors = &mut self.memory.detectors;
        let detector = detectors.entry(term).or_insert_with(|| {
            let settings = duplicates::Settings {
                window: Duration::from_nanos(window),
                records: 65_536,
                unordered_interfaces: true,
                ..duplicates::Settings::default()
            };
            Detector::new(settings, self.world.hash_key).expect("valid settings")
        });
        detector.inspect(&packet).is_some()
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
