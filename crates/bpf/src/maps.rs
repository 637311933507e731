//! The maps of a program that others take over from: a map that means the same to both is kept, with all that is in it.
//!
//! Maps are objects of their own in the kernel and live for as long as a program or a descriptor of ours refers to them. So
//! counters and the state of flows survive a swap by being handed to the next program ([`MapSet::next`]), and a map that
//! changes its shape or its meaning is a new one beside the old, which the program that still runs goes on using.

use crate::map::MapKind;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use sys::bpf::MapFd;

/// What a map is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSpec {
    /// Its name, of which the kernel keeps 15 characters.
    pub name: String,
    /// Its kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value (of one processor's, where each has one).
    pub value_bytes: u32,
    /// Most entries.
    pub entries: u32,
    /// What the bytes mean, in words that are equal exactly where they mean the same: which fields make the key, when an entry
    /// expires, or the content where that is fixed.
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
    /// What it should have been.
    pub spec: MapSpec,
    /// The kernel's answer.
    pub error: io::Error,
}

/// The maps of one program, in the order in which its code knows them.
#[derive(Clone, Debug, Default)]
pub struct MapSet {
    maps: Vec<Arc<RawMap>>,
}

impl RawMap {
    /// An empty map (arrays are born full of zeros).
    ///
    /// # Errors
    /// [`MapError`].
    pub fn create(spec: MapSpec) -> Result<Self, MapError> {
        match MapFd::create(spec.kind, &spec.name, spec.key_bytes, spec.value_bytes, spec.entries) {
            Ok(fd) => Ok(Self { spec, fd }),
            Err(error) => Err(MapError { spec, error }),
        }
    }

    /// What it is.
    pub fn spec(&self) -> &MapSpec {
        &self.spec
    }

    /// Creates or replaces the value of `key`.
    ///
    /// # Errors
    /// The kernel's; `E2BIG` when the map is full or the key lies beyond the array.
    ///
    /// # Panics
    /// When key or value does not have the size that the map was made with.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.fd.update(key, value)
    }

    /// The value of `key`: where each processor has one, those of all, each padded to a multiple of 8 bytes.
    ///
    /// # Errors
    /// The kernel's; maps of sockets and devices cannot be read.
    ///
    /// # Panics
    /// When the key does not have the size that the map was made with.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.fd.value_bytes()];
        Ok(self.fd.lookup(key, &mut value)?.then_some(value))
    }

    /// Forgets `key`; false if it was not there.
    ///
    /// # Errors
    /// The kernel's; arrays cannot forget.
    ///
    /// # Panics
    /// When the key does not have the size that the map was made with.
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        self.fd.delete(key)
    }

    /// Up to `most` keys behind `key` (from the first one without), in the map's own order.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the key does not have the size that the map was made with.
    pub fn keys_behind(&self, key: Option<&[u8]>, most: usize) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut next = vec![0; self.fd.key_bytes()];
        while keys.len() < most && self.fd.next_key(keys.last().map(Vec::as_slice).or(key), &mut next)? {
            keys.push(next.clone());
        }
        Ok(keys)
    }

    /// The keys that are there, in the map's own order; what programs add or remove meanwhile may be among them or not.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        // A map that changes under the walk may begin anew; it never has more keys than it holds.
        self.keys_behind(None, self.spec.entries as usize)
    }
}

impl AsFd for RawMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl MapSet {
    /// The maps for the next program: those of this set that are equal in everything, and new ones for the rest.
    ///
    /// # Errors
    /// [`MapError`]; this set stays as it is.
    pub fn next(&self, wanted: &[MapSpec]) -> Result<Self, MapError> {
        let one = |spec: &MapSpec| match self.maps.iter().find(|map| map.spec == *spec) {
            Some(kept) => Ok(Arc::clone(kept)),
            None => RawMap::create(spec.clone()).map(Arc::new),
        };
        Ok(Self { maps: wanted.iter().map(one).collect::<Result<_, _>>()? })
    }

    /// In the order of [`MapSet::next`]'s wishes.
    pub fn maps(&self) -> &[Arc<RawMap>] {
        &self.maps
    }

    /// Whether `before` has this map too: what is in it is not to be filled in again.
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
            io::ErrorKind::OutOfMemory => f.write_str("; ask for fewer entries"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for MapError {}
