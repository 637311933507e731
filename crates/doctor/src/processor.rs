//! Processors: how fast they run, how deeply they sleep, who moves interrupts between them, and who takes them away.

use crate::checks;
use crate::finding::{Finding, State, Subject};
use crate::setting::{Change, Setting};
use sys::sysfs::Tree;

/// A processor that takes longer to wake up lets a ring of 512 descriptors fill at 10 Gb/s (34 us at 14.88 Mpps).
const LONG_WAKE_MICROS: u64 = 30;

/// What the machine tells of its processors.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Processor and its governor, where frequencies can be chosen.
    pub governors: Vec<(usize, String)>,
    /// All of those offer `performance`.
    pub can_perform: bool,
    /// Name and exit latency of the deepest idle state that is allowed, of the worst processor.
    pub deepest: Option<(String, u64)>,
    pub isolated: Vec<usize>,
    pub irqbalance: bool,
    /// Share of the time since the start that the hypervisor gave to others.
    pub stolen: f64,
    pub is_virtual: bool,
}

impl Facts {
    /// Asks the kernel.
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
        facts.stolen = stolen(&tree.text("proc/stat").unwrap_or_default());
        let flags = tree.text("proc/cpuinfo").unwrap_or_default();
        let flags = flags.lines().find(|l| l.starts_with("flags"));
        facts.is_virtual = flags.is_some_and(|l| l.split_whitespace().any(|f| f == "hypervisor"));
        facts
    }
}

fn governor_file(cpu: usize) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")
}

/// The share of the eighth column of the first line of `/proc/stat` (proc_stat(5)); guests are in the first two already.
fn stolen(stat: &str) -> f64 {
    let line = stat.lines().next().unwrap_or_default();
    let columns: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|c| c.parse().ok()).collect();
    match (columns.get(7), columns.iter().sum::<u64>()) {
        (Some(steal), all) if all > 0 => *steal as f64 / all as f64,
        _ => 0.0,
    }
}

/// All checks of processors.
pub fn judge(f: &Facts) -> Vec<Finding> {
    vec![governor(f), idle(f), isolation(f), irqbalance(f), steal(f)]
}

fn governor(f: &Facts) -> Finding {
    let s = Subject::Machine;
    if f.governors.is_empty() {
        return Finding::good(&checks::GOVERNOR, &s, "the machine leaves no choice of frequencies");
    }
    let slow: Vec<&(usize, String)> = f.governors.iter().filter(|(_, g)| g != "performance").collect();
    let Some((_, one)) = slow.first() else {
        return Finding::good(&checks::GOVERNOR, &s, "performance");
    };
    let found = format!("{one} on {} of {} processors", slow.len(), f.governors.len());
    let mut finding =
        Finding::new(&checks::GOVERNOR, &s, State::Remark, found).mend("cpupower frequency-set -g performance");
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
            Finding::new(&checks::IDLE, &s, State::Remark, format!("{name} takes {micros} us to wake"))
                .mend(format!("cpupower idle-set -D {LONG_WAKE_MICROS}, or --spin on a processor of its own"))
        }
        Some((name, micros)) => Finding::good(&checks::IDLE, &s, format!("{name} takes {micros} us to wake")),
        None => Finding::good(&checks::IDLE, &s, "the machine leaves no choice of idle states"),
    }
}

fn isolation(f: &Facts) -> Finding {
    let s = Subject::Machine;
    if f.isolated.is_empty() {
        return Finding::good(&checks::ISOLATION, &s, "no processor is set apart");
    }
    let list: Vec<String> = f.isolated.iter().map(usize::to_string).collect();
    Finding::new(&checks::ISOLATION, &s, State::Remark, format!("processors {} are set apart", list.join(",")))
        .mend(format!("netgrain record … --cpu {}", list.join(",")))
}

fn irqbalance(f: &Facts) -> Finding {
    let s = Subject::Machine;
    if f.irqbalance {
        Finding::new(&checks::IRQBALANCE, &s, State::Remark, "running")
            .mend("systemctl disable --now irqbalance, or IRQBALANCE_BANNED_CPULIST with the processors of --cpu")
    } else {
        Finding::good(&checks::IRQBALANCE, &s, "not running")
    }
}

fn steal(f: &Facts) -> Finding {
    /// More than this is felt in rings of microseconds.
    const FELT: f64 = 0.01;
    let s = Subject::Machine;
    let place = if f.is_virtual { "a virtual machine" } else { "no hypervisor" };
    let found = format!("{place}, {:.2} % of the time given to others", f.stolen * 100.0);
    if f.stolen > FELT {
        return Finding::new(&checks::STEAL, &s, State::Remark, found)
            .mend("processors of its own for this machine, at the hypervisor");
    }
    Finding::good(&checks::STEAL, &s, found)
}
