//! Checks of the processors: frequency, idle states, isolation, interrupt balancing, and time stolen by a hypervisor.

use crate::checks;
use crate::finding::{Finding, State, Subject};
use crate::setting::{Change, Setting};
use sys::cpu::Ticks;
use sys::sysfs::Tree;

/// The longest wake-up time of a processor for which the check gives no warning. At 10 Gb/s (14.88 Mpps), a NIC ring of
/// 512 descriptors is full after 34 us.
const LONG_WAKE_MICROS: u64 = 30;

/// What the kernel reports about the processors.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The processors whose frequency can be scaled, each with its frequency governor.
    pub governors: Vec<(usize, String)>,
    /// True if the governor `performance` is available on all processors whose frequency can be scaled.
    pub can_perform: bool,
    /// The enabled idle state with the largest exit latency of all processors: its name, and the latency in
    /// microseconds.
    pub deepest: Option<(String, u64)>,
    pub isolated: Vec<usize>,
    pub irqbalance: bool,
    /// Share of the time since boot that the hypervisor gave to other guests.
    pub stolen: f64,
    pub is_virtual: bool,
}

impl Facts {
    /// Reads the state of the processors from the kernel.
    pub fn gather(tree: &Tree) -> Self {
        const CPUS: &str = "sys/devices/system/cpu";
        let cpus: Vec<usize> = tree.names(CPUS).iter().filter_map(|n| n.strip_prefix("cpu")?.parse().ok()).collect();
        let mut facts = Self { can_perform: true, ..Self::default() };
        for cpu in cpus {
            if let Some(governor) = tree.text(&governor_file(cpu)) {
                facts.governors.push((cpu, governor));
                let offered = tree.text(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_available_governors"));
                facts.can_perform &= offered.is_some_and(|o| o.split_whitespace().any(|g| g == "performance"));
            }
            let states = format!("{CPUS}/cpu{cpu}/cpuidle");
            for state in tree.names(&states) {
                let file = |name: &str| format!("{states}/{state}/{name}");
                let allowed = tree.value::<u32>(&file("disable")) == Some(0);
                let latency = tree.value(&file("latency")).unwrap_or(0);
                if allowed && facts.deepest.as_ref().is_none_or(|d| d.1 < latency) {
                    facts.deepest = Some((tree.text(&file("name")).unwrap_or(state), latency));
                }
            }
        }
        facts.governors.sort();
        facts.isolated = tree.cpus(&format!("{CPUS}/isolated")).unwrap_or_default();
        let processes = tree.names("proc").into_iter().filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        facts.irqbalance =
            processes.into_iter().any(|p| tree.text(&format!("proc/{p}/comm")).as_deref() == Some("irqbalance"));
        facts.stolen = Ticks::of(&tree.text("proc/stat").unwrap_or_default()).stolen_since(Ticks::default());
        let flags = tree.text("proc/cpuinfo").unwrap_or_default();
        let flags = flags.lines().find(|l| l.starts_with("flags"));
        facts.is_virtual = flags.is_some_and(|l| l.split_whitespace().any(|f| f == "hypervisor"));
        facts
    }
}

fn governor_file(cpu: usize) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")
}

/// Runs all checks of processors.
pub fn judge(f: &Facts) -> Vec<Finding> {
    vec![governor(f), idle(f), isolation(f), irqbalance(f), steal(f)]
}

fn governor(f: &Facts) -> Finding {
    let s = Subject::Machine;
    if f.governors.is_empty() {
        return Finding::good(&checks::GOVERNOR, &s, "the frequency cannot be scaled");
    }
    let slow: Vec<&(usize, String)> = f.governors.iter().filter(|(_, g)| g != "performance").collect();
    let Some((_, one)) = slow.first() else {
        return Finding::good(&checks::GOVERNOR, &s, "performance");
    };
    let found = format!("{one} on {} of {} processors", slow.len(), f.governors.len());
    let mut finding =
        Finding::new(&checks::GOVERNOR, &s, State::Warning, found).fix("cpupower frequency-set -g performance");
    for (cpu, _) in slow.iter().filter(|_| f.can_perform) {
        let setting = Setting::File { path: governor_file(*cpu) };
        finding = finding.change(Change { setting, value: "performance".to_owned() });
    }
    finding
}

fn idle(f: &Facts) -> Finding {
    let s = Subject::Machine;
    match &f.deepest {
        Some((name, micros)) if *micros > LONG_WAKE_MICROS => {
            Finding::new(&checks::IDLE, &s, State::Warning, format!("idle state {name} takes {micros} us to wake"))
                .fix(format!("cpupower idle-set -D {LONG_WAKE_MICROS}, or --spin on a processor of its own"))
        }
        Some((name, micros)) => {
            Finding::good(&checks::IDLE, &s, format!("idle state {name} takes {micros} us to wake"))
        }
        None => Finding::good(&checks::IDLE, &s, "the kernel offers no idle states"),
    }
}

fn isolation(f: &Facts) -> Finding {
    let s = Subject::Machine;
    if f.isolated.is_empty() {
        return Finding::good(&checks::ISOLATION, &s, "no processor is isolated");
    }
    let list: Vec<String> = f.isolated.iter().map(usize::to_string).collect();
    Finding::new(&checks::ISOLATION, &s, State::Warning, format!("processors {} are isolated", list.join(",")))
        .fix(format!("netgrain record … --cpu {}", list.join(",")))
}

fn irqbalance(f: &Facts) -> Finding {
    let s = Subject::Machine;
    if f.irqbalance {
        Finding::new(&checks::IRQBALANCE, &s, State::Warning, "running")
            .fix("systemctl disable --now irqbalance, or IRQBALANCE_BANNED_CPULIST with the processors of --cpu")
    } else {
        Finding::good(&checks::IRQBALANCE, &s, "not running")
    }
}

fn steal(f: &Facts) -> Finding {
    /// The share of stolen CPU time above which the check gives a warning, because rings that hold microseconds of
    /// traffic then overflow.
    const NOTICEABLE: f64 = 0.01;
    let s = Subject::Machine;
    let place = if f.is_virtual { "a virtual machine" } else { "no hypervisor" };
    let found = format!("{place}, {:.2} % of the time used by other guests", f.stolen * 100.0);
    if f.stolen > NOTICEABLE {
        return Finding::new(&checks::STEAL, &s, State::Warning, found)
            .fix("give this machine dedicated processors at the hypervisor");
    }
    Finding::good(&checks::STEAL, &s, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::TempDir;

    /// A machine with two processors, as a directory tree.
    fn machine(dir: &TempDir, files: &[(&str, &str)]) -> Tree {
        let tree = Tree::at(dir.path());
        for (path, text) in files {
            let path = tree.path(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, format!("{text}\n")).expect("a file");
        }
        tree
    }

    fn found(tree: &Tree, check: &str) -> Finding {
        judge(&Facts::gather(tree)).into_iter().find(|f| f.check.name == check).expect("a check of processors")
    }

    #[test]
    fn a_machine_that_reports_nothing_has_no_changes() {
        let dir = TempDir::new("doctor-empty");
        for finding in judge(&Facts::gather(&Tree::at(dir.path()))) {
            assert_eq!((finding.state, finding.changes.len()), (State::Good, 0), "{finding:?}");
        }
    }

    #[test]
    fn a_slow_governor_is_changed_only_where_performance_is_available() {
        let dir = TempDir::new("doctor-governor");
        let cpu = |n: u32, file: &str| format!("sys/devices/system/cpu/cpu{n}/cpufreq/{file}");
        let tree = machine(
            &dir,
            &[
                (&cpu(0, "scaling_governor"), "powersave"),
                (&cpu(0, "scaling_available_governors"), "performance powersave"),
                (&cpu(1, "scaling_governor"), "performance"),
                (&cpu(1, "scaling_available_governors"), "performance powersave"),
            ],
        );
        let finding = found(&tree, "governor");
        assert_eq!((finding.state, finding.found.as_str()), (State::Warning, "powersave on 1 of 2 processors"));
        let path = cpu(0, "scaling_governor");
        assert_eq!(finding.changes, [Change { setting: Setting::File { path }, value: "performance".into() }]);
        std::fs::write(tree.path(&cpu(0, "scaling_available_governors")), "powersave ondemand").expect("a file");
        assert!(found(&tree, "governor").changes.is_empty(), "the driver does not offer the governor");
    }

    #[test]
    fn the_deepest_enabled_idle_state_counts() {
        let dir = TempDir::new("doctor-idle");
        let state = |n: u32, file: &str| format!("sys/devices/system/cpu/cpu0/cpuidle/state{n}/{file}");
        let mut files = Vec::new();
        for (n, name, latency) in [(0, "POLL", "0"), (1, "C1", "2"), (2, "C6", "133")] {
            files.extend([(state(n, "name"), name), (state(n, "latency"), latency), (state(n, "disable"), "0")]);
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let tree = machine(&dir, &files);
        assert_eq!(found(&tree, "idle-states").found, "idle state C6 takes 133 us to wake");
        std::fs::write(tree.path(&state(2, "disable")), "1").expect("a file");
        assert_eq!(found(&tree, "idle-states").state, State::Good);
    }

    #[test]
    fn irqbalance_isolation_and_steal_are_found() {
        let dir = TempDir::new("doctor-others");
        let stat = "cpu  100 0 100 760 0 0 0 40 0 0\ncpu0 1 2 3";
        let tree = machine(
            &dir,
            &[
                ("proc/7/comm", "irqbalance"),
                ("proc/self/comm", "netgrain"),
                ("proc/stat", stat),
                ("proc/cpuinfo", "flags\t\t: fpu hypervisor sse"),
                ("sys/devices/system/cpu/isolated", "2-3"),
            ],
        );
        assert_eq!(found(&tree, "irqbalance").state, State::Warning);
        assert!(found(&tree, "isolation").fix.expect("a command").ends_with("--cpu 2,3"));
        assert_eq!(found(&tree, "steal").found, "a virtual machine, 4.00 % of the time used by other guests");
        std::fs::write(tree.path("proc/7/comm"), "irqbalance-ui").expect("a file");
        assert_eq!(found(&tree, "irqbalance").state, State::Good);
    }
}
