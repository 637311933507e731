//! Reading many frames with one system call, recvmmsg(2).

use super::PacketSocket;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;

/// Largest number of frames of one call: `UIO_MAXIOV`, above which the kernel reads fewer messages.
const FRAMES_MAX: usize = 1024;

/// The frames of one call.
pub struct ReceiveBatch {
    /// The buffers of all frames, `frame_bytes` each.
    bytes: Vec<u8>,
    frame_bytes: usize,
    /// Wire length of each frame of the last call.
    wire_lengths: Vec<usize>,
}

impl ReceiveBatch {
    /// Buffers for `frames` frames (1 to 1024), each of at most `frame_bytes` bytes (at least 1).
    pub fn new(frames: usize, frame_bytes: usize) -> Self {
        let (frames, frame_bytes) = (frames.clamp(1, FRAMES_MAX), frame_bytes.max(1));
        Self { bytes: vec![0; frames * frame_bytes], frame_bytes, wire_lengths: Vec::with_capacity(frames) }
    }

    /// The captured bytes and the wire length of each frame of the last call.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let buffers = self.bytes.chunks_exact(self.frame_bytes);
        buffers.zip(&self.wire_lengths).map(|(buffer, length)| (&buffer[..(*length).min(buffer.len())], *length))
    }
}

impl PacketSocket {
    /// Reads as many frames as the batch has buffers for, without waiting, and returns their number. The part of a
    /// frame that exceeds its buffer is cut off.
    ///
    /// # Errors
    /// `ENETDOWN` if the interface went down.
    pub fn receive_many(&self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        batch.wire_lengths.clear();
        let buffers = batch.bytes.chunks_exact_mut(batch.frame_bytes);
        let mut vectors: Vec<libc::iovec> =
            buffers.map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }).collect();
        let mut headers: Vec<libc::mmsghdr> = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: `mmsghdr` is plain data for which all zeros is valid.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (vector, 1);
                header
            })
            .collect();
        let count = headers.len() as u32;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: `headers` and `vectors` outlive the call, and each vector describes its own buffer in `batch.bytes`.
        let received =
            unsafe { libc::recvmmsg(self.as_fd().as_raw_fd(), headers.as_mut_ptr(), count, flags, null_mut()) };
        let Ok(received) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        };
        batch.wire_lengths.extend(headers[..received].iter().map(|header| header.msg_len as usize));
        Ok(received)
    }
}
