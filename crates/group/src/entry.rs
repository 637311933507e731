//! One group as the registry knows it, and as tables show it.

use crate::counts::{ClosedSinkTotals, Counts, ReaderCounts, SinkCounts, SinkTotals};
use crate::engine_services::{IngressInterface, PacketSink, RingHandle};
use crate::group::GroupAccounting;
use crate::members::Membership;
use crate::request::Policy;
use crate::steering::{MEMBERS, Steering};
use crate::unresponsive::UnresponsiveQueue;
use crate::verdict::{Compiled, FragmentCounts, MapUsage, ProgramInfo};
use ring::Branch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// User.
    pub uid: u32,
    /// Process.
    pub pid: u32,
    /// Number of the connection; no two ever have the same, and 0 is the engine, which never leaves.
    pub connection: u64,
}

pub(crate) struct Entry {
    pub id: u32,
    pub policy: Policy,
    pub owner: ClientIdentity,
    /// It ends with its owner's connection.
    pub ephemeral: bool,
    pub steering: Steering,
    /// Names of the ports that its packets come from.
    pub sources: Vec<String>,
    pub queues: Option<Vec<u16>>,
    pub program: Option<Arc<dyn Compiled>>,
    /// The user who loaded it, and answers for what it holds.
    pub loader: u32,
    pub generation: u64,
    pub membership: Arc<Membership>,
    pub slots: BTreeMap<u8, MemberSlot>,
    /// Each port that its program sends to, once for those queues that it was opened for at a time.
    pub ports: BTreeMap<String, Vec<EgressPort>>,
    /// What members said of themselves that have left.
    pub departed: ReaderCounts,
    /// Outlets that were detached, and ports that no program names any more.
    pub closed: ClosedSinkTotals,
}

/// A port that packets of some queues are sent to.
pub(crate) struct EgressPort {
    pub counts: Arc<SinkCounts>,
    /// Which, in the order of the group's.
    pub rings: BTreeSet<usize>,
}

/// What one dispatcher told of its books.
pub(crate) struct DispatcherAccounting {
    pub accounting: Vec<GroupAccounting>,
    /// Its stream has ended: they do not change any more.
    pub ended: bool,
    /// Why they are not those of now, if they should be.
    pub silence: Option<UnresponsiveQueue>,
}

pub(crate) struct MemberSlot {
    pub name: String,
    pub who: ClientIdentity,
    pub branches: Vec<Branch>,
    /// Where the engine puts this member's packets; nothing for a process.
    pub sink: Option<(PacketSink, Arc<SinkCounts>)>,
}

/// One member, for tables.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// Where it sits.
    pub slot: u8,
    /// What it calls itself.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// A bit for each class.
    pub classes: u64,
    /// Its part of what is steered.
    pub weight: u8,
    /// Its filter.
    pub filter: Option<String>,
    /// What it says of itself.
    pub seen: ReaderCounts,
    /// How full its fullest branch is.
    pub fill: f64,
    /// Where its packets are put, and what became of them; nothing for a process.
    pub sink: Option<(PacketSink, SinkTotals)>,
}

/// One group, for tables.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Who may join.
    pub policy: Policy,
    /// Who created it.
    pub owner: ClientIdentity,
    /// How hashes are dealt.
    pub steering: Steering,
    /// The ports that its packets come from.
    pub sources: Vec<String>,
    /// Its queues there; `None` for all.
    pub queues: Option<Vec<u16>>,
    /// The program's source.
    pub program: Option<String>,
    /// What a line shows of it.
    pub headline: Option<String>,
    /// Whoever asked may not see the program and the members' filters.
    pub hidden: bool,
    /// How the program runs.
    pub program_info: Option<ProgramInfo>,
    /// The program's number.
    pub generation: u64,
    /// Its ports, and what became of the packets for each.
    pub ports: Vec<(String, SinkTotals)>,
    /// Its members.
    pub members: Vec<MemberView>,
    /// What members said of themselves that have left.
    pub departed: ReaderCounts,
    /// What became of packets for outlets that are closed.
    pub closed: SinkTotals,
    /// Its books, over all queues; empty where nobody asked for them.
    pub counts: Counts,
    /// The program's own counters.
    pub counters: Vec<(String, u64)>,
    /// What its program remembers of datagrams that were cut.
    pub datagrams: Option<FragmentCounts>,
    /// How full its maps are.
    pub maps: Vec<MapUsage>,
    /// Its queues that do not tell how they stand.
    pub unresponsive: Vec<UnresponsiveQueue>,
}

impl GroupView {
    /// Leaves out what is nobody's business but its owner's.
    pub(crate) fn hide(&mut self) {
        (self.program, self.headline, self.hidden) = (None, None, true);
        if let Some(about) = &mut self.program_info {
            // They name its maps and its ports.
            (about.partition_by, about.notes) = (Vec::new(), Vec::new());
        }
        self.maps.clear();
        self.members.iter_mut().for_each(|member| member.filter = None);
    }
}

impl MemberSlot {
    fn seen(&self) -> ReaderCounts {
        self.branches.iter().map(Branch::reported).fold(ReaderCounts::default(), |sum, (seen, late)| ReaderCounts {
            // Strangers wrote these: any number may stand there.
            taken: sum.taken.saturating_add(seen),
            late: sum.late.saturating_add(late),
        })
    }
}

impl Entry {
    /// Whether its packets still come from these ports: somebody may have made another of its name since they were asked for.
    pub fn is_of(&self, sources: &[IngressInterface]) -> Result<(), String> {
        if self.sources.iter().eq(sources.iter().map(|source| &source.name)) {
            return Ok(());
        }
        Err("another group has taken this name meanwhile; ask again".into())
    }

    /// Whether its packets come by this ring.
    pub fn has(&self, track: &RingHandle) -> bool {
        self.queues.as_ref().is_none_or(|q| q.contains(&track.queue)) && self.sources.contains(&track.source.name)
    }

    /// Nobody sits in this place any more.
    pub fn vacate(&mut self, place: u8) {
        if let Some(seat) = self.slots.remove(&place) {
            let seen = seat.seen();
            self.departed.taken = self.departed.taken.saturating_add(seen.taken);
            self.departed.late = self.departed.late.saturating_add(seen.late);
            seat.sink.into_iter().for_each(|(_, counts)| self.closed.keep(counts));
        }
        self.membership = Arc::new(self.membership.with(place, None));
    }

    /// For tables, with what the dispatchers of its queues told.
    pub fn view(&self, name: &str, pages: &[&DispatcherAccounting]) -> GroupView {
        let queues = pages.len();
        let (mut counts, mut counters) = (Counts::default(), Vec::<(String, u64)>::new());
        let (mut maps, mut datagrams) = (Vec::<MapUsage>::new(), None);
        let mut fill = vec![0.0; MEMBERS];
        // All queues of a group share its maps and what it knows of datagrams, and each that still runs tells of them as they are now.
        let now_first = [false, true].map(|ended| pages.iter().filter(move |page| page.ended == ended));
        for book in now_first.into_iter().flatten().flat_map(|page| &page.accounting).filter(|b| b.id == self.id) {
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
        let members = self.slots.iter().filter_map(|(place, seat)| {
            let member = self.membership.member(*place)?;
            Some(MemberView {
                slot: *place,
                name: seat.name.clone(),
                pid: seat.who.pid,
                classes: member.classes,
                weight: member.weight,
                filter: member.filter.as_ref().map(|f| f.text().to_owned()),
                seen: seat.seen(),
                fill: fill[usize::from(*place)],
                sink: seat.sink.as_ref().map(|(to, counts)| (to.clone(), counts.sums())),
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
            unresponsive: pages.iter().filter_map(|page| page.silence.clone()).collect(),
        }
    }
}

fn sums(opened: &[EgressPort]) -> SinkTotals {
    opened.iter().fold(SinkTotals::default(), |mut sums, one| {
        sums += one.counts.sums();
        sums
    })
}
