//! Maps: memory that programs in the kernel share with this process, with typed keys and values.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use sys::bpf::MapFd;
pub use sys::bpf::MapKind;

/// A type that is stored in a map. Kernel and process use the same bytes for it: native byte order, no padding.
pub trait Pod: Copy {
    /// Size in bytes.
    const BYTES: usize;
    /// Writes the bytes of the value to `to`, which has exactly [`Pod::BYTES`] bytes.
    fn write(self, to: &mut [u8]);
    /// Reads a value from `from`, which has exactly [`Pod::BYTES`] bytes.
    fn read(from: &[u8]) -> Self;
}

impl Pod for u32 {
    const BYTES: usize = 4;
    fn write(self, to: &mut [u8]) {
        to.copy_from_slice(&self.to_ne_bytes());
    }
    fn read(from: &[u8]) -> Self {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(from);
        Self::from_ne_bytes(bytes)
    }
}

impl Pod for u64 {
    const BYTES: usize = 8;
    fn write(self, to: &mut [u8]) {
        to.copy_from_slice(&self.to_ne_bytes());
    }
    fn read(from: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(from);
        Self::from_ne_bytes(bytes)
    }
}

impl<T: Pod, const N: usize> Pod for [T; N] {
    const BYTES: usize = T::BYTES * N;
    fn write(self, to: &mut [u8]) {
        for (piece, value) in to.chunks_exact_mut(T::BYTES).zip(self) {
            value.write(piece);
        }
    }
    fn read(from: &[u8]) -> Self {
        std::array::from_fn(|i| T::read(&from[i * T::BYTES..(i + 1) * T::BYTES]))
    }
}

/// A map with one value for each key; all CPUs share this value.
#[derive(Debug)]
pub struct Map<K, V> {
    fd: MapFd,
    types: PhantomData<fn(K) -> V>,
}

impl<K: Pod, V: Pod> Map<K, V> {
    /// Creates an empty map for up to `entries` keys. In an array, all entries exist from the start, with the value
    /// zero.
    ///
    /// # Errors
    /// An error of the kernel; `EPERM` means that the process lacks CAP_BPF or, for a map of sockets, CAP_NET_ADMIN.
    ///
    /// # Panics
    /// The kind is [`MapKind::PerCpuArray`], for which [`PerCpuMap`] is the type.
    pub fn create(kind: MapKind, name: &str, entries: u32) -> io::Result<Self> {
        assert_ne!(kind, MapKind::PerCpuArray, "use PerCpuMap for a map with one value per CPU");
        let fd = MapFd::create(kind, name, K::BYTES as u32, V::BYTES as u32, entries)?;
        Ok(Self { fd, types: PhantomData })
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// An error of the kernel; maps of sockets cannot be read.
    pub fn get(&self, key: K) -> io::Result<Option<V>> {
        let mut value = vec![0; V::BYTES];
        Ok(self.fd.lookup(&bytes_of(key), &mut value)?.then(|| V::read(&value)))
    }

    /// Creates or replaces the value of `key`.
    ///
    /// # Errors
    /// An error of the kernel; `E2BIG` if the map is full, or if the key is beyond the end of the array.
    pub fn set(&self, key: K, value: V) -> io::Result<()> {
        self.fd.update(&bytes_of(key), &bytes_of(value))
    }

    /// Deletes `key`; returns false if the map does not contain it.
    ///
    /// # Errors
    /// An error of the kernel; entries of arrays cannot be deleted.
    pub fn remove(&self, key: K) -> io::Result<bool> {
        self.fd.delete(&bytes_of(key))
    }
}

impl<K, V> AsFd for Map<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An array with one value per entry and CPU. Programs can increment counters in it without atomic operations.
#[derive(Debug)]
pub struct PerCpuMap<V> {
    fd: MapFd,
    types: PhantomData<fn() -> V>,
}

impl<V: Pod> PerCpuMap<V> {
    /// Creates a map of `entries` entries, each with the value zero for every CPU.
    ///
    /// # Errors
    /// An error of the kernel; `EPERM` means that the process lacks CAP_BPF.
    pub fn create(name: &str, entries: u32) -> io::Result<Self> {
        let fd = MapFd::create(MapKind::PerCpuArray, name, 4, V::BYTES as u32, entries)?;
        Ok(Self { fd, types: PhantomData })
    }

    /// The values of the entry `index`, one per possible CPU; `None` beyond the end of the array.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn get(&self, index: u32) -> io::Result<Option<Vec<V>>> {
        let mut all = vec![0; self.fd.value_bytes()];
        let found = self.fd.lookup(&index.to_ne_bytes(), &mut all)?;
        let stride = V::BYTES.next_multiple_of(8);
        Ok(found.then(|| all.chunks_exact(stride).map(|one| V::read(&one[..V::BYTES])).collect()))
    }
}

impl<V> AsFd for PerCpuMap<V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bytes_of<T: Pod>(value: T) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES];
    value.write(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_round_trip_through_bytes() {
        let value = [[1u32, 2], [3, u32::MAX]];
        let bytes = bytes_of(value);
        assert_eq!(bytes.len(), 16);
        assert_eq!(<[[u32; 2]; 2]>::read(&bytes), value);
    }
}
