//! The maps of a program, and their transfer to the next program: a map with an equal specification is kept with its
//! contents.
//!
//! The kernel keeps a map as long as a program or a file descriptor of this process refers to it. So counters and flow
//! state survive a swap: [`MapSet::next`] passes the maps on to the next program. If the specification of a map
//! changes, the next program gets a new map, and the program that still runs continues with the old one.

use crate::map::MapKind;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use sys::bpf::MapFd;

/// The specification of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// Name of the map; the kernel keeps 15 characters.
    pub name: String,
    /// The kind of map.
    pub kind: MapKind,
    /// Size of a key in bytes.
    pub key_bytes: u32,
    /// Size of a value in bytes; in a per-CPU map, the size of the value of one CPU.
    pub value_bytes: u32,
    /// Largest number of entries.
    pub entries: u32,
    /// The meaning of the bytes, as a text that is equal exactly if the meaning is equal: the fields that make the key,
    /// the expiry of an entry, or the content if it is fixed.
    pub semantics: String,
}

/// A map from bytes to bytes.
#[derive(Debug)]
pub struct RawMap {
    spec: MapSpec,
    fd: MapFd,
}

/// A map that the kernel refused.
#[derive(Debug)]
pub struct MapError {
    /// The specification of the refused map.
    pub spec: MapSpec,
    /// The kernel's error.
    pub error: io::Error,
}

/// The maps of one program, in the order in which its code numbers them.
#[derive(Clone, Debug, Default)]
pub struct MapSet {
    maps: Vec<Arc<RawMap>>,
}

impl RawMap {
    /// An empty map. An array is created with all entries zero.
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
    /// An error of the kernel; `E2BIG` if the map is full or the key lies after the end of the array.
    ///
    /// # Panics
    /// If key or value does not have the size of the specification.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.fd.update(key, value)
    }

    /// The value of `key`. A per-CPU map returns the values of all CPUs, each padded to a multiple of 8 bytes.
    ///
    /// # Errors
    /// An error of the kernel; maps of sockets and devices cannot be read.
    ///
    /// # Panics
    /// If the key does not have the size of the specification.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.fd.value_bytes()];
        Ok(self.fd.lookup(key, &mut value)?.then_some(value))
    }

    /// Deletes `key`; false if the map does not contain it.
    ///
    /// # Errors
    /// An error of the kernel; entries of arrays cannot be deleted.
    ///
    /// # Panics
    /// If the key does not have the size of the specification.
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        self.fd.delete(key)
    }

    /// Up to `most` keys after `key` (from the first key on if `key` is `None`), in the map's own order.
    ///
    /// # Errors
    /// An error of the kernel.
    ///
    /// # Panics
    /// If the key does not have the size of the specification.
    pub fn keys_behind(&self, key: Option<&[u8]>, most: usize) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut next = vec![0; self.fd.key_bytes()];
        while keys.len() < most && self.fd.next_key(keys.last().map(Vec::as_slice).or(key), &mut next)? {
            keys.push(next.clone());
        }
        Ok(keys)
    }

    /// All keys, in the map's own order. Keys that programs add or delete during the call may be included or not.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        // A concurrent change can restart the iteration; the limit bounds it, since the map has at most `entries` keys.
        self.keys_behind(None, self.spec.entries as usize)
    }
}

impl AsFd for RawMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl MapSet {
    /// The maps for the next program: the maps of this set with an equal specification, and new maps for the others.
    ///
    /// # Errors
    /// [`MapError`]; this set does not change.
    pub fn next(&self, wanted: &[MapSpec]) -> Result<Self, MapError> {
        let one = |spec: &MapSpec| match self.maps.iter().find(|map| map.spec == *spec) {
            Some(kept) => Ok(Arc::clone(kept)),
            None => RawMap::create(spec.clone()).map(Arc::new),
        };
        Ok(Self { maps: wanted.iter().map(one).collect::<Result<_, _>>()? })
    }

    /// The maps, in the order of the argument of [`MapSet::next`].
    pub fn maps(&self) -> &[Arc<RawMap>] {
        &self.maps
    }

    /// True if `before` contains the same map: its contents are kept and must not be initialised again.
    pub fn shares(&self, map: usize, before: &Self) -> bool {
        self.maps.get(map).is_some_and(|map| before.maps.iter().any(|old| Arc::ptr_eq(map, old)))
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MapSpec { name, kind, key_bytes, value_bytes, entries, .. } = &self.spec;
        write!(
            f,
            "the kernel refused the map {name} ({kind:?}, {entries} entries of {key_bytes} + {value_bytes} bytes): {}",
            self.error
        )?;
        match self.error.kind() {
            io::ErrorKind::PermissionDenied => f.write_str("; maps need CAP_BPF, those of sockets CAP_NET_ADMIN too"),
            io::ErrorKind::OutOfMemory => f.write_str("; reduce the number of entries"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for MapError {}
