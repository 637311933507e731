//! MAC addresses of compressed flows. The packets of an interface have few different addresses, so twelve bits identify
//! most of them.
//!
//! The short number of an address is a hash of the address, and indexes a table. The first address with a short number
//! owns the number until all flows have ended; another address with the same hash is encoded in full. So a number never
//! changes its meaning, and a flood of addresses only makes the encoding of later addresses longer.

use base::hash::mix64;

/// Bits of a short number.
pub(crate) const BITS: u32 = 12;
/// An encoding below this value is a short number; any other encoding is an address plus this value.
pub(crate) const NAMES: u64 = 1 << BITS;

/// The table of short numbers. Zero marks a free slot, so the address of zeros has no short number.
pub(crate) struct Macs {
    all: Box<[u64; NAMES as usize]>,
}

impl Macs {
    pub fn new() -> Self {
        Self { all: Box::new([0; NAMES as usize]) }
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.all)
    }

    /// The encoding of an address: its short number, or the address plus [`NAMES`].
    pub fn name(&mut self, mac: [u8; 6]) -> u64 {
        let [a, b, c, d, e, f] = mac;
        let address = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        let name = mix64(address) >> (64 - BITS);
        let place = &mut self.all[name as usize];
        if *place == 0 {
            *place = address;
        }
        if *place == address && address != 0 { name } else { address + NAMES }
    }

    /// The address of an encoding.
    pub fn of(&self, name: u64) -> [u8; 6] {
        let address = if name < NAMES { self.all[name as usize] } else { name - NAMES };
        let [a, b, c, d, e, f, ..] = address.to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// Removes all short numbers from the table. The caller ensures that no encoding uses any of them.
    pub fn clear(&mut self) {
        self.all.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_restored_with_or_without_a_short_number() {
        let mut macs = Macs::new();
        let address = |n: u32| {
            let [a, b, c, d] = n.to_le_bytes();
            [2, 0, a, b, c, d]
        };
        let all: Vec<_> = (0..20_000).map(address).chain([[0; 6], [0xff; 6]]).collect();
        let names: Vec<u64> = all.iter().map(|mac| macs.name(*mac)).collect();
        for (mac, name) in all.iter().zip(&names) {
            assert_eq!((macs.of(*name), macs.name(*mac)), (*mac, *name));
        }
        let named = names.iter().filter(|n| **n < NAMES).count();
        assert!((3000..=4096).contains(&named), "{named} of 20 000 addresses have a short number");
        assert!(
            names[..100].iter().filter(|n| **n < NAMES).count() >= 95,
            "nearly all of the first addresses have a short number"
        );
    }
}
