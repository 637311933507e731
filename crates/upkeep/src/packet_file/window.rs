//! A stretch of a file in memory, read ahead: what walks a file asks for any bytes of it, mostly in order.

use index::ReadAt;
use std::cell::RefCell;
use std::io;
use store::device::{Device, FileId};

/// Bytes fetched at once: a block, and the longest record that begins in it.
const AHEAD: usize = (1 << 20) + (1 << 17);

/// See the module.
pub struct Window<'d, D> {
    device: &'d mut D,
    file: FileId,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'d, D: Device> Window<'d, D> {
    /// Over an open file, of which it sees the first `limit` bytes.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(device: &'d mut D, file: FileId, limit: u64) -> io::Result<Self> {
        let size = device.len(file)?.min(limit);
        Ok(Self { device, file, size, start: 0, bytes: Vec::new() })
    }

    /// The device, for what the window does not see.
    pub fn device(&mut self) -> &mut D {
        self.device
    }

    /// Bytes that can be seen.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The `len` bytes at `at`, fewer only where the file ends.
    ///
    /// # Errors
    /// What the device says.
    pub fn get(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let len = len.min(self.size.saturating_sub(at) as usize);
        let end = at + len as u64;
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            let ahead = AHEAD.max(len).min((self.size - at.min(self.size)) as usize);
            self.bytes.resize(ahead, 0);
            // A failed read must not leave bytes of one place under the name of another.
            self.start = u64::MAX;
            let got = self.device.read(self.file, at, &mut self.bytes)?;
            self.bytes.truncate(got);
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(&self.bytes[from.min(self.bytes.len())..(from + len).min(self.bytes.len())])
    }

    /// Whether there is nothing but zeros in a stretch: room that was allocated and never written.
    ///
    /// # Errors
    /// What the device says.
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

/// An open file as the index reads it.
pub struct DeviceFile<'d, D> {
    device: RefCell<&'d mut D>,
    file: FileId,
}

impl<'d, D: Device> DeviceFile<'d, D> {
    /// Over an open file.
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
