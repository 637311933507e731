//! Checks of the clocks: the source of timestamps, and the synchronisation of the system clock.

use crate::checks;
use crate::finding::{Finding, State, Subject};
use std::time::Duration;
use sys::sysfs::Tree;
use sys::timex::{self, ClockStatus};

/// The kernel clock sources that a process can read without a system call and that count at a steady rate.
const STEADY: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// The clock error above which the packets of two machines cannot be put in order reliably.
const ERROR_MAX: Duration = Duration::from_millis(10);

/// What the kernel reports about its clocks.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub source: String,
    pub available: String,
    /// True if the TSC runs at one rate and never stops; `None` on processors without TSC.
    pub steady_counter: Option<bool>,
    pub clock_status: Option<ClockStatus>,
}

impl Facts {
    /// Reads the state of the clocks from the kernel.
    pub fn gather(tree: &Tree) -> Self {
        const DIRECTORY: &str = "sys/devices/system/clocksource/clocksource0";
        let cpuinfo = tree.text("proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find(|l| l.starts_with("flags"));
        let has = |line: &str, flag: &str| line.split_whitespace().any(|f| f == flag);
        Self {
            source: tree.text(&format!("{DIRECTORY}/current_clocksource")).unwrap_or_default(),
            available: tree.text(&format!("{DIRECTORY}/available_clocksource")).unwrap_or_default(),
            steady_counter: flags.map(|l| has(l, "constant_tsc") && has(l, "nonstop_tsc")),
            clock_status: timex::clock_status().ok(),
        }
    }
}

/// Runs all checks of clocks.
pub fn judge(f: &Facts) -> Vec<Finding> {
    vec![source(f), synchronisation(f)]
}

fn source(f: &Facts) -> Finding {
    let s = Subject::Machine;
    let counter = match f.steady_counter {
        Some(true) => "; the time stamp counter is steady",
        Some(false) => "; the time stamp counter is not steady, so each timestamp needs a system call",
        None => "",
    };
    let found = format!("{}{counter}", if f.source.is_empty() { "unknown" } else { &f.source });
    let steady_source = STEADY.contains(&f.source.as_str());
    if f.source.is_empty() {
        return Finding::new(&checks::CLOCK_SOURCE, &s, State::Unknown, found);
    }
    if steady_source && f.steady_counter != Some(false) {
        return Finding::good(&checks::CLOCK_SOURCE, &s, found);
    }
    let finding = Finding::new(&checks::CLOCK_SOURCE, &s, State::Bad, found);
    match STEADY.iter().find(|good| f.available.split_whitespace().any(|a| a == **good)) {
        Some(good) if !steady_source => finding.fix(format!(
            "echo {good} > /sys/devices/system/clocksource/clocksource0/current_clocksource, if dmesg shows no reason \
             against it"
        )),
        _ => finding.fix(
            "dmesg shows why the kernel rejects the counter; change the settings of the firmware or the hypervisor",
        ),
    }
}

fn synchronisation(f: &Facts) -> Finding {
    let s = Subject::Machine;
    let Some(d) = f.clock_status else {
        return Finding::new(
            &checks::CLOCK_SYNC,
            &s,
            State::Unknown,
            "the kernel does not report the state of its clock",
        );
    };
    let keep = "systemctl enable --now chrony (or another time daemon; with hardware timestamps, ptp4l and phc2sys)";
    if !d.synchronised {
        return Finding::new(&checks::CLOCK_SYNC, &s, State::Bad, "the clock is not synchronised").fix(keep);
    }
    let found = format!(
        "synchronised, offset {:?}, estimated error {:?}, at most {:?}",
        d.offset, d.estimated_error, d.maximum_error
    );
    if d.estimated_error > ERROR_MAX {
        return Finding::new(&checks::CLOCK_SYNC, &s, State::Warning, found)
            .fix("use a nearer time server, or wait until the time daemon has corrected the clock");
    }
    Finding::good(&checks::CLOCK_SYNC, &s, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synchronised_status() -> ClockStatus {
        ClockStatus {
            frequency_ppb: 0,
            synchronised: true,
            offset: Duration::from_micros(3),
            estimated_error: Duration::from_micros(40),
            maximum_error: Duration::from_millis(5),
            tai_offset: 37,
        }
    }

    fn states(f: &Facts) -> (State, State) {
        let all = judge(f);
        (all[0].state, all[1].state)
    }

    #[test]
    fn a_steady_counter_and_a_synchronised_clock_are_good() {
        for source in STEADY {
            let f = Facts {
                source: source.into(),
                available: "tsc acpi_pm".into(),
                steady_counter: (source != "arch_sys_counter").then_some(true),
                clock_status: Some(synchronised_status()),
            };
            assert_eq!(states(&f), (State::Good, State::Good), "{source}");
        }
    }

    #[test]
    fn a_slow_source_an_unsteady_counter_and_a_free_running_clock_are_bad() {
        let slow = Facts {
            source: "acpi_pm".into(),
            available: "tsc acpi_pm".into(),
            steady_counter: Some(true),
            clock_status: Some(ClockStatus { synchronised: false, ..synchronised_status() }),
        };
        assert_eq!(states(&slow), (State::Bad, State::Bad));
        assert!(judge(&slow)[0].fix.as_deref().is_some_and(|m| m.starts_with("echo tsc > ")));
        let unsteady = Facts {
            source: "tsc".into(),
            steady_counter: Some(false),
            clock_status: Some(ClockStatus { estimated_error: Duration::from_millis(11), ..synchronised_status() }),
            ..slow
        };
        assert_eq!(states(&unsteady), (State::Bad, State::Warning));
        assert_eq!(states(&Facts::default()), (State::Unknown, State::Unknown));
    }
}
