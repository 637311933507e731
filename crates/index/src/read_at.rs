//! Random access to the bytes of an index, in a file or in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Random access to bytes.
pub trait ReadAt {
    /// Number of bytes of the source.
    ///
    /// # Errors
    /// The error of the system call.
    fn size(&self) -> io::Result<u64>;

    /// Reads bytes from `offset` on into `buffer`. Returns their number, which is less than the length of the buffer
    /// only at the end of the source.
    ///
    /// # Errors
    /// The error of the system call.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(self, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

impl ReadAt for &[u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or(&[]);
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// Reads `len` bytes from `offset` on, or fewer if the source ends before.
pub(crate) fn up_to(source: &impl ReadAt, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    let read = source.read_at(&mut buffer, offset)?;
    buffer.truncate(read);
    Ok(buffer)
}
