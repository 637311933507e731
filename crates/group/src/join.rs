//! Membership changes: processes that join through the control socket, and sinks that the engine serves itself.
//!
//! An operation fails before any state changes: branches are allocated and sinks opened first, then the dispatchers get
//! the command.

use crate::dispatch::DispatcherCommand;
use crate::engine_services::PacketSink;
use crate::entry::{ClientIdentity, Entry, MemberSlot};
use crate::limits::{BRANCH_DESCS, ResourceUse, branch_bytes};
use crate::members::Member;
use crate::registry::{Registry, State};
use crate::request::{FILTER_MAX, NAME_MAX, Request, encoded_bytes};
use crate::steering::{MEMBERS, WEIGHT_MAX};
use crate::unresponsive::UnresponsiveQueue;
use crate::verdict::class;
use ring::{BRANCH_DESCS_MAX, BRANCH_DESCS_MIN, Branch, BranchWriter};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// A new membership.
#[derive(Debug)]
pub struct JoinResult {
    /// The member slot.
    pub slot: u8,
    /// The generation of the running program.
    pub generation: u64,
    /// One branch for each queue.
    pub branches: Vec<Branch>,
    /// Queues whose dispatchers have not added the member yet.
    pub unresponsive: Vec<UnresponsiveQueue>,
}

impl Registry {
    /// Adds a process as a member.
    ///
    /// # Errors
    /// A text that says what is wrong with the request.
    pub fn join(&self, who: ClientIdentity, request: &Request) -> Result<JoinResult, String> {
        let Request::Join { group, classes, weight, filter, descs, name } = request else {
            return Err("not a request to join a group".into());
        };
        let sources = self.sources_of(group)?;
        let link_type = self.link_type(&sources)?;
        let member = self.member(classes, *weight, filter.as_deref(), link_type)?;
        check_text(name)?;
        let descs = if *descs == 0 { BRANCH_DESCS } else { *descs };
        if !(BRANCH_DESCS_MIN..=BRANCH_DESCS_MAX).contains(&descs) {
            return Err(format!("{descs} descriptors; a branch has {BRANCH_DESCS_MIN} to {BRANCH_DESCS_MAX}"));
        }
        let mut state = self.lock();
        self.permitted(state.find(group)?, who)?;
        state.find(group)?.is_of(&sources)?;
        self.may_sit(&mut state, who, group, descs)?;
        let entry = state.find(group)?;
        let place = free(entry, group)?;
        let (writers, branches) = self.grow(entry, group, descs)?;
        let name = if name.is_empty() { format!("pid {}", who.pid) } else { name.clone() };
        let seat = MemberSlot { name, who, branches: branches.clone(), sink: None };
        let silent = self.sit(entry, place, member, seat, writers);
        Ok(JoinResult { slot: place, generation: entry.generation, branches, unresponsive: silent })
    }

    /// Adds a member whose packets the engine itself writes to an interface or a file. It stays until it is detached.
    ///
    /// # Errors
    /// A text that says what is wrong with the request, or why the sink cannot be opened.
    pub fn attach(&self, who: ClientIdentity, request: &Request) -> Result<u8, String> {
        let Request::Attach { group, port, file, max_bytes: most, classes, weight, filter } = request else {
            return Err("not a request to attach an interface or a file".into());
        };
        let egress = match (port, file) {
            (Some(name), None) => {
                self.may_send(who, name)?;
                PacketSink::Port(name.clone())
            }
            // The engine writes files with its own privileges, so an unprivileged user must not name the path.
            (None, Some(_)) if who.uid != 0 && who.uid != self.own_uid => {
                return Err(format!(
                    "only root and user {} may have the engine write files; join, and write it",
                    self.own_uid
                ));
            }
            (None, Some(path)) => PacketSink::File { path: path.clone(), max_bytes: *most },
            _ => return Err("name either an interface or a file".into()),
        };
        let sources = self.sources_of(group)?;
        let link_type = self.link_type(&sources)?;
        let member = self.member(classes, *weight, filter.as_deref(), link_type)?;
        let mut state = self.lock();
        self.permitted(state.find(group)?, who)?;
        state.find(group)?.is_of(&sources)?;
        self.may_sit(&mut state, who, group, BRANCH_DESCS)?;
        let entry = state.find(group)?;
        let place = free(entry, group)?;
        let (writers, branches) = self.grow(entry, group, BRANCH_DESCS)?;
        let from: Vec<_> = self.tracks_of(entry).map(|track| &track.source).zip(&branches).collect();
        let counts = self.outside.open(&egress, &from, false)?;
        let who = ClientIdentity { connection: 0, ..who };
        let seat = MemberSlot { name: egress.to_string(), who, branches, sink: Some((egress, counts)) };
        self.sit(entry, place, member, seat, writers);
        Ok(place)
    }

    /// Removes a sink; its thread still writes the packets that are in its branches.
    ///
    /// # Errors
    /// The slot has no member, or its member is a process.
    pub fn detach(&self, who: ClientIdentity, group: &str, place: u8) -> Result<(), String> {
        let mut state = self.lock();
        let entry = state.find(group)?;
        self.permitted(entry, who)?;
        match entry.slots.get(&place) {
            Some(MemberSlot { sink: Some(_), .. }) => {}
            Some(_) => return Err(format!("place {place} of group {group:?} is a process; it leaves when it ends")),
            None => return Err(format!("nobody sits in place {place} of group {group:?}")),
        }
        entry.vacate(place);
        self.change(entry, place);
        Ok(())
    }

    /// Changes a member's weight in steering.
    ///
    /// # Errors
    /// A text that says what is wrong with the request.
    pub fn set_weight(&self, who: ClientIdentity, group: &str, place: u8, weight: u8) -> Result<(), String> {
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

    /// Ends delivery to a connection's members: their branches end after the packets delivered so far. The member slots
    /// stay occupied until the connection closes, so that the reader counters of the accounting are the final ones.
    pub fn leave(&self, who: ClientIdentity) {
        let mut state = self.lock();
        for entry in state.groups.values_mut() {
            let seats = entry.slots.iter().filter(|(_, s)| s.who.connection == who.connection && s.sink.is_none());
            for place in seats.map(|(place, _)| *place).collect::<Vec<_>>() {
                entry.membership = Arc::new(entry.membership.with(place, None));
                self.change(entry, place);
            }
        }
    }

    /// Removes the members of a closed connection, and the groups that end with it.
    pub fn farewell(&self, connection: u64) {
        let mut state = self.lock();
        for entry in state.groups.values_mut() {
            let left: Vec<u8> =
                entry.slots.iter().filter(|(_, s)| s.who.connection == connection).map(|(place, _)| *place).collect();
            for place in left {
                entry.vacate(place);
                self.change(entry, place);
            }
        }
        state.groups.retain(|_, entry| {
            let ends = entry.ephemeral && entry.owner.connection == connection;
            if ends {
                self.end(entry);
            }
            !ends
        });
    }

    /// Checks the limits for one more member of this client.
    fn may_sit(&self, state: &mut State, who: ClientIdentity, group: &str, descs: u64) -> Result<(), String> {
        let branches = self.tracks_of(state.find(group)?).count();
        let bytes = branches as u64 * branch_bytes(descs);
        self.admit(state, who, None, ResourceUse { groups: 0, branches, bytes })
    }

    /// Allocates a branch on each queue of the group.
    fn grow(&self, entry: &Entry, group: &str, descs: u64) -> Result<(Vec<BranchWriter>, Vec<Branch>), String> {
        let (mut writers, mut branches) = (Vec::new(), Vec::new());
        for track in self.tracks_of(entry) {
            let offer = &track.offer;
            let label = format!("{}/{group}", offer.shape.name);
            let (writer, branch) = Branch::grow(&offer.memory, &offer.shape, &label, descs)
                .map_err(|e| format!("no memory for a branch of {descs} descriptors: {e}"))?;
            writers.push(writer);
            branches.push(branch);
        }
        Ok((writers, branches))
    }

    /// Adds the member on all dispatchers of the group from their next batch on; returns the queues that did not
    /// respond.
    fn sit(
        &self,
        entry: &mut Entry,
        place: u8,
        member: Member,
        seat: MemberSlot,
        writers: Vec<BranchWriter>,
    ) -> Vec<UnresponsiveQueue> {
        entry.membership = Arc::new(entry.membership.with(place, Some(member)));
        let orders = self.tracks_of(entry).zip(writers).map(|(track, writer)| {
            let (done, reported) = channel();
            let membership = Arc::clone(&entry.membership);
            track.commands.leave(DispatcherCommand::Change {
                group: entry.id,
                membership,
                slot: place,
                branch: Some(writer),
                done,
            });
            (track, reported)
        });
        let (_, silent) = self.wait(orders.collect());
        entry.slots.insert(place, seat);
        silent
    }

    fn member(&self, classes: &[String], weight: u8, filter: Option<&str>, link_type: u32) -> Result<Member, String> {
        check_weight(weight)?;
        for text in filter.iter() {
            let bytes = encoded_bytes(text);
            if bytes > FILTER_MAX {
                return Err(format!("a filter of {bytes} bytes as it is sent; at most {FILTER_MAX}"));
            }
        }
        let mut bits = 0u64;
        for text in classes {
            let class = class::parse(text).ok_or_else(|| {
                format!("{text:?} is no class: write default, user, control or a number from 0 to 62")
            })?;
            if class == class::MANAGEMENT {
                return Err("management never receives: a connection that joins nothing can do all it needs".into());
            }
            bits |= 1 << class;
        }
        let member_filter = filter.map(|text| self.outside.compile_filter(text, link_type)).transpose()?;
        Ok(Member { classes: if bits == 0 { 1 << class::DEFAULT } else { bits }, weight, filter: member_filter })
    }
}

/// Returns the lowest free slot. A member that is leaving still occupies its slot.
fn free(entry: &Entry, group: &str) -> Result<u8, String> {
    let mut places = 0..MEMBERS as u8;
    let free = places.find(|place| entry.membership.member(*place).is_none() && !entry.slots.contains_key(place));
    free.ok_or_else(|| format!("group {group:?} has {MEMBERS} members already"))
}

fn check_text(name: &str) -> Result<(), String> {
    if name.len() > NAME_MAX {
        return Err(format!("a name of {} bytes; at most {NAME_MAX}", name.len()));
    }
    // Other users' terminals print this name, so it must not contain control characters.
    if name.chars().any(char::is_control) {
        return Err("a name with control characters; write letters and digits".into());
    }
    Ok(())
}

fn check_weight(weight: u8) -> Result<(), String> {
    if (1..=WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    Err(format!("a weight of {weight}; write 1 to {WEIGHT_MAX}"))
}
