//! One group on one ring: its program judges a batch, its members get descriptors. No lock, no allocation, no waiting.
//!
//! Order, for each packet: what was remarked (ports, host), then the decision, then the classes, then the steering among
//! their members, then the chosen member's own filter, then its branch. Groups on the same ring know nothing of each other.

use crate::counts::Counts;
use crate::members::Membership;
use crate::steering::{MEMBERS, members};
use crate::verdict::{Delivery, FragmentCounts, MapUsage, Packet, Program, Verdict, class};
use base::Timestamp;
use ring::{BranchWriter, Desc, flag};
use std::sync::Arc;

/// Packets judged at a time: what a program needs of them (about 150 bytes each) and what it says of them stays in the
/// nearest cache until it is carried out, beside the table of steering.
pub(crate) const CHUNK: usize = 64;

/// A port that packets are forwarded to.
#[derive(Debug)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Where its thread reads; `None` if it is not there, and what is for it counts as lost.
    pub branch: Option<BranchWriter>,
}

/// A program, ready to take over on one ring.
pub struct Swap {
    /// `None` copies everything to the default class.
    pub program: Option<Box<dyn Program>>,
    /// Its number; larger than the one before.
    pub generation: u64,
    /// Ports that were not known to the group yet.
    pub ports: Vec<Port>,
    /// The names of all that the program forwards to, in its order.
    pub names: Vec<String>,
    /// See [`crate::Compiled::knows_direction`].
    pub knows_direction: bool,
    /// The port that brings packets to the host, if one is needed and the program hands any to it.
    pub host: Option<String>,
    /// The names of its counters, in its order.
    pub counters: Vec<String>,
}

/// See the module's text.
pub struct Group {
    id: u32,
    program: Option<Box<dyn Program>>,
    generation: u64,
    membership: Arc<Membership>,
    branches: [Option<BranchWriter>; MEMBERS],
    ports: Vec<Port>,
    /// From the program's numbers of ports to ours.
    routes: Vec<usize>,
    /// What this host sent is forwarded as well.
    knows_direction: bool,
    /// The port of ours that brings packets to the host.
    host: Option<usize>,
    counts: Counts,
    /// Names of the program's counters, and what programs before it had counted under them.
    counters: Vec<String>,
    kept: Vec<(String, u64)>,
    verdicts: Vec<Verdict>,
}

/// The books of a group on one ring.
#[derive(Clone, Debug, Default)]
pub struct GroupAccounting {
    /// Which group.
    pub id: u32,
    /// The generation of its program here.
    pub generation: u64,
    /// Packets.
    pub counts: Counts,
    /// The programs' own counters, by name; those of programs that were swapped out included.
    pub counters: Vec<(String, u64)>,
    /// How full the maps of its program are.
    pub maps: Vec<MapUsage>,
    /// What its program remembers of datagrams that were cut.
    pub datagrams: Option<FragmentCounts>,
    /// How full each member's branch is, by place; 0 where nobody is.
    pub fill: Vec<f64>,
}

impl Group {
    /// A group without members.
    pub fn new(id: u32, membership: Arc<Membership>, first: Swap) -> Self {
        let mut group = Self {
            id,
            program: None,
            generation: 0,
            membership,
            branches: [const { None }; MEMBERS],
            ports: Vec::new(),
            routes: Vec::new(),
            knows_direction: false,
            host: None,
            counts: Counts::default(),
            counters: Vec::new(),
            kept: Vec::new(),
            verdicts: Vec::new(),
        };
        group.swap(first);
        group
    }

    /// Which group.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Another program judges from the next batch on, and takes over what the one before remembered. What was counted
    /// stays; a generation never goes back. The old program is returned, because throwing it away may take a while.
    pub fn swap(&mut self, mut swap: Swap) -> Option<Box<dyn Program>> {
        self.kept = self.counters();
        // A port that the program does not name is closed: its thread ends with the branch.
        self.ports.retain(|p| swap.names.contains(&p.name) || swap.host.as_ref() == Some(&p.name));
        self.ports.extend(swap.ports);
        let port = |name: &String| self.ports.iter().position(|p| p.name == *name);
        self.routes = swap.names.iter().map(|name| port(name).unwrap_or(usize::MAX)).collect();
        self.host = swap.host.as_ref().and_then(port);
        self.knows_direction = swap.knows_direction;
        if let (Some(new), Some(old)) = (&mut swap.program, &mut self.program) {
            new.transfer_state(&mut **old);
        }
        self.counters = swap.counters;
        self.generation = self.generation.max(swap.generation);
        self.branches.iter_mut().flatten().for_each(|b| b.set_generation(self.generation));
        std::mem::replace(&mut self.program, swap.program)
    }

    /// Members come, go or change; `branch` is that of whoever comes to this place.
    pub fn change(&mut self, membership: Arc<Membership>, place: u8, branch: Option<BranchWriter>) {
        let here = &mut self.branches[usize::from(place)];
        match (membership.member(place).is_some(), branch) {
            (false, _) => {
                *here = None;
                self.counts.depart(place);
            }
            (true, Some(mut branch)) => {
                self.counts.depart(place);
                branch.set_generation(self.generation);
                *here = Some(branch);
            }
            (true, None) => {}
        }
        self.membership = membership;
    }

    /// Judges and delivers a batch, and makes it visible.
    pub fn take(&mut self, batch: &[Packet<'_>]) {
        batch.chunks(CHUNK).for_each(|some| self.judge(some));
        self.publish();
    }

    /// Judges and delivers at most [`CHUNK`] packets; their readers see them when it publishes.
    pub(crate) fn judge(&mut self, some: &[Packet<'_>]) {
        self.verdicts.clear();
        self.verdicts.resize(some.len(), Verdict::default());
        if let Some(program) = &mut self.program {
            program.evaluate(some, &mut self.verdicts);
        }
        self.deliver(some);
    }

    /// Packets went by that nobody judged.
    pub fn skip(&mut self, packets: u64) {
        self.counts.skipped += packets;
    }

    /// Time has reached this second.
    pub fn tick(&mut self, ts: Timestamp) {
        self.branches.iter_mut().flatten().for_each(|b| b.tick(ts));
        self.publish();
    }

    pub(crate) fn publish(&mut self) {
        self.branches.iter_mut().flatten().for_each(BranchWriter::publish);
        self.ports.iter_mut().filter_map(|p| p.branch.as_mut()).for_each(BranchWriter::publish);
    }

    fn deliver(&mut self, batch: &[Packet<'_>]) {
        let Self { verdicts, membership, branches, ports, routes, knows_direction, host, counts, generation, .. } =
            self;
        counts.received += batch.len() as u64;
        // Most packets of a batch are for the same classes.
        let mut classes = verdicts.first().map_or(0, |v| v.classes);
        let mut eligible = membership.eligible(classes);
        for (packet, verdict) in batch.iter().zip(&*verdicts) {
            if !verdict.forwards.as_slice().is_empty() || verdict.kernel {
                let desc = packet.desc.evaluated_by(0, *generation, verdict.mark);
                let route = |port: &u8| routes.get(usize::from(*port)).copied().unwrap_or(usize::MAX);
                let to = verdict.forwards.as_slice();
                if packet.desc.flags & flag::OUTGOING != 0 && !*knows_direction {
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
            for place in members(wanted) {
                let class = membership.class_of(place, classes);
                let desc = packet.desc.evaluated_by(class, *generation, verdict.mark);
                let (part, class) = (&mut counts.members[usize::from(place)], &mut counts.classes[usize::from(class)]);
                class.copies += 1;
                if branches[usize::from(place)].as_mut().is_some_and(|branch| branch.push(desc)) {
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

    /// The books as of the last batch.
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

/// Those of the targets whose own filter the packet passes.
fn matching(targets: u64, packet: &Packet<'_>, classes: u64, membership: &Membership, counts: &mut Counts) -> u64 {
    let mut wanted = targets;
    for place in members(targets & membership.slots_with_filter()) {
        let filter = membership.member(place).and_then(|m| m.filter.as_ref());
        if filter.is_some_and(|f| !f.matches(packet)) {
            wanted &= !(1 << place);
            counts.members[usize::from(place)].refused += 1;
            counts.classes[usize::from(membership.class_of(place, classes))].copies += 1;
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
