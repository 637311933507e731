//! Groups of the configuration: created before the first packet and changed when the configuration changes.

use group::{LoadResult, PacketSink, Policy, Registry, Request};
use std::fmt;
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
    /// True for steering as in PFQ.
    pub fold: bool,
    /// The interfaces that the packets come from; `None` for all interfaces of the engine.
    pub ports: Option<Vec<String>>,
    /// The sinks that the engine serves for this group.
    pub members: Vec<MemberPlan>,
}

/// A member that the engine itself serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlan {
    /// The sink of its packets.
    pub to: PacketSink,
    /// Classes by name or number; empty for the default class.
    pub classes: Vec<String>,
    /// The member's share of steered packets.
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
        let (port, file, most): (_, Option<PathBuf>, _) = match &member.to {
            PacketSink::Port(name) => (Some(name.clone()), None, 0),
            PacketSink::File { path, max_bytes: most } => (None, Some(path.clone()), *most),
        };
        let (classes, weight, group) = (member.classes.clone(), member.weight, self.name.clone());
        Request::Attach { group, port, file, max_bytes: most, classes, weight, filter: None }
    }

    fn failed(&self, why: impl fmt::Display) -> String {
        format!("group {}: {why}", self.name)
    }
}

/// A message about a success or a failure.
pub type ReconcileMessages = Result<String, String>;

/// Creates the groups without members before the dispatchers start; returns the groups that were created.
pub fn create(registry: &Registry, plans: &[GroupPlan], said: &mut Vec<ReconcileMessages>) -> Vec<GroupPlan> {
    let mut there = Vec::new();
    for plan in plans {
        match registry.create_first(registry.engine(), &plan.create()) {
            Ok(_) => there.push(plan.clone()),
            Err(why) => said.push(Err(plan.failed(why))),
        }
    }
    there
}

/// Attaches the members that the engine serves; returns the plans with the attached members only.
pub fn attach(registry: &Registry, plans: Vec<GroupPlan>, said: &mut Vec<ReconcileMessages>) -> Vec<GroupPlan> {
    let sit = |mut plan: GroupPlan| {
        let wanted = std::mem::take(&mut plan.members);
        seat(registry, &mut plan, &wanted, said);
        plan
    };
    plans.into_iter().map(sit).collect()
}

/// Attaches those wanted members that are not attached yet, adds them to the plan and returns their number.
fn seat(registry: &Registry, plan: &mut GroupPlan, wanted: &[MemberPlan], said: &mut Vec<ReconcileMessages>) -> usize {
    let mut came = 0;
    for member in wanted {
        if plan.members.contains(member) {
            continue;
        }
        let (to, moved) = beside(&member.to);
        match registry.attach(registry.engine(), &plan.attach(&MemberPlan { to, ..member.clone() })) {
            Ok(_) => {
                said.extend(moved.map(|text| Ok(plan.failed(text))));
                plan.members.push(member.clone());
                came += 1;
            }
            Err(why) => said.push(Err(plan.failed(why))),
        }
    }
    came
}

/// Returns the sink, under the next free file name if the file already exists: packets of an earlier run are kept.
fn beside(to: &PacketSink) -> (PacketSink, Option<String>) {
    let PacketSink::File { path, max_bytes: most } = to else { return (to.clone(), None) };
    let numbered = |n: u32| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let end = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
        path.with_file_name(format!("{stem}-{n}{end}"))
    };
    if !path.exists() {
        return (to.clone(), None);
    }
    let free = (2..u32::MAX).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| path.clone());
    let text = format!("{} is there already, so packets go into {}", path.display(), free.display());
    (PacketSink::File { path: free, max_bytes: *most }, Some(text))
}

/// Changes the groups from one plan to another; returns messages about successes and failures, and the plan now in
/// force. A change that failed is not in force, so the next change tries it again. An existing group keeps its policy,
/// steering, interfaces and members.
pub fn change(registry: &Registry, from: &[GroupPlan], to: &[GroupPlan]) -> (Vec<ReconcileMessages>, Vec<GroupPlan>) {
    let engine = registry.engine();
    let (mut said, mut in_force) = (Vec::new(), Vec::new());
    for old in from.iter().filter(|old| !to.iter().any(|new| new.name == old.name)) {
        said.push(match registry.delete(engine, &old.name) {
            Ok(()) => Ok(format!("group {} has ended", old.name)),
            Err(why) => Err(old.failed(why)),
        });
    }
    for new in to {
        // A client may have deleted the group meanwhile.
        let there = from.iter().find(|old| old.name == new.name && registry.program(engine, &old.name).is_ok());
        let Some(old) = there else {
            match registry.create(engine, &new.create()) {
                Ok(loaded) => {
                    said.push(Ok(format!("group {} is there", new.name)));
                    said.extend(without(new, &loaded));
                    in_force.extend(attach(registry, vec![new.clone()], &mut said));
                }
                Err(why) => said.push(Err(new.failed(why))),
            }
            continue;
        };
        let mut now = old.clone();
        if old.program != new.program {
            let mut refusing = Vec::new();
            said.push(match registry.swap(engine, &new.name, new.program.as_deref()) {
                Ok(loaded) => {
                    now.program.clone_from(&new.program);
                    refusing.extend(without(new, &loaded));
                    let transfer = loaded.state_transfer.map(|text| format!("; {text}")).unwrap_or_default();
                    Ok(format!("group {}: generation {} runs{transfer}", new.name, loaded.generation))
                }
                Err(why) => Err(new.failed(why)),
            });
            said.extend(refusing);
        }
        // Members that could not be attached before.
        let came = seat(registry, &mut now, &new.members, &mut said);
        if came > 0 {
            said.push(Ok(format!("group {}: {came} more of its members are there", new.name)));
        }
        in_force.push(now);
    }
    (said, in_force)
}

/// Returns messages about the queues that did not take the program.
fn without(plan: &GroupPlan, loaded: &LoadResult) -> impl Iterator<Item = ReconcileMessages> {
    loaded.unresponsive.iter().map(|queue| Err(plan.failed(queue)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use group::{CommandQueue, Dispatcher, IngressInterface, Limits, RingHandle};
    use ring::{Config, OfferedRing, Producer};
    use std::sync::Arc;

    fn plan(name: &str, program: &str) -> GroupPlan {
        let (name, program) = (name.to_owned(), Some(program.to_owned()));
        GroupPlan { name, program, policy: Policy::Restricted, fold: false, ports: None, members: Vec::new() }
    }

    #[test]
    fn a_queue_that_does_not_take_a_program_is_told_of_and_the_program_is_in_force() {
        let producer = Producer::new(Config { bytes: 16 << 20, ..Config::default() }).expect("memory");
        let (offer, orders) = (OfferedRing::of(&producer), Arc::<CommandQueue>::default());
        // The dispatcher ends before its stream.
        drop(Dispatcher::new(&offer, Arc::clone(&orders), true));
        let source = IngressInterface { name: "p0".into(), number: 0 };
        let registry = Registry::new(
            vec![RingHandle { source, queue: 0, commands: orders, offer }],
            super::super::lent_to_groups(1),
            0,
        );
        let reported = "group a: queue 0 of p0: its dispatcher ended before its stream";
        let is_told = |said: &ReconcileMessages| said.as_ref().is_err_and(|why| why.starts_with(reported));
        let (said, force) = change(&registry, &[], &[plan("a", "main = ip")]);
        assert!(said.len() == 2 && said[0].is_ok() && is_told(&said[1]), "{said:?}");
        let (said, force) = change(&registry, &force, &[plan("a", "main = tcp")]);
        assert!(said.len() == 2 && said[0].is_ok() && is_told(&said[1]), "{said:?}");
        assert_eq!(force, [plan("a", "main = tcp")]);
    }

    #[test]
    fn what_a_reload_could_not_do_is_tried_by_the_next() {
        let registry = Registry::new(Vec::new(), super::super::lent_to_groups(1), 0);
        let registry = registry.with_limits(Limits::here());
        let file = std::env::temp_dir().join(format!("netgrain-settle-{}", std::process::id()));
        let mut late = plan("late", "main = ip");
        late.members = vec![MemberPlan { to: PacketSink::Port("nosuch0".into()), classes: Vec::new(), weight: 1 }];
        let (good, bad) = (plan("a", "main = ip"), plan("b", "main = "));
        let wanted = [good.clone(), bad, late.clone()];
        let (said, force) = change(&registry, &[], &wanted);
        let without = GroupPlan { members: Vec::new(), ..late.clone() };
        assert_eq!((said.len(), &force), (4, &vec![good.clone(), without]), "{said:?}");
        // With the same plan, existing groups are left alone and the others are tried again.
        let (said, force) = change(&registry, &force, &wanted);
        let port = said.get(1).and_then(|s| s.as_ref().err());
        assert!(said.len() == 2 && port.is_some_and(|why| why.contains("there is no interface nosuch0")), "{said:?}");
        // The cause of the failure is removed.
        late.members[0].to = PacketSink::File { path: file.clone(), max_bytes: 1000 };
        let (said, force) = change(&registry, &force, &[good.clone(), plan("b", "main = udp"), late.clone()]);
        let expected = ["group b is there", "group late: 1 more of its members are there"];
        assert_eq!(said, expected.map(|text| Ok(text.to_owned())));
        assert_eq!(force.last(), Some(&late));
        let (said, force) = change(&registry, &force, &[good.clone(), plan("b", "main = udp"), late]);
        assert_eq!(said, [], "who sits is not seated again");
        let _ = std::fs::remove_file(file);
        // A swap that fails, then a swap that succeeds.
        let (said, force) = change(&registry, &force, &[plan("a", "main = ")]);
        assert!(matches!(said.last(), Some(Err(why)) if why.starts_with("group a: ")) && force == [good], "{said:?}");
        let (said, force) = change(&registry, &force, &[plan("a", "main = tcp")]);
        assert_eq!((said, force), (vec![Ok("group a: generation 2 runs".to_owned())], vec![plan("a", "main = tcp")]));
        registry.delete(registry.engine(), "a").expect("it is there");
        let (said, _) = change(&registry, &[plan("a", "main = tcp")], &[plan("a", "main = tcp")]);
        assert_eq!(said, [Ok("group a is there".to_owned())], "somebody had deleted it");
    }
}
