//! What a program means, a second time: its terms carried out word by word, as `docs/reference/packet-language.md` and the table of functions say, over
//! what [`wire`] finds in the packet.
//!
//! Nothing here knows of the intermediate form or of the facts that are made for it, so a mistake in lowering, in facts, or in an
//! execution shows. What is shared is the front end (terms come from it) and the filter of tcpdump inside programs, whose meaning is held
//! against tcpdump itself elsewhere: it is run as the program that it is alone.

mod fragment;
mod key;
mod predicate;
mod steering;
mod table;
mod view;

pub use fragment::FragmentTracker;
pub use table::Table;

use crate::trial::Packet;
use ir::{ANY_CLASS, COUNTERS, DEFAULT_CLASS, Log, VerdictKind};
use ir::{Key, Prefix};
use lang::term::{ActionTerm, Endpoint, LogItem, PacketScope};
use std::collections::BTreeMap;
use view::View;

/// What a program may know beside its packets.
#[derive(Clone, Debug)]
pub struct ProgramContext {
    /// The secret of the hashes.
    pub hash_key: u64,
    /// As pcap numbers it.
    pub link_type: u16,
    /// The addresses of the port.
    pub host: Vec<Prefix>,
    /// Devices by their number in the program: the port that a packet came from may be among them.
    pub devices: Vec<String>,
    /// What the keys of all its maps have in common.
    pub common: Option<Key>,
}

/// What a program remembers.
#[derive(Clone, Debug)]
pub struct ProgramState {
    /// Maps by their name.
    pub tables: BTreeMap<String, Table>,
    /// The group's counters.
    pub counters: [u64; COUNTERS as usize],
    /// Which way fragments go.
    pub datagrams: FragmentTracker,
}

impl Default for ProgramState {
    fn default() -> Self {
        Self { tables: BTreeMap::new(), counters: [0; COUNTERS as usize], datagrams: FragmentTracker::default() }
    }
}

/// What goes with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// To the members of which classes.
    pub classes: u64,
    /// What steers.
    pub hash: u32,
    /// What steers the second copy.
    pub hash2: u32,
    /// The mark.
    pub mark: u32,
    /// The state of this run.
    pub state: u32,
}

/// Something done to a packet beside its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedAction {
    /// A copy went out of this device. An execution that does not tell out of which says [`ObservedAction::SOME`].
    Forward(String),
    /// This text was written.
    Message(String),
    /// Something else was.
    Log(Log),
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOutcome {
    /// To whom.
    pub kind: VerdictKind,
    /// What goes with it; nothing where nobody gets to see it.
    pub record: Option<Record>,
    /// Whether a copy goes to the stack.
    pub kernel: bool,
    /// What was done to it, in order.
    pub done: Vec<ObservedAction>,
}

impl PacketOutcome {
    /// What a program begins with.
    pub fn start(mark: u32) -> Self {
        let record = Record { classes: DEFAULT_CLASS, hash: 0, hash2: 0, mark, state: 0 };
        Self { kind: VerdictKind::Copy, record: Some(record), kernel: false, done: vec![] }
    }

    /// Whether an execution that saw `seen` saw this.
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
    /// The name of whichever device it was.
    pub const SOME: &str = "some device";
}

/// The stages of a program: the steps that the user wrote, each of which has a text.
pub fn stages(term: &ActionTerm) -> Vec<&ActionTerm> {
    match term {
        ActionTerm::Seq(steps) if steps.iter().all(|s| !s.0.is_empty()) => steps.iter().map(|s| &s.1).collect(),
        one => vec![one],
    }
}

/// Carries out stages on a packet; `number` is the packet's among those of this worker.
pub fn run(
    stages: &[&ActionTerm],
    fate: PacketOutcome,
    packet: &Packet,
    number: u64,
    world: &ProgramContext,
    memory: &mut ProgramState,
) -> PacketOutcome {
    let record = fate.record.unwrap_or(Record { classes: 0, hash: 0, hash2: 0, mark: 0, state: 0 });
    let view = View::of(packet, world.link_type);
    let mut run =
        Run { view, packet, number, world, memory, kind: fate.kind, record, kernel: fate.kernel, done: fate.done };
    let passed = stages.iter().all(|act| run.act(act, ParsedPacket::default()));
    let kind = if passed { run.kind } else { VerdictKind::Drop };
    PacketOutcome { kind, record: Some(run.record), kernel: run.kernel, done: run.done }
}

/// What is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ParsedPacket {
    /// How many `shift` are around it.
    shifts: u8,
    /// Whether `outer` is, nearer than any `shift`.
    outside: bool,
    /// The end that is asked where either is meant.
    end: Option<Endpoint>,
}

impl ParsedPacket {
    /// Whether the sender's end is asked, and the receiver's.
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
    /// Whether the packet passes.
    fn act(&mut self, act: &ActionTerm, sight: ParsedPacket) -> bool {
        match act {
            ActionTerm::Unit => (),
            ActionTerm::Drop => return false,
            ActionTerm::Filter(p) => return self.holds(p, sight),
            ActionTerm::If(p, then, other) => {
                let chosen = if self.holds(p, sight) { then } else { other };
                return self.act(chosen, sight);
            }
            ActionTerm::Case(of, arms, other) => {
                let value = self.property(of, sight);
                let arm = arms.iter().find(|arm| Some(arm.0) == value);
                return self.act(arm.map_or(other, |arm| &arm.1), sight);
            }
            ActionTerm::Seq(steps) => return steps.iter().all(|step| self.act(&step.1, sight)),
            ActionTerm::Inv(inner) => {
                if self.act(inner, sight) {
                    return false;
                }
                self.kind = VerdictKind::Copy;
            }
            ActionTerm::Par(acts) => {
                // Whom to deliver to is as before when the next is tried; mark and state stay.
                let (kind, Record { classes, hash, hash2, .. }) = (self.kind, self.record);
                return acts.iter().any(|act| {
                    self.kind = kind;
                    self.record = Record { classes, hash, hash2, ..self.record };
                    self.act(act, sight)
                });
            }
            ActionTerm::Within(look, inner) => return self.within(*look, inner, sight),
            ActionTerm::Broadcast => self.broadcast(),
            ActionTerm::Classify(class) => self.record.classes = 1 << class,
            ActionTerm::Steer(steer) => return self.steering(steer, sight).is_some(),
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
            ActionTerm::Put(map, value) => self.on_flow(map, sight, |table, key, now| table.put(key, *value, now)),
            ActionTerm::Add(map, by) => self.on_flow(map, sight, |table, key, now| table.add(key, *by, now)),
            ActionTerm::Forget(map) => self.on_flow(map, sight, |table, key, _| table.forget(&key)),
        }
        true
    }

    fn within(&mut self, look: PacketScope, inner: &ActionTerm, mut sight: ParsedPacket) -> bool {
        match look {
            PacketScope::Src => sight.end = Some(Endpoint::Src),
            PacketScope::Dst => sight.end = Some(Endpoint::Dst),
            PacketScope::Outside => sight = ParsedPacket { outside: true, shifts: 0, ..sight },
            PacketScope::Inside => {
                sight = ParsedPacket { outside: false, shifts: sight.shifts.saturating_add(1), ..sight };
                if self.view.tunnels < sight.shifts {
                    return false;
                }
            }
        }
        self.act(inner, sight)
    }

    fn broadcast(&mut self) {
        (self.kind, self.record.classes) = (VerdictKind::Copy, ANY_CLASS);
    }
}
