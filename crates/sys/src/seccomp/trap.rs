//! Aborts a build with debug assertions at a system call that is in no list of the filter. The signal SIGSYS
//! (seccomp(2), `SECCOMP_RET_TRAP`) reports the number of the call and its first arguments; the message also contains
//! the stack.
//!
//! A thread that blocks SIGSYS is killed by the kernel without this message.

use std::backtrace::Backtrace;
use std::fmt::Write as _;
use std::io;
use std::mem;
use std::ptr;

/// The part of `siginfo_t` that SIGSYS fills on 64-bit machines (`include/uapi/asm-generic/siginfo.h`).
#[repr(C)]
struct SigsysInfo {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    caller: u64,
    call: i32,
    arch: u32,
}

/// Installs the handler of SIGSYS for all threads.
///
/// # Errors
/// As sigaction(2).
pub(super) fn abort_at_refused_calls() -> io::Result<()> {
    // SAFETY: all zeros is a valid `sigaction`: no flags, no blocked signals, default handler.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *const SigsysInfo, *const libc::ucontext_t) = abort;
    action.sa_sigaction = handler as usize;
    // Without SA_ONSTACK, because the alternate stack is too small for a backtrace. After SA_RESETHAND, a refused call
    // of the handler itself ends the process.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
    // SAFETY: `action` is initialized, and the old action is not requested.
    let r = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

extern "C" fn abort(_: libc::c_int, info: *const SigsysInfo, context: *const libc::ucontext_t) {
    // SAFETY: for SIGSYS, the kernel passes a complete `siginfo_t` and the context of the interrupted thread.
    let (info, context) = unsafe { (&*info, &*context) };
    let mut line = Line::default();
    let [first, second] = arguments(context);
    let _ = writeln!(
        line,
        "netgrain: system call {}({first:#x}, {second:#x}, ...) is in no list of crates/sys/src/seccomp.rs; \
         `ausyscall {0}` prints its name",
        info.call
    );
    line.print();
    // A backtrace allocates memory, which is not safe in every signal handler. It is safe here: SIGSYS is raised only
    // by a refused call, and neither the allocator nor the standard library makes a refused call while it holds a lock.
    crate::stderr::part(format_args!("{}", Backtrace::force_capture()));
    std::process::abort();
}

/// A text on the stack.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 256], len: 0 }
    }
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let rest = &mut self.bytes[self.len..];
        let taken = text.len().min(rest.len());
        rest[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        Ok(())
    }
}

impl Line {
    fn print(&self) {
        // SAFETY: the first `len` bytes are initialized and outlive the call.
        unsafe { libc::write(libc::STDERR_FILENO, self.bytes.as_ptr().cast(), self.len) };
    }
}

/// The first two arguments of the call.
#[cfg(target_arch = "x86_64")]
fn arguments(context: &libc::ucontext_t) -> [u64; 2] {
    [libc::REG_RDI, libc::REG_RSI].map(|register| context.uc_mcontext.gregs[register as usize] as u64)
}

/// The first two arguments of the call.
#[cfg(target_arch = "aarch64")]
fn arguments(context: &libc::ucontext_t) -> [u64; 2] {
    [context.uc_mcontext.regs[0], context.uc_mcontext.regs[1]]
}

/// There is no filter on other architectures.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn arguments(_: &libc::ucontext_t) -> [u64; 2] {
    [0; 2]
}

#[cfg(test)]
mod tests {
    use super::super::{Sockets, keep_calls_for};
    use super::*;
    use std::process::Command;

    const CHILD: &str = "NETGRAIN_TEST_REFUSED_CALL";

    #[test]
    fn a_refused_call_aborts_a_debug_build_and_fails_in_a_release_build() {
        let test = "a_refused_call_aborts_a_debug_build_and_fails_in_a_release_build";
        if std::env::var_os(CHILD).is_some() {
            crate::privilege::no_new_privileges().expect("no new privileges");
            match keep_calls_for(Sockets::Local) {
                Err(e) if e.kind() == io::ErrorKind::Unsupported => return testkit::skip(test, "no seccomp"),
                other => other.expect("a filter"),
            }
            // SAFETY: no memory is passed.
            let traced = unsafe { libc::syscall(libc::SYS_ptrace, 0x1234, 0, 0, 0) };
            assert_eq!((traced, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOSYS)));
            return;
        }
        let name = testkit::test_name(module_path!(), test);
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", &name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("a process");
        let output = String::from_utf8_lossy(&child.stderr);
        if !cfg!(debug_assertions) || output.contains("no seccomp") {
            return assert!(child.status.success(), "{output}");
        }
        let call = format!("netgrain: system call {}(0x1234, 0x0, ...)", libc::SYS_ptrace);
        assert!(!child.status.success() && output.contains(&call), "{output}");
        assert!(output.contains("a_refused_call_aborts_a_debug_build"), "the stack contains the caller: {output}");
    }
}
