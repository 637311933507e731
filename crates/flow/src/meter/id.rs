//! The flow ID: equal in all records of a flow, whichever meter makes them, and different for different flows except by
//! coincidence.
//!
//! The flow ID is a hash of the properties of the whole flow, oriented from its source to its destination: addresses,
//! ports, protocol, encapsulation, interface and start time. The words of these properties are hashed in pairs: the two
//! words of a pair are multiplied, and the halves of the 128-bit product are combined by XOR. The hash of a pair does
//! not depend on the other pairs.
//!
//! PERF: 194 → 60 instructions per record (`valgrind --tool=callgrind`), and a chain of three dependent multiplications
//! in place of 24.

use super::Meter;
use crate::entry::{Entry, Hot, bit};
use crate::key;
use base::hash::mix64;
use base::memory::Hints;
use wire::IpProtocol;

impl<H: Hints> Meter<H> {
    /// The flow ID.
    #[inline(always)]
    pub(crate) fn id(&self, flow: u32) -> u64 {
        let Entry { hot, body } = &self.flows[flow];
        let icmp = if key::is_icmp(IpProtocol(hot.protocol)) { self.rare(flow).icmp() } else { 0 };
        let label = self.label(flow).unwrap_or(u32::MAX);
        of(hot, icmp, u64::from(self.interface) << 32 | u64::from(label), body.start)
    }
}

#[inline(always)]
fn of(hot: &Hot, icmp: u16, place: u64, start: u64) -> u64 {
    // The key has the lesser endpoint first; the ID needs the source first.
    let turned = u32::from(hot.has(bit::TURNED));
    let (low, ports) = (hot.low.rotate_left(32 * turned), hot.ports.rotate_left(16 * turned));
    let kinds = u64::from(hot.protocol) << 56 | u64::from(hot.tunnel) << 48;
    let mut all = fold(0, low, u64::from(ports) | u64::from(icmp) << 32) ^ fold(1, kinds | place, hot.around());
    if hot.has(bit::V6) {
        let [a, b, middle] = hot.rare.words();
        let (first, second) = if turned == 1 { (b, a) } else { (a, b) };
        all ^= fold(2, first, second) ^ fold(3, middle.rotate_left(32 * turned), 1);
    }
    mix64(all.wrapping_add(start))
}

/// Hashes two words, with different constants (digits of pi) for each `pair`. Each word is combined with its constant
/// by XOR before the multiplication. If one word equals its constant, the product is 0 whatever the other word is;
/// therefore both words are also added to the hash of the product.
#[inline(always)]
fn fold(pair: usize, a: u64, b: u64) -> u64 {
    const DIGITS: [[u64; 2]; 4] = [
        [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344],
        [0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89],
        [0x4528_21e6_38d0_1377, 0xbe54_66cf_34e9_0c6c],
        [0xc0ac_29b7_c97c_50dd, 0x3f84_d5b5_b547_0917],
    ];
    let product = u128::from(a ^ DIGITS[pair][0]) * u128::from(b ^ DIGITS[pair][1]);
    (product as u64 ^ (product >> 64) as u64).wrapping_add(a.rotate_left(23)).wrapping_add(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use base::Prng;
    use std::collections::HashSet;

    /// The ID of a flow whose first packet has this key.
    fn id(key: Key, icmp: u16, place: u64, start: u64) -> u64 {
        of(&Hot::new(&key, start, 0), icmp, place, start)
    }

    #[test]
    fn every_bit_of_a_flows_properties_changes_about_half_of_the_id() {
        let seed = testkit::seed("every_bit_of_a_flows_properties_changes_about_half_of_the_id");
        let mut prng = Prng::new(seed);
        // Flips one bit of a field of the key.
        type Flip = fn(&mut Key, u32);
        let fields: [(&str, u32, Flip); 7] = [
            ("addresses", 64, |k, n| k.low ^= 1 << n),
            ("ports", 32, |k, n| k.ports ^= 1 << n),
            ("protocol", 8, |k, n| k.protocol ^= 1 << n),
            ("tunnel", 3, |k, n| k.tunnel ^= 1 << n),
            ("around", 64, |k, n| k.around ^= 1 << n),
            ("first halves", 128, |k, n| k.wide[n as usize / 64] ^= 1 << (n % 64)),
            ("middle", 64, |k, n| k.wide[2] ^= 1 << n),
        ];
        for (name, bits, flip) in fields {
            let mut changed = 0;
            for round in 0..40 * bits {
                let mut key = Key {
                    low: prng.below(1 << 34),
                    wide: std::array::from_fn(|_| prng.below(5)),
                    ports: prng.next_u64() as u32,
                    protocol: [6, 17][prng.below(2) as usize],
                    v6: bits == 128 || name == "middle" || prng.below(2) == 0,
                    turned: prng.below(2) == 0,
                    tunnel: 8 + prng.below(2) as u8,
                    around: prng.below(1 << 40),
                };
                let (place, start) = (prng.below(1 << 33), prng.below(1 << 60));
                let before = id(key, 0, place, start);
                flip(&mut key, round % bits);
                changed += (before ^ id(key, 0, place, start)).count_ones();
            }
            let mean = changed / (40 * bits);
            assert!((29..35).contains(&mean), "seed {seed}: flipping a bit of {name} changes {mean} of 64 bits");
        }
    }

    #[test]
    fn flows_with_adjacent_addresses_ports_and_times_have_different_ids() {
        let mut all = HashSet::new();
        let mut count = 0;
        for (client, server) in (0..40).flat_map(|c| (0..20).map(move |s| (0x0a00_0000 + c, 0xc0a8_0000 + s))) {
            for ports in (0..30).map(|p| (1024 + p) << 16 | 443) {
                for (icmp, place, start) in
                    [(0, 7, 1000), (0, 7, 1001), (0x0800, 7, 1000), (0, 8, 1000), (0, 1 << 32, 1000)]
                {
                    for (v6, turned) in [(false, false), (false, true), (true, false)] {
                        let key = Key { low: client << 32 | server, ports, protocol: 6, v6, turned, ..Key::default() };
                        all.insert(id(key, icmp, place, start));
                        count += 1;
                    }
                }
            }
        }
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_id_depends_on_the_direction_of_the_first_packet_and_not_on_the_order_of_the_endpoints() {
        let key = |low: u64, ports, turned| Key { low, ports, turned, protocol: 6, ..Key::default() };
        let (a, b) = (0x0a00_0001, 0x0a00_0002);
        let unturned = id(key(b << 32 | a, 80 << 16 | 1024, false), 0, 0, 5);
        assert_eq!(unturned, id(key(a << 32 | b, 1024 << 16 | 80, true), 0, 0, 5));
        assert_ne!(unturned, id(key(a << 32 | b, 1024 << 16 | 80, false), 0, 0, 5));
    }
}
