//! Groups that are planned: there before the first packet, changed when the plan is.

use crate::error::EngineError;
use group::{Outlet, Policy, Registry, Request};
use std::path::PathBuf;

/// A group that is there from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// Its name.
    pub name: String,
    /// Its program; without, everything is copied.
    pub program: Option<String>,
    /// Who may join and change it.
    pub policy: Policy,
    /// Steer as PFQ did.
    pub fold: bool,
    /// Where the engine itself puts packets of it.
    pub members: Vec<MemberPlan>,
}

/// A member that the engine empties itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlan {
    /// Where its packets go.
    pub to: Outlet,
    /// Classes by name or number; none is the default one.
    pub classes: Vec<String>,
    /// Its part of what is steered.
    pub weight: u8,
}

impl GroupPlan {
    fn create(&self) -> Request {
        Request::Create {
            group: self.name.clone(),
            program: self.program.clone(),
            policy: self.policy,
            fold: self.fold,
            queues: None,
            brief: false,
        }
    }

    fn attach(&self, member: &MemberPlan) -> Request {
        let (port, file, most): (_, Option<PathBuf>, _) = match &member.to {
            Outlet::Port(name) => (Some(name.clone()), None, 0),
            Outlet::File { path, most } => (None, Some(path.clone()), *most),
        };
        let (classes, weight, group) = (member.classes.clone(), member.weight, self.name.clone());
        Request::Attach { group, port, file, most, classes, weight, filter: None, bpf: None }
    }

    fn failed(&self, why: &str) -> String {
        format!("group {}: {why}", self.name)
    }
}

/// The groups, empty.
pub fn create(registry: &Registry, plans: &[GroupPlan]) -> Result<(), EngineError> {
    for plan in plans {
        let made = registry.create(registry.engine(), &plan.create());
        made.map_err(|why| EngineError::Group(plan.failed(&why)))?;
    }
    Ok(())
}

/// And those members that the engine empties.
pub fn attach(registry: &Registry, plans: &[GroupPlan]) -> Result<(), EngineError> {
    for plan in plans {
        for member in &plan.members {
            let sits = registry.attach(registry.engine(), &plan.attach(member));
            sits.map_err(|why| EngineError::Group(plan.failed(&why)))?;
        }
    }
    Ok(())
}

/// From one plan to another; says what it did, and what it could not do.
pub fn change(registry: &Registry, from: &[GroupPlan], to: &[GroupPlan]) -> Vec<String> {
    let engine = registry.engine();
    let mut said = Vec::new();
    for old in from.iter().filter(|old| !to.iter().any(|new| new.name == old.name)) {
        said.push(match registry.delete(engine, &old.name) {
            Ok(()) => format!("group {} has ended", old.name),
            Err(why) => old.failed(&why),
        });
    }
    for new in to {
        let Some(old) = from.iter().find(|old| old.name == new.name) else {
            let one = std::slice::from_ref(new);
            said.push(match create(registry, one).and_then(|()| attach(registry, one)) {
                Ok(()) => format!("group {} is there", new.name),
                Err(e) => e.to_string(),
            });
            continue;
        };
        if old.program != new.program {
            said.push(match registry.swap(engine, &new.name, new.program.as_deref()) {
                Ok(loaded) => format!("group {}: generation {} runs", new.name, loaded.generation),
                Err(why) => new.failed(&why),
            });
        }
        if (old.policy, old.fold, &old.members) != (new.policy, new.fold, &new.members) {
            said.push(new.failed("policy, fold and members change with the next start"));
        }
    }
    said
}
