//! What makes capture fail, lose or lie on this machine, what it costs, and the command that mends it.
//!
//! [`examine`] looks and changes nothing. Each look is two steps: facts are gathered from the kernel (sysfs and procfs
//! through a root that can be a test's folder, ethtool, netlink), then a pure function judges them. Every [`Finding`]
//! belongs to a row of the one table of checks ([`Check::ALL`]), from which the documentation is made. [`mend`] changes
//! what findings offer to change, with the old value on disk before the new one is in force, and [`undo`] puts it back.
//!
//! What is worth looking at comes from the reports of others: HPCAP's bug diary (tags stripped, offloads), the kernel's
//! `af_xdp.rst` and `scaling.rst`, and the thesis's 34 to 47 % loss with memory of the wrong NUMA node.
#![forbid(unsafe_code)]

mod checks;
mod disk;
mod finding;
mod fix;
mod kernel;
mod netns;
mod port;
mod processor;
mod setting;
mod time;
mod trial;
mod undo;

pub use checks::{Check, Cost};
pub use finding::{Finding, State, Subject};
pub use fix::{FixResult, Step, apply, steps};
pub use netns::Netns;
pub use setting::{Change, Setting};
pub use undo::{Journal, JournalError, undo};

use capture::SourceError;
use std::path::PathBuf;
use sys::netlink::{Link, Netlink};
use sys::sysfs::Tree;

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// These ports; none means every physical one, of which nothing is offered to be changed.
    pub ports: Vec<String>,
    /// A store's folder, which is written to for a moment.
    pub store: Option<PathBuf>,
    /// Only these checks, by name; none means all.
    pub only: Vec<String>,
    /// Bytes of all rings together, as the recorder would make them.
    pub ring: u64,
    /// Bytes of one file, as the recorder would allocate them.
    pub segment: u64,
    /// Ports are taken for capture alone, although the host uses them.
    pub dedicated: bool,
    /// Also capture a few frames on a private pair of ports.
    pub trial: bool,
}

impl Request {
    /// Whether any of these checks is asked for.
    fn wants(&self, checks: &[&Check]) -> bool {
        self.only.is_empty() || checks.iter().any(|c| self.only.iter().any(|o| o == c.name))
    }
}

/// Looks at everything that was asked for: ports first, then the machine, then the store. Findings come in the order of
/// the table.
///
/// # Errors
/// When a port that was named is not there, or the kernel does not tell of its ports at all. What it refuses to tell in
/// particular is a finding of unknown state.
pub fn examine(question: &Request, tree: &Tree) -> Result<Vec<Finding>, SourceError> {
    let mut findings = Vec::new();
    let mut fastest = None;
    let of_ports: Vec<&Check> = Check::ALL.iter().copied().filter(|c| c.about == checks::CheckSubject::Port).collect();
    if question.wants(&of_ports) || (question.store.is_some() && question.wants(&[&checks::WRITE_SPEED])) {
        for name in ports(question)? {
            let facts = port::Facts::gather(&name, question.dedicated, tree)?;
            fastest = fastest.max(facts.speed.map(|s| s.megabits));
            findings.extend(port::judge(&facts).into_iter().map(|f| offered(f, question)));
        }
    }
    findings.extend(kernel::judge(&kernel::Facts::gather(tree), question));
    findings.extend(processor::judge(&processor::Facts::gather(tree)));
    findings.extend(time::judge(&time::Facts::gather(tree)));
    if question.trial {
        findings.push(trial::run());
    }
    if let Some(store) = &question.store {
        findings.extend(disk::examine(store, question, fastest, tree));
    }
    findings.retain(|f| question.wants(&[f.check]));
    Ok(findings)
}

/// What is found of a port offers a change only where the port was named. Nobody who lets the machine be mended means
/// the port that they are logged in through, whose driver may start it again.
fn offered(mut finding: Finding, question: &Request) -> Finding {
    if question.ports.is_empty() {
        finding.changes.clear();
    }
    finding
}

/// The ports to look at: those named, or every one with a card behind it.
fn ports(question: &Request) -> Result<Vec<String>, SourceError> {
    if !question.ports.is_empty() {
        return Ok(question.ports.clone());
    }
    let links = Netlink::route().and_then(|mut n| n.links()).map_err(|error| SourceError::System {
        name: "doctor".to_owned(),
        what: "ask the kernel for its interfaces",
        error,
        advice: String::new(),
    })?;
    let physical = |l: &Link| l.parent_device.is_some() && !l.is_loopback();
    Ok(links.into_iter().filter(physical).map(|l| l.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_nobody_named_is_looked_at_and_offers_no_change() {
        let finding = Finding::new(&checks::RX_RING, &Subject::Port("eth7".into()), State::Warning, "short")
            .fix("ethtool -G eth7 rx 4096")
            .change(Change { setting: Setting::RxRing { port: "eth7".into() }, value: "4096".into() });
        let named = Request { ports: vec!["eth7".into()], ..Request::default() };
        assert_eq!(offered(finding.clone(), &named), finding);
        let every = offered(finding.clone(), &Request::default());
        assert_eq!((every.changes.len(), &every.fix), (0, &finding.fix), "the command is still told");
    }
}
