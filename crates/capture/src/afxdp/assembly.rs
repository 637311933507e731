//! Frames that span several chunks are copied into one buffer; other frames are not copied.
//!
//! The kernel publishes all chunks of a frame together, but a batch of the reader may end between two chunks. So the
//! buffer with the first chunks is retained until the next batch.

/// Frames longer than this are lost with [`base::Cause::Source`].
pub const FRAME_MAX: usize = 65_535;

/// Assembles the chunks of a frame. A frame of one chunk is not copied.
#[derive(Default)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    open: bool,
    /// Number of frames that were too long.
    pub(super) too_long: u64,
}

impl Assembly {
    /// True if some chunks of a frame were added, but not yet its last chunk.
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// Adds a chunk of a frame. After the last chunk, returns the complete frame, unless it is too long.
    #[inline]
    pub(super) fn add<'a>(&'a mut self, chunk: &'a [u8], more: bool) -> Option<&'a [u8]> {
        if !self.open && !more {
            return Some(chunk);
        }
        if !self.open {
            self.bytes.clear();
            self.open = true;
        }
        // At most one byte above the maximum is stored, which marks the frame as too long.
        let room = (FRAME_MAX + 1).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if more {
            return None;
        }
        self.open = false;
        if self.bytes.len() > FRAME_MAX {
            self.too_long += 1;
            return None;
        }
        Some(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_too_long_is_counted_and_the_next_frame_is_complete() {
        let mut assembly = Assembly::default();
        let chunk = vec![7; 4096];
        for _ in 0..16 {
            assert_eq!(assembly.add(&chunk, true), None);
        }
        assert_eq!(assembly.add(&[1], false), None);
        assert_eq!(assembly.too_long, 1);
        assert_eq!(assembly.add(&[1, 2], true), None);
        assert_eq!(assembly.add(&[3], false), Some(&[1, 2, 3][..]));
        assert_eq!(assembly.add(&[9], false), Some(&[9][..]));
    }

    #[test]
    fn the_longest_frame_is_kept() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.add(&vec![1; 65_534], true), None);
        assert_eq!(assembly.add(&[2], false).map(<[u8]>::len), Some(FRAME_MAX));
        assert_eq!(assembly.too_long, 0);
    }
}
