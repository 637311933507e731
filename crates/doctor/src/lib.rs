//! Finds host settings that make capture fail, lose packets or record them wrongly. Reports the cost of each setting
//! and how to correct it.
//!
//! [`examine`] inspects the host and changes nothing. Each inspection has two steps: it reads settings and counters
//! from the kernel (sysfs and procfs below a root directory that a test can replace, ethtool, netlink), then a pure
//! function evaluates these values. Each [`Finding`] belongs to a row of the table of checks ([`Check::ALL`]), from
//! which the documentation is generated. `--fix` makes the changes that findings offer and first writes the old value
//! to disk; [`undo`] restores the old values.
//!
//! The checks are based on published experience: the list of bugs of HPCAP (stripped VLAN tags, offloads), `af_xdp.rst`
//! and `scaling.rst` of the kernel, and a thesis about packet capture. In the thesis, 34 to 47 % of the packets were
//! lost if memory was on the wrong NUMA node.
#![forbid(unsafe_code)]

mod checks;
mod disk;
mod finding;
mod fix;
mod kernel;
mod netns;
mod port;
mod processor;
mod request;
mod setting;
mod time;
mod trial;
mod undo;

pub use checks::{Check, Cost};
pub use finding::{Finding, State, Subject};
pub use fix::{FixResult, Step, apply, steps};
pub use netns::Netns;
pub use request::Request;
pub use setting::{Change, Setting};
pub use undo::{Journal, JournalError, undo};

use capture::SourceError;
use sys::netlink::{Link, Netlink};
use sys::sysfs::Tree;

/// Inspects the subjects of the request: interfaces first, then the machine, then the store. Within a subject, the
/// findings are in the order of the table of checks.
///
/// # Errors
/// A named interface does not exist, or the kernel does not list its interfaces. If the kernel refuses a single value,
/// the check of this value gives a finding with state unknown.
pub fn examine(request: &Request, tree: &Tree) -> Result<Vec<Finding>, SourceError> {
    let mut findings = Vec::new();
    let mut fastest = None;
    let of_ports: Vec<&Check> = Check::ALL.iter().copied().filter(|c| c.about == checks::CheckSubject::Port).collect();
    if request.includes(&of_ports) || (request.store.is_some() && request.includes(&[&checks::WRITE_SPEED])) {
        for name in ports(request)? {
            let facts = port::Facts::gather(&name, request.dedicated, tree)?;
            fastest = fastest.max(facts.speed.map(|s| s.megabits));
            findings.extend(port::judge(&facts).into_iter().map(|f| offered(f, request)));
        }
    }
    findings.extend(kernel::judge(&kernel::Facts::gather(tree), request));
    findings.extend(processor::judge(&processor::Facts::gather(tree)));
    findings.extend(time::judge(&time::Facts::gather(tree)));
    if request.trial {
        findings.push(trial::run());
    }
    if let Some(store) = &request.store {
        findings.extend(disk::examine(store, request, fastest, tree));
    }
    findings.retain(|f| request.includes(&[f.check]));
    Ok(findings)
}

/// Removes the changes from a finding about an interface that the request does not name. A user who lets the doctor
/// change the machine may be logged in through this interface, and the change can make the driver reset the interface.
fn offered(mut finding: Finding, request: &Request) -> Finding {
    if request.ports.is_empty() {
        finding.changes.clear();
    }
    finding
}

/// Returns the interfaces to inspect: those of the request, or every physical interface.
fn ports(request: &Request) -> Result<Vec<String>, SourceError> {
    if !request.ports.is_empty() {
        return Ok(request.ports.clone());
    }
    let links = Netlink::route().and_then(|mut n| n.links()).map_err(|error| SourceError::System {
        name: "doctor".to_owned(),
        what: "list the interfaces of the kernel",
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
    fn an_interface_that_is_not_named_is_checked_but_offers_no_change() {
        let finding = Finding::new(&checks::RX_RING, &Subject::Port("eth7".into()), State::Warning, "short")
            .fix("ethtool -G eth7 rx 4096")
            .change(Change { setting: Setting::RxRing { port: "eth7".into() }, value: "4096".into() });
        let named = Request { ports: vec!["eth7".into()], ..Request::default() };
        assert_eq!(offered(finding.clone(), &named), finding);
        let every = offered(finding.clone(), &Request::default());
        assert_eq!((every.changes.len(), &every.fix), (0, &finding.fix), "no change is offered, the fix is shown");
    }
}
