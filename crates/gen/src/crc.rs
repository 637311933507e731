//! CRC32C (polynomial 0x1edc6f41, reflected), computed incrementally: the CRC is linear.
//!
//! If two frames of equal length differ by `d` (their exclusive or), their CRCs differ by the remainder of `d` alone.
//! So the CRC of a template is computed once. The CRC of a frame made from the template takes one table look-up for
//! each changed byte ([`Window`]), which gives the remainder at byte 56, after the last changed byte. Four further
//! look-ups extend this remainder over the unchanged bytes that follow ([`Carry`]). The tests compare the result with
//! the plain loop in this module.

use crate::layout::at;

/// CRC32C of `bytes`, one table look-up per byte: the definition, used for templates and as the oracle in tests.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |register, byte| step(register, *byte))
}

const POLYNOMIAL: u32 = 0x82f6_3b78;

static BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut r = i as u32;
        let mut bit = 0;
        while bit < 8 {
            r = if r & 1 == 1 { (r >> 1) ^ POLYNOMIAL } else { r >> 1 };
            bit += 1;
        }
        table[i] = r;
        i += 1;
    }
    table
};

#[inline]
fn step(register: u32, byte: u8) -> u32 {
    BYTE[usize::from(register as u8 ^ byte)] ^ (register >> 8)
}

/// Contributions of each changed byte to the remainder at byte 56 of the frame.
pub(crate) struct Window {
    flow: [[u32; 256]; at::FLOW.end - at::FLOW.start],
    stamp: [[u32; 256]; at::STAMP.end - at::STAMP.start],
}

impl Window {
    pub(crate) fn new() -> Box<Self> {
        let mut window = Box::new(Self { flow: [[0; 256]; _], stamp: [[0; 256]; _] });
        for (table, position) in window.flow.iter_mut().zip(at::FLOW) {
            *table = contributions(at::STAMP.end - position);
        }
        for (table, position) in window.stamp.iter_mut().zip(at::STAMP) {
            *table = contributions(at::STAMP.end - position);
        }
        window
    }

    /// The contribution of `bytes` at [`at::FLOW`], where the template has zeros, to the remainder at byte 56.
    #[inline]
    pub(crate) fn flow(&self, bytes: &[u8; at::FLOW.end - at::FLOW.start]) -> u32 {
        self.flow.iter().zip(bytes).fold(0, |sum, (table, byte)| sum ^ table[usize::from(*byte)])
    }

    /// The contribution of `bytes` at [`at::STAMP`], where the template has zeros, to the remainder at byte 56.
    #[inline]
    pub(crate) fn stamp(&self, bytes: &[u8; at::STAMP.end - at::STAMP.start]) -> u32 {
        self.stamp.iter().zip(bytes).fold(0, |sum, (table, byte)| sum ^ table[usize::from(*byte)])
    }
}

/// For each byte value, the remainder of the byte followed by `len - 1` zero bytes.
fn contributions(len: usize) -> [u32; 256] {
    std::array::from_fn(|value| (1..len).fold(step(0, value as u8), |r, _| step(r, 0)))
}

/// Tables that extend a remainder over a fixed number of further bytes. These bytes are zero in the difference of the
/// two frames, because they equal the bytes of the template.
pub(crate) struct Carry([[u32; 256]; 4]);

impl Carry {
    pub(crate) fn over(bytes: usize) -> Box<Self> {
        let bit: [u32; 32] = std::array::from_fn(|i| (0..bytes).fold(1 << i, |r, _| step(r, 0)));
        let sum = |byte: usize, value: usize| {
            (0..8).filter(|i| value >> i & 1 == 1).fold(0, |sum, i| sum ^ bit[byte * 8 + i])
        };
        Box::new(Self(std::array::from_fn(|byte| std::array::from_fn(|value| sum(byte, value)))))
    }

    #[inline]
    pub(crate) fn apply(&self, remainder: u32) -> u32 {
        let [a, b, c, d] = remainder.to_le_bytes();
        let [ta, tb, tc, td] = &self.0;
        ta[usize::from(a)] ^ tb[usize::from(b)] ^ tc[usize::from(c)] ^ td[usize::from(d)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_has_the_check_values_of_the_standard() {
        // The values of RFC 3720 (iSCSI) appendix B.4, and the usual check value of a CRC: the CRC of the text
        // "123456789".
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: [u8; 32] = std::array::from_fn(|i| i as u8);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
    }

    #[test]
    fn the_incremental_crc_equals_the_crc_of_the_changed_frame() {
        let mut prng = base::Prng::new(11);
        let window = Window::new();
        for len in [60usize, 61, 64, 100, 1514] {
            let carry = Carry::over(len - 4 - at::STAMP.end);
            let mut frame = vec![0; len - 4];
            prng.fill(&mut frame);
            frame[at::FLOW].fill(0);
            frame[at::STAMP].fill(0);
            let template = crc32c(&frame);
            for _ in 0..100 {
                let (mut flow, mut stamp) = ([0; _], [0; _]);
                prng.fill(&mut flow);
                prng.fill(&mut stamp);
                frame[at::FLOW].copy_from_slice(&flow);
                frame[at::STAMP].copy_from_slice(&stamp);
                let predicted = template ^ carry.apply(window.flow(&flow) ^ window.stamp(&stamp));
                assert_eq!(predicted, crc32c(&frame), "length {len}, seed 11");
            }
        }
    }
}
