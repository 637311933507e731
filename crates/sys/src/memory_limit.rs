//! The memory available to this process: that of the machine, limited by its control groups (cgroups(7); version 2:
//! `memory.max` and `memory.high`, version 1: `memory.limit_in_bytes`) and by the limit of its address space.
//!
//! The limit of a control group also applies to all control groups below it, so the limits of all control groups that
//! contain the process are considered.

use std::fs;
use std::path::{Path, PathBuf};

/// Names the limit that is the lowest for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The memory of the machine.
    Machine,
    /// The memory of the machine; the process is in a control group whose limit cannot be read, because the control
    /// groups are not mounted where this process can see them.
    MachineWithUnreadGroup,
    /// A control group of this process.
    Group,
    /// The limit of this process's address space (getrlimit(2), `RLIMIT_AS`).
    AddressSpace,
}

/// Memory available to this process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The lowest memory limit, in bytes; 0 if the kernel does not report it.
    pub limit: u64,
    /// Bytes that can be allocated now without swapping; 0 if the kernel does not report it.
    pub available: u64,
    /// Names the limit that is the lowest for this process.
    pub bound: LimitSource,
}

impl MemoryLimit {
    /// A phrase for messages that names what the lowest limit belongs to: the machine, the control group or the address
    /// space.
    pub const fn owner(&self) -> &'static str {
        match self.bound {
            LimitSource::Machine => "this machine",
            LimitSource::MachineWithUnreadGroup => {
                "this machine (the memory limit of this process's control group cannot be read)"
            }
            LimitSource::Group => "the control group of this process",
            LimitSource::AddressSpace => {
                "half of the address space of this process (ulimit -v; a ring is mapped twice)"
            }
        }
    }
}

/// The present limit of this process.
pub fn memory_limit() -> MemoryLimit {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = (crate::cpu::memory_bytes(), crate::cpu::memory_available());
    let parent = PathBuf::from(format!("/proc/{}/root/sys/fs/cgroup", std::os::unix::process::parent_id()));
    let mount_points = [Path::new("/sys/fs/cgroup"), Path::new("/proc/1/root/sys/fs/cgroup"), &parent];
    let all = limit_of_groups(machine, &groups, mounted_groups(&mount_points));
    // If there is no limit, the file contains a word instead of a number.
    match number("/proc/self/limits", "Max address space") {
        Some(limit) => apply_address_space_limit(
            all,
            limit,
            number("/proc/self/status", "VmSize:").unwrap_or(0).saturating_mul(1024),
        ),
        None => all,
    }
}

/// The first of `mount_points` that is a directory with entries, otherwise the first mount point. `ip netns exec`
/// mounts another sysfs over `/sys`, which hides the control groups. The first process and the parent process can
/// usually still see them; only root can read the directories of these processes.
fn mounted_groups<'p>(mount_points: &[&'p Path]) -> &'p Path {
    let has_groups = |path: &&&Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    mount_points.iter().find(has_groups).unwrap_or(&mount_points[0])
}

/// Address space that glibc reserves for each of its heaps (malloc(3), `M_ARENA_MAX`); it creates a heap for nearly
/// every thread.
const HEAP: u64 = 64 << 20;

/// If the address space of this process is limited, limits the heaps to a sixteenth of it. Otherwise the nearly empty
/// heaps would reserve the address space that rings and tables need. Must be called before the first thread is started.
pub fn keep_heaps_within_limit() {
    let Some(heaps) = number("/proc/self/limits", "Max address space").and_then(heaps_within) else { return };
    // SAFETY: the call takes two numbers, and no other thread allocates yet.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, heaps);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = heaps;
}

/// Maximum number of glibc heaps under this limit of the address space, at least one; `None` if the limit permits 64
/// heaps or more.
fn heaps_within(limit: u64) -> Option<i32> {
    const MANY: u64 = 64;
    let heaps = limit / 16 / HEAP;
    (heaps < MANY).then_some(heaps.max(1) as i32)
}

/// The first number after a key in a file of `/proc`.
fn number(path: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

/// Lowers the memory limit `all` to half of `limit`, the limit of the address space, because a ring is mapped twice and
/// needs twice its size of address space. The process uses `used` bytes of its address space.
fn apply_address_space_limit(mut all: MemoryLimit, limit: u64, used: u64) -> MemoryLimit {
    let half = limit / 2;
    if all.limit == 0 || half < all.limit {
        (all.limit, all.bound) = (half, LimitSource::AddressSpace);
    }
    let free = limit.saturating_sub(used) / 2;
    all.available = if all.available == 0 { free.max(1) } else { all.available.min(free).max(1) };
    all
}

/// Computes the limit from the machine's total and available memory, the text of `/proc/self/cgroup`, and the mount
/// point of the control groups.
fn limit_of_groups((total, available): (u64, u64), groups: &str, mounted: &Path) -> MemoryLimit {
    let directories = directories(groups, mounted);
    // The directory of the root group has no limit, and exists whenever the groups are mounted.
    let is_unread = groups.lines().any(is_memory_group_below_root) && !directories.iter().any(|group| group.is_dir());
    let bound = if is_unread { LimitSource::MachineWithUnreadGroup } else { LimitSource::Machine };
    let mut all = MemoryLimit { limit: total, available, bound };
    for directory in directories {
        let Some((limit, free)) = limit_of(&directory) else { continue };
        if total == 0 || limit < all.limit {
            (all.limit, all.bound) = (limit, LimitSource::Group);
        }
        all.available = all.available.min(free);
    }
    all
}

/// True if a line of `/proc/self/cgroup` names a control group other than the root group that can limit the memory.
fn is_memory_group_below_root(line: &str) -> bool {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return false };
    path != "/" && (controllers.is_empty() || controllers.split(',').any(|c| c == "memory"))
}

/// The directories of all control groups that limit the memory of the process, the innermost first.
fn directories(groups: &str, mounted: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let roots = match controllers {
            "" => vec![mounted.to_owned(), mounted.join("unified")],
            some if some.split(',').any(|c| c == "memory") => vec![mounted.join("memory"), mounted.join(some)],
            _ => continue,
        };
        for root in roots {
            // In a container, the path may be relative to the root of the host, although only the control group of the
            // container is mounted. Therefore the directories of all parents of the path are included.
            let within = Path::new(path.trim_start_matches('/'));
            all.extend(within.ancestors().map(|group| root.join(group)));
        }
    }
    all
}

/// The limit of a control group and the unused bytes of this limit; page cache that can be dropped counts as unused.
fn limit_of(group: &Path) -> Option<(u64, u64)> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    let version_2 = [number("memory.max"), number("memory.high")].into_iter().flatten().min();
    let limit = version_2.or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cache =
        |key: &str| stat.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse::<u64>().ok());
    // Version 1 reports the sum over a control group and the control groups below it under a separate name.
    let cache = cache("total_inactive_file").or_else(|| cache("inactive_file")).unwrap_or(0);
    Some((limit, limit.saturating_sub(used.saturating_sub(cache))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed when the value is dropped.
    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("netgrain-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }

        fn path(&self) -> &Path {
            &self.0
        }

        fn join(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MIB: u64 = 1 << 20;

    fn group(directory: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(directory).expect("a directory");
        files.iter().for_each(|(name, text)| fs::write(directory.join(name), text).expect("a file"));
    }

    #[test]
    fn an_empty_mount_point_is_passed_over() {
        let dir = testkit::TempDir::new("cgroup-mounts");
        let (hidden, visible) = (dir.join("hidden"), dir.join("visible"));
        fs::create_dir_all(&hidden).unwrap();
        assert_eq!(mounted_groups(&[&hidden, &visible]), hidden, "there is no other");
        fs::create_dir_all(visible.join("system.slice")).unwrap();
        assert_eq!(mounted_groups(&[&hidden, &visible]), visible);
        fs::create_dir_all(hidden.join("user.slice")).unwrap();
        assert_eq!(mounted_groups(&[&hidden, &visible]), hidden);
    }

    #[test]
    fn half_of_a_limit_of_the_address_space_counts() {
        let machine = MemoryLimit { limit: 8192 * MIB, available: 4096 * MIB, bound: LimitSource::Machine };
        let narrow = apply_address_space_limit(machine, 1024 * MIB, 124 * MIB);
        assert_eq!(narrow, MemoryLimit { limit: 512 * MIB, available: 450 * MIB, bound: LimitSource::AddressSpace });
        assert!(narrow.owner().contains("ulimit -v"));
        assert!(number("/proc/self/status", "VmSize:").is_some_and(|kib| kib > 0));
        assert_eq!(apply_address_space_limit(machine, 65536 * MIB, 0), machine);
        assert_eq!(
            apply_address_space_limit(machine, 16 * MIB, 16 * MIB).available,
            1,
            "0 would mean that the kernel does not report it"
        );
    }

    #[test]
    fn heaps_take_a_sixteenth_of_a_limit_of_the_address_space() {
        assert_eq!([200 * MIB, 2048 * MIB, 16_384 * MIB].map(heaps_within), [Some(1), Some(2), Some(16)]);
        assert_eq!(heaps_within(u64::MAX), None);
    }

    #[test]
    fn the_lowest_limit_of_all_enclosing_groups_counts() {
        let dir = TempDir::new("the_lowest_limit_counts");
        let machine = (8192 * MIB, 4096 * MIB);
        let none = limit_of_groups(machine, "0::/a/b\n", dir.path());
        assert_eq!(none, MemoryLimit { limit: 8192 * MIB, available: 4096 * MIB, bound: LimitSource::Machine });
        let unread = limit_of_groups(machine, "0::/a/b\n", &dir.join("nothing-mounted"));
        assert_eq!(unread, MemoryLimit { bound: LimitSource::MachineWithUnreadGroup, ..none });
        assert!(unread.owner().contains("cannot be read"));
        for text in ["0::/\n", "4:cpu:/x\n0::/\n", ""] {
            assert_eq!(limit_of_groups(machine, text, &dir.join("nothing-mounted")), none, "{text:?}");
        }
        group(&dir.join("a"), &[("memory.max", "838860800\n"), ("memory.current", "104857600\n")]);
        group(&dir.join("a/b"), &[("memory.max", "max\n"), ("memory.high", "max\n"), ("memory.current", "1\n")]);
        let outer = limit_of_groups(machine, "0::/a/b\n", dir.path());
        assert_eq!(outer, MemoryLimit { limit: 800 * MIB, available: 700 * MIB, bound: LimitSource::Group });
        assert_eq!(limit_of_groups(machine, "0::/c\n", dir.path()), none, "a group that does not contain the process");
        let stat = "anon 1\ninactive_file 20971520\n";
        group(
            &dir.join("a/b"),
            &[("memory.high", "104857600\n"), ("memory.current", "52428800"), ("memory.stat", stat)],
        );
        let inner = limit_of_groups(machine, "0::/a/b\n", dir.path());
        assert_eq!(inner, MemoryLimit { limit: 100 * MIB, available: 70 * MIB, bound: LimitSource::Group });
    }

    #[test]
    fn control_groups_of_version_1_are_read_and_may_have_no_limit() {
        let dir = TempDir::new("control_groups_of_version_1");
        let machine = (1024 * MIB, 900 * MIB);
        let text = "9:cpu,cpuacct:/x\n4:memory:/x/y\n0::/\n";
        let (no_limit, used) = ("9223372036854771712", "314572800");
        group(&dir.join("memory"), &[("memory.limit_in_bytes", no_limit), ("memory.usage_in_bytes", used)]);
        assert_eq!(limit_of_groups(machine, text, dir.path()).bound, LimitSource::Machine);
        let stat = "inactive_file 1\ntotal_inactive_file 104857600\n";
        let files = [("memory.limit_in_bytes", "524288000\n"), ("memory.usage_in_bytes", used), ("memory.stat", stat)];
        group(&dir.join("memory/x/y"), &files);
        let found = limit_of_groups(machine, text, dir.path());
        assert_eq!(found, MemoryLimit { limit: 500 * MIB, available: 300 * MIB, bound: LimitSource::Group });
        // A container sees its own control group as the root, independent of the path that the kernel reports.
        fs::rename(dir.join("memory/x/y/memory.limit_in_bytes"), dir.join("memory/memory.limit_in_bytes"))
            .expect("moved");
        assert_eq!(limit_of_groups(machine, text, dir.path()).limit, 500 * MIB);
    }
}
