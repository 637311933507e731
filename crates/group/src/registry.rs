//! The groups of an engine as people see them: names, owners, members, programs. Whatever happens here is worked out aside
//! and reaches the packets as [`Order`]s.
//!
//! Invariant: an order is given only for what has been found sound. A program that cannot be compiled, or that asks for a
//! port or a host that cannot be had, changes nothing, and the one before it runs on.

use crate::counts::{Counts, PortCounts, Seen};
use crate::dispatch::{Order, Orders};
use crate::group::{Books, Group, Port, Swap};
use crate::members::{Member, Membership};
use crate::request::{NAME_MAX, Policy, Request};
use crate::steer::{Steering, WEIGHT_MAX};
use crate::verdict::{Compiled, class};
use ring::{BRANCH_DESCS_MAX, BRANCH_DESCS_MIN, Branch, Offer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::Filter;

/// Most groups of an engine at a time.
pub const GROUPS: usize = 64;

/// Descriptors of a branch when nobody said: 4 MiB of them, a tenth of a second at a million packets a second.
pub const BRANCH_DESCS: u64 = 128 << 10;

/// How long a dispatcher may take to carry out an order: it may be waiting for the ring's writer itself.
const PATIENCE: Duration = Duration::from_secs(8);

/// One ring with its dispatcher.
pub struct Track {
    /// Number of the queue.
    pub queue: u16,
    /// Where the dispatcher takes orders.
    pub orders: Arc<Orders>,
    /// The ring.
    pub offer: Offer,
}

/// What an engine lends to its groups.
pub trait Outside: Send + Sync {
    /// Makes a program of its source, for frames of this link type.
    ///
    /// # Errors
    /// In words, with the place in the source and what to write instead.
    fn compile(&self, source: &str, link_type: u32) -> Result<Arc<dyn Compiled>, String>;

    /// Begins to send what comes out of these branches (one for each queue) through a port, until they end; the books of
    /// the sending.
    ///
    /// # Errors
    /// In words, why this port cannot be sent through.
    fn open_port(&self, name: &str, branches: &[Branch]) -> Result<Arc<PortCounts>, String>;

    /// Whether packets can be handed to the host.
    ///
    /// # Errors
    /// In words, why not.
    fn kernel(&self) -> Result<(), String>;
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// User.
    pub uid: u32,
    /// Process.
    pub pid: u32,
    /// Number of the connection; no two ever have the same.
    pub connection: u64,
}

/// See the module's text.
pub struct Registry {
    tracks: Vec<Track>,
    outside: Box<dyn Outside>,
    own_uid: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: BTreeMap<String, Entry>,
    last_id: u32,
}

struct Entry {
    id: u32,
    policy: Policy,
    owner: Visitor,
    /// It ends with its owner's connection.
    brief: bool,
    steering: Steering,
    queues: Option<Vec<u16>>,
    program: Option<Arc<dyn Compiled>>,
    generation: u64,
    membership: Arc<Membership>,
    seats: BTreeMap<u8, Seat>,
    ports: BTreeMap<String, Arc<PortCounts>>,
    /// What members said of themselves that have left.
    departed: Seen,
}

struct Seat {
    name: String,
    who: Visitor,
    filter: Option<String>,
    branches: Vec<Branch>,
}

/// A new member's place.
#[derive(Debug)]
pub struct Joined {
    /// Where it sits.
    pub place: u8,
    /// The program that judges now.
    pub generation: u64,
    /// One for each queue.
    pub branches: Vec<Branch>,
}

/// What a change of program has come to.
#[derive(Clone, Copy, Debug)]
pub struct Swapped {
    /// The generation in force.
    pub generation: u64,
    /// From the order to the last queue that has carried it out.
    pub took: Duration,
}

/// One member, for tables.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// Where it sits.
    pub place: u8,
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
    pub seen: Seen,
    /// How full its fullest branch is.
    pub fill: f64,
}

/// One group, for tables.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Who may join.
    pub policy: Policy,
    /// Who created it.
    pub owner: Visitor,
    /// How hashes are dealt.
    pub steering: Steering,
    /// Its queues; `None` for all.
    pub queues: Option<Vec<u16>>,
    /// The program's source.
    pub program: Option<String>,
    /// The program's number.
    pub generation: u64,
    /// Its ports, and how many packets were sent through each, and not sent.
    pub ports: Vec<(String, u64, u64)>,
    /// Its members.
    pub members: Vec<MemberView>,
    /// What members said of themselves that have left.
    pub departed: Seen,
    /// Its books, over all queues; empty where nobody asked for them.
    pub counts: Counts,
    /// The program's own counters.
    pub counters: Vec<(String, u64)>,
}

impl Registry {
    /// For these rings, which all have the same link type.
    pub fn new(tracks: Vec<Track>, outside: Box<dyn Outside>, own_uid: u32) -> Self {
        Self { tracks, outside, own_uid, state: Mutex::default() }
    }

    /// A new group.
    ///
    /// # Errors
    /// In words, what is wrong with the request.
    pub fn create(&self, who: Visitor, request: &Request) -> Result<u64, String> {
        let Request::Create { group, program, policy, fold, queues, brief } = request else {
            return Err("not a request to create a group".into());
        };
        check_name(group)?;
        for queue in queues.iter().flatten() {
            if !self.tracks.iter().any(|t| t.queue == *queue) {
                let known: Vec<String> = self.tracks.iter().map(|t| t.queue.to_string()).collect();
                return Err(format!("there is no queue {queue}; this engine has {}", known.join(", ")));
            }
        }
        let mut state = self.lock();
        if state.groups.contains_key(group) {
            return Err(format!("there is a group {group:?} already; swap its program, or delete it first"));
        }
        if state.groups.len() >= GROUPS {
            return Err(format!("there are {GROUPS} groups already; delete one first"));
        }
        let compiled = program.as_deref().map(|source| self.sound(source)).transpose()?;
        let steering = Request::steering(*fold);
        state.last_id += 1;
        let mut entry = Entry {
            id: state.last_id,
            policy: *policy,
            owner: who,
            brief: *brief || *policy == Policy::Private,
            steering,
            queues: queues.clone(),
            program: None,
            generation: 1,
            membership: Arc::new(Membership::new(steering)),
            seats: BTreeMap::new(),
            ports: BTreeMap::new(),
            departed: Seen::default(),
        };
        let swaps = self.swaps(&mut entry, group, compiled.as_ref())?;
        entry.program = compiled;
        for (track, swap) in self.tracks_of(&entry).zip(swaps) {
            let group = Group::new(entry.id, Arc::clone(&entry.membership), swap);
            track.orders.leave(Order::Add(Box::new(group)));
        }
        state.groups.insert(group.clone(), entry);
        Ok(1)
    }

    /// A group less.
    ///
    /// # Errors
    /// There is none of this name, or it is not the visitor's.
    pub fn delete(&self, who: Visitor, group: &str) -> Result<(), String> {
        let mut state = self.lock();
        self.permitted(state.find(group)?, who)?;
        if let Some(entry) = state.groups.remove(group) {
            self.end(&entry);
        }
        Ok(())
    }

    /// One member more.
    ///
    /// # Errors
    /// In words, what is wrong with the request.
    pub fn join(&self, who: Visitor, request: &Request) -> Result<Joined, String> {
        let Request::Join { group, classes, weight, filter, descs, name } = request else {
            return Err("not a request to join a group".into());
        };
        let member = member_of(classes, *weight, filter.as_deref())?;
        if name.len() > NAME_MAX {
            return Err(format!("a name of {} bytes; at most {NAME_MAX}", name.len()));
        }
        let descs = if *descs == 0 { BRANCH_DESCS } else { *descs };
        if !(BRANCH_DESCS_MIN..=BRANCH_DESCS_MAX).contains(&descs) {
            return Err(format!("{descs} descriptors; a branch has {BRANCH_DESCS_MIN} to {BRANCH_DESCS_MAX}"));
        }
        let mut state = self.lock();
        let entry = state.find(group)?;
        self.permitted(entry, who)?;
        let Some(place) = entry.membership.free() else {
            return Err(format!("group {group:?} has {} members already", crate::steer::MEMBERS));
        };
        let (mut writers, mut branches) = (Vec::new(), Vec::new());
        for track in self.tracks_of(entry) {
            let offer = &track.offer;
            let (writer, branch) =
                Branch::grow(&offer.memory, &offer.shape, &format!("{}/{group}", offer.shape.name), descs)
                    .map_err(|e| format!("no memory for a branch of {descs} descriptors: {e}"))?;
            writers.push(writer);
            branches.push(branch);
        }
        entry.membership = Arc::new(entry.membership.with(place, Some(member)));
        let orders = self.tracks_of(entry).zip(writers).map(|(track, writer)| {
            let (done, told) = channel();
            let membership = Arc::clone(&entry.membership);
            track.orders.leave(Order::Change { group: entry.id, membership, place, branch: Some(writer), done });
            told
        });
        wait(orders.collect());
        let name = if name.is_empty() { format!("pid {}", who.pid) } else { name.clone() };
        entry.seats.insert(place, Seat { name, who, filter: filter.clone(), branches: branches.clone() });
        Ok(Joined { place, generation: entry.generation, branches })
    }

    /// A member's part of what is steered changes.
    ///
    /// # Errors
    /// In words, what is wrong with the request.
    pub fn weigh(&self, who: Visitor, group: &str, place: u8, weight: u8) -> Result<(), String> {
        check_weight(weight)?;
        let mut state = self.lock();
        let entry = state.find(group)?;
        self.permitted(entry, who)?;
        let Some(member) = entry.membership.member(place).cloned() else {
            return Err(format!("nobody sits in place {place} of group {group:?}"));
        };
        entry.membership = Arc::new(entry.membership.with(place, Some(Member { weight, ..member })));
        self.change(entry, place);
        Ok(())
    }

    /// A connection has ended: its memberships end, and the groups that were to end with it.
    pub fn farewell(&self, connection: u64) {
        let mut state = self.lock();
        for entry in state.groups.values_mut() {
            let left: Vec<u8> =
                entry.seats.iter().filter(|(_, s)| s.who.connection == connection).map(|(place, _)| *place).collect();
            for place in left {
                if let Some(seat) = entry.seats.remove(&place) {
                    let seen = seat.seen();
                    (entry.departed.seen, entry.departed.late) =
                        (entry.departed.seen + seen.seen, entry.departed.late + seen.late);
                }
                entry.membership = Arc::new(entry.membership.with(place, None));
                self.change(entry, place);
            }
        }
        state.groups.retain(|_, entry| {
            let ends = entry.brief && entry.owner.connection == connection;
            if ends {
                self.end(entry);
            }
            !ends
        });
    }

    /// The source of a group's program.
    ///
    /// # Errors
    /// There is no group of this name, or it is not for the visitor.
    pub fn program(&self, who: Visitor, group: &str) -> Result<(Option<String>, u64), String> {
        let mut state = self.lock();
        let entry = state.find(group)?;
        self.permitted(entry, who)?;
        Ok((entry.program.as_ref().map(|p| p.text().to_owned()), entry.generation))
    }

    /// Another program judges from the next batch on.
    ///
    /// # Errors
    /// In words, why it cannot; the one before it runs on.
    pub fn swap(&self, who: Visitor, group: &str, source: Option<&str>) -> Result<Swapped, String> {
        let compiled = source.map(|source| self.sound(source)).transpose()?;
        let mut state = self.lock();
        let entry = state.find(group)?;
        self.permitted(entry, who)?;
        entry.generation += 1;
        let swaps = match self.swaps(entry, group, compiled.as_ref()) {
            Ok(swaps) => swaps,
            Err(why) => {
                entry.generation -= 1;
                return Err(why);
            }
        };
        entry.program = compiled;
        let started = Instant::now();
        let orders = self.tracks_of(entry).zip(swaps).map(|(track, swap)| {
            let (done, told) = channel();
            track.orders.leave(Order::Swap { group: entry.id, swap, done });
            told
        });
        wait(orders.collect());
        Ok(Swapped { generation: entry.generation, took: started.elapsed() })
    }

    /// All groups, or one, with their books.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn view(&self, only: Option<&str>) -> Result<Vec<GroupView>, String> {
        let mut state = self.lock();
        if let Some(group) = only {
            state.find(group)?;
        }
        let books = self.books();
        let wanted = state.groups.iter().filter(|(name, _)| only.is_none_or(|only| only == name.as_str()));
        Ok(wanted.map(|(name, entry)| entry.view(name, &books)).collect())
    }

    /// The books of all groups on all queues, as of now.
    fn books(&self) -> Vec<Books> {
        let asked: Vec<Receiver<Vec<Books>>> = self
            .tracks
            .iter()
            .map(|track| {
                let (reply, answer) = channel();
                track.orders.leave(Order::Tell(reply));
                answer
            })
            .collect();
        let answers = self.tracks.iter().zip(asked).map(|(track, answer)| {
            answer.recv_timeout(PATIENCE).ok().or_else(|| track.orders.last_books()).unwrap_or_default()
        });
        answers.flatten().collect()
    }

    fn sound(&self, source: &str) -> Result<Arc<dyn Compiled>, String> {
        let link_type = self.tracks.first().map_or(1, |t| t.offer.shape.link_type);
        let compiled = self.outside.compile(source, link_type)?;
        if compiled.wants_kernel() {
            self.outside.kernel()?;
        }
        Ok(compiled)
    }

    /// What each queue is to exchange, its new ports open.
    fn swaps(&self, entry: &mut Entry, group: &str, to: Option<&Arc<dyn Compiled>>) -> Result<Vec<Swap>, String> {
        let names = to.map(|c| c.ports().to_vec()).unwrap_or_default();
        let counters = to.map(|c| c.counters().to_vec()).unwrap_or_default();
        let mut swaps: Vec<Swap> = self
            .tracks_of(entry)
            .map(|_| Swap {
                program: to.map(|c| c.instance()),
                generation: entry.generation,
                ports: Vec::new(),
                names: names.clone(),
                counters: counters.clone(),
            })
            .collect();
        let mut opened = Vec::new();
        for name in names.iter().collect::<BTreeSet<_>>() {
            if entry.ports.contains_key(name) {
                continue;
            }
            let mut branches = Vec::new();
            for (track, swap) in self.tracks_of(entry).zip(&mut swaps) {
                let offer = &track.offer;
                let label = format!("{}/{group}>{name}", offer.shape.name);
                let (writer, branch) = Branch::grow(&offer.memory, &offer.shape, &label, BRANCH_DESCS)
                    .map_err(|e| format!("no memory for a branch to port {name}: {e}"))?;
                swap.ports.push(Port { name: name.clone(), branch: Some(writer) });
                branches.push(branch);
            }
            opened.push((name.clone(), self.outside.open_port(name, &branches)?));
        }
        entry.ports.extend(opened);
        Ok(swaps)
    }

    /// Tells the dispatchers of a change in this place, and waits until it is in force.
    fn change(&self, entry: &Entry, place: u8) {
        let orders = self.tracks_of(entry).map(|track| {
            let (done, told) = channel();
            let membership = Arc::clone(&entry.membership);
            track.orders.leave(Order::Change { group: entry.id, membership, place, branch: None, done });
            told
        });
        wait(orders.collect());
    }

    fn end(&self, entry: &Entry) {
        for track in self.tracks_of(entry) {
            // Nobody asks for the last books of a group that has gone.
            track.orders.leave(Order::Remove(entry.id, channel().0));
        }
    }

    fn tracks_of<'a>(&'a self, entry: &Entry) -> impl Iterator<Item = &'a Track> + use<'a> {
        let queues = entry.queues.clone();
        self.tracks.iter().filter(move |t| queues.as_ref().is_none_or(|q| q.contains(&t.queue)))
    }

    fn permitted(&self, entry: &Entry, who: Visitor) -> Result<(), String> {
        let (owner, policy) = (entry.owner, entry.policy);
        let may = match policy {
            Policy::Private => owner.pid == who.pid && owner.uid == who.uid,
            Policy::Restricted => owner.uid == who.uid || who.uid == 0 || who.uid == self.own_uid,
            Policy::Shared => true,
        };
        match (may, policy) {
            (true, _) => Ok(()),
            (_, Policy::Private) => {
                Err(format!("this group is private to process {}; create one of your own", owner.pid))
            }
            _ => Err(format!("this group is restricted to user {}; its owner can create it as shared", owner.uid)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves plain data behind, which is as good as before.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, group: &str) -> Result<&mut Entry, String> {
        let known: Vec<&String> = self.groups.keys().collect();
        let known = match known.as_slice() {
            [] => "there are none; `netgrain group create` makes one".to_owned(),
            names => format!("there are {}", names.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ")),
        };
        self.groups.get_mut(group).ok_or_else(|| format!("there is no group {group:?}: {known}"))
    }
}

impl Seat {
    fn seen(&self) -> Seen {
        self.branches.iter().map(Branch::reported).fold(Seen::default(), |sum, (seen, late)| Seen {
            // Strangers wrote these: any number may stand there.
            seen: sum.seen.saturating_add(seen),
            late: sum.late.saturating_add(late),
        })
    }
}

impl Entry {
    fn view(&self, name: &str, books: &[Books]) -> GroupView {
        let (mut counts, mut counters) = (Counts::default(), Vec::<(String, u64)>::new());
        let mut fill = vec![0.0; crate::steer::MEMBERS];
        for book in books.iter().filter(|b| b.id == self.id) {
            counts += &book.counts;
            fill.iter_mut().zip(&book.fill).for_each(|(a, b)| *a = f64::max(*a, *b));
            for (name, n) in &book.counters {
                match counters.iter_mut().find(|(known, _)| known == name) {
                    Some((_, sum)) => *sum += n,
                    None => counters.push((name.clone(), *n)),
                }
            }
        }
        let members = self.seats.iter().filter_map(|(place, seat)| {
            let member = self.membership.member(*place)?;
            Some(MemberView {
                place: *place,
                name: seat.name.clone(),
                pid: seat.who.pid,
                classes: member.classes,
                weight: member.weight,
                filter: seat.filter.clone(),
                seen: seat.seen(),
                fill: fill[usize::from(*place)],
            })
        });
        GroupView {
            name: name.to_owned(),
            policy: self.policy,
            owner: self.owner,
            steering: self.steering,
            queues: self.queues.clone(),
            program: self.program.as_ref().map(|p| p.text().to_owned()),
            generation: self.generation,
            ports: self.ports.iter().map(|(name, c)| (name.clone(), c.sent(), c.failed())).collect(),
            members: members.collect(),
            departed: self.departed,
            counts,
            counters,
        }
    }
}

/// Until all of them have carried out what they were told; one that has ended has nothing to carry out.
fn wait(orders: Vec<Receiver<()>>) {
    let deadline = Instant::now() + PATIENCE;
    for told in orders {
        let _ = told.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
        return Err(format!(
            "{name:?} is no name for a group: write letters, digits, - _ . (at most {NAME_MAX} bytes)"
        ));
    }
    Ok(())
}

fn check_weight(weight: u8) -> Result<(), String> {
    if (1..=WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    Err(format!("a weight of {weight}; write 1 to {WEIGHT_MAX}"))
}

fn member_of(classes: &[String], weight: u8, filter: Option<&str>) -> Result<Member, String> {
    check_weight(weight)?;
    let mut bits = 0u64;
    for text in classes {
        let class = class::parse(text)
            .ok_or_else(|| format!("{text:?} is no class: write default, user, control or a number from 0 to 62"))?;
        if class == class::MANAGEMENT {
            return Err("management never receives: a connection that joins nothing can do all it needs".into());
        }
        bits |= 1 << class;
    }
    let filter = filter.map(|text| Filter::parse(text).map_err(|e| format!("filter: {e}"))).transpose()?;
    Ok(Member { classes: if bits == 0 { 1 << class::DEFAULT } else { bits }, weight, filter: filter.map(Arc::new) })
}
