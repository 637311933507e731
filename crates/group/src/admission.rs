//! The checks of requests against the [limits](crate::limits).
//!
//! Invariant: each check sums the use from the groups and member slots again. No separate total exists that could
//! differ.

use crate::entry::{ClientIdentity, Entry};
use crate::limits::{BRANCH_DESCS, ResourceUse, branch_bytes, mib};
use crate::registry::{Registry, State};
use crate::verdict::Compiled;
use std::sync::Arc;

impl Registry {
    /// True for users other than root and the engine's own user.
    pub(crate) fn is_unprivileged(&self, uid: u32) -> bool {
        uid != 0 && uid != self.own_uid
    }

    /// Checks whether this client may hold `more`. The program of the group `but` does not count, because it is to be
    /// replaced.
    pub(crate) fn admit(
        &self,
        state: &State,
        client: ClientIdentity,
        but: Option<&str>,
        more: ResourceUse,
    ) -> Result<(), String> {
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
    ) -> Result<(), String> {
        let groups = usize::from(!state.groups.contains_key(name));
        let Some(program) = program else {
            return self.admit(state, client, Some(name), ResourceUse { groups, ..ResourceUse::default() });
        };
        program.ports().iter().try_for_each(|port| self.may_send(client, port))?;
        if program.wants_kernel()
            && self.is_unprivileged(client.uid)
            && self.rings_of(entry).any(|t| self.services.shuts_host_out(&t.source))
        {
            return Err(format!(
                "only root and user {} may pass packets of a dedicated interface to the host; remove `kernel` from the \
                 program",
                self.own_uid
            ));
        }
        let bytes = program.memory();
        if bytes > self.limits.program_bytes {
            return Err(format!(
                "the flow maps of the program need up to {} MiB, and the limit of a program is {} MiB; {}",
                mib(bytes),
                mib(self.limits.program_bytes),
                program.advice(self.limits.program_bytes)
            ));
        }
        // The interface to the host counts as an egress interface too.
        let ports = program.ports().len() + usize::from(program.wants_kernel());
        let more = of_program(ports * self.rings_of(entry).count(), Some(program));
        self.admit(state, client, Some(name), ResourceUse { groups, ..more })
    }

    /// Checks whether programs of this client may send packets through this interface.
    pub(crate) fn may_send(&self, client: ClientIdentity, port: &str) -> Result<(), String> {
        if !self.is_unprivileged(client.uid) || self.limits.ports.iter().any(|p| p == port) {
            return Ok(());
        }
        Err(format!(
            "user {} may not send through interface {port}, because the engine would send with its own privileges; the \
             user who starts the engine can permit it (`--allow-forward {port}`)",
            client.uid
        ))
    }
}

fn of_program(ports: usize, program: Option<&Arc<dyn Compiled>>) -> ResourceUse {
    let bytes = ports as u64 * branch_bytes(BRANCH_DESCS) + program.map_or(0, |p| p.memory());
    ResourceUse { groups: 0, branches: ports, bytes }
}
