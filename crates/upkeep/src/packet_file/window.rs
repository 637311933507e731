//! A window on a file: the part of the file that is in memory at this moment. The window reads ahead, because its
//! callers read the file mostly in order.

use index::ReadAt;
use std::cell::RefCell;
use std::io;
use store::device::{Device, FileId};

/// Bytes of one read: a block and the rest of the longest record that may begin in it.
const AHEAD: usize = (1 << 20) + (1 << 17);

/// A window on an open file.
pub struct Window<'d, D> {
    device: &'d mut D,
    file: FileId,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'d, D: Device> Window<'d, D> {
    /// A window on the first `limit` bytes of an open file.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn new(device: &'d mut D, file: FileId, limit: u64) -> io::Result<Self> {
        let size = device.len(file)?.min(limit);
        Ok(Self { device, file, size, start: 0, bytes: Vec::new() })
    }

    /// The device, for access without the window.
    pub fn device(&mut self) -> &mut D {
        self.device
    }

    /// Number of bytes of the file that the window can read.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The `len` bytes at offset `at`, or fewer at the end of the file.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn get(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let len = len.min(self.size.saturating_sub(at) as usize);
        let end = at + len as u64;
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            let ahead = AHEAD.max(len).min((self.size - at.min(self.size)) as usize);
            self.bytes.resize(ahead, 0);
            // After a failed read, the buffer contains no valid bytes.
            self.start = u64::MAX;
            let got = self.device.read(self.file, at, &mut self.bytes)?;
            self.bytes.truncate(got);
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(&self.bytes[from.min(self.bytes.len())..(from + len).min(self.bytes.len())])
    }

    /// True if the range contains only zeros, like space that was allocated but never written.
    ///
    /// # Errors
    /// Any error that the device returns.
    pub fn is_blank(&mut self, from: u64, to: u64) -> io::Result<bool> {
        let mut at = from;
        while at < to.min(self.size) {
            let part = self.get(at, (to - at).min(1 << 20) as usize)?;
            if part.is_empty() {
                break;
            }
            if part.iter().any(|b| *b != 0) {
                return Ok(false);
            }
            at += part.len() as u64;
        }
        Ok(true)
    }
}

/// An open file, with the trait that the index reader needs.
pub struct DeviceFile<'d, D> {
    device: RefCell<&'d mut D>,
    file: FileId,
}

impl<'d, D: Device> DeviceFile<'d, D> {
    /// Wraps an open file.
    pub fn new(device: &'d mut D, file: FileId) -> Self {
        Self { device: RefCell::new(device), file }
    }
}

impl<D: Device> ReadAt for DeviceFile<'_, D> {
    fn size(&self) -> io::Result<u64> {
        self.device.borrow_mut().len(self.file)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.device.borrow_mut().read(self.file, offset, buffer)
    }
}
