//! Loads XDP programs into the kernel and runs them for tests.

use ebpf::Code;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub use sys::bpf::TestRun;
use sys::bpf::{self, ProgInfo, RawInsn};

/// The licence that each program declares. Some kernel functions can be called only by programs with a licence that is
/// compatible with the GPL.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// The return value of an XDP program (`enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum XdpAction {
    /// The program failed; the kernel drops the frame and triggers a tracepoint.
    Aborted = 0,
    /// The kernel drops the frame.
    Drop = 1,
    /// The kernel passes the frame to its network stack.
    Pass = 2,
    /// The kernel sends the frame through the interface on which it arrived.
    Tx = 3,
    /// The kernel passes the frame to the target that a helper function has selected: a socket, an interface, or a CPU.
    Redirect = 4,
}

impl XdpAction {
    /// The number that the program returns for this action.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

/// The kinds of frames that a program accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// The program accepts only frames in a single buffer; some drivers refuse to attach such a program if the MTU is
    /// above about 3.5 kB.
    Linear,
    /// The program accepts frames in a single buffer, and frames that span several buffers.
    Fragmented,
}

impl Frames {
    const fn flags(self) -> u32 {
        match self {
            Self::Linear => 0,
            Self::Fragmented => bpf::PROG_FRAGS,
        }
    }
}

/// A loaded XDP program. The kernel retains it until this value is dropped and no link runs it.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// The kernel did not load a program.
#[derive(Debug)]
pub struct LoadError {
    /// The kernel's error.
    pub error: io::Error,
    /// The verifier's log; empty if the kernel refused the program before verification.
    pub log: String,
}

impl Program {
    /// Loads `code` as an XDP program with this name, of which the kernel stores at most 15 characters.
    ///
    /// # Errors
    /// [`LoadError`], which contains the verifier's log.
    pub fn load(name: &str, code: &Code, frames: Frames) -> Result<Self, LoadError> {
        Self::load_with(name, code, frames.flags(), 0)
    }

    /// Loads `code` as an XDP program for the interface `ifindex` alone. The program may call the functions of the
    /// driver that read the NIC's metadata of a frame (Documentation/networking/xdp-rx-metadata.rst). The program can
    /// be attached in native mode only, must make no tail call, and cannot be run for tests.
    ///
    /// # Errors
    /// [`LoadError`]: `EOPNOTSUPP` or `EINVAL` if the driver or the kernel has no such functions.
    pub fn load_for_interface(name: &str, code: &Code, frames: Frames, ifindex: u32) -> Result<Self, LoadError> {
        Self::load_with(name, code, frames.flags() | bpf::PROG_DEVICE_BOUND, ifindex)
    }

    fn load_with(name: &str, code: &Code, flags: u32, ifindex: u32) -> Result<Self, LoadError> {
        bpf::load_xdp(name, &raw(code), LICENCE, flags, ifindex)
            .map(|fd| Self { fd })
            .map_err(|refusal| LoadError { error: refusal.error, log: refusal.log })
    }

    /// The kernel's information about the program: id, tag and sizes.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn info(&self) -> io::Result<ProgInfo> {
        bpf::program_info(self.fd.as_fd())
    }

    /// Runs the program once on `frame`, as if the frame had arrived on receive queue `queue`; the resulting frame is
    /// written to `out`.
    ///
    /// # Errors
    /// An error of the kernel: `EINVAL` if `frame` has less than 14 bytes, `ENOSPC` if `out` is too small.
    pub fn run(&self, frame: &[u8], out: &mut [u8], ifindex: u32, queue: u32) -> io::Result<TestRun> {
        bpf::test_run(self.fd.as_fd(), frame, out, ifindex, queue, 1)
    }

    /// Runs the program on `repeat` copies of `frame`, in batches of `batch` (at most 256), as if the copies had
    /// arrived on queue 0 of the interface. The kernel carries out the verdicts, for example sends the copies.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn run_live(&self, frame: &[u8], ifindex: u32, repeat: u32, batch: u32) -> io::Result<()> {
        bpf::test_run_live(self.fd.as_fd(), frame, ifindex, repeat, batch)
    }
}

/// The code as the bytes that the system call expects.
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
                write!(f, "the kernel refused the program: {}; verifier log:\n{}", self.error, self.log.trim_end())
            }
            _ if self.error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "loading a program needs CAP_BPF and CAP_NET_ADMIN: {}", self.error)
            }
            _ => write!(f, "the kernel refused the program: {}", self.error),
        }
    }
}

impl std::error::Error for LoadError {}
