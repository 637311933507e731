//! The layout in which the generated code of a filter ([`crate::Matcher`]) gets the frame that it tests.

use std::marker::PhantomData;

/// A captured frame: its captured bytes and its wire length.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame<'a> {
    start: *const u8,
    len: u32,
    wire_len: u32,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: pointer and length are those of a shared slice of bytes, which may be sent to another thread.
unsafe impl Send for Frame<'_> {}
// SAFETY: as above.
unsafe impl Sync for Frame<'_> {}

impl<'a> Frame<'a> {
    /// Creates a frame whose captured part is `bytes`.
    ///
    /// # Panics
    /// `bytes` has 4 GiB or more, which no captured frame has.
    #[inline]
    pub fn new(bytes: &'a [u8], wire_len: u32) -> Self {
        assert!(u32::try_from(bytes.len()).is_ok(), "a frame of {} bytes, 4 GiB or more", bytes.len());
        let len = bytes.len() as u32;
        Self { start: bytes.as_ptr(), len, wire_len: wire_len.max(len), bytes: PhantomData }
    }
}

/// Offsets of the fields of [`Frame`] that generated code reads.
pub(crate) mod at {
    use super::Frame;
    use std::mem::offset_of;

    pub const START: usize = offset_of!(Frame<'_>, start);
    pub const LEN: usize = offset_of!(Frame<'_>, len);
    pub const WIRE_LEN: usize = offset_of!(Frame<'_>, wire_len);
    pub const FRAME: usize = size_of::<Frame<'_>>();
}
