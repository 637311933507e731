//! The checks of requests against the [limits](crate::limits).
//!
//! Invariant: each check computes the resources in use by a sum over all groups and member slots. The engine stores no
//! total, so no total can differ from the groups.

use crate::entry::{ClientIdentity, Entry};
use crate::error::{PermissionError, RequestError};
use crate::limits::{BRANCH_DESCS, LimitError, ResourceUse, branch_bytes, mib};
use crate::registry::{Registry, State};
use crate::verdict::Compiled;
use std::sync::Arc;

impl Registry {
    /// True for users other than root and the engine's own user.
    pub(crate) fn is_unprivileged(&self, uid: u32) -> bool {
        uid != 0 && uid != self.own_uid
    }

    /// Checks whether this client may use the additional resources `more`. The sum of the client's resources omits the
    /// program of the group `but`, because the request replaces that program.
    pub(crate) fn admit(
        &self,
        state: &State,
        client: ClientIdentity,
        but: Option<&str>,
        more: ResourceUse,
    ) -> Result<(), LimitError> {
        let mut held = [ResourceUse::default(); 3];
        let mut count = |uid: u32, part: ResourceUse| {
            let counts = [uid == client.uid, self.is_unprivileged(uid), true];
            held.iter_mut().zip(counts).filter(|(_, counts)| *counts).for_each(|(sum, _)| *sum += part);
        };
        for (name, entry) in &state.groups {
            count(entry.owner.uid, ResourceUse { groups: 1, ..ResourceUse::default() });
            for occupant in entry.slots.values() {
                let bytes = occupant.branches.iter().map(|b| branch_bytes(b.shape().descs)).sum();
                count(
                    occupant.client.uid,
                    ResourceUse { branches: occupant.branches.len(), bytes, ..ResourceUse::default() },
                );
            }
            if but != Some(name.as_str()) {
                let ports = entry.ports.values().flatten().map(|o| o.rings.len()).sum();
                count(entry.loader, of_program(ports, entry.program.as_ref()));
            }
        }
        self.limits.admit(self.is_unprivileged(client.uid), held, more)
    }

    /// Checks whether this client may load this program into this group, in place of the current program.
    pub(crate) fn may_load(
        &self,
        state: &State,
        client: ClientIdentity,
        (name, entry): (&str, &Entry),
        program: Option<&Arc<dyn Compiled>>,
    ) -> Result<(), RequestError> {
        let groups = usize::from(!state.groups.contains_key(name));
        let Some(program) = program else {
            self.admit(state, client, Some(name), ResourceUse { groups, ..ResourceUse::default() })?;
            return Ok(());
        };
        program.ports().iter().try_for_each(|port| self.may_send(client, port))?;
        if program.passes_to_host()
            && self.is_unprivileged(client.uid)
            && self.rings_of(entry).any(|t| self.services.is_dedicated(&t.source))
        {
            return Err(PermissionError::Host(self.own_uid).into());
        }
        let bytes = program.memory();
        if bytes > self.limits.program_bytes {
            let limit = self.limits.program_bytes;
            let (needed_mib, limit_mib, advice) = (mib(bytes), mib(limit), program.advice(limit));
            return Err(LimitError::ProgramMemory { needed_mib, limit_mib, advice }.into());
        }
        // The host interface counts as an egress interface too.
        let ports = program.ports().len() + usize::from(program.passes_to_host());
        let more = of_program(ports * self.rings_of(entry).count(), Some(program));
        Ok(self.admit(state, client, Some(name), ResourceUse { groups, ..more })?)
    }

    /// Checks whether programs of this client may send packets through this interface.
    pub(crate) fn may_send(&self, client: ClientIdentity, port: &str) -> Result<(), PermissionError> {
        if !self.is_unprivileged(client.uid) || self.limits.ports.iter().any(|p| p == port) {
            return Ok(());
        }
        Err(PermissionError::Forward { uid: client.uid, interface: port.to_owned() })
    }
}

fn of_program(ports: usize, program: Option<&Arc<dyn Compiled>>) -> ResourceUse {
    let bytes = ports as u64 * branch_bytes(BRANCH_DESCS) + program.map_or(0, |p| p.memory());
    ResourceUse { groups: 0, branches: ports, bytes }
}
