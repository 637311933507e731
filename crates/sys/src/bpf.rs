//! The `bpf(2)` system call: maps, programs, links, test runs.
//!
//! Each function lays out the attributes of one command as `include/uapi/linux/bpf.h` declares them, makes the call and
//! decodes the answer. Attributes shorter than the kernel's own are legal: it takes the rest as zero. The kernel reads
//! and writes as many bytes of key and value as the map was created with, so a [`MapFd`] remembers these sizes and
//! refuses buffers of any other: that check is what makes the calls safe.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction as the kernel takes it: RFC 9669 section 3, little-endian registers (`dst | src << 4`).
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

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Hash table.
    Hash = 1,
    /// Array indexed by a `u32`.
    Array = 2,
    /// Array with one value per processor.
    PerCpuArray = 6,
    /// Queue number to network device.
    DevMap = 14,
    /// Queue number to AF_XDP socket.
    XskMap = 17,
}

/// A map: its file descriptor and the sizes that the kernel will copy.
#[derive(Debug)]
pub struct MapFd {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

/// What the kernel says of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgInfo {
    /// Number of the program in this kernel.
    pub id: u32,
    /// Hash of the instructions.
    pub tag: [u8; 8],
    /// Bytes of machine code; 0 without the JIT.
    pub jited_bytes: u32,
    /// Bytes of verified instructions.
    pub xlated_bytes: u32,
}

/// What the kernel says of an XDP link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Number of the link in this kernel.
    pub id: u32,
    /// The program that is attached now.
    pub prog_id: u32,
    /// The interface; 0 once it has gone.
    pub ifindex: u32,
}

/// A program that was refused.
#[derive(Debug)]
pub struct LoadFailure {
    /// The kernel's answer.
    pub error: io::Error,
    /// The verifier's log; empty when the program never reached it.
    pub log: String,
}

/// The answer of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// What the program returned.
    pub verdict: u32,
    /// Mean duration of one repetition in nanoseconds.
    pub nanos: u32,
    /// Bytes of the frame after the run.
    pub bytes_out: u32,
}

/// `BPF_F_XDP_HAS_FRAGS`: the program understands frames that span several buffers.
pub const PROG_FRAGS: u32 = 1 << 5;
/// `XDP_FLAGS_SKB_MODE`: generic XDP, on socket buffers.
pub const XDP_GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`: native XDP, in the driver.
pub const XDP_NATIVE: u32 = 1 << 2;

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP_ELEM: u32 = 1;
const MAP_UPDATE_ELEM: u32 = 2;
const MAP_DELETE_ELEM: u32 = 3;
const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const LINK_CREATE: u32 = 28;
const LINK_UPDATE: u32 = 29;
const LINK_GET_FD_BY_ID: u32 = 30;
const LINK_GET_NEXT_ID: u32 = 31;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const LINK_REPLACE: u32 = 1 << 2;
const TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
const NAME_BYTES: usize = 16;
const LOG_BYTES: usize = 1 << 20;

impl MapFd {
    /// `BPF_MAP_CREATE`. A per-processor value occupies a multiple of 8 bytes for each possible processor.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without CAP_BPF (and CAP_NET_ADMIN for an XSKMAP), `EINVAL` for sizes it does not take.
    pub fn create(kind: MapKind, name: &str, key_bytes: u32, value_bytes: u32, entries: u32) -> io::Result<Self> {
        #[repr(C)]
        struct Attr {
            map_type: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
            map_flags: u32,
            inner_map_fd: u32,
            numa_node: u32,
            map_name: [u8; NAME_BYTES],
        }
        let mut attr = Attr {
            map_type: kind as u32,
            key_size: key_bytes,
            value_size: value_bytes,
            max_entries: entries,
            map_flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            map_name: object_name(name),
        };
        let total = match kind {
            MapKind::PerCpuArray => (value_bytes as usize).next_multiple_of(8) * possible_cpus()?,
            _ => value_bytes as usize,
        };
        // SAFETY: the attributes hold no pointers.
        let fd = unsafe { call_fd(MAP_CREATE, &mut attr) }?;
        Ok(Self { fd, key_bytes: key_bytes as usize, value_bytes: total })
    }

    /// Bytes of one value as user space sees it: for a per-processor map, those of all possible processors.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// `BPF_MAP_LOOKUP_ELEM` into `value`; false if there is no such key.
    ///
    /// # Errors
    /// Whatever the kernel says except `ENOENT`.
    ///
    /// # Panics
    /// When `key` or `value` does not have the map's size.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        assert_eq!((key.len(), value.len()), (self.key_bytes, self.value_bytes), "key and value bytes of the map");
        let mut attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: key and value point to as many bytes as the map was created with, checked above.
        match unsafe { call(MAP_LOOKUP_ELEM, &mut attr) } {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// `BPF_MAP_UPDATE_ELEM`: creates or replaces.
    ///
    /// # Errors
    /// The kernel's: `E2BIG` for a key beyond the last or a full table.
    ///
    /// # Panics
    /// When `key` or `value` does not have the map's size.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!((key.len(), value.len()), (self.key_bytes, self.value_bytes), "key and value bytes of the map");
        let mut attr = self.element(key, value.as_ptr() as u64);
        // SAFETY: key and value point to as many bytes as the map was created with, checked above; both are only read.
        unsafe { call(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// `BPF_MAP_DELETE_ELEM`; false if there was none.
    ///
    /// # Errors
    /// Whatever the kernel says except `ENOENT`; arrays refuse with `EINVAL`.
    ///
    /// # Panics
    /// When `key` does not have the map's size.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        assert_eq!(key.len(), self.key_bytes, "key bytes of the map");
        let mut attr = self.element(key, 0);
        // SAFETY: the key points to as many bytes as the map was created with, checked above.
        match unsafe { call(MAP_DELETE_ELEM, &mut attr) } {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn element(&self, key: &[u8], value: u64) -> ElementAttr {
        ElementAttr { map_fd: self.fd.as_raw_fd() as u32, pad: 0, key: key.as_ptr() as u64, value, flags: 0 }
    }
}

impl AsFd for MapFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `BPF_PROG_LOAD` of an XDP program. The first attempt asks for no log, because writing one costs time; a refusal is
/// asked again with the verifier's log.
///
/// # Errors
/// [`LoadFailure`] with the kernel's answer and the log.
pub fn load_xdp(name: &str, insns: &[RawInsn], licence: &CStr, flags: u32) -> Result<OwnedFd, LoadFailure> {
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
            prog_ifindex: 0,
            // Constant over all versions of a program: LINK_UPDATE refuses one with another attach type.
            expected_attach_type: ATTACH_XDP,
        };
        // SAFETY: instructions, licence and log are live for the call and as long as the attributes say.
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

/// `BPF_LINK_CREATE`: attaches the program to the interface for as long as the answer is open.
///
/// # Errors
/// The kernel's: `EBUSY` or `EEXIST` when a program is attached, `EOPNOTSUPP` (and by driver `EINVAL`, `ERANGE`, …) when
/// the mode is not to be had.
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

/// `BPF_LINK_UPDATE` with `BPF_F_REPLACE`: the new program takes over between two frames, if `old` is still the one.
///
/// # Errors
/// The kernel's: `EPERM` when `old` is not attached any more, `ENOLINK` when the interface has gone.
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

/// `BPF_OBJ_GET_INFO_BY_FD` of a program.
///
/// # Errors
/// The kernel's.
pub fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgInfo> {
    // struct bpf_prog_info begins: type, id, tag[8], jited_prog_len, xlated_prog_len.
    let words: [u32; 6] = object_info(program)?;
    let mut tag = [0; 8];
    tag[..4].copy_from_slice(&words[2].to_ne_bytes());
    tag[4..].copy_from_slice(&words[3].to_ne_bytes());
    Ok(ProgInfo { id: words[1], tag, jited_bytes: words[4], xlated_bytes: words[5] })
}

/// `BPF_OBJ_GET_INFO_BY_FD` of an XDP link.
///
/// # Errors
/// The kernel's.
pub fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    // struct bpf_link_info begins: type, id, prog_id, (padding), and for XDP the ifindex.
    let words: [u32; 6] = object_info(link)?;
    Ok(LinkInfo { id: words[1], prog_id: words[2], ifindex: words[4] })
}

/// The program that a link keeps on this interface, if any: its number. One attached by netlink (`ip link set … xdp`) has
/// no link and is not found. Needs CAP_SYS_ADMIN; without it the answer is `None`.
pub fn linked_program(ifindex: u32) -> Option<u32> {
    let mut id = 0u32;
    loop {
        let mut after = [id, 0];
        // SAFETY: the attributes (start_id, next_id) hold no pointers.
        unsafe { call(LINK_GET_NEXT_ID, &mut after) }.ok()?;
        id = after[1];
        // SAFETY: the attribute (link_id) holds no pointer. A link may have gone since it was listed.
        let Ok(link) = (unsafe { call_fd(LINK_GET_FD_BY_ID, &mut [id]) }) else { continue };
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

/// `BPF_PROG_TEST_RUN`: runs the program on `frame` (14 bytes or more) as if it had come from a queue; the frame as the
/// program left it is written to `out`. An `ifindex` of zero means the loopback interface.
///
/// # Errors
/// The kernel's: `EINVAL` for a frame that is too short or too long, `ENOSPC` when `out` is too small.
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
    // SAFETY: frame, out and context are live for the call and as long as the attributes say.
    unsafe { call(PROG_TEST_RUN, &mut attr) }?;
    Ok(TestRun { verdict: attr.retval, nanos: attr.duration, bytes_out: attr.data_size_out })
}

/// `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`: `repeat` copies of `frame` run through the program as if they
/// had come from queue 0 of `ifindex`, and what it decides is carried out. `batch` is at most 256.
///
/// # Errors
/// The kernel's: `EINTR` when a signal came first, `EINVAL` for a frame or batch that it does not take.
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
    // SAFETY: frame and context are live for the call and as long as the attributes say; nothing is written back.
    unsafe { call(PROG_TEST_RUN, &mut attr) }.map(drop)
}

/// Waits until every XDP program that was running when this was called has finished, together with what it decided:
/// `MEMBARRIER_CMD_GLOBAL` is `synchronize_rcu()`, and a driver's receive loop is one read-side section of RCU.
/// Answers whether the kernel could; where it could not (one processor isolated by `nohz_full`, a seccomp filter) the
/// caller has to allow some milliseconds instead.
pub fn wait_for_running_programs() -> bool {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: membarrier takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0 }
}

/// How many processors there could ever be: the number of values in an entry of a per-processor map.
///
/// # Errors
/// When `/sys/devices/system/cpu/possible` cannot be read or understood.
pub fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    last_cpu(&text).map(|last| last + 1).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("/sys/devices/system/cpu/possible says {text:?}"))
    })
}

fn last_cpu(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// Names of objects are 15 bytes of `[A-Za-z0-9_.]`; others are refused by the kernel, so they are replaced here.
fn object_name(name: &str) -> [u8; NAME_BYTES] {
    let mut out = [0; NAME_BYTES];
    for (to, from) in out.iter_mut().take(NAME_BYTES - 1).zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() || from == b'.' { from } else { b'_' };
    }
    out
}

/// # Safety
/// Every pointer in `attr` must be good for what the command does with it.
unsafe fn call<A>(command: u32, attr: &mut A) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes at most `size_of::<A>()` bytes of the attributes; the rest is the caller's word.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<A>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as i32) }
}

/// # Safety
/// As for [`call`], and the command must be one that answers with a new file descriptor.
unsafe fn call_fd<A>(command: u32, attr: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's word.
    let fd = unsafe { call(command, attr) }?;
    // SAFETY: the kernel has just opened it for us (with close-on-exec) and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_ends_with_the_highest() {
        assert_eq!(last_cpu("0-1\n"), Some(1));
        assert_eq!(last_cpu("0\n"), Some(0));
        assert_eq!(last_cpu("0-3,8-11\n"), Some(11));
        assert_eq!(last_cpu("\n"), None);
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        assert_eq!(&object_name("eth0:xsk"), b"eth0_xsk\0\0\0\0\0\0\0\0");
        assert_eq!(&object_name("a-name-that-is-too-long"), b"a_name_that_is_\0");
    }

    #[test]
    fn attributes_have_the_kernels_layout() {
        assert_eq!(std::mem::offset_of!(TestAttr, data_in), 16);
        assert_eq!(std::mem::offset_of!(TestAttr, ctx_in), 48);
        assert_eq!(std::mem::offset_of!(TestAttr, flags), 64);
        assert_eq!(std::mem::offset_of!(ElementAttr, key), 8);
        assert_eq!(size_of::<XdpMd>(), 24);
        assert_eq!(size_of::<RawInsn>(), 8);
    }
}
