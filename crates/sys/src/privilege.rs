//! Capabilities (capabilities(7)) and identity of the calling thread, and dropping them.
//!
//! Capabilities and identity belong to a **thread**. New threads inherit the present privileges of their parent, so a
//! process drops its privileges before it starts threads; [`of_threads`] shows the result for all threads.

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// A capability that netgrain uses or checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Change the owner of files.
    Chown,
    /// Write and read files regardless of their permission bits.
    DacOverride,
    /// Read files and list directories regardless of their permission bits.
    DacReadSearch,
    /// Change the mode of files of other users.
    Fowner,
    /// Change the group id.
    Setgid,
    /// Change the user id.
    Setuid,
    /// Remove capabilities from the bounding set.
    Setpcap,
    /// Administer interfaces: attach XDP programs, rename, set offloads.
    NetAdmin,
    /// Open packet and AF_XDP sockets.
    NetRaw,
    /// Lock memory beyond the limit.
    IpcLock,
    /// All operations for which no separate capability exists: namespaces, reserving huge pages.
    SysAdmin,
    /// Raise the priority of threads.
    SysNice,
    /// Load BPF programs and create their maps.
    Bpf,
    /// Load BPF programs that add numbers of the packet to pointers (`allow_ptr_leaks` in kernel/bpf/verifier.c).
    Perfmon,
}

impl Capability {
    /// All capabilities of this type.
    pub const ALL: [Self; 14] = [
        Self::Chown,
        Self::DacOverride,
        Self::DacReadSearch,
        Self::Fowner,
        Self::Setgid,
        Self::Setuid,
        Self::Setpcap,
        Self::NetAdmin,
        Self::NetRaw,
        Self::IpcLock,
        Self::SysAdmin,
        Self::SysNice,
        Self::Bpf,
        Self::Perfmon,
    ];

    /// The number in `include/uapi/linux/capability.h`.
    pub const fn number(self) -> u32 {
        match self {
            Self::Chown => 0,
            Self::DacOverride => 1,
            Self::DacReadSearch => 2,
            Self::Fowner => 3,
            Self::Setgid => 6,
            Self::Setuid => 7,
            Self::Setpcap => 8,
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
            Self::IpcLock => 14,
            Self::SysAdmin => 21,
            Self::SysNice => 23,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }

    /// The name in capabilities(7).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chown => "CAP_CHOWN",
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::Fowner => "CAP_FOWNER",
            Self::Setgid => "CAP_SETGID",
            Self::Setuid => "CAP_SETUID",
            Self::Setpcap => "CAP_SETPCAP",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
        }
    }
}

/// A set of capabilities, which may include capabilities that [`Capability`] does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The set of these capabilities.
    pub const fn of(list: &[Capability]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < list.len() {
            bits |= 1 << list[i].number();
            i += 1;
        }
        Self(bits)
    }

    /// True if the set contains `capability`.
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability.number() != 0
    }

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The intersection of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The difference of both sets.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The capabilities in the set for which [`Capability`] has a variant.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |c| self.has(*c))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<_> = self.iter().map(Capability::name).collect();
        let others = self.without(Self::of(&Capability::ALL)).0.count_ones();
        f.write_str(&names.join(" "))?;
        if others > 0 {
            write!(f, "{}{others} more", if names.is_empty() { "" } else { " and " })?;
        }
        Ok(())
    }
}

/// The capabilities for capturing from interfaces, by AF_XDP or TPACKET_V3.
pub const CAPTURE: Capabilities = Capabilities::of(&[Capability::NetRaw, Capability::NetAdmin, Capability::Bpf]);

/// Optional capabilities for capturing: to lock memory beyond the limit, and to raise the priority of threads.
pub const CAPTURE_OPTIONAL: Capabilities = Capabilities::of(&[Capability::IpcLock, Capability::SysNice]);

/// Additional capabilities for loading packet programs of users into the kernel, which refuses most such programs
/// without these capabilities.
pub const PROGRAMS: Capabilities = Capabilities::of(&[Capability::Perfmon]);

/// Advice after a refusal by the kernel: the needed capabilities, those missing here, and the command that grants them.
pub fn advice(what: &str, needed: Capabilities) -> String {
    let missing = needed.without(effective());
    let how = if missing.is_empty() {
        "this process has these capabilities, so a container, a security module or lockdown forbids the operation (see \
         dmesg); run as root outside of the container"
            .to_owned()
    } else if std::env::var_os("INVOCATION_ID").is_some() && std::env::var_os("NOTIFY_SOCKET").is_some() {
        format!("{missing} is missing: add it to AmbientCapabilities= and CapabilityBoundingSet= (systemctl edit)")
    } else {
        format!("{missing} is missing: run as root, or grant the program its capabilities: {}", setcap())
    };
    format!("{what} needs {needed}; {how}")
}

/// The command that grants this program all capabilities for capturing.
pub fn setcap() -> String {
    let names: Vec<String> =
        CAPTURE.with(CAPTURE_OPTIONAL).with(PROGRAMS).iter().map(|c| c.name().to_lowercase()).collect();
    let program = std::env::current_exe().map_or_else(|_| "netgrain".to_owned(), |p| p.display().to_string());
    format!("setcap {}+ep {program}", names.join(","))
}

/// The effective capabilities of the calling thread.
pub fn effective() -> Capabilities {
    capabilities(None).map_or(Capabilities::NONE, |sets| Capabilities(sets.effective.bits()))
}

/// The permitted capabilities of the calling thread.
pub fn permitted() -> Capabilities {
    capabilities(None).map_or(Capabilities::NONE, |sets| Capabilities(sets.permitted.bits()))
}

/// Sets the effective and permitted set of the calling thread and clears the inheritable set.
///
/// # Errors
/// `EPERM` for a capability that is not permitted.
pub fn set(capabilities: Capabilities) -> io::Result<()> {
    let set = CapabilitySet::from_bits_retain(capabilities.0);
    let sets = CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

/// Clears the ambient and the bounding set of the calling thread, so that programs that it starts have no capabilities.
/// Returns `false` if the bounding set could not be cleared, which needs `CAP_SETPCAP`.
pub fn clear_bounding() -> bool {
    let _ = clear_ambient_capability_set();
    let all = (0..64).map(|number| CapabilitySet::from_bits_retain(1 << number));
    // The kernel has fewer than 64 capabilities. The loop ends at the first capability number that the kernel refuses
    // because it does not exist.
    let known = all.take_while(|capability| capability_is_in_bounding_set(*capability).is_ok());
    known.filter(|capability| remove_capability_from_bounding_set(*capability).is_err()).count() == 0
}

/// Sets `no_new_privs`: programs that the calling thread starts gain no privileges from the set-user-id bit or from
/// capabilities of their files.
///
/// # Errors
/// The error of prctl(2), which documents no error for this call.
pub fn no_new_privileges() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// Changes user, group and supplementary groups, and keeps the permitted capabilities (the effective ones must be
/// [`set`] again). The change applies to all threads of the process.
///
/// # Errors
/// `EPERM` without `CAP_SETUID` and `CAP_SETGID`.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // Otherwise the kernel would clear the permitted set when the process changes from user id 0 to another one.
    set_keep_capabilities(true)?;
    set_groups(groups)?;
    // Each of these system calls changes one thread; the C library makes it in all threads.
    // SAFETY: the arguments are numbers.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: the arguments are numbers.
    check(unsafe { libc::setresuid(uid, uid, uid) })
}

/// Sets the supplementary groups of all threads of the process.
///
/// # Errors
/// `EPERM` without `CAP_SETGID`.
pub fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: pointer and length describe `groups`.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })
}

/// A user in `/etc/passwd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
}

/// The user with this name or number.
pub fn account(name: &str) -> Option<Account> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let accounts = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (known, uid) = (fields.next()?, fields.nth(1)?);
        (known == name || uid == name).then_some(Account { uid: uid.parse().ok()?, gid: fields.next()?.parse().ok()? })
    });
    accounts.into_iter().next()
}

/// True if the calling thread may write to this file, or create and remove files in this directory.
pub fn may_write(path: &Path) -> bool {
    let access = if path.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

fn check(r: libc::c_int) -> io::Result<()> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The privileges of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPrivileges {
    /// The effective set.
    pub effective: Capabilities,
    /// The permitted set.
    pub permitted: Capabilities,
    /// The bounding set: the limit for programs that the thread starts.
    pub bounding: Capabilities,
    /// The ambient set: inherited by programs that the thread starts.
    pub ambient: Capabilities,
    /// See [`no_new_privileges`].
    pub no_new_privileges: bool,
    /// True if a filter restricts the system calls of the thread ([`crate::seccomp`]).
    pub calls_filtered: bool,
    /// User id.
    pub uid: u32,
}

/// The privileges of all threads of a process, from `/proc/PID/task`.
pub fn of_threads(pid: u32) -> Vec<ThreadPrivileges> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|t| fs::read_to_string(t.path().join("status")).ok()).map(|t| decode(&t)).collect()
}

fn decode(status: &str) -> ThreadPrivileges {
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim).unwrap_or_default();
    let set = |name: &str| Capabilities(u64::from_str_radix(field(name), 16).unwrap_or(u64::MAX));
    ThreadPrivileges {
        effective: set("CapEff:"),
        permitted: set("CapPrm:"),
        bounding: set("CapBnd:"),
        ambient: set("CapAmb:"),
        no_new_privileges: field("NoNewPrivs:") == "1",
        calls_filtered: field("Seccomp:") == "2",
        uid: field("Uid:").split_whitespace().nth(1).and_then(|t| t.parse().ok()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_print_names_in_order_and_count_unnamed_capabilities() {
        let set = Capabilities::of(&[Capability::NetRaw, Capability::Bpf]);
        assert_eq!(set.to_string(), "CAP_NET_RAW CAP_BPF");
        assert_eq!(set.with(Capabilities(1 << 30)).to_string(), "CAP_NET_RAW CAP_BPF and 1 more");
        assert_eq!(Capabilities::NONE.to_string(), "none");
        assert!(set.has(Capability::Bpf) && !set.has(Capability::SysAdmin));
        assert_eq!(set.without(Capabilities::of(&[Capability::Bpf])), Capabilities::of(&[Capability::NetRaw]));
    }

    #[test]
    fn advice_names_needed_and_missing_capabilities_and_the_command() {
        std::thread::spawn(|| {
            set(Capabilities::of(&[Capability::NetRaw]).and(permitted()))
                .expect("fewer capabilities are always permitted");
            let text = advice("XDP", Capabilities::of(&[Capability::Bpf]));
            assert!(text.starts_with("XDP needs CAP_BPF; CAP_BPF is missing: "), "{text}");
            assert!(text.contains("run as root") && text.contains("setcap cap_net_admin,cap_net_raw,"), "{text}");
        })
        .join()
        .expect("a thread");
    }

    #[test]
    fn accounts_are_found_by_name_and_number() {
        assert_eq!(account("root"), Some(Account { uid: 0, gid: 0 }));
        assert_eq!(account("0"), account("root"));
        assert_eq!(account("no-such-user"), None);
    }

    #[test]
    fn dropped_capabilities_stay_dropped_in_child_threads_only() {
        let before = of_threads(std::process::id());
        let kept = Capabilities::of(&[Capability::NetRaw]).and(permitted());
        std::thread::spawn(move || {
            no_new_privileges().expect("no privilege is needed");
            let all_removed = clear_bounding();
            set(kept).expect("fewer capabilities are always permitted");
            assert_eq!((effective(), permitted()), (kept, kept));
            assert!(
                set(kept.with(Capabilities::of(&[Capability::SysAdmin]))).is_err(),
                "a dropped capability cannot be regained"
            );
            let own = fs::read_to_string("/proc/thread-self/status").map(|t| decode(&t)).expect("proc");
            assert!(
                own.no_new_privileges && own.ambient.is_empty() && (own.bounding.is_empty() || !all_removed),
                "{own:?}"
            );
            std::thread::spawn(move || assert_eq!((effective(), permitted()), (kept, kept)))
                .join()
                .expect("a child thread");
        })
        .join()
        .expect("a thread");
        assert!(
            of_threads(std::process::id()).iter().any(|thread| before.contains(thread)),
            "other threads are not changed"
        );
    }
}
