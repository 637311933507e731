//! A program that the verifier accepted.

use ebpf::Code;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub use sys::bpf::TestRun;
use sys::bpf::{self, ProgInfo, RawInsn};

/// The licence that every program of ours declares: some functions of the kernel want one that is compatible with GPL.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// What an XDP program decides (`enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum XdpAction {
    /// The program failed; the frame is dropped and a tracepoint tells.
    Aborted = 0,
    /// The frame is dropped.
    Drop = 1,
    /// The kernel gets the frame.
    Pass = 2,
    /// The frame leaves by the interface that it came from.
    Tx = 3,
    /// The frame goes where a helper said: a socket, an interface, a processor.
    Redirect = 4,
}

impl XdpAction {
    /// As a program returns it.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

/// Which frames a program can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// Those that fit one buffer; some drivers refuse such a program above an MTU of about 3.5 kB.
    Linear,
    /// Also those that span several buffers.
    Fragmented,
}

/// A loaded XDP program. The kernel keeps it for as long as this, or a link that runs it, lives.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// A program that was refused.
#[derive(Debug)]
pub struct LoadError {
    /// The kernel's answer.
    pub error: io::Error,
    /// The verifier's log, which explains it; empty when the program never reached the verifier.
    pub log: String,
}

impl Program {
    /// Loads `code` as an XDP program called `name` (the kernel keeps 15 characters).
    ///
    /// # Errors
    /// [`LoadError`] with the verifier's log.
    pub fn load(name: &str, code: &Code, frames: Frames) -> Result<Self, LoadError> {
        let flags = match frames {
            Frames::Linear => 0,
            Frames::Fragmented => bpf::PROG_FRAGS,
        };
        bpf::load_xdp(name, &raw(code), LICENCE, flags)
            .map(|fd| Self { fd })
            .map_err(|refusal| LoadError { error: refusal.error, log: refusal.log })
    }

    /// Number, tag and sizes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn info(&self) -> io::Result<ProgInfo> {
        bpf::program_info(self.fd.as_fd())
    }

    /// Runs the program once on `frame` as if it had come from this queue; the frame as it was left stands in `out`.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` below 14 bytes, `ENOSPC` when `out` is too small.
    pub fn run(&self, frame: &[u8], out: &mut [u8], ifindex: u32, queue: u32) -> io::Result<TestRun> {
        bpf::test_run(self.fd.as_fd(), frame, out, ifindex, queue, 1)
    }

    /// Runs `repeat` copies of `frame` through the program as if they had come from queue 0 of the interface, `batch`
    /// (at most 256) at a time, and carries out what it decides.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run_live(&self, frame: &[u8], ifindex: u32, repeat: u32, batch: u32) -> io::Result<()> {
        bpf::test_run_live(self.fd.as_fd(), frame, ifindex, repeat, batch)
    }
}

/// The code as the system call wants it.
fn raw(code: &Code) -> Vec<RawInsn> {
    code.insns().map(|i| RawInsn { code: i.code(), regs: i.regs(), off: i.off(), imm: i.imm() }).collect()
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error.raw_os_error() {
            _ if !self.log.is_empty() => {
                write!(f, "the kernel refused the program: {}; its verifier says:\n{}", self.error, self.log.trim_end())
            }
            _ if self.error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "loading a program needs CAP_BPF and CAP_NET_ADMIN: {}", self.error)
            }
            _ => write!(f, "the kernel refused the program: {}", self.error),
        }
    }
}

impl std::error::Error for LoadError {}
