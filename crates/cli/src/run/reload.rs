//! SIGHUP: rereads the configuration and applies changes of collectors, retention, groups and packet programs. Other
//! changes are reported, and take effect only at the next start of the process. An invalid configuration changes
//! nothing.

use super::captures::{CapturedInterface, RunningCaptures};
use super::verb::Verb;
use super::{plan, sinks};
use crate::outcome::Failure;
use crate::{program, retain};
use config::{Config, Group, KEYS, TakesEffect, contradictions_now};
use engine::Retention;
use interface_program::ProgramPlan;

/// The name of group sections.
const GROUP: &str = "group";

/// Rereads the configuration and the packet program, applies the changes, and prints the result.
pub fn reload(verb: Verb<'_>, captures: &mut RunningCaptures) {
    if !verb.can_reload() {
        sys::say!("netgrain: {}", verb.no_reload());
        return;
    }
    match try_reload(verb, captures) {
        Ok(text) => sys::say!("netgrain: {text}"),
        Err(Failure::Said(text)) => sys::say!("netgrain: nothing is changed: {text}"),
        Err(Failure::ClosedPipe) => {}
    }
}

fn try_reload(verb: Verb<'_>, captures: &mut RunningCaptures) -> Result<String, Failure> {
    let fresh = verb.configuration()?;
    let mut difference = Difference::between(&captures.config, &fresh);
    // All steps that can fail are done before the first change of the running captures.
    let next = difference.applied(&captures.config, &fresh);
    if let Some(first) = contradictions_now(&next).first() {
        return Err(verb.refused(first));
    }
    let plans = captures.plans.iter();
    let retention: Vec<_> = plans.map(|p| plan::retention(&next, p)).collect::<Result<_, _>>()?;
    let program = plan::program(verb, &next)?;
    if program.is_some() != captures.plans.iter().any(|p| p.program.is_some()) {
        let text = "capture.program: a reload can swap the program, but neither add nor remove it";
        return Err(Failure::Said(text.into()));
    }
    let (stay, come): (Vec<_>, Vec<_>) =
        next.export.targets.iter().cloned().partition(|target| captures.config.export.targets.contains(target));
    let mut new_sinks = Vec::new();
    if difference.touches("export") {
        for interface in &captures.interfaces {
            new_sinks.push(sinks::exports(&come, &interface.label, interface.number, &captures.pace)?);
        }
    }
    // The kernel may reject a packet program, so the program is swapped before anything else is changed.
    let mut changes = match program {
        Some(program) => swap_programs(captures, &program)?,
        None => Vec::new(),
    };
    for (interface, sinks) in captures.interfaces.iter().zip(new_sinks) {
        interface.capture.replace_sinks(sinks::EXPORT, stay.clone(), sinks);
    }
    if difference.touches("packets") {
        for (interface, retention) in captures.interfaces.iter_mut().zip(retention) {
            // The old retention worker must release the interface before the new worker claims it.
            interface.retention = None;
            let json = verb.capture().json;
            let worker = |plan| Retention::start(plan, interface.capture.observer(), retain::teller(json));
            interface.retention = retention.map(worker).transpose()?;
        }
    }
    for retention in captures.interfaces.iter().filter_map(|i| i.row_retention.as_ref()) {
        retention.set(sinks::rules(&next));
    }
    difference.now.retain(|name| *name != GROUP);
    if reconcile_groups(captures, &next) {
        difference.now.push(GROUP);
    }
    captures.config = next;
    if verb.has_config_file() {
        changes.insert(0, difference.to_string());
    }
    Ok(changes.join("; "))
}

/// Swaps the packet program of each interface; returns one text per interface with the result.
fn swap_programs(captures: &RunningCaptures, program: &ProgramPlan) -> Result<Vec<String>, Failure> {
    let swap = |i: &CapturedInterface| program::swap(&i.capture, program).map(|text| format!("{}: {text}", i.label));
    captures.interfaces.iter().map(swap).collect()
}

/// Changes the running groups to those of the configuration; returns true if a group has changed. Each reload does
/// this, because the running groups differ from the configured groups if an earlier change failed.
fn reconcile_groups(captures: &RunningCaptures, next: &Config) -> bool {
    let groups = plan::groups(next, captures.interfaces.iter().map(|i| i.label.as_str()));
    let mut changed = false;
    for interface in &captures.interfaces {
        for result in interface.capture.reconcile_groups(&groups) {
            changed |= result.is_ok();
            let text = result.unwrap_or_else(|e| e.to_string());
            sys::say!("netgrain: {}: {text}", interface.label);
        }
    }
    changed
}

/// The keys with different values.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// The changed keys whose new values the reload applies.
    now: Vec<&'static str>,
    /// The changed keys whose new values apply only at the next start.
    later: Vec<String>,
}

impl Difference {
    fn between(old: &Config, new: &Config) -> Self {
        let mut difference = Self::default();
        for key in KEYS.iter().filter(|k| old.show(k.name) != new.show(k.name)) {
            match key.when {
                TakesEffect::Reload => difference.now.push(key.name),
                TakesEffect::Start => difference.later.push(key.name.into()),
            }
        }
        if old.group != settled(old, new) {
            difference.now.push(GROUP);
        }
        for (new, old) in new.group.iter().filter_map(|new| Some((new, existing(old, new)?))) {
            let waiting = old.waiting(new).into_iter();
            difference.later.extend(waiting.map(|key| format!("{key} of group {}", new.name)));
        }
        difference
    }

    fn touches(&self, section: &str) -> bool {
        self.now.iter().any(|name| name.split('.').next() == Some(section))
    }

    /// The configuration after the reload: the old configuration with those changes that apply without a restart.
    fn applied(&self, old: &Config, new: &Config) -> Config {
        let mut next = old.clone();
        if self.touches("capture") {
            next.capture.program.clone_from(&new.capture.program);
        }
        if self.touches("packets") {
            let (to, from) = (&mut next.packets, &new.packets);
            to.keep_free = from.keep_free;
            (to.max_size, to.max_age) = (from.max_size, from.max_age);
            to.archive.clone_from(&from.archive);
        }
        if self.touches("flow") {
            (next.flow.max_age, next.flow.max_size) = (new.flow.max_age, new.flow.max_size);
        }
        if self.touches("series") {
            (next.series.max_age, next.series.max_size) = (new.series.max_age, new.series.max_size);
        }
        if self.touches("export") {
            next.export.clone_from(&new.export);
        }
        next.group = settled(old, new);
        next
    }
}

/// The group of the same name in the old configuration.
fn existing<'a>(old: &'a Config, new: &Group) -> Option<&'a Group> {
    old.group.iter().find(|old| old.name == new.name)
}

/// The groups after the reload: new groups, and existing groups with the changes that are possible without a restart.
fn settled(old: &Config, new: &Config) -> Vec<Group> {
    let one = |new: &Group| existing(old, new).map_or_else(|| new.clone(), |old| old.settled(new));
    new.group.iter().map(one).collect()
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.now.as_slice() {
            [] => f.write_str("configuration reloaded: nothing changes")?,
            now => write!(f, "configuration reloaded: changed {}", now.join(", "))?,
        }
        match self.later.as_slice() {
            [] => Ok(()),
            later => write!(f, "; a restart is needed to change {}", later.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{JoinPolicy, RawValue, set, with};
    use group::Policy;

    #[test]
    fn keys_that_change_only_at_a_start_are_named_and_keep_their_values() {
        let old = Config::default();
        let new =
            with(&[("flow.idle_timeout", "7s"), ("flow.max_age", "90d"), ("capture.ring", "64MiB")]).expect("right");
        let difference = Difference::between(&old, &new);
        assert_eq!(difference.now, ["flow.max_age"]);
        assert_eq!(difference.later, ["capture.ring", "flow.idle_timeout"]);
        let next = difference.applied(&old, &new);
        assert_eq!((next.flow.idle_timeout, next.capture.ring), (old.flow.idle_timeout, old.capture.ring));
        assert_eq!(next.flow.max_age, new.flow.max_age);
    }

    #[test]
    fn an_existing_group_keeps_its_policy_until_the_next_start() {
        let group = |policy: Policy, program: &str| {
            let source = Some(program.to_owned());
            Group {
                name: "web".into(),
                policy: JoinPolicy(policy),
                program: source.clone(),
                source,
                ..Group::default()
            }
        };
        let of = |group: Group| Config { group: vec![group], ..Config::default() };
        let old = of(group(Policy::Restricted, "copy"));
        let new = of(group(Policy::Shared, "copy"));
        let difference = Difference::between(&old, &new);
        let text = "configuration reloaded: nothing changes; a restart is needed to change policy of group web";
        assert_eq!(difference.to_string(), text);
        assert_eq!(difference.applied(&old, &new), old);
        let new = of(group(Policy::Shared, "drop"));
        let difference = Difference::between(&old, &new);
        let text = "configuration reloaded: changed group; a restart is needed to change policy of group web";
        assert_eq!(difference.to_string(), text);
        assert_eq!(difference.applied(&old, &new), of(group(Policy::Restricted, "drop")));
        assert_eq!(
            Difference::between(&Config::default(), &new).later,
            Vec::<String>::new(),
            "all keys of a new group take effect"
        );
    }

    #[test]
    fn every_key_of_a_reload_changes() {
        let old = Config::default();
        for key in KEYS.iter().filter(|k| k.when == TakesEffect::Reload) {
            let values = ["7d", "9GiB", "/x"];
            let new = values.iter().map(|v| {
                let mut new = Config::default();
                set(&mut new, key.name, &RawValue::from_flag(v)).map(|()| new)
            });
            let new = new.filter_map(Result::ok).find(|new| *new != old).expect("a value that differs");
            let difference = Difference::between(&old, &new);
            assert_eq!(difference.now, [key.name]);
            assert_eq!(difference.applied(&old, &new), new, "{}", key.name);
        }
    }
}
