//! Maps of `bpf(2)`, untyped: bytes to bytes.
//!
//! The kernel reads and writes as many bytes of key and value as the map was created with, so a [`MapFd`] stores these
//! sizes and refuses buffers of any other size; this check makes the calls safe.

use super::{NAME_BYTES, call, call_fd, object_name};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP_ELEM: u32 = 1;
const MAP_UPDATE_ELEM: u32 = 2;
const MAP_DELETE_ELEM: u32 = 3;
const MAP_GET_NEXT_KEY: u32 = 4;
/// `BPF_F_NO_PREALLOC`: entries are allocated on insertion; tries require it.
const NO_PREALLOC: u32 = 1;

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Hash table.
    Hash = 1,
    /// Array indexed by a `u32`.
    Array = 2,
    /// Targets of tail calls by index; values are file descriptors of programs.
    ProgArray = 3,
    /// Hash table with one value per CPU.
    PerCpuHash = 5,
    /// Array with one value per CPU.
    PerCpuArray = 6,
    /// Hash table that evicts approximately the least recently used entry.
    LruHash = 9,
    /// Longest-prefix match; the key begins with the prefix length in bits, a `u32`.
    LpmTrie = 11,
    /// Queue number to network device.
    DevMap = 14,
    /// Queue number to AF_XDP socket.
    XskMap = 17,
}

/// A map: its file descriptor and the sizes that the kernel copies.
#[derive(Debug)]
pub struct MapFd {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl MapFd {
    /// `BPF_MAP_CREATE`. A per-CPU value occupies a multiple of 8 bytes for each possible CPU.
    ///
    /// # Errors
    /// An error of the kernel: `EPERM` without CAP_BPF (and CAP_NET_ADMIN for an XSKMAP), `EINVAL` for unsupported
    /// sizes.
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
            map_flags: if kind == MapKind::LpmTrie { NO_PREALLOC } else { 0 },
            inner_map_fd: 0,
            numa_node: 0,
            map_name: object_name(name),
        };
        let total = match kind {
            MapKind::PerCpuArray | MapKind::PerCpuHash => (value_bytes as usize).next_multiple_of(8) * possible_cpus()?,
            _ => value_bytes as usize,
        };
        // SAFETY: the attributes hold no pointers.
        let fd = unsafe { call_fd(MAP_CREATE, &mut attr) }?;
        Ok(Self { fd, key_bytes: key_bytes as usize, value_bytes: total })
    }

    /// Size of a value in user space, in bytes. For a per-CPU map, this is the size of the values of all possible CPUs
    /// together.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// `BPF_MAP_LOOKUP_ELEM` into `value`; false if there is no such key.
    ///
    /// # Errors
    /// All errors of the kernel except `ENOENT`, for which the function returns false.
    ///
    /// # Panics
    /// If the length of `key` or `value` is not that with which the map was created.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        assert_eq!(
            (key.len(), value.len()),
            (self.key_bytes, self.value_bytes),
            "key and value must have the sizes with which the map was created"
        );
        let mut attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: key and value point to as many bytes as the map was created with, checked above.
        match unsafe { call(MAP_LOOKUP_ELEM, &mut attr) } {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// `BPF_MAP_UPDATE_ELEM`: creates or replaces an entry.
    ///
    /// # Errors
    /// An error of the kernel: `E2BIG` for an index after the end of an array or for a full table.
    ///
    /// # Panics
    /// If the length of `key` or `value` is not that with which the map was created.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(
            (key.len(), value.len()),
            (self.key_bytes, self.value_bytes),
            "key and value must have the sizes with which the map was created"
        );
        let mut attr = self.element(key, value.as_ptr() as u64);
        // SAFETY: key and value point to as many bytes as the map was created with, checked above; both are only read.
        unsafe { call(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// `BPF_MAP_DELETE_ELEM`; false if there is no such key.
    ///
    /// # Errors
    /// All errors of the kernel except `ENOENT`, for which the function returns false; `EINVAL` for an array, from
    /// which no entry can be deleted.
    ///
    /// # Panics
    /// If the length of `key` is not the key size of the map.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        assert_eq!(key.len(), self.key_bytes, "the key must have the key size of the map");
        let mut attr = self.element(key, 0);
        // SAFETY: the key points to as many bytes as the map was created with, checked above.
        match unsafe { call(MAP_DELETE_ELEM, &mut attr) } {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// `BPF_MAP_GET_NEXT_KEY`: writes the key after `key` (the first key if `key` is `None`) to `next`. Returns false
    /// after the last key. The kernel determines the order of keys. If `key` was deleted in the meantime, the iteration
    /// starts again with the first key.
    ///
    /// # Errors
    /// All errors of the kernel except `ENOENT`, for which the function returns false.
    ///
    /// # Panics
    /// If the length of `key` or `next` is not the key size of the map.
    pub fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> io::Result<bool> {
        assert!(key.is_none_or(|key| key.len() == self.key_bytes), "the key must have the key size of the map");
        assert_eq!(next.len(), self.key_bytes, "the buffer must have the key size of the map");
        let mut attr = self.element(key.unwrap_or(&[]), next.as_mut_ptr() as u64);
        if key.is_none() {
            attr.key = 0;
        }
        // SAFETY: both point to as many bytes as the map's keys have, checked above; a null key requests the first key.
        match unsafe { call(MAP_GET_NEXT_KEY, &mut attr) } {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Bytes of one key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
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

/// Number of possible CPUs: the number of values in an entry of a per-CPU map.
///
/// # Errors
/// If `/sys/devices/system/cpu/possible` cannot be read or parsed.
pub fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    last_cpu(&text).map(|last| last + 1).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/sys/devices/system/cpu/possible contains {text:?}, not a list of CPUs"),
        )
    })
}

fn last_cpu(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_cpu_list_is_the_highest() {
        assert_eq!(last_cpu("0-1\n"), Some(1));
        assert_eq!(last_cpu("0\n"), Some(0));
        assert_eq!(last_cpu("0-3,8-11\n"), Some(11));
        assert_eq!(last_cpu("\n"), None);
    }

    #[test]
    fn attributes_have_the_kernels_layout() {
        assert_eq!(std::mem::offset_of!(ElementAttr, key), 8);
    }
}
