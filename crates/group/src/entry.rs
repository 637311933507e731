//! The registry's state of one group, and the view of a group that tables show.

use crate::counts::{ClosedSinkTotals, Counts, ReaderCounts, SinkCounts, SinkTotals};
use crate::engine_services::{PacketSink, RingHandle};
use crate::error::RequestError;
use crate::group::GroupAccounting;
use crate::ingress_interface::IngressInterface;
use crate::members::Membership;
use crate::request::Policy;
use crate::steering::{MEMBERS, Steering};
use crate::unresponsive::UnresponsiveQueue;
use crate::verdict::{Compiled, FragmentCounts, MapUsage, ProgramInfo};
use ring::Branch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// User id.
    pub uid: u32,
    /// Process id.
    pub pid: u32,
    /// Unique number of the connection; 0 is the engine itself, which never disconnects.
    pub connection: u64,
}

pub(crate) struct Entry {
    pub id: u32,
    pub policy: Policy,
    pub owner: ClientIdentity,
    /// True if the group ends with its owner's connection.
    pub ephemeral: bool,
    pub steering: Steering,
    /// Names of the interfaces whose packets the group gets.
    pub sources: Vec<String>,
    pub queues: Option<Vec<u16>>,
    pub program: Option<Arc<dyn Compiled>>,
    /// The user who loaded the program. The resources of the program count against the limits of this user.
    pub loader: u32,
    pub generation: u64,
    pub membership: Arc<Membership>,
    pub slots: BTreeMap<u8, MemberSlot>,
    /// Open egress interfaces by name. A swap can open an interface for additional queues; each such opening adds an
    /// element to the list of the interface.
    pub ports: BTreeMap<String, Vec<EgressPort>>,
    /// The summed counters that departed members reported.
    pub departed: ReaderCounts,
    /// Counters of detached sinks and of egress interfaces that no program names any more.
    pub closed: ClosedSinkTotals,
}

/// An egress interface that was opened to send the packets of some of the group's queues.
pub(crate) struct EgressPort {
    pub counts: Arc<SinkCounts>,
    /// The queues whose packets are sent, as indexes in the group's list of queues.
    pub rings: BTreeSet<usize>,
}

/// The last accounting that one dispatcher reported.
pub(crate) struct DispatcherAccounting {
    pub accounting: Vec<GroupAccounting>,
    /// True if the dispatcher has ended. Then the counters no longer change.
    pub ended: bool,
    /// The queue of the dispatcher, if the dispatcher has failed or did not reply to this request. The counters are
    /// then those of its last accounting. `None` if the counters are current.
    pub silence: Option<UnresponsiveQueue>,
}

pub(crate) struct MemberSlot {
    pub name: String,
    pub client: ClientIdentity,
    pub branches: Vec<Branch>,
    /// The sink of a member that the engine serves; `None` for a process.
    pub sink: Option<(PacketSink, Arc<SinkCounts>)>,
}

/// One member, for tables.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// The member slot.
    pub slot: u8,
    /// The name that the member gave itself.
    pub name: String,
    /// The member's process id.
    pub pid: u32,
    /// The member's classes, one bit each.
    pub classes: u64,
    /// The member's weight in steering.
    pub weight: u8,
    /// The member's filter.
    pub filter: Option<String>,
    /// The counters that the member reports.
    pub seen: ReaderCounts,
    /// The fill level of the member's fullest branch.
    pub fill: f64,
    /// The member's sink and its counters; `None` for a process.
    pub sink: Option<(PacketSink, SinkTotals)>,
}

/// One group, for tables.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// The group's name.
    pub name: String,
    /// The rule for joining.
    pub policy: Policy,
    /// The client that created the group.
    pub owner: ClientIdentity,
    /// The steering rule.
    pub steering: Steering,
    /// The interfaces whose packets the group gets.
    pub sources: Vec<String>,
    /// The queues of these interfaces whose packets the group gets; `None` for all queues.
    pub queues: Option<Vec<u16>>,
    /// The program's source.
    pub program: Option<String>,
    /// The line of the program's source that tables show.
    pub headline: Option<String>,
    /// True if the client must not receive the program and the filters of the members.
    pub hidden: bool,
    /// How the program runs.
    pub program_info: Option<ProgramInfo>,
    /// The program's generation.
    pub generation: u64,
    /// The egress interfaces with their counters.
    pub ports: Vec<(String, SinkTotals)>,
    /// The members.
    pub members: Vec<MemberView>,
    /// The summed counters that departed members reported.
    pub departed: ReaderCounts,
    /// The counters of closed sinks.
    pub closed: SinkTotals,
    /// The group's accounting over all queues; zero if it was not requested.
    pub counts: Counts,
    /// The program's own counters.
    pub counters: Vec<(String, u64)>,
    /// Counters of the program's fragment tracking.
    pub datagrams: Option<FragmentCounts>,
    /// Fill levels of the program's maps.
    pub maps: Vec<MapUsage>,
    /// The queues whose dispatchers did not report their counters.
    pub unresponsive: Vec<UnresponsiveQueue>,
}

impl GroupView {
    /// Removes the fields that only the group's owner may see.
    pub(crate) fn hide(&mut self) {
        (self.program, self.headline, self.hidden) = (None, None, true);
        if let Some(about) = &mut self.program_info {
            // `partition_by` and `notes` are emptied, because they contain the names of the program's maps and
            // interfaces.
            (about.partition_by, about.notes) = (Vec::new(), Vec::new());
        }
        self.maps.clear();
        self.members.iter_mut().for_each(|member| member.filter = None);
    }
}

impl MemberSlot {
    fn seen(&self) -> ReaderCounts {
        self.branches.iter().map(Branch::reported).fold(ReaderCounts::default(), |sum, (seen, overwritten)| {
            ReaderCounts {
                // A client can write any number into the counters of its branch, so the sum may overflow.
                taken: sum.taken.saturating_add(seen),
                overwritten: sum.overwritten.saturating_add(overwritten),
            }
        })
    }
}

impl Entry {
    /// Checks that the group still has these interfaces: a client may have replaced it by another group of the same
    /// name.
    pub fn is_of(&self, sources: &[IngressInterface]) -> Result<(), RequestError> {
        if self.sources.iter().eq(sources.iter().map(|source| &source.name)) {
            return Ok(());
        }
        Err(RequestError::Replaced)
    }

    /// True if the group gets packets of this ring.
    pub fn has(&self, ring: &RingHandle) -> bool {
        self.queues.as_ref().is_none_or(|q| q.contains(&ring.queue)) && self.sources.contains(&ring.source.name)
    }

    /// Frees a member slot.
    pub fn vacate(&mut self, slot: u8) {
        if let Some(occupant) = self.slots.remove(&slot) {
            let seen = occupant.seen();
            self.departed.taken = self.departed.taken.saturating_add(seen.taken);
            self.departed.overwritten = self.departed.overwritten.saturating_add(seen.overwritten);
            occupant.sink.into_iter().for_each(|(_, counts)| self.closed.keep(counts));
        }
        self.membership = Arc::new(self.membership.with(slot, None));
    }

    /// Combines the reports of the group's dispatchers into the view of the group that tables show.
    pub fn view(&self, name: &str, accountings: &[&DispatcherAccounting]) -> GroupView {
        let queues = accountings.len();
        let (mut counts, mut counters) = (Counts::default(), Vec::<(String, u64)>::new());
        let (mut maps, mut datagrams) = (Vec::<MapUsage>::new(), None);
        let mut fill = vec![0.0; MEMBERS];
        // All queues of a group share the group's maps and fragment tracking. The report of a running dispatcher is
        // newer than that of an ended dispatcher, so it takes precedence.
        let now_first =
            [false, true].map(|ended| accountings.iter().filter(move |accounting| accounting.ended == ended));
        for book in
            now_first.into_iter().flatten().flat_map(|accounting| &accounting.accounting).filter(|b| b.id == self.id)
        {
            counts += &book.counts;
            for map in &book.maps {
                if !maps.iter().any(|known| known.map == map.map) {
                    maps.push(map.clone());
                }
            }
            datagrams.get_or_insert(book.datagrams);
            fill.iter_mut().zip(&book.fill).for_each(|(a, b)| *a = f64::max(*a, *b));
            for (name, n) in &book.counters {
                match counters.iter_mut().find(|(known, _)| known == name) {
                    Some((_, sum)) => *sum = sum.wrapping_add(*n),
                    None => counters.push((name.clone(), *n)),
                }
            }
        }
        let members = self.slots.iter().filter_map(|(slot, occupant)| {
            let member = self.membership.member(*slot)?;
            Some(MemberView {
                slot: *slot,
                name: occupant.name.clone(),
                pid: occupant.client.pid,
                classes: member.classes,
                weight: member.weight,
                filter: member.filter.as_ref().map(|f| f.text().to_owned()),
                seen: occupant.seen(),
                fill: fill[usize::from(*slot)],
                sink: occupant.sink.as_ref().map(|(to, counts)| (to.clone(), counts.sums())),
            })
        });
        GroupView {
            name: name.to_owned(),
            policy: self.policy,
            owner: self.owner,
            steering: self.steering,
            sources: self.sources.clone(),
            queues: self.queues.clone(),
            program: self.program.as_ref().map(|p| p.text().to_owned()),
            headline: self.program.as_ref().map(|p| p.headline().to_owned()),
            hidden: false,
            program_info: self.program.as_ref().map(|p| p.about(queues)),
            generation: self.generation,
            ports: self.ports.iter().map(|(name, all)| (name.clone(), sums(all))).collect(),
            members: members.collect(),
            departed: self.departed,
            closed: self.closed.sums(),
            counts,
            counters,
            maps,
            datagrams: datagrams.flatten(),
            unresponsive: accountings.iter().filter_map(|accounting| accounting.silence.clone()).collect(),
        }
    }
}

fn sums(opened: &[EgressPort]) -> SinkTotals {
    opened.iter().fold(SinkTotals::default(), |mut sums, one| {
        sums += one.counts.sums();
        sums
    })
}
