//! Restriction of system calls (seccomp(2), `include/uapi/linux/seccomp.h`): after the restriction, all threads of the
//! process can make only the system calls in the lists below. The restriction cannot be undone.
//!
//! A system call that is not in the lists returns `ENOSYS`, as on a kernel that lacks the call. Libraries then use
//! older calls. So if the lists lack a call that is needed, a feature fails, but the recording does not end. The
//! kernel's audit log contains each refused call.
//!
//! A build with debug assertions aborts at a call that is not in the lists (`trap`), so every test of the binary also
//! verifies that the lists contain all system calls of the code that it runs. `TRIED` lists the calls that a library
//! tries but does not need.

mod trap;

use std::io;

/// The socket families that may still be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// Unix sockets.
    Local,
    /// Unix sockets, IP sockets, and netlink sockets, through which the C library learns the addresses of the host: to
    /// resolve names and to receive a multicast group.
    Internet,
    /// The sockets of `Internet`, packet and XDP sockets, BPF programs, and sockets that accept connections: to
    /// capture, export and serve.
    Capture,
}

/// System calls of every command: files (also through io_uring, whose operations no filter sees), memory, threads,
/// time, signals, priorities and the limits of the process.
const USUAL: &[libc::c_long] = &[
    libc::SYS_adjtimex,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_get_mempolicy,
    libc::SYS_get_robust_list,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_ioctl,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mkdirat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_prlimit64,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_sendfile,
    libc::SYS_set_mempolicy,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setpriority,
    libc::SYS_sigaltstack,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
    // Communication over open sockets; `Sockets` decides which can be opened.
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Older forms of some calls of the lists above, which the C library still uses on this architecture.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(target_arch = "aarch64")]
const OLD: &[libc::c_long] = &[libc::SYS_getrlimit, libc::SYS_renameat, libc::SYS_setrlimit];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLD: &[libc::c_long] = &[];

/// Additional system calls of the commands that resolve names or receive a multicast group, and of those that capture
/// or send.
const INTERNET: &[libc::c_long] = &[libc::SYS_bind];

/// Additional system calls of the commands that capture or send, which serve sockets and load programs into the kernel.
const CAPTURING: &[libc::c_long] =
    &[libc::SYS_accept, libc::SYS_accept4, libc::SYS_bpf, libc::SYS_listen, libc::SYS_socketpair];

/// Calls that return `ENOSYS` in every build; for each, a comment names the library that tries it.
const TRIED: &[libc::c_long] = &[];

/// `AUDIT_ARCH_…` of this architecture (`include/uapi/linux/audit.h`).
#[cfg(target_arch = "x86_64")]
const ARCH: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCH: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCH: Option<u32> = None;

/// Offsets in `struct seccomp_data`.
mod at {
    pub const NUMBER: u32 = 0;
    pub const ARCH: u32 = 4;
    /// Offset of the lower half of the first argument, on little-endian machines.
    pub const FIRST: u32 = 16;
    /// Offset of the lower half of the second argument.
    pub const SECOND: u32 = 24;
}

/// The action of the filter for a system call that is in no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The call returns `ENOSYS`.
    Error,
    /// The thread gets SIGSYS.
    Trap,
}

impl Refusal {
    fn action(self) -> u32 {
        match self {
            Self::Error => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            Self::Trap => libc::SECCOMP_RET_TRAP,
        }
    }
}

/// Restricts all threads of this process, and those that they start, to the system calls of the lists.
///
/// # Errors
/// `Unsupported` on architectures without a list and kernels without seccomp; `PermissionDenied` if `no_new_privs` is
/// not set; `Other` if a thread already has a seccomp filter of its own. After an error, no restriction applies.
pub fn keep_calls_for(sockets: Sockets) -> io::Result<()> {
    let refusal = if cfg!(debug_assertions) {
        trap::abort_at_refused_calls()?;
        Refusal::Trap
    } else {
        Refusal::Error
    };
    install(&program(sockets, refusal)?, libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_LOG)
}

fn program(sockets: Sockets, refusal: Refusal) -> io::Result<Vec<libc::sock_filter>> {
    let arch = ARCH.ok_or(io::ErrorKind::Unsupported)?;
    let load = |offset| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let skip_unless = |value| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, value);
    let end_with = |action| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    let refuse = end_with(refusal.action());
    // Calls of other architectures have other numbers; those of x32 have bit 30 set and are in no list.
    let mut code = vec![load(at::ARCH), instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, arch), refuse];
    code.push(load(at::NUMBER));
    let (internet, capturing): (&[libc::c_long], &[libc::c_long]) = match sockets {
        Sockets::Local => (&[], &[]),
        Sockets::Internet => (INTERNET, &[]),
        Sockets::Capture => (INTERNET, CAPTURING),
    };
    for call in [USUAL, OLD, internet, capturing].concat() {
        code.extend([skip_unless(call as u32), end_with(libc::SECCOMP_RET_ALLOW)]);
    }
    for call in TRIED {
        code.extend([skip_unless(*call as u32), end_with(Refusal::Error.action())]);
    }
    // Signal 0 is not delivered: the call only tests whether the process exists.
    let skip_kill_unless = |value| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 4, value);
    code.extend([
        skip_kill_unless(libc::SYS_kill as u32),
        load(at::SECOND),
        skip_unless(0),
        end_with(libc::SECCOMP_RET_ALLOW),
        refuse,
    ]);
    let families: &[i32] = match sockets {
        Sockets::Local => &[libc::AF_UNIX],
        Sockets::Internet => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        Sockets::Capture => {
            &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP]
        }
    };
    // `socket` is checked last, because the load of its argument overwrites the number of the system call.
    code.extend([instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, libc::SYS_socket as u32), refuse]);
    code.push(load(at::FIRST));
    for family in families {
        code.extend([skip_unless(*family as u32), end_with(libc::SECCOMP_RET_ALLOW)]);
    }
    code.push(refuse);
    Ok(code)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn install(code: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<()> {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_ptr().cast_mut() };
    // SAFETY: `program` points to `len` instructions, which the kernel only reads, and both outlive the call.
    let r = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match r {
        0 => Ok(()),
        1.. => Err(io::Error::other(format!("thread {r} already has a seccomp filter of its own"))),
        _ => match io::Error::last_os_error() {
            // The kernel has no seccomp, or does not know one of `flags`.
            e if e.raw_os_error() == Some(libc::EINVAL) => Err(io::ErrorKind::Unsupported.into()),
            e => Err(e),
        },
    }
}

/// Runs `work` in a thread in which one system call returns this error, as the filter of a service manager may do;
/// `None` on a kernel without such filters.
#[cfg(test)]
pub(crate) fn without_call<T: Send>(
    test: &str,
    call: libc::c_long,
    error: i32,
    work: impl FnOnce() -> T + Send,
) -> Option<T> {
    let end_with = |action| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    let code = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at::NUMBER),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        end_with(libc::SECCOMP_RET_ERRNO | error as u32),
        end_with(libc::SECCOMP_RET_ALLOW),
    ];
    tests::filtered(test, &code, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{ToSocketAddrs, UdpSocket};
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    /// The test runs in a separate thread and restricts only that thread, because the restriction cannot be undone.
    fn confined<T: Send>(test: &str, sockets: Sockets, work: impl FnOnce() -> T + Send) -> Option<T> {
        filtered(test, &program(sockets, Refusal::Error).unwrap(), work)
    }

    pub(super) fn filtered<T: Send>(
        test: &str,
        code: &[libc::sock_filter],
        work: impl FnOnce() -> T + Send,
    ) -> Option<T> {
        std::thread::scope(|scope| {
            let confine = || {
                crate::privilege::no_new_privileges().unwrap();
                match install(code, 0) {
                    Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                        testkit::skip(test, "this kernel has no seccomp");
                        None
                    }
                    other => {
                        other.unwrap();
                        Some(work())
                    }
                }
            };
            scope.spawn(confine).join().unwrap()
        })
    }

    fn unsupported<T>(result: io::Result<T>) -> bool {
        result.err().and_then(|e| e.raw_os_error()) == Some(libc::ENOSYS)
    }

    #[test]
    fn programs_namespaces_and_other_sockets_are_refused() {
        let test = "programs_namespaces_and_other_sockets_are_refused";
        let directory = std::env::temp_dir().join(format!("netgrain-seccomp-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        confined(test, Sockets::Local, || {
            assert!(unsupported(Command::new("/bin/true").status()));
            assert!(unsupported(crate::netns::Namespace::unshare()));
            assert!(unsupported(UdpSocket::bind("127.0.0.1:0")));
            UnixDatagram::unbound().expect("a local socket");
            // SAFETY: no memory is passed.
            let traced = unsafe { libc::syscall(libc::SYS_ptrace, 0, 0, 0, 0) };
            assert_eq!((traced, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOSYS)));
            // SAFETY: no memory is passed; the signals 0 and SIGCONT do not harm this process.
            let (tested, sent) = unsafe { (libc::kill(libc::getpid(), 0), libc::kill(libc::getpid(), libc::SIGCONT)) };
            assert_eq!((tested, sent, io::Error::last_os_error().raw_os_error()), (0, -1, Some(libc::ENOSYS)));
            let file = directory.join("file");
            std::fs::write(&file, "text").unwrap();
            std::fs::rename(&file, directory.join("other")).unwrap();
            assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
            std::fs::remove_file(directory.join("other")).unwrap();
            std::thread::spawn(|| assert!(unsupported(Command::new("/bin/true").status()))).join().unwrap();
        });
        confined(test, Sockets::Internet, || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket that receives");
            assert_eq!("localhost:9".to_socket_addrs().expect("a resolved name").next().map(|a| a.port()), Some(9));
            drop(socket);
            assert!(unsupported(std::net::TcpListener::bind("127.0.0.1:0")));
            // SAFETY: no memory is passed; the calls only return errors.
            let refused =
                unsafe { (libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0), libc::syscall(libc::SYS_bpf, 0, 0, 0)) };
            assert_eq!((refused, io::Error::last_os_error().raw_os_error()), ((-1, -1), Some(libc::ENOSYS)));
        });
        confined(test, Sockets::Capture, || {
            assert!(unsupported(Command::new("/bin/true").status()));
            std::net::TcpListener::bind("127.0.0.1:0").expect("a socket that accepts connections");
            let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
            a.send_to(b"hello", b.local_addr().unwrap()).unwrap();
            assert_eq!(b.recv(&mut [0; 16]).unwrap(), 5);
            crate::netlink::Netlink::route().unwrap().link("lo").unwrap();
            // SAFETY: no memory is passed.
            let other = unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0) };
            assert_eq!((other, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOSYS)));
        });
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(Command::new("/bin/true").status().is_ok(), "other threads are not restricted");
    }

    #[test]
    fn the_lists_have_no_call_that_starts_programs_or_changes_the_machine() {
        let all = [USUAL, OLD, INTERNET, CAPTURING].concat();
        for call in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_mount,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_setuid,
            libc::SYS_mknodat,
            libc::SYS_kill,
        ] {
            assert!(!all.contains(&call), "{call}");
        }
        let mut once = all.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), all.len(), "each call is listed once");
    }
}
