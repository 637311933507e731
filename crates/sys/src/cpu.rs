//! Threads and CPUs: affinity, NUMA nodes, priority, and resource use of threads (sched(7), sysfs).

use rustix::process::{geteuid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::num::NonZero;
use std::time::Duration;

/// Pins the calling thread to one CPU.
///
/// # Errors
/// `EINVAL` if the CPU does not exist or is not allowed for this process.
pub fn pin(cpu: usize) -> io::Result<()> {
    pin_to(&[cpu])
}

/// Restricts the calling thread to these CPUs.
///
/// # Errors
/// `EINVAL` if none of these CPUs exists and is allowed for this process.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// CPUs on which the calling thread may run, ascending.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// NUMA node of an interface's NIC; `None` for virtual interfaces and on machines with one node.
pub fn node_of_interface(name: &str) -> Option<usize> {
    let text = fs::read_to_string(format!("/sys/class/net/{name}/device/numa_node")).ok()?;
    usize::try_from(text.trim().parse::<i64>().ok()?).ok()
}

/// CPUs of a NUMA node.
pub fn cpus_of_node(node: usize) -> Vec<usize> {
    fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))
        .map(|text| parse_list(text.trim()))
        .unwrap_or_default()
}

/// All CPUs of the NUMA nodes that contain `cpus`; empty without NUMA nodes, or if the kernel does not report them.
pub fn cpus_beside(cpus: &[usize]) -> Vec<usize> {
    let nodes = (0..).map_while(|node| Some(cpus_of_node(node)).filter(|of| !of.is_empty()));
    nodes.filter(|of| cpus.iter().any(|cpu| of.contains(cpu))).flatten().collect()
}

/// Parses a list such as `0-3,8`.
pub fn parse_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last.min(first + 4096));
        }
    }
    cpus
}

/// Sets the nice value of the calling thread: negative values raise its priority and need CAP_SYS_NICE.
///
/// # Errors
/// `EPERM` or `EACCES` without the privilege.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // On Linux, each thread has its own nice value, so this call affects only the calling thread.
    Ok(setpriority_process(None, nice)?)
}

/// Sets the timer slack of the calling thread to its minimum; by default a sleep may end 50 us late (PR_SET_TIMERSLACK,
/// prctl(2)).
pub fn sleep_exactly() {
    let _ = set_current_timer_slack(NonZero::new(1));
}

/// CPU time of the calling thread.
pub fn thread_time() -> Duration {
    cpu_time(ClockId::ThreadCPUTime)
}

/// CPU time of this process.
pub fn process_time() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

fn cpu_time(clock: ClockId) -> Duration {
    let t = clock_gettime(clock);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Physical memory of this process in bytes (0 without /proc). Memory that is mapped several times, such as the ring,
/// counts once; of shared memory, each process counts its share (`Pss` of proc_pid_smaps(5)). `VmRSS` would count a
/// page once for each of its mappings.
pub fn resident_bytes() -> u64 {
    resident_of(&fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default())
}

/// Physical memory in bytes by the text of a file `/proc/PID/smaps_rollup`, counted as by [`resident_bytes`].
pub fn resident_of(rollup: &str) -> u64 {
    let kib = |key: &str| {
        let value = rollup.lines().find_map(|l| l.strip_prefix(key)?.split_whitespace().next()?.parse::<u64>().ok());
        value.unwrap_or(0)
    };
    // The value of `Pss` does not include reserved huge pages. Only rings use such pages, and each ring is mapped
    // twice, so half of the shared huge pages are added.
    1024 * (kib("Pss:") + kib("Private_Hugetlb:") + kib("Shared_Hugetlb:") / 2)
}

/// Memory of this machine in bytes (0 without /proc).
pub fn memory_bytes() -> u64 {
    meminfo("MemTotal:")
}

/// Memory that can still be allocated without swapping, in bytes (0 without /proc).
pub fn memory_available() -> u64 {
    meminfo("MemAvailable:")
}

/// Free reserved huge pages, in bytes.
pub fn reserved_memory() -> u64 {
    // The line `HugePages_Free` of `/proc/meminfo` contains a number of pages and not of KiB. The line `Hugepagesize`
    // contains the page size.
    (meminfo("HugePages_Free:") / 1024).saturating_mul(meminfo("Hugepagesize:"))
}

fn meminfo(key: &str) -> u64 {
    let kib = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|t| t.lines().find_map(|l| l.strip_prefix(key)?.split_whitespace().next()?.parse::<u64>().ok()));
    kib.unwrap_or(0) * 1024
}

/// The name of the CPU, for the header of a measurement.
pub fn model() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|t| {
            t.lines()
                .find_map(|l| l.strip_prefix("model name").map(|r| r.trim_start_matches([' ', '\t', ':']).to_owned()))
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Name and release of the kernel, for the header of a measurement.
pub fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".into(), |t| format!("Linux {}", t.trim()))
}

/// CPU time of all CPUs since boot, in ticks (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// The total.
    pub all: u64,
    /// Time that the hypervisor gave to other guests while this machine had runnable threads.
    pub stolen: u64,
}

impl Ticks {
    /// The present values; zeros if the kernel does not report them.
    pub fn now() -> Self {
        Self::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Reads the CPU times from the first eight columns of the first line of `/proc/stat`. The later columns, guest
    /// time, are already part of the first two.
    pub fn of(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let columns: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|c| c.parse().ok()).collect();
        Self { all: columns.iter().sum(), stolen: columns.get(7).copied().unwrap_or(0) }
    }

    /// Returns the share of CPU time since `earlier` that the hypervisor gave to other guests, from 0 to 1.
    pub fn stolen_since(self, earlier: Self) -> f64 {
        match self.all.saturating_sub(earlier.all) {
            0 => 0.0,
            all => self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64,
        }
    }
}

/// Effective user id of this process.
pub fn effective_uid() -> u32 {
    geteuid().as_raw()
}

/// True if the effective user id is 0.
pub fn is_root() -> bool {
    effective_uid() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_share_of_the_elapsed_time() {
        let before = Ticks::of("cpu  100 0 100 760 0 0 0 40 7 0\ncpu0 1 2 3");
        assert_eq!(before, Ticks { all: 1000, stolen: 40 });
        let after = Ticks { all: 1200, stolen: 90 };
        assert_eq!(after.stolen_since(before), 0.25);
        assert_eq!((before.stolen_since(after), before.stolen_since(before)), (0.0, 0.0));
        assert_eq!(Ticks::of(""), Ticks::default());
        let now = Ticks::now();
        assert!(now.all > now.stolen, "{now:?}");
    }

    #[test]
    fn memory_that_is_mapped_twice_counts_once() {
        let text = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss: 3000 kB\nPss: 1700 kB\nPss_Anon: 5 kB\n\
            Shared_Hugetlb: 4096 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(resident_of(text), (1700 + 2048 + 2048) << 10);
        assert_eq!(resident_of(""), 0);
        const BYTES: u64 = 256 << 20;
        let before = resident_bytes();
        let memory = crate::memory::SharedMemory::create("test", BYTES as usize, true).unwrap();
        let more = resident_bytes().saturating_sub(before);
        assert!((BYTES / 2..BYTES + BYTES / 2).contains(&more), "{more} bytes for {}", memory.len());
    }

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(parse_list("0-2,7"), [0, 1, 2, 7]);
        assert_eq!(parse_list(""), [] as [usize; 0]);
    }

    #[test]
    fn a_pinned_thread_runs_only_on_its_cpu() {
        let cpu = *allowed().last().unwrap();
        std::thread::spawn(move || {
            pin(cpu).unwrap();
            assert_eq!(allowed(), [cpu]);
        })
        .join()
        .unwrap();
        assert!(pin(1_000_000).is_err());
    }

    #[test]
    fn work_uses_cpu_time_and_sleep_does_not() {
        let a = thread_time();
        std::thread::sleep(Duration::from_millis(30));
        let b = thread_time();
        assert!(b - a < Duration::from_millis(30), "a sleep must use little CPU time, not {:?}", b - a);
        let mut x = 1u64;
        while thread_time() - b < Duration::from_millis(2) {
            x = base::hash::mix64(x);
        }
        assert_ne!(x, 0);
    }
}
