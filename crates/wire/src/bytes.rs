//! Functions that read big-endian numbers. The offsets are constants of a header layout, so the compiler removes the
//! bounds checks of the functions on arrays.

/// Two bytes at `at`.
#[inline(always)]
pub fn be16<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

/// Four bytes at `at`.
#[inline(always)]
pub fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// `N` bytes of `b` from `at`, copied.
#[inline(always)]
pub fn copy<const N: usize, const M: usize>(b: &[u8; M], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&b[at..at + N]);
    out
}

/// `N` bytes of a slice at `at`; `None` if the slice is too short.
#[inline(always)]
pub fn chunk<const N: usize>(b: &[u8], at: usize) -> Option<&[u8; N]> {
    b.get(at..)?.first_chunk()
}
