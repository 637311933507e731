//! Encoding of the numbers of an index in bytes: little-endian, without padding. An index consists of parts, and each
//! part ends with its checksum.

/// Number of bytes of the CRC32C at the end of a part of an index.
pub(crate) const CRC: usize = 4;

/// Reads numbers from the front of a slice; returns `None` if the slice is too short.
pub(crate) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Completes a part of an index: writes the total length of the part at `length_at` (four bytes) and appends the
/// checksum of the part.
pub(crate) fn close(mut out: Vec<u8>, length_at: usize) -> Vec<u8> {
    let length = (out.len() + CRC) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    append_crc(&mut out, 0);
    out
}

/// Appends to `out` the checksum of its bytes from offset `from` on.
pub(crate) fn append_crc(out: &mut Vec<u8>, from: usize) {
    let crc = crc32c::crc32c(&out[from..]);
    out.extend(crc.to_le_bytes());
}

/// Writes the checksum at the end of a stripe.
pub(crate) fn close_stripe(stripe: &mut [u8]) {
    if let Some((content, crc)) = stripe.split_last_chunk_mut::<CRC>() {
        *crc = crc32c::crc32c(content).to_le_bytes();
    }
}

/// Returns the bytes of a part of an index without the checksum at the end of the part; `None` if the checksum is
/// wrong.
pub(crate) fn checked(part: &[u8]) -> Option<&[u8]> {
    let (content, crc) = part.split_last_chunk::<CRC>()?;
    (crc32c::crc32c(content) == u32::from_le_bytes(*crc)).then_some(content)
}
