//! Membership changes: processes that join through the control socket, and sinks that the engine serves itself.
//!
//! Each operation first allocates the branches and opens the sinks, and only then sends the command to the dispatchers.
//! So an operation that fails changes no state.

use crate::dispatch::DispatcherCommand;
use crate::engine_services::PacketSink;
use crate::entry::{ClientIdentity, Entry, MemberSlot};
use crate::error::{MemberError, PermissionError, RequestError};
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
    /// The request is not valid, not permitted, or exceeds a limit.
    pub fn join(&self, client: ClientIdentity, request: &Request) -> Result<JoinResult, RequestError> {
        let Request::Join { group, classes, weight, filter, descs, name } = request else {
            return Err(RequestError::Kind("a join"));
        };
        let sources = self.sources_of(group)?;
        let link_type = self.link_type(&sources)?;
        let member = self.member(classes, *weight, filter.as_deref(), link_type)?;
        check_text(name)?;
        let descs = if *descs == 0 { BRANCH_DESCS } else { *descs };
        if !(BRANCH_DESCS_MIN..=BRANCH_DESCS_MAX).contains(&descs) {
            return Err(MemberError::Descriptors(descs).into());
        }
        let mut state = self.lock();
        self.permitted(state.find(group)?, client)?;
        state.find(group)?.is_of(&sources)?;
        self.admit_member(&mut state, client, group, descs)?;
        let entry = state.find(group)?;
        let slot = lowest_free_slot(entry, group)?;
        let (writers, branches) = self.allocate_branches(entry, group, descs)?;
        let name = if name.is_empty() { format!("pid {}", client.pid) } else { name.clone() };
        let occupant = MemberSlot { name, client, branches: branches.clone(), sink: None };
        let unresponsive = self.add_member(entry, slot, member, occupant, writers);
        Ok(JoinResult { slot, generation: entry.generation, branches, unresponsive })
    }

    /// Adds a member whose packets the engine itself writes to an interface or a file, until the member is detached.
    ///
    /// # Errors
    /// As [`Registry::join`], or the sink cannot be opened.
    pub fn attach(&self, client: ClientIdentity, request: &Request) -> Result<u8, RequestError> {
        let Request::Attach { group, port, file, max_bytes: most, classes, weight, filter } = request else {
            return Err(RequestError::Kind("an attach"));
        };
        let egress = match (port, file) {
            (Some(name), None) => {
                self.may_send(client, name)?;
                PacketSink::Port(name.clone())
            }
            // The engine writes files with its own privileges, so an unprivileged user must not choose the path of a
            // file.
            (None, Some(_)) if client.uid != 0 && client.uid != self.own_uid => {
                return Err(PermissionError::File(self.own_uid).into());
            }
            (None, Some(path)) => PacketSink::File { path: path.clone(), max_bytes: *most },
            _ => return Err(RequestError::Sink),
        };
        let sources = self.sources_of(group)?;
        let link_type = self.link_type(&sources)?;
        let member = self.member(classes, *weight, filter.as_deref(), link_type)?;
        let mut state = self.lock();
        self.permitted(state.find(group)?, client)?;
        state.find(group)?.is_of(&sources)?;
        self.admit_member(&mut state, client, group, BRANCH_DESCS)?;
        let entry = state.find(group)?;
        let slot = lowest_free_slot(entry, group)?;
        let (writers, branches) = self.allocate_branches(entry, group, BRANCH_DESCS)?;
        let from: Vec<_> = self.rings_of(entry).map(|ring| &ring.source).zip(&branches).collect();
        let counts = self.services.open(&egress, &from, false)?;
        let client = ClientIdentity { connection: 0, ..client };
        let occupant = MemberSlot { name: egress.to_string(), client, branches, sink: Some((egress, counts)) };
        self.add_member(entry, slot, member, occupant, writers);
        Ok(slot)
    }

    /// Removes a sink from the group. The thread of the sink still writes the packets that are already in its branches.
    ///
    /// # Errors
    /// The slot has no member, or its member is a process.
    pub fn detach(&self, client: ClientIdentity, group: &str, slot: u8) -> Result<(), RequestError> {
        let mut state = self.lock();
        let entry = state.find(group)?;
        self.permitted(entry, client)?;
        match entry.slots.get(&slot) {
            Some(MemberSlot { sink: Some(_), .. }) => {}
            Some(_) => return Err(RequestError::Process { group: group.to_owned(), slot }),
            None => return Err(RequestError::NoMember { group: group.to_owned(), slot }),
        }
        entry.vacate(slot);
        self.change(entry, slot);
        Ok(())
    }

    /// Changes a member's weight in steering.
    ///
    /// # Errors
    /// The request is not valid, not permitted, or exceeds a limit.
    pub fn set_weight(&self, client: ClientIdentity, group: &str, slot: u8, weight: u8) -> Result<(), RequestError> {
        check_weight(weight)?;
        let mut state = self.lock();
        let entry = state.find(group)?;
        self.permitted(entry, client)?;
        let Some(member) = entry.membership.member(slot).cloned() else {
            return Err(RequestError::NoMember { group: group.to_owned(), slot });
        };
        entry.membership = Arc::new(entry.membership.with(slot, Some(Member { weight, ..member })));
        self.change(entry, slot);
        Ok(())
    }

    /// Ends the delivery of packets to the members of a connection. Their branches end after the packets delivered so
    /// far. The member slots stay occupied until the connection closes, so that the final accounting contains the last
    /// values of the reader counters.
    pub fn leave(&self, client: ClientIdentity) {
        let mut state = self.lock();
        for entry in state.groups.values_mut() {
            let occupied =
                entry.slots.iter().filter(|(_, s)| s.client.connection == client.connection && s.sink.is_none());
            for slot in occupied.map(|(slot, _)| *slot).collect::<Vec<_>>() {
                entry.membership = Arc::new(entry.membership.with(slot, None));
                self.change(entry, slot);
            }
        }
    }

    /// Removes the members of a closed connection, and deletes the groups that exist only as long as this connection.
    pub fn farewell(&self, connection: u64) {
        let mut state = self.lock();
        for entry in state.groups.values_mut() {
            let left: Vec<u8> =
                entry.slots.iter().filter(|(_, s)| s.client.connection == connection).map(|(slot, _)| *slot).collect();
            for slot in left {
                entry.vacate(slot);
                self.change(entry, slot);
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
    fn admit_member(
        &self,
        state: &mut State,
        client: ClientIdentity,
        group: &str,
        descs: u64,
    ) -> Result<(), RequestError> {
        let branches = self.rings_of(state.find(group)?).count();
        let bytes = branches as u64 * branch_bytes(descs);
        Ok(self.admit(state, client, None, ResourceUse { groups: 0, branches, bytes })?)
    }

    /// Allocates a branch on each queue of the group.
    fn allocate_branches(
        &self,
        entry: &Entry,
        group: &str,
        descs: u64,
    ) -> Result<(Vec<BranchWriter>, Vec<Branch>), RequestError> {
        let (mut writers, mut branches) = (Vec::new(), Vec::new());
        for ring in self.rings_of(entry) {
            let offer = &ring.offer;
            let label = format!("{}/{group}", offer.shape.name);
            let (writer, branch) = Branch::grow(&offer.memory, &offer.shape, &label, descs)
                .map_err(|error| RequestError::Branch { descs, error })?;
            writers.push(writer);
            branches.push(branch);
        }
        Ok((writers, branches))
    }

    /// Adds the member on all dispatchers of the group from their next batch on; returns the queues that did not
    /// respond.
    fn add_member(
        &self,
        entry: &mut Entry,
        slot: u8,
        member: Member,
        occupant: MemberSlot,
        writers: Vec<BranchWriter>,
    ) -> Vec<UnresponsiveQueue> {
        entry.membership = Arc::new(entry.membership.with(slot, Some(member)));
        let commands = self.rings_of(entry).zip(writers).map(|(ring, writer)| {
            let (done, reported) = channel();
            let membership = Arc::clone(&entry.membership);
            ring.commands.push(DispatcherCommand::Change {
                group: entry.id,
                membership,
                slot,
                branch: Some(writer),
                done,
            });
            (ring, reported)
        });
        let (_, unresponsive) = self.wait(commands.collect());
        entry.slots.insert(slot, occupant);
        unresponsive
    }

    fn member(
        &self,
        classes: &[String],
        weight: u8,
        filter: Option<&str>,
        link_type: u32,
    ) -> Result<Member, RequestError> {
        check_weight(weight)?;
        for text in filter.iter() {
            let bytes = encoded_bytes(text);
            if bytes > FILTER_MAX {
                return Err(MemberError::FilterLength(bytes).into());
            }
        }
        let mut bits = 0u64;
        for text in classes {
            let class = class::parse(text).ok_or_else(|| MemberError::Class(text.clone()))?;
            if class == class::MANAGEMENT {
                return Err(MemberError::ManagementClass.into());
            }
            bits |= 1 << class;
        }
        let member_filter = filter.map(|text| self.services.compile_filter(text, link_type)).transpose()?;
        Ok(Member { classes: if bits == 0 { 1 << class::DEFAULT } else { bits }, weight, filter: member_filter })
    }
}

/// Returns the lowest free slot. A member that is leaving still occupies its slot.
fn lowest_free_slot(entry: &Entry, group: &str) -> Result<u8, RequestError> {
    let mut slots = 0..MEMBERS as u8;
    let lowest = slots.find(|slot| entry.membership.member(*slot).is_none() && !entry.slots.contains_key(slot));
    lowest.ok_or_else(|| RequestError::Full(group.to_owned()))
}

fn check_text(name: &str) -> Result<(), MemberError> {
    if name.len() > NAME_MAX {
        return Err(MemberError::NameLength(name.len()));
    }
    // The name is printed on the terminals of other users, so it must not contain control characters.
    if name.chars().any(char::is_control) {
        return Err(MemberError::NameCharacters);
    }
    Ok(())
}

fn check_weight(weight: u8) -> Result<(), MemberError> {
    if (1..=WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    Err(MemberError::Weight(weight))
}
