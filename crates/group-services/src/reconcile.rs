//! Creates the groups of the configuration before the first packet, and changes them when the configuration changes.

use crate::error::GroupPlanError;
use group::{LoadResult, PacketSink, Policy, Registry, Request};
use std::path::PathBuf;

/// A group of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// The group's name.
    pub name: String,
    /// The program; without a program all packets are copied.
    pub program: Option<String>,
    /// The accounts that may join and change the group.
    pub policy: Policy,
    /// True if members are selected as in PFQ (`fold`), not by rendezvous hashing.
    pub fold: bool,
    /// The interfaces whose packets the group gets; `None` for all interfaces of the engine.
    pub ports: Option<Vec<String>>,
    /// The sinks of the group, which the engine itself serves.
    pub members: Vec<MemberPlan>,
}

/// A member of a group that the engine itself serves: a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlan {
    /// The sink of its packets.
    pub to: PacketSink,
    /// Classes by name or number; empty for the default class.
    pub classes: Vec<String>,
    /// The weight of the member in steering: its share of the packets in proportion to the other members.
    pub weight: u8,
}

impl GroupPlan {
    fn create(&self) -> Request {
        Request::Create {
            group: self.name.clone(),
            program: self.program.clone(),
            policy: self.policy,
            fold: self.fold,
            ports: self.ports.clone(),
            queues: None,
            ephemeral: false,
        }
    }

    fn attach(&self, member: &MemberPlan) -> Request {
        let (port, file, max_bytes): (_, Option<PathBuf>, _) = match &member.to {
            PacketSink::Port(name) => (Some(name.clone()), None, 0),
            PacketSink::File { path, max_bytes } => (None, Some(path.clone()), *max_bytes),
        };
        let (classes, weight, group) = (member.classes.clone(), member.weight, self.name.clone());
        Request::Attach { group, port, file, max_bytes, classes, weight, filter: None }
    }

    fn error(&self, reason: impl ToString) -> GroupPlanError {
        GroupPlanError { group: self.name.clone(), reason: reason.to_string() }
    }
}

/// A message about a successful change or a failure.
pub type ReconcileMessage = Result<String, GroupPlanError>;

/// Creates the groups, without members, before the dispatchers start. Returns the groups that were created.
pub fn create(registry: &Registry, plans: &[GroupPlan], messages: &mut Vec<ReconcileMessage>) -> Vec<GroupPlan> {
    let mut created = Vec::new();
    for plan in plans {
        match registry.create_first(registry.engine(), &plan.create()) {
            Ok(_) => created.push(plan.clone()),
            Err(reason) => messages.push(Err(plan.error(reason))),
        }
    }
    created
}

/// Attaches the planned members. Returns the plans with those members that were attached.
pub fn attach(registry: &Registry, plans: Vec<GroupPlan>, messages: &mut Vec<ReconcileMessage>) -> Vec<GroupPlan> {
    let attached = |mut plan: GroupPlan| {
        let wanted = std::mem::take(&mut plan.members);
        attach_missing(registry, &mut plan, &wanted, messages);
        plan
    };
    plans.into_iter().map(attached).collect()
}

/// Attaches those members that are not in the plan yet, adds them to the plan, and returns their number.
fn attach_missing(
    registry: &Registry,
    plan: &mut GroupPlan,
    wanted: &[MemberPlan],
    messages: &mut Vec<ReconcileMessage>,
) -> usize {
    let mut attached = 0;
    for member in wanted {
        if plan.members.contains(member) {
            continue;
        }
        let (to, renamed) = unused_file(&member.to);
        match registry.attach(registry.engine(), &plan.attach(&MemberPlan { to, ..member.clone() })) {
            Ok(_) => {
                messages.extend(renamed.map(|text| Ok(format!("group {}: {text}", plan.name))));
                plan.members.push(member.clone());
                attached += 1;
            }
            Err(reason) => messages.push(Err(plan.error(reason))),
        }
    }
    attached
}

/// Returns the sink. If the file of a sink already exists, the returned sink has the next free file name, so that
/// packets of an earlier run are not overwritten.
fn unused_file(to: &PacketSink) -> (PacketSink, Option<String>) {
    let PacketSink::File { path, max_bytes } = to else { return (to.clone(), None) };
    let numbered = |n: u32| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let end = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
        path.with_file_name(format!("{stem}-{n}{end}"))
    };
    if !path.exists() {
        return (to.clone(), None);
    }
    let free = (2..u32::MAX).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| path.clone());
    let text = format!("{} exists already, so packets are written to {}", path.display(), free.display());
    (PacketSink::File { path: free, max_bytes: *max_bytes }, Some(text))
}

/// Changes the groups from one plan to another. Returns messages about successes and failures, and the plan that is now
/// active. A change that failed is not part of the active plan, so the next change tries it again. An existing group
/// retains its policy, steering, interfaces and members.
pub fn change(registry: &Registry, from: &[GroupPlan], to: &[GroupPlan]) -> (Vec<ReconcileMessage>, Vec<GroupPlan>) {
    let engine = registry.engine();
    let (mut messages, mut active) = (Vec::new(), Vec::new());
    for old in from.iter().filter(|old| !to.iter().any(|new| new.name == old.name)) {
        messages.push(match registry.delete(engine, &old.name) {
            Ok(()) => Ok(format!("group {} has ended", old.name)),
            Err(reason) => Err(old.error(reason)),
        });
    }
    for new in to {
        // A client may have deleted the group since the last change.
        let existing = from.iter().find(|old| old.name == new.name && registry.program(engine, &old.name).is_ok());
        let Some(old) = existing else {
            match registry.create(engine, &new.create()) {
                Ok(loaded) => {
                    messages.push(Ok(format!("group {} created", new.name)));
                    messages.extend(unresponsive_queues(new, &loaded));
                    active.extend(attach(registry, vec![new.clone()], &mut messages));
                }
                Err(reason) => messages.push(Err(new.error(reason))),
            }
            continue;
        };
        let mut current = old.clone();
        if old.program != new.program {
            match registry.swap(engine, &new.name, new.program.as_deref()) {
                Ok(loaded) => {
                    current.program.clone_from(&new.program);
                    let transfer = loaded.state_transfer.as_ref().map(|text| format!("; {text}")).unwrap_or_default();
                    messages.push(Ok(format!("group {}: generation {} runs{transfer}", new.name, loaded.generation)));
                    messages.extend(unresponsive_queues(new, &loaded));
                }
                Err(reason) => messages.push(Err(new.error(reason))),
            }
        }
        // Attaches the members that could not be attached before.
        let attached = attach_missing(registry, &mut current, &new.members, &mut messages);
        if attached > 0 {
            messages.push(Ok(format!("group {}: members attached: {attached}", new.name)));
        }
        active.push(current);
    }
    (messages, active)
}

/// Returns messages about the queues that did not load the program.
fn unresponsive_queues(plan: &GroupPlan, loaded: &LoadResult) -> impl Iterator<Item = ReconcileMessage> {
    loaded.unresponsive.iter().map(|queue| Err(plan.error(queue)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::standalone_services;
    use group::{CommandQueue, Dispatcher, IngressInterface, Limits, RingHandle};
    use ring::{Config, OfferedRing, Producer};
    use std::sync::Arc;

    fn plan(name: &str, program: &str) -> GroupPlan {
        let (name, program) = (name.to_owned(), Some(program.to_owned()));
        GroupPlan { name, program, policy: Policy::Restricted, fold: false, ports: None, members: Vec::new() }
    }

    #[test]
    fn an_unresponsive_queue_is_reported_and_the_program_becomes_active() {
        let producer = Producer::new(Config { bytes: 16 << 20, ..Config::default() }).expect("memory");
        let (offer, commands) = (OfferedRing::of(&producer), Arc::<CommandQueue>::default());
        // The dispatcher ends before its ring ends.
        drop(Dispatcher::new(&offer, Arc::clone(&commands), true));
        let source = IngressInterface { name: "p0".into(), number: 0 };
        let registry = Registry::new(vec![RingHandle { source, queue: 0, commands, offer }], standalone_services(1), 0);
        let reported = "group a: queue 0 of p0: its dispatcher ended before its stream";
        let is_reported =
            |message: &ReconcileMessage| message.as_ref().is_err_and(|e| e.to_string().starts_with(reported));
        let (messages, active) = change(&registry, &[], &[plan("a", "main = ip")]);
        assert!(messages.len() == 2 && messages[0].is_ok() && is_reported(&messages[1]), "{messages:?}");
        let (messages, active) = change(&registry, &active, &[plan("a", "main = tcp")]);
        assert!(messages.len() == 2 && messages[0].is_ok() && is_reported(&messages[1]), "{messages:?}");
        assert_eq!(active, [plan("a", "main = tcp")]);
    }

    #[test]
    fn the_next_reload_tries_failed_changes_again() {
        let registry = Registry::new(Vec::new(), standalone_services(1), 0);
        let registry = registry.with_limits(Limits::here());
        let file = std::env::temp_dir().join(format!("netgrain-reconcile-{}", std::process::id()));
        let mut late = plan("late", "main = ip");
        late.members = vec![MemberPlan { to: PacketSink::Port("nosuch0".into()), classes: Vec::new(), weight: 1 }];
        let (good, bad) = (plan("a", "main = ip"), plan("b", "main = "));
        let wanted = [good.clone(), bad, late.clone()];
        let (messages, active) = change(&registry, &[], &wanted);
        let without = GroupPlan { members: Vec::new(), ..late.clone() };
        assert_eq!((messages.len(), &active), (4, &vec![good.clone(), without]), "{messages:?}");
        // With the same plan, existing groups are not changed, and the failed operations are tried again.
        let (messages, active) = change(&registry, &active, &wanted);
        let port = messages.get(1).and_then(|message| message.as_ref().err());
        assert!(
            messages.len() == 2 && port.is_some_and(|e| e.reason.contains("there is no interface nosuch0")),
            "{messages:?}"
        );
        // The cause of the failure is removed, so the next change succeeds.
        late.members[0].to = PacketSink::File { path: file.clone(), max_bytes: 1000 };
        let (messages, active) = change(&registry, &active, &[good.clone(), plan("b", "main = udp"), late.clone()]);
        let expected = ["group b created", "group late: members attached: 1"];
        assert_eq!(messages, expected.map(|text| Ok(text.to_owned())));
        assert_eq!(active.last(), Some(&late));
        let (messages, active) = change(&registry, &active, &[good.clone(), plan("b", "main = udp"), late]);
        assert_eq!(messages, [], "attached members are not attached again");
        let _ = std::fs::remove_file(file);
        // The first swap fails, and the second swap succeeds.
        let (messages, active) = change(&registry, &active, &[plan("a", "main = ")]);
        assert!(matches!(messages.last(), Some(Err(e)) if e.group == "a") && active == [good], "{messages:?}");
        let (messages, active) = change(&registry, &active, &[plan("a", "main = tcp")]);
        assert_eq!(
            (messages, active),
            (vec![Ok("group a: generation 2 runs".to_owned())], vec![plan("a", "main = tcp")])
        );
        registry.delete(registry.engine(), "a").expect("the group exists");
        let (messages, _) = change(&registry, &[plan("a", "main = tcp")], &[plan("a", "main = tcp")]);
        assert_eq!(messages, [Ok("group a created".to_owned())], "a client had deleted the group");
    }
}
