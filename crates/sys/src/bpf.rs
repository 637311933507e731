//! The `bpf(2)` system call: maps, programs, links, test runs.
//!
//! Each function lays out the attributes of one command as `include/uapi/linux/bpf.h` declares them, makes the call and
//! decodes the result. Attributes may be shorter than the kernel's own: the kernel treats the missing bytes as zero.
//! The kernel reads and writes as many bytes of key and value as the map was created with, so a [`MapFd`] stores these
//! sizes and refuses buffers of any other size; this check makes the calls safe.

mod map;

pub use map::{MapFd, MapKind, possible_cpus};

use rustix::thread::{MembarrierCommand, membarrier};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction in the kernel's format: RFC 9669 section 3, little-endian registers (`dst | src << 4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RawInsn {
    /// Class, operation and source bit.
    pub code: u8,
    /// Destination register in the low nibble, source register in the high one.
    pub regs: u8,
    /// Jump or memory offset.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

/// The kernel's information about a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgInfo {
    /// Id of the program.
    pub id: u32,
    /// Hash of the instructions.
    pub tag: [u8; 8],
    /// Bytes of machine code; 0 without the JIT.
    pub jited_bytes: u32,
    /// Bytes of verified instructions.
    pub xlated_bytes: u32,
    /// Instructions that the verifier processed, counted once per pass; 0 before kernel 5.16.
    pub verified_insns: u32,
}

/// The kernel's information about an XDP link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Id of the link.
    pub id: u32,
    /// Id of the program that is attached now.
    pub prog_id: u32,
    /// Index of the interface; 0 after it was removed.
    pub ifindex: u32,
}

/// The error of a refused program.
#[derive(Debug)]
pub struct LoadFailure {
    /// The kernel's error.
    pub error: io::Error,
    /// The verifier's log; empty if the program never reached the verifier.
    pub log: String,
}

/// The result of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The XDP verdict that the program returned.
    pub verdict: u32,
    /// Mean duration of one repetition in nanoseconds.
    pub nanos: u32,
    /// Length in bytes of the frame after the run.
    pub bytes_out: u32,
}

/// `BPF_F_XDP_HAS_FRAGS`: the program supports frames that span several buffers.
pub const PROG_FRAGS: u32 = 1 << 5;
/// `BPF_F_XDP_DEV_BOUND_ONLY`: the program is loaded for one interface, whose driver offers it functions that read the
/// NIC's metadata of a frame (kernel 6.3).
pub const PROG_DEVICE_BOUND: u32 = 1 << 6;
/// `XDP_FLAGS_SKB_MODE`: generic XDP, on socket buffers.
pub const XDP_GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`: native XDP, in the driver.
pub const XDP_NATIVE: u32 = 1 << 2;

const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const LINK_CREATE: u32 = 28;
const LINK_UPDATE: u32 = 29;
const LINK_GET_FD_BY_ID: u32 = 30;
const LINK_GET_NEXT_ID: u32 = 31;
const LINK_DETACH: u32 = 34;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const LINK_REPLACE: u32 = 1 << 2;
const TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
const NAME_BYTES: usize = 16;
const LOG_BYTES: usize = 1 << 20;

/// `BPF_PROG_LOAD` of an XDP program. The first attempt requests no log, because writing a log costs time; after a
/// refusal the load is repeated with the verifier's log. `ifindex` is the interface of a program with
/// [`PROG_DEVICE_BOUND`], otherwise 0.
///
/// # Errors
/// [`LoadFailure`] with the kernel's error and the log.
pub fn load_xdp(
    name: &str,
    insns: &[RawInsn],
    licence: &CStr,
    flags: u32,
    ifindex: u32,
) -> Result<OwnedFd, LoadFailure> {
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; NAME_BYTES],
        prog_ifindex: u32,
        expected_attach_type: u32,
    }
    let mut log = Vec::new();
    let attempt = |log: &mut Vec<u8>| {
        let mut attr = Attr {
            prog_type: PROG_TYPE_XDP,
            insn_cnt: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            license: licence.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kern_version: 0,
            prog_flags: flags,
            prog_name: object_name(name),
            prog_ifindex: ifindex,
            // The attach type is the same for all versions of a program, because LINK_UPDATE refuses a program with
            // another attach type.
            expected_attach_type: ATTACH_XDP,
        };
        // SAFETY: instructions, licence and log are valid during the call and have the lengths that the attributes
        // contain.
        unsafe { call_fd(PROG_LOAD, &mut attr) }
    };
    match attempt(&mut log) {
        Ok(fd) => Ok(fd),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(LoadFailure { error, log: String::new() }),
        Err(_) => {
            log.resize(LOG_BYTES, 0);
            let error = match attempt(&mut log) {
                Ok(fd) => return Ok(fd),
                Err(error) => error,
            };
            let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
            Err(LoadFailure { error, log: String::from_utf8_lossy(&log[..end]).into_owned() })
        }
    }
}

/// `BPF_LINK_CREATE`: attaches the program to the interface as long as the returned file descriptor is open.
///
/// # Errors
/// An error of the kernel: `EBUSY` or `EEXIST` if a program is attached, `EOPNOTSUPP` (of some drivers `EINVAL`,
/// `ERANGE`, …) if the driver does not support the mode.
pub fn link_xdp(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut attr =
        Attr { prog_fd: program.as_raw_fd() as u32, target_ifindex: ifindex, attach_type: ATTACH_XDP, flags };
    // SAFETY: the attributes hold no pointers.
    unsafe { call_fd(LINK_CREATE, &mut attr) }
}

/// `BPF_LINK_UPDATE` with `BPF_F_REPLACE`: replaces the program between two frames, provided that `old` is attached.
///
/// # Errors
/// An error of the kernel: `EPERM` if `old` is not attached any more, `ENOLINK` if the interface was removed.
pub fn update_link(link: BorrowedFd<'_>, new: BorrowedFd<'_>, old: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        link_fd: u32,
        new_prog_fd: u32,
        flags: u32,
        old_prog_fd: u32,
    }
    let mut attr = Attr {
        link_fd: link.as_raw_fd() as u32,
        new_prog_fd: new.as_raw_fd() as u32,
        flags: LINK_REPLACE,
        old_prog_fd: old.as_raw_fd() as u32,
    };
    // SAFETY: the attributes hold no pointers.
    unsafe { call(LINK_UPDATE, &mut attr) }.map(drop)
}

/// `BPF_LINK_DETACH`: detaches the program from the interface before the call returns, even if another process has a
/// copy of the file descriptor.
///
/// # Errors
/// An error of the kernel: `EPERM` without CAP_BPF if unprivileged use of bpf(2) is disabled.
pub fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = link.as_raw_fd() as u32;
    // SAFETY: the attributes contain only the file descriptor of the link.
    unsafe { call(LINK_DETACH, &mut attr) }.map(drop)
}

/// `BPF_OBJ_GET_INFO_BY_FD` of a program.
///
/// # Errors
/// Returns the kernel's error if a system call fails.
pub fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgInfo> {
    // The first fields of struct bpf_prog_info are type, id, tag[8], jited_prog_len and xlated_prog_len; verified_insns
    // is at byte 216. The structure contains zero as the length of each list, so the kernel writes no lists.
    let words: [u32; 58] = object_info(program)?;
    let mut tag = [0; 8];
    tag[..4].copy_from_slice(&words[2].to_ne_bytes());
    tag[4..].copy_from_slice(&words[3].to_ne_bytes());
    Ok(ProgInfo { id: words[1], tag, jited_bytes: words[4], xlated_bytes: words[5], verified_insns: words[54] })
}

/// `BPF_OBJ_GET_INFO_BY_FD` of an XDP link.
///
/// # Errors
/// Returns the kernel's error if a system call fails.
pub fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    // The first fields of struct bpf_link_info are type, id, prog_id, padding and, for an XDP link, the ifindex.
    let words: [u32; 6] = object_info(link)?;
    Ok(LinkInfo { id: words[1], prog_id: words[2], ifindex: words[4] })
}

/// `BPF_LINK_GET_FD_BY_ID`: opens another file descriptor of the link with this id.
///
/// # Errors
/// An error of the kernel: `ENOENT` if there is no such link, `EPERM` without CAP_SYS_ADMIN.
pub fn link_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the attribute (link_id) holds no pointer.
    unsafe { call_fd(LINK_GET_FD_BY_ID, &mut [id]) }
}

/// Id of the program that a link attaches to this interface, if there is one. A program attached by netlink (`ip link
/// set … xdp`) has no link and is not found. Needs CAP_SYS_ADMIN; without it the result is `None`.
pub fn linked_program(ifindex: u32) -> Option<u32> {
    let mut id = 0u32;
    loop {
        let mut after = [id, 0];
        // SAFETY: the attributes (start_id, next_id) hold no pointers.
        unsafe { call(LINK_GET_NEXT_ID, &mut after) }.ok()?;
        id = after[1];
        // A link that was removed since the kernel returned its id is skipped.
        let Ok(link) = link_by_id(id) else { continue };
        // struct bpf_link_info begins with the type, as in `enum bpf_link_type`.
        const LINK_TYPE_XDP: u32 = 6;
        let words: [u32; 6] = object_info(link.as_fd()).ok()?;
        if words[0] == LINK_TYPE_XDP && words[4] == ifindex {
            return Some(words[2]);
        }
    }
}

fn object_info<const N: usize>(object: BorrowedFd<'_>) -> io::Result<[u32; N]> {
    #[repr(C)]
    struct Attr {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    #[repr(align(8))]
    struct Words<const N: usize>([u32; N]);
    let mut words = Words([0; N]);
    let mut attr =
        Attr { bpf_fd: object.as_raw_fd() as u32, info_len: 4 * N as u32, info: words.0.as_mut_ptr() as u64 };
    // SAFETY: the kernel writes at most `info_len` bytes to `info`.
    unsafe { call(OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(words.0)
}

#[repr(C)]
#[derive(Default)]
struct TestAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// `struct xdp_md`, the context of an XDP program.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct XdpMd {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

/// `BPF_PROG_TEST_RUN`: runs the program on `frame` (14 bytes or more) as if the frame had arrived on a queue, and
/// writes the resulting frame to `out`. An `ifindex` of zero means the loopback interface.
///
/// # Errors
/// An error of the kernel: `EINVAL` for a frame that is too short or too long, `ENOSPC` if `out` is too small.
pub fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    out: &mut [u8],
    ifindex: u32,
    queue: u32,
    repeat: u32,
) -> io::Result<TestRun> {
    let mut md =
        XdpMd { data_end: frame.len() as u32, ingress_ifindex: ifindex, rx_queue_index: queue, ..XdpMd::default() };
    let mut attr = TestAttr {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_size_out: out.len() as u32,
        data_out: out.as_mut_ptr() as u64,
        repeat,
        ctx_size_in: size_of::<XdpMd>() as u32,
        ctx_in: (&raw mut md) as u64,
        ..TestAttr::default()
    };
    // SAFETY: frame, out and context are valid during the call and have the lengths that the attributes contain.
    unsafe { call(PROG_TEST_RUN, &mut attr) }?;
    Ok(TestRun { verdict: attr.retval, nanos: attr.duration, bytes_out: attr.data_size_out })
}

/// `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`: runs the program on `repeat` copies of `frame` as if they had
/// arrived on queue 0 of `ifindex`, and executes its verdicts. `batch` is at most 256.
///
/// # Errors
/// An error of the kernel: `EINTR` if a signal interrupted the call, `EINVAL` for an invalid frame or batch.
pub fn test_run_live(program: BorrowedFd<'_>, frame: &[u8], ifindex: u32, repeat: u32, batch: u32) -> io::Result<()> {
    let mut md = XdpMd { data_end: frame.len() as u32, ingress_ifindex: ifindex, ..XdpMd::default() };
    let mut attr = TestAttr {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat,
        ctx_size_in: size_of::<XdpMd>() as u32,
        ctx_in: (&raw mut md) as u64,
        flags: TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
        ..TestAttr::default()
    };
    // SAFETY: frame and context are valid during the call and have the lengths that the attributes contain. The kernel
    // writes nothing back.
    unsafe { call(PROG_TEST_RUN, &mut attr) }.map(drop)
}

/// Waits until every XDP program that was running at the time of the call has finished and its verdict was executed:
/// `MEMBARRIER_CMD_GLOBAL` is `synchronize_rcu()`, and a driver's receive loop is one read-side section of RCU. Returns
/// false if the kernel does not support the call (a CPU isolated by `nohz_full`, a seccomp filter); the caller must
/// then wait some milliseconds instead.
pub fn wait_for_running_programs() -> bool {
    membarrier(MembarrierCommand::Global).is_ok()
}

/// The kernel refuses names that are longer than 15 bytes or contain characters other than `[A-Za-z0-9_.]`, so the name
/// is truncated and other characters are replaced.
fn object_name(name: &str) -> [u8; NAME_BYTES] {
    let mut out = [0; NAME_BYTES];
    for (to, from) in out.iter_mut().take(NAME_BYTES - 1).zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() || from == b'.' { from } else { b'_' };
    }
    out
}

/// # Safety
/// Every pointer in `attr` must be valid for the command's use of it.
unsafe fn call<A>(command: u32, attr: &mut A) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes at most `size_of::<A>()` bytes of the attributes; the caller guarantees the
    // rest.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<A>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as i32) }
}

/// # Safety
/// As for [`call`], and the command must return a new file descriptor.
unsafe fn call_fd<A>(command: u32, attr: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let fd = unsafe { call(command, attr) }?;
    // SAFETY: the kernel has just opened the file descriptor (with close-on-exec), so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_truncated_and_invalid_characters_replaced() {
        assert_eq!(&object_name("eth0:xsk"), b"eth0_xsk\0\0\0\0\0\0\0\0");
        assert_eq!(&object_name("a-name-that-is-too-long"), b"a_name_that_is_\0");
    }

    #[test]
    fn attributes_have_the_kernels_layout() {
        assert_eq!(std::mem::offset_of!(TestAttr, data_in), 16);
        assert_eq!(std::mem::offset_of!(TestAttr, ctx_in), 48);
        assert_eq!(std::mem::offset_of!(TestAttr, flags), 64);
        assert_eq!(size_of::<XdpMd>(), 24);
        assert_eq!(size_of::<RawInsn>(), 8);
    }
}
