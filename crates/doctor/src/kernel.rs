//! Checks of the kernel: AF_XDP, BPF, io_uring, capabilities, locked memory, huge pages, and losses of its network
//! stack.

use crate::Request;
use crate::checks;
use crate::finding::{Finding, State, Subject};
use crate::setting::{Change, Setting};
use base::units::{show_bytes, show_count};
use sys::privilege::{self, CAPTURE, CAPTURE_OPTIONAL, Capabilities, Capability};
use sys::sysfs::Tree;

/// The oldest recommended release of Linux: from this release on, drivers report their XDP features, and XDP programs
/// are attached by links.
const OLDEST: (u32, u32) = (6, 3);

/// The size in bytes of the huge pages that the ring requests.
const HUGE_PAGE: u64 = 2 << 20;

/// The largest recommended backlog of one processor in packets. At a million packets per second, a packet waits 65 ms
/// in such a backlog; if the backlog still overflows, the processor is too slow, and a longer queue does not help.
const MAX_BACKLOG: u64 = 65_536;

/// The largest recommended budget of one NAPI round in packets: eight times the kernel's default. A longer round delays
/// all other work of the processor.
const MAX_BUDGET: u64 = 2400;

const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// What the kernel reports about its features, its memory and its packet losses.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub release: String,
    pub has_xdp_sockets: bool,
    /// The value of `bpf_jit_enable`; `None` if its file cannot be read.
    pub bpf_jit: Option<u32>,
    pub io_uring_disabled: u32,
    pub capabilities: Capabilities,
    /// Bytes of memory that the process may lock; `None` for no limit.
    pub memlock: Option<u64>,
    pub memory_available: u64,
    pub huge_pages: Option<HugePages>,
    pub softnet: Softnet,
}

/// The state of the pool of 2 MiB pages, and whether shared memory can get huge pages that are not from the pool.
#[derive(Clone, Debug, Default)]
pub struct HugePages {
    pub total: u64,
    pub free: u64,
    pub transparent: bool,
}

/// Sums of `/proc/net/softnet_stat`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Softnet {
    pub processed: u64,
    pub dropped: u64,
    pub squeezed: u64,
    pub backlog: u64,
    pub budget: u64,
}

impl Facts {
    /// Reads the features, memory and losses of the kernel from procfs and sysfs.
    pub fn gather(tree: &Tree) -> Self {
        let protocols = tree.text("proc/net/protocols").unwrap_or_default();
        let available = tree.text("proc/meminfo").unwrap_or_default();
        let available =
            available.lines().find_map(|l| l.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
        Self {
            release: tree.text("proc/sys/kernel/osrelease").unwrap_or_default(),
            has_xdp_sockets: protocols.lines().any(|l| l.split_whitespace().next() == Some("XDP")),
            bpf_jit: tree.value("proc/sys/net/core/bpf_jit_enable"),
            io_uring_disabled: tree.value("proc/sys/kernel/io_uring_disabled").unwrap_or(0),
            capabilities: privilege::effective(),
            memlock: memlock(&tree.text("proc/self/limits").unwrap_or_default()),
            memory_available: available.unwrap_or(0u64) << 10,
            huge_pages: huge_pages(tree),
            softnet: softnet(tree),
        }
    }
}

/// Returns the limit in `/proc/self/limits`; `None` if it is unlimited or missing.
fn memlock(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|l| l.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn huge_pages(tree: &Tree) -> Option<HugePages> {
    let total = tree.value(POOL)?;
    let free = tree.value("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or(0);
    let shmem = tree.text("sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let transparent = ["[always]", "[within_size]", "[advise]", "[force]"].iter().any(|m| shmem.contains(m));
    Some(HugePages { total, free, transparent })
}

fn softnet(tree: &Tree) -> Softnet {
    let mut sum = Softnet {
        backlog: tree.value("proc/sys/net/core/netdev_max_backlog").unwrap_or(0),
        budget: tree.value("proc/sys/net/core/netdev_budget").unwrap_or(0),
        ..Softnet::default()
    };
    for line in tree.text("proc/net/softnet_stat").unwrap_or_default().lines() {
        let mut columns = line.split_whitespace().map(|c| u64::from_str_radix(c, 16).unwrap_or(0));
        sum.processed += columns.next().unwrap_or(0);
        sum.dropped += columns.next().unwrap_or(0);
        sum.squeezed += columns.next().unwrap_or(0);
    }
    sum
}

/// Runs all checks of the kernel.
pub fn judge(f: &Facts, request: &Request) -> Vec<Finding> {
    // In addition to the memory of its packets, the ring needs a quarter of that size for its descriptors.
    let ring = request.ring + request.ring / 4;
    vec![
        kernel(f),
        bpf_jit(f),
        io_uring(f),
        privileges(f),
        locked(f, ring),
        memory(f, ring),
        pages(f, ring),
        network_stack(f),
    ]
}

fn sysctl(path: &str, value: impl ToString) -> (String, Change) {
    let name = path.trim_start_matches("proc/sys/").replace('/', ".");
    let value = value.to_string();
    let command = format!("sysctl -w {name}={value}");
    (command, Change { setting: Setting::File { path: path.to_owned() }, value })
}

fn kernel(f: &Facts) -> Finding {
    let s = Subject::Machine;
    let mut numbers = f.release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < OLDEST {
        return Finding::new(&checks::KERNEL, &s, State::Bad, format!("Linux {}", f.release)).fix("use a newer kernel");
    }
    if !f.has_xdp_sockets {
        return Finding::new(&checks::KERNEL, &s, State::Bad, format!("Linux {} without AF_XDP sockets", f.release))
            .fix("use a kernel with CONFIG_XDP_SOCKETS=y, or TPACKET");
    }
    Finding::good(&checks::KERNEL, &s, format!("Linux {} with AF_XDP", f.release))
}

fn bpf_jit(f: &Facts) -> Finding {
    let s = Subject::Machine;
    match f.bpf_jit {
        None => Finding::new(
            &checks::BPF_JIT,
            &s,
            State::Unknown,
            "only root can read this setting, and only in the initial network namespace",
        ),
        Some(0) => {
            let (command, change) = sysctl("proc/sys/net/core/bpf_jit_enable", 1);
            Finding::new(&checks::BPF_JIT, &s, State::Warning, "off").fix(command).change(change)
        }
        Some(_) => Finding::good(&checks::BPF_JIT, &s, "on"),
    }
}

fn io_uring(f: &Facts) -> Finding {
    let s = Subject::Machine;
    let found = match f.io_uring_disabled {
        0 => return Finding::good(&checks::IO_URING, &s, "allowed"),
        1 => "allowed only to members of one group (kernel.io_uring_group)",
        _ => "forbidden",
    };
    let (command, change) = sysctl("proc/sys/kernel/io_uring_disabled", 0);
    Finding::new(&checks::IO_URING, &s, State::Warning, found).fix(command).change(change)
}

fn privileges(f: &Facts) -> Finding {
    let s = Subject::Machine;
    let (missing, helpful) = (CAPTURE.without(f.capabilities), CAPTURE_OPTIONAL.without(f.capabilities));
    let give = format!("run as root, or: {}", privilege::setcap());
    if !missing.is_empty() {
        return Finding::new(&checks::PRIVILEGES, &s, State::Bad, format!("this process lacks {missing}")).fix(give);
    }
    if !helpful.is_empty() {
        let found =
            format!("this process can capture, but without {helpful} it cannot lock memory or raise its priority");
        return Finding::new(&checks::PRIVILEGES, &s, State::Warning, found).fix(give);
    }
    Finding::good(&checks::PRIVILEGES, &s, "this process has all capabilities for capture")
}

fn locked(f: &Facts, ring: u64) -> Finding {
    let s = Subject::Machine;
    if f.capabilities.has(Capability::IpcLock) {
        return Finding::good(&checks::MEMLOCK, &s, "CAP_IPC_LOCK: no limit");
    }
    match f.memlock {
        Some(limit) if limit < ring => {
            let found =
                format!("the process may lock {} of memory, the ring needs {}", show_bytes(limit), show_bytes(ring));
            Finding::new(&checks::MEMLOCK, &s, State::Bad, found)
                .fix("ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, or CAP_IPC_LOCK")
        }
        Some(limit) => {
            Finding::good(&checks::MEMLOCK, &s, format!("the process may lock {} of memory", show_bytes(limit)))
        }
        None => Finding::good(&checks::MEMLOCK, &s, "no limit"),
    }
}

fn memory(f: &Facts, ring: u64) -> Finding {
    let s = Subject::Machine;
    if f.memory_available == 0 {
        return Finding::new(&checks::MEMORY, &s, State::Unknown, "the kernel does not report the free memory");
    }
    let reserved = f.huge_pages.as_ref().map_or(0, |h| h.free * HUGE_PAGE);
    let found =
        format!("{} of memory free for a ring of {}", show_bytes(f.memory_available + reserved), show_bytes(ring));
    if f.memory_available + reserved < ring {
        return Finding::new(&checks::MEMORY, &s, State::Bad, found).fix("use a smaller --ring");
    }
    Finding::good(&checks::MEMORY, &s, found)
}

fn pages(f: &Facts, ring: u64) -> Finding {
    let s = Subject::Machine;
    let Some(pool) = &f.huge_pages else {
        return Finding::new(&checks::HUGE_PAGES, &s, State::Unknown, "the kernel has no pages of 2 MiB to reserve");
    };
    let wanted = ring.div_ceil(HUGE_PAGE);
    if pool.free >= wanted {
        return Finding::good(
            &checks::HUGE_PAGES,
            &s,
            format!("{} of {} reserved huge pages are free, {wanted} are needed", pool.free, pool.total),
        );
    }
    let (otherwise, or) = if pool.transparent {
        ("the kernel merges small pages where it can", "")
    } else {
        ("the ring will have small pages", "; or: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled")
    };
    let found = format!("{} of the {wanted} needed huge pages are reserved and free; {otherwise}", pool.free);
    let (missing, total) = (wanted - pool.free, pool.total + wanted - pool.free);
    let finding = Finding::new(&checks::HUGE_PAGES, &s, State::Warning, found);
    // Reserved pages are lost to all other processes. A change that takes more than half of the available memory is
    // left to the administrator.
    if missing * HUGE_PAGE > f.memory_available / 2 {
        return finding.fix(format!("use a smaller --ring, or, if memory suffices: sysctl -w vm.nr_hugepages={total}"));
    }
    let change = Change { setting: Setting::File { path: POOL.to_owned() }, value: total.to_string() };
    finding.fix(format!("sysctl -w vm.nr_hugepages={total}{or}")).change(change)
}

fn network_stack(f: &Facts) -> Finding {
    /// If more than one in this number of NAPI rounds has used up its time budget, the check gives a warning.
    const SQUEEZED: u64 = 1000;
    let (s, n) = (Subject::Machine, &f.softnet);
    let found = format!(
        "{} packets dropped, time budget exceeded {} times since boot",
        show_count(n.dropped),
        show_count(n.squeezed)
    );
    // The counters start at boot, so they still contain losses from before a fix of the setting. A setting that already
    // has the largest recommended value is therefore reported as good, whatever the counters show.
    let (path, value) = if n.dropped > 0 && (1..MAX_BACKLOG).contains(&n.backlog) {
        ("proc/sys/net/core/netdev_max_backlog", (n.backlog * 4).min(MAX_BACKLOG))
    } else if n.squeezed * SQUEEZED > n.processed && (1..MAX_BUDGET).contains(&n.budget) {
        ("proc/sys/net/core/netdev_budget", (n.budget * 2).min(MAX_BUDGET))
    } else {
        return Finding::good(&checks::SOFTNET, &s, found);
    };
    let (command, change) = sysctl(path, value);
    Finding::new(&checks::SOFTNET, &s, State::Warning, found).fix(command).change(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good_facts() -> Facts {
        Facts {
            release: "6.18.4-generic".into(),
            has_xdp_sockets: true,
            bpf_jit: Some(1),
            capabilities: Capabilities(u64::MAX),
            memory_available: 16 << 30,
            huge_pages: Some(HugePages { total: 1000, free: 1000, transparent: true }),
            ..Facts::default()
        }
    }

    fn found(f: &Facts, check: &str) -> Finding {
        let request = Request { ring: 1 << 30, ..Request::default() };
        judge(f, &request).into_iter().find(|f| f.check.name == check).expect("the kernel checks include this check")
    }

    #[test]
    fn a_kernel_with_good_settings_has_only_good_findings() {
        for finding in judge(&good_facts(), &Request { ring: 1 << 30, ..Request::default() }) {
            assert_eq!(finding.state, State::Good, "{finding:?}");
        }
    }

    #[test]
    fn missing_privileges_and_features_are_reported_with_a_fix() {
        let none = Facts { capabilities: Capabilities::NONE, memlock: Some(8 << 20), ..good_facts() };
        let finding = found(&none, "privileges");
        assert_eq!(finding.state, State::Bad);
        assert!(finding.found.ends_with("CAP_NET_ADMIN CAP_NET_RAW CAP_BPF"), "{}", finding.found);
        assert!(finding.fix.expect("a command").contains("setcap cap_net_admin,cap_net_raw,cap_ipc_lock"));
        assert_eq!(found(&none, "memlock").state, State::Bad);
        let some = Facts { capabilities: CAPTURE, ..good_facts() };
        assert_eq!((found(&some, "privileges").state, found(&some, "memlock").state), (State::Warning, State::Good));
        let old = Facts { release: "5.15.0-100".into(), ..good_facts() };
        assert_eq!(found(&old, "kernel").state, State::Bad);
        let without = Facts { has_xdp_sockets: false, ..good_facts() };
        assert!(found(&without, "kernel").fix.expect("a step").contains("CONFIG_XDP_SOCKETS"));
    }

    #[test]
    fn huge_pages_are_offered_only_if_enough_memory_remains() {
        let pool = HugePages { total: 100, free: 40, transparent: true };
        let room = Facts { huge_pages: Some(pool.clone()), ..good_facts() };
        // A ring of 1 GiB with its descriptors needs 640 huge pages, of which 40 are free in the pool of 100 pages. So
        // the pool needs 600 more pages, 700 in all.
        assert_eq!(found(&room, "huge-pages").changes[0].value, "700");
        let tight = Facts { huge_pages: Some(pool), memory_available: 2 << 30, ..good_facts() };
        let finding = found(&tight, "huge-pages");
        assert!(finding.changes.is_empty() && finding.fix.expect("a step").contains("smaller --ring"));
    }

    #[test]
    fn losses_of_the_network_stack_name_the_limit_to_raise() {
        let dropped =
            Facts { softnet: Softnet { dropped: 3, backlog: 1000, budget: 300, ..Softnet::default() }, ..good_facts() };
        assert_eq!(found(&dropped, "softnet").fix.as_deref(), Some("sysctl -w net.core.netdev_max_backlog=4000"));
        let squeezed = Softnet { processed: 10_000, squeezed: 11, budget: 300, ..Softnet::default() };
        let finding = found(&Facts { softnet: squeezed, ..good_facts() }, "softnet");
        assert_eq!(finding.fix.as_deref(), Some("sysctl -w net.core.netdev_budget=600"));
        let seldom = Softnet { processed: 100_000, squeezed: 11, budget: 300, ..Softnet::default() };
        assert_eq!(found(&Facts { softnet: seldom, ..good_facts() }, "softnet").state, State::Good);
    }

    #[test]
    fn repeated_fixes_end_although_the_counters_never_decrease() {
        let mut n = Softnet { processed: 10_000, dropped: 3, squeezed: 11, backlog: 1000, budget: 300 };
        let mut steps = Vec::new();
        while let Some(change) = found(&Facts { softnet: n, ..good_facts() }, "softnet").changes.pop() {
            let value: u64 = change.value.parse().expect("a number");
            let Setting::File { path } = change.setting else { panic!("a sysctl") };
            *(if path.ends_with("backlog") { &mut n.backlog } else { &mut n.budget }) = value;
            steps.push(value);
            assert!(steps.len() < 20, "{steps:?}");
        }
        assert_eq!(steps, [4000, 16_000, 64_000, 65_536, 600, 1200, 2400]);
        assert_eq!(found(&Facts { softnet: n, ..good_facts() }, "softnet").state, State::Good);
        // A backlog above the recommended maximum was set by the administrator, and --fix does not lower it.
        let beyond = Softnet { dropped: 3, backlog: 1 << 20, ..Softnet::default() };
        assert_eq!(found(&Facts { softnet: beyond, ..good_facts() }, "softnet").state, State::Good);
    }

    #[test]
    fn the_memlock_limit_is_read_from_proc() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max locked memory         8388608              unlimited            bytes\n";
        assert_eq!(memlock(text), Some(8 << 20));
        assert_eq!(memlock(&text.replace("8388608", "unlimited")), None);
    }
}
