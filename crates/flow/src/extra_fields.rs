//! The fields that few packets of a flow need: the times of the handshake, the MAC addresses and the length of the
//! first packet. They take 24 bytes. An IPv4 flow stores them in the space in which an IPv6 flow stores the remaining
//! bytes of its addresses.
//!
//! ```text
//! byte  0             5              10          16          22      24
//!       | SYN, or RTT | SYN+ACK, RTT | MAC fwd   | MAC rev   | length |      times in ns after the flow's first packet
//! ```
//! For ICMP, type and code of the first packet replace the times. A time of 18 minutes or more does not fit: such a
//! flow has wide counters ([`crate::wide_counters`]), which contain the times.

/// The extra fields of a flow.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub(crate) struct ExtraFields([u8; 24]);

mod at {
    /// Offset of the two times of the handshake, which have 40 bits each.
    pub const HANDSHAKE: usize = 0;
    pub const MACS: [usize; 2] = [10, 16];
    pub const LENGTH: usize = 22;
    pub const INNER: [usize; 3] = [2, 10, 18];
}

/// The shortest time of the handshake, in nanoseconds, that 40 bits cannot store.
pub(crate) const FAR: u64 = 1 << 40;

impl ExtraFields {
    /// The times of the handshake.
    #[inline(always)]
    pub fn handshake(&self) -> [u64; 2] {
        let (low, high) =
            (u64::from_le_bytes(*self.chunk(at::HANDSHAKE)), u16::from_le_bytes(*self.chunk(at::HANDSHAKE + 8)));
        [low & (FAR - 1), low >> 40 | u64::from(high) << 24]
    }

    /// Sets the times, both of which must be below [`FAR`].
    #[inline(always)]
    pub fn set_handshake(&mut self, [first, second]: [u64; 2]) {
        debug_assert!(first < FAR && second < FAR);
        *self.chunk_mut(at::HANDSHAKE) = (first | second << 40).to_le_bytes();
        *self.chunk_mut(at::HANDSHAKE + 8) = ((second >> 24) as u16).to_le_bytes();
    }

    pub fn icmp(&self) -> u16 {
        u16::from_le_bytes(*self.chunk(at::HANDSHAKE))
    }

    /// The extra fields of a flow that has had only its first packet. A length above 65535 is stored as 65535.
    #[inline(always)]
    pub fn first(icmp: u16, [a, b, c, d, e, f]: [u8; 6], length: u32) -> Self {
        const { assert!(at::HANDSHAKE == 0 && at::MACS[0] == 10 && at::LENGTH == 22) };
        let mac = u64::from_le_bytes([0, 0, a, b, c, d, e, f]);
        Self::of_words([icmp.into(), mac, u64::from(length.min(u16::MAX.into())) << 48])
    }

    #[inline(always)]
    pub fn mac(&self, side: usize) -> [u8; 6] {
        *self.chunk(at::MACS[side])
    }

    #[inline(always)]
    pub fn set_mac(&mut self, side: usize, mac: [u8; 6]) {
        *self.chunk_mut(at::MACS[side]) = mac;
    }

    /// Length of the first packet; 65535 if it is longer.
    #[inline(always)]
    pub fn first_length(&self) -> u16 {
        u16::from_le_bytes(*self.chunk(at::LENGTH))
    }

    /// All bytes of the extra fields except the first two bytes (ICMP type and code) and the length of the first
    /// packet. The encoding of a compressed flow contains these bytes ([`crate::meter::compressed`]).
    pub fn inner(&self) -> ([u64; 2], u32) {
        let [a, b, c] = at::INNER;
        ([a, b].map(|at| u64::from_le_bytes(*self.chunk(at))), u32::from_le_bytes(*self.chunk(c)))
    }

    pub fn set_inner(&mut self, ([x, y], z): ([u64; 2], u32)) {
        let [a, b, c] = at::INNER;
        *self.chunk_mut(a) = x.to_le_bytes();
        *self.chunk_mut(b) = y.to_le_bytes();
        *self.chunk_mut(c) = z.to_le_bytes();
    }

    /// The fields from three words.
    #[inline(always)]
    pub fn of_words([a, b, c]: [u64; 3]) -> Self {
        let mut all = Self::default();
        *all.chunk_mut(0) = a.to_le_bytes();
        *all.chunk_mut(8) = b.to_le_bytes();
        *all.chunk_mut(16) = c.to_le_bytes();
        all
    }

    #[inline(always)]
    pub fn words(&self) -> [u64; 3] {
        [0, 8, 16].map(|at| u64::from_le_bytes(*self.chunk(at)))
    }

    #[inline(always)]
    fn chunk<const N: usize>(&self, at: usize) -> &[u8; N] {
        self.0[at..].first_chunk().expect("the layout fits")
    }

    #[inline(always)]
    fn chunk_mut<const N: usize>(&mut self, at: usize) -> &mut [u8; N] {
        self.0[at..].first_chunk_mut().expect("the layout fits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_fields_do_not_overlap() {
        let mut rare = ExtraFields::first(0x0803, [1; 6], 70_000);
        assert_eq!((rare.icmp(), rare.mac(0), rare.mac(1)), (0x0803, [1; 6], [0; 6]));
        rare.set_handshake([FAR - 1, FAR - 2]);
        rare.set_mac(1, [2; 6]);
        assert_eq!((rare.handshake(), rare.mac(0), rare.mac(1)), ([FAR - 1, FAR - 2], [1; 6], [2; 6]));
        assert_eq!(rare.first_length(), u16::MAX);
        rare.set_inner(([0x99, u64::MAX], 0x9999_9999));
        assert_eq!(rare.inner(), ([0x99, u64::MAX], 0x9999_9999));
        assert_eq!((rare.icmp(), rare.first_length()), ((FAR - 1) as u16, u16::MAX));
        rare.set_mac(0, [1; 6]);
        rare.set_handshake([0, 0]);
        assert_eq!((rare.handshake(), rare.mac(0), rare.first_length()), ([0, 0], [1; 6], u16::MAX));
        let words = [u64::MAX, 1, 0x0123_4567_89ab_cdef];
        assert_eq!(ExtraFields::of_words(words).words(), words);
    }
}
