//! Manages the maps of a program. If two successive programs specify a map equally, the second program uses the map of
//! the first, with its contents.
//!
//! The kernel retains a map while a program or a file descriptor of this process refers to it. So counters and flow
//! state survive a program swap: [`MapSet::next`] passes the maps to the next program. If the specification of a map
//! changes, the next program gets a new map; the old program uses the old map until the old program is detached.

use crate::map::MapKind;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use sys::bpf::MapFd;

/// The specification of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// Name of the map; the kernel stores at most 15 characters of it.
    pub name: String,
    /// The kind of map.
    pub kind: MapKind,
    /// Size of a map key in bytes.
    pub key_bytes: u32,
    /// Size of a map value in bytes; in a per-CPU map, the size of the value of one CPU.
    pub value_bytes: u32,
    /// Largest number of entries.
    pub entries: u32,
    /// A text that is equal for two maps exactly if their bytes have the same meaning. It describes the fields that
    /// form the key, the expiry of an entry, or the content of a map with fixed content.
    pub semantics: String,
}

/// A map whose keys and values are byte strings.
#[derive(Debug)]
pub struct RawMap {
    spec: MapSpec,
    fd: MapFd,
}

/// The kernel did not create a map.
#[derive(Debug)]
pub struct MapError {
    /// The specification of the map that was not created.
    pub spec: MapSpec,
    /// The kernel's error.
    pub error: io::Error,
}

/// The maps of one program, in the order in which its code refers to them.
#[derive(Clone, Debug, Default)]
pub struct MapSet {
    maps: Vec<Arc<RawMap>>,
}

impl RawMap {
    /// Creates an empty map. In an array, all entries exist from the start, with the value zero.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn create(spec: MapSpec) -> Result<Self, MapError> {
        match MapFd::create(spec.kind, &spec.name, spec.key_bytes, spec.value_bytes, spec.entries) {
            Ok(fd) => Ok(Self { spec, fd }),
            Err(error) => Err(MapError { spec, error }),
        }
    }

    /// The specification of the map.
    pub fn spec(&self) -> &MapSpec {
        &self.spec
    }

    /// Creates or replaces the value of `key`.
    ///
    /// # Errors
    /// An error of the kernel; `E2BIG` if the map is full, or if the key is beyond the end of the array.
    ///
    /// # Panics
    /// The size of the key or of the value differs from the specification.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.fd.update(key, value)
    }

    /// The value of `key`. For a per-CPU map, the result contains the values of all CPUs, each padded to a multiple of
    /// 8 bytes.
    ///
    /// # Errors
    /// An error of the kernel; maps of sockets and interfaces cannot be read.
    ///
    /// # Panics
    /// The size of the key differs from the specification.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.fd.value_bytes()];
        Ok(self.fd.lookup(key, &mut value)?.then_some(value))
    }

    /// Deletes `key`; returns false if the map does not contain it.
    ///
    /// # Errors
    /// An error of the kernel; entries of arrays cannot be deleted.
    ///
    /// # Panics
    /// The size of the key differs from the specification.
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        self.fd.delete(key)
    }

    /// Returns up to `most` keys that follow `key` in the internal order of the map; if `key` is `None`, the first
    /// keys.
    ///
    /// # Errors
    /// An error of the kernel.
    ///
    /// # Panics
    /// The size of the key differs from the specification.
    pub fn keys_behind(&self, key: Option<&[u8]>, most: usize) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut next = vec![0; self.fd.key_bytes()];
        while keys.len() < most && self.fd.next_key(keys.last().map(Vec::as_slice).or(key), &mut next)? {
            keys.push(next.clone());
        }
        Ok(keys)
    }

    /// All keys, in the internal order of the map. Keys that programs add or delete during the call may be missing or
    /// included.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        // A program that changes the map at the same time can restart the iteration. The loop is bounded by `entries`,
        // the maximum number of keys of the map.
        self.keys_behind(None, self.spec.entries as usize)
    }
}

impl AsFd for RawMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl MapSet {
    /// The maps for the next program: maps of this set whose specification is equal are reused, the others are created.
    ///
    /// # Errors
    /// [`MapError`] if a map cannot be created. This set of maps is the same as before in any case.
    pub fn next(&self, wanted: &[MapSpec]) -> Result<Self, MapError> {
        let one = |spec: &MapSpec| match self.maps.iter().find(|map| map.spec == *spec) {
            Some(kept) => Ok(Arc::clone(kept)),
            None => RawMap::create(spec.clone()).map(Arc::new),
        };
        Ok(Self { maps: wanted.iter().map(one).collect::<Result<_, _>>()? })
    }

    /// The maps, in the order of the specifications that were passed to [`MapSet::next`].
    pub fn maps(&self) -> &[Arc<RawMap>] {
        &self.maps
    }

    /// True if the map with this index is the same map as in `before`; then it has its contents already and must not be
    /// initialised.
    pub fn shares(&self, map: usize, before: &Self) -> bool {
        self.maps.get(map).is_some_and(|map| before.maps.iter().any(|old| Arc::ptr_eq(map, old)))
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MapSpec { name, kind, key_bytes, value_bytes, entries, .. } = &self.spec;
        write!(
            f,
            "the kernel refused the map {name} ({kind:?}, {entries} entries, keys of {key_bytes} bytes, values of \
             {value_bytes} bytes): {}",
            self.error
        )?;
        match self.error.kind() {
            io::ErrorKind::PermissionDenied => f.write_str("; maps need CAP_BPF, maps of sockets also CAP_NET_ADMIN"),
            io::ErrorKind::OutOfMemory => f.write_str("; reduce the number of entries"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for MapError {}
