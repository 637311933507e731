//! The state of one group on one ring. The program of the group evaluates a batch of packets, and the branches of the
//! members receive the descriptors. This path takes no lock, allocates no memory and never waits.
//!
//! The steps for each packet are, in this order: actions (forward, pass to host), decision (drop or deliver), classes,
//! steering among the members of the classes, the filter of the chosen member, and the branch of that member. Groups on
//! the same ring are independent.

use crate::counts::Counts;
use crate::members::Membership;
use crate::steering::{MEMBERS, members};
use crate::verdict::{Delivery, FragmentCounts, MapUsage, Packet, Program, Verdict, class};
use base::Timestamp;
use ring::{BranchWriter, Desc, flag};
use std::sync::Arc;

/// Number of packets that the program evaluates in one call. For this number, the packet descriptions (about 150 bytes
/// each), the verdicts and the steering table stay in the L1 cache until the packets are delivered.
pub(crate) const CHUNK: usize = 64;

/// An egress interface of the program.
#[derive(Debug)]
pub struct Port {
    /// The interface name.
    pub name: String,
    /// The branch that the thread of the interface reads. `None` if the interface does not exist; then packets for the
    /// interface count as lost.
    pub branch: Option<BranchWriter>,
}

/// A compiled program that replaces the current program of the group on one ring, with the egress interfaces and
/// counters of the new program.
pub struct Swap {
    /// The program; `None` copies every packet to the default class.
    pub program: Option<Box<dyn Program>>,
    /// The generation of the program; larger than that of the previous program.
    pub generation: u64,
    /// Egress interfaces that are new to the group.
    pub ports: Vec<Port>,
    /// Names of all egress interfaces, in the program's order.
    pub names: Vec<String>,
    /// See [`crate::Compiled::reads_direction`].
    pub reads_direction: bool,
    /// The host interface, if the program passes packets to the host and needs a host interface for it.
    pub host: Option<String>,
    /// Names of the program's counters, in the program's order.
    pub counters: Vec<String>,
}

/// The state of a group on one ring; see the module documentation.
pub struct Group {
    id: u32,
    program: Option<Box<dyn Program>>,
    generation: u64,
    membership: Arc<Membership>,
    branches: [Option<BranchWriter>; MEMBERS],
    ports: Vec<Port>,
    /// Maps the program's interface indexes to indexes into `ports`.
    routes: Vec<usize>,
    /// True if packets that this host sent are forwarded as well.
    reads_direction: bool,
    /// Index of the host interface in `ports`.
    host: Option<usize>,
    counts: Counts,
    /// Names of the counters that the program defines, in the program's order.
    counters: Vec<String>,
    /// The last values of the counters of earlier programs of the group, summed by name.
    kept: Vec<(String, u64)>,
    verdicts: Vec<Verdict>,
}

/// The accounting of a group on one ring.
#[derive(Clone, Debug, Default)]
pub struct GroupAccounting {
    /// The group's id.
    pub id: u32,
    /// The generation of the program on this ring.
    pub generation: u64,
    /// The packet counters.
    pub counts: Counts,
    /// The counters that programs define, by name. The values include those of earlier programs of the group.
    pub counters: Vec<(String, u64)>,
    /// Fill levels of the program's maps.
    pub maps: Vec<MapUsage>,
    /// Counters of the program's fragment tracking.
    pub datagrams: Option<FragmentCounts>,
    /// The fill level of each member's branch, by member slot; 0 for a free slot.
    pub fill: Vec<f64>,
}

impl Group {
    /// Makes a group without members.
    pub fn new(id: u32, membership: Arc<Membership>, first: Swap) -> Self {
        let mut group = Self {
            id,
            program: None,
            generation: 0,
            membership,
            branches: [const { None }; MEMBERS],
            ports: Vec::new(),
            routes: Vec::new(),
            reads_direction: false,
            host: None,
            counts: Counts::default(),
            counters: Vec::new(),
            kept: Vec::new(),
            verdicts: Vec::new(),
        };
        group.swap(first);
        group
    }

    /// Returns the group's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Replaces the program from the next batch on. The new program takes over the state of the previous program, the
    /// counters keep their values, and the generation never decreases. The function returns the previous program; the
    /// caller drops it on another thread, because the drop can take long.
    pub fn swap(&mut self, mut swap: Swap) -> Option<Box<dyn Program>> {
        self.kept = self.counters();
        // Close the egress interfaces that the new program does not name: the thread of an egress interface ends when
        // its branch is dropped.
        self.ports.retain(|p| swap.names.contains(&p.name) || swap.host.as_ref() == Some(&p.name));
        self.ports.extend(swap.ports);
        let port = |name: &String| self.ports.iter().position(|p| p.name == *name);
        self.routes = swap.names.iter().map(|name| port(name).unwrap_or(usize::MAX)).collect();
        self.host = swap.host.as_ref().and_then(port);
        self.reads_direction = swap.reads_direction;
        if let (Some(new), Some(old)) = (&mut swap.program, &mut self.program) {
            new.transfer_state(&mut **old);
        }
        self.counters = swap.counters;
        self.generation = self.generation.max(swap.generation);
        self.branches.iter_mut().flatten().for_each(|b| b.set_generation(self.generation));
        std::mem::replace(&mut self.program, swap.program)
    }

    /// Applies a change of the members in slot `place`; `branch` is the branch of a new member.
    pub fn change(&mut self, membership: Arc<Membership>, slot: u8, branch: Option<BranchWriter>) {
        let here = &mut self.branches[usize::from(slot)];
        match (membership.member(slot).is_some(), branch) {
            (false, _) => {
                *here = None;
                self.counts.depart(slot);
            }
            (true, Some(mut branch)) => {
                self.counts.depart(slot);
                branch.set_generation(self.generation);
                *here = Some(branch);
            }
            (true, None) => {}
        }
        self.membership = membership;
    }

    /// Evaluates, delivers and publishes a batch.
    pub fn take(&mut self, batch: &[Packet<'_>]) {
        batch.chunks(CHUNK).for_each(|some| self.judge(some));
        self.publish();
    }

    /// Evaluates and delivers at most [`CHUNK`] packets. The members can read them after the next call of `publish`.
    pub(crate) fn judge(&mut self, some: &[Packet<'_>]) {
        self.verdicts.clear();
        self.verdicts.resize(some.len(), Verdict::default());
        if let Some(program) = &mut self.program {
            program.evaluate(some, &mut self.verdicts);
        }
        self.deliver(some);
    }

    /// Counts packets that the dispatcher skipped.
    pub fn skip(&mut self, packets: u64) {
        self.counts.skipped += packets;
    }

    /// Writes a control descriptor that marks the start of a second to the branches of all members.
    pub fn tick(&mut self, ts: Timestamp) {
        self.branches.iter_mut().flatten().for_each(|b| b.tick(ts));
        self.publish();
    }

    pub(crate) fn publish(&mut self) {
        self.branches.iter_mut().flatten().for_each(BranchWriter::publish);
        self.ports.iter_mut().filter_map(|p| p.branch.as_mut()).for_each(BranchWriter::publish);
    }

    fn deliver(&mut self, batch: &[Packet<'_>]) {
        let Self { verdicts, membership, branches, ports, routes, reads_direction, host, counts, generation, .. } =
            self;
        counts.received += batch.len() as u64;
        // Most packets of a batch have the same classes, so the eligible members are computed only when the classes
        // change.
        let mut classes = verdicts.first().map_or(0, |v| v.classes);
        let mut eligible = membership.eligible(classes);
        for (packet, verdict) in batch.iter().zip(&*verdicts) {
            if !verdict.forwards.as_slice().is_empty() || verdict.kernel {
                let desc = packet.desc.evaluated_by(0, *generation, verdict.mark);
                let route = |port: &u8| routes.get(usize::from(*port)).copied().unwrap_or(usize::MAX);
                let to = verdict.forwards.as_slice();
                if packet.desc.flags & flag::OUTGOING != 0 && !*reads_direction {
                    counts.forwards += to.len() as u64;
                    counts.forward_own += to.len() as u64;
                } else {
                    forward(to.iter().map(route), &desc, ports, counts);
                }
                forward(host.iter().copied().filter(|_| verdict.kernel), &desc, ports, counts);
                counts.to_kernel += u64::from(verdict.kernel);
            }
            if verdict.delivery == Delivery::Drop {
                counts.dropped += 1;
                continue;
            }
            if verdict.classes != classes {
                classes = verdict.classes;
                eligible = membership.eligible(classes);
            }
            match classes {
                class::ANY => counts.broadcast += 1,
                classes => members(classes).for_each(|c| counts.classes[usize::from(c)].packets += 1),
            }
            let targets = match verdict.delivery {
                _ if eligible.set == 0 => 0,
                Delivery::Steer(hash) => eligible.pick(hash),
                Delivery::DoubleSteer(a, b) => eligible.pick(a) | eligible.pick(b),
                Delivery::Pick(number) => eligible.nth(number),
                Delivery::Drop | Delivery::Copy => eligible.set,
            };
            if targets == 0 {
                counts.no_member += 1;
                match classes {
                    class::ANY => counts.broadcast_alone += 1,
                    classes => members(classes).for_each(|c| counts.classes[usize::from(c)].no_member += 1),
                }
                continue;
            }
            counts.passed += 1;
            counts.copies += u64::from(targets.count_ones());
            let wanted = if targets & membership.slots_with_filter() == 0 {
                targets
            } else {
                matching(targets, packet, classes, membership, counts)
            };
            for slot in members(wanted) {
                let class = membership.class_of(slot, classes);
                let desc = packet.desc.evaluated_by(class, *generation, verdict.mark);
                let (part, class) = (&mut counts.members[usize::from(slot)], &mut counts.classes[usize::from(class)]);
                class.copies += 1;
                if branches[usize::from(slot)].as_mut().is_some_and(|branch| branch.push(desc)) {
                    part.delivered += 1;
                } else {
                    part.lost += 1;
                    class.lost += 1;
                }
            }
        }
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let mut all = self.kept.clone();
        let now = self.program.as_ref().map(|p| p.counters()).unwrap_or_default();
        for (name, n) in self.counters.iter().zip(now) {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum = sum.wrapping_add(n),
                None => all.push((name.clone(), n)),
            }
        }
        all
    }

    /// Returns the accounting as of the last batch.
    pub fn accounting(&mut self) -> GroupAccounting {
        GroupAccounting {
            id: self.id,
            generation: self.generation,
            counts: self.counts.clone(),
            counters: self.counters(),
            maps: self.program.as_ref().map(|program| program.maps()).unwrap_or_default(),
            datagrams: self.program.as_ref().and_then(|program| program.datagrams()),
            fill: self.branches.iter_mut().map(|b| b.as_mut().map_or(0.0, BranchWriter::fill)).collect(),
        }
    }
}

/// Returns the members of `targets` that have no filter or whose filter matches the packet. For each other
/// member of `targets`, a refused copy is counted.
fn matching(targets: u64, packet: &Packet<'_>, classes: u64, membership: &Membership, counts: &mut Counts) -> u64 {
    let mut wanted = targets;
    for slot in members(targets & membership.slots_with_filter()) {
        let filter = membership.member(slot).and_then(|m| m.filter.as_ref());
        if filter.is_some_and(|f| !f.matches(packet)) {
            wanted &= !(1 << slot);
            counts.members[usize::from(slot)].refused += 1;
            counts.classes[usize::from(membership.class_of(slot, classes))].copies += 1;
        }
    }
    wanted
}

#[cold]
fn forward(to: impl Iterator<Item = usize>, desc: &Desc, ports: &mut [Port], counts: &mut Counts) {
    for route in to {
        counts.forwards += 1;
        if ports.get_mut(route).and_then(|p| p.branch.as_mut()).is_some_and(|branch| branch.push(*desc)) {
            counts.forwarded += 1;
        } else {
            counts.forward_lost += 1;
        }
    }
}
