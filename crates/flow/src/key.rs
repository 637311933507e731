//! The flow key, as words that are quick to hash and to compare.
//!
//! The lesser endpoint (address and port) comes first, so that both directions of a biflow have the same key and one
//! lookup finds them. A bit records whether source and destination of the packet were exchanged. For uniflows the
//! endpoints remain in the order of the packet. The hash has 64 bits and a secret key, and is computed by
//! multiplications to 128 bits whose halves are combined. The hash only selects the bucket and the tag. Two packets
//! belong to the same flow only if their complete keys are equal.
//!
//! PERF: 41 → 20 instructions per hash (`valgrind --tool=callgrind`), compared with two rounds of
//! [`base::hash::mix64`].

use crate::config::{KeyFields, Packet};
use base::hash::mix64;
use std::hint::select_unpredictable;
use std::net::{IpAddr, Ipv6Addr};
use wire::{Decoded, Family, Fragment, IpProtocol, TunnelKind};

/// The flow key of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    /// The last 32 bits of both addresses: those of the lesser endpoint are in the upper half.
    pub low: u64,
    /// For IPv6, the other bits of both addresses: the first 64 bits of the lesser endpoint's address, the first 64
    /// bits of the greater endpoint's address, then the next 32 bits of each. For IPv4, 0.
    pub wide: [u64; 3],
    /// The two ports: that of the lesser endpoint is in the upper half. For ICMP, 0.
    pub ports: u32,
    pub protocol: u8,
    pub v6: bool,
    /// True if the source of the packet is the greater endpoint.
    pub turned: bool,
    /// Kind of the tunnel; 0 without a tunnel.
    pub tunnel: u8,
    /// VLAN ids (16 bits each, [`NO_VLAN`] for none), then the tunnel id; present even if they are not key fields. For
    /// packets without a tunnel, comparisons ignore the lower half.
    pub around: u64,
}

/// Length of the tables that are indexed by tunnel kind: a power of two above the number of tunnel kinds.
const KINDS: usize = 16;
const _: () = assert!((TunnelKind::Teredo as usize) < KINDS);

/// The value that stands for an absent VLAN tag.
pub(crate) const NO_VLAN: u16 = u16::MAX;

impl Key {
    /// The key of a packet; `None` if the packet is not IP.
    #[inline(always)]
    pub fn of(packet: &Packet, bidirectional: bool) -> Option<Self> {
        let decoded = packet.decoded;
        let l3 = packet.data.get(usize::from(decoded.l3)..)?;
        let (sp, dp) = if is_icmp(decoded.protocol) { (0, 0) } else { (decoded.src_port.0, decoded.dst_port.0) };
        let (low, wide, ports, turned) = match decoded.family {
            Family::V4 => {
                let b: &[u8; 20] = l3.first_chunk()?;
                let (low, ports, turned) = order_v4(u64::from_be_bytes(*b.last_chunk()?), sp, dp, bidirectional);
                (low, [0; 3], ports, turned)
            }
            Family::V6 => {
                let b: &[u8; 40] = l3.first_chunk()?;
                let word = |i: usize| {
                    u64::from_be_bytes(*b[8 + i * 8..].first_chunk().expect("an IPv6 header has five 64-bit words"))
                };
                let (src, dst) = ([word(0), word(1)], [word(2), word(3)]);
                let turned = bidirectional && (src, sp) > (dst, dp);
                let ((a, ap), (b, bp)) = if turned { ((dst, dp), (src, sp)) } else { ((src, sp), (dst, dp)) };
                let (low, middle) = (a[1] << 32 | b[1] & LOW, a[1] & !LOW | b[1] >> 32);
                (low, [a[0], b[0], middle], u32::from(ap) << 16 | u32::from(bp), turned)
            }
            Family::Other => return None,
        };
        Some(Self {
            low,
            wide,
            ports,
            protocol: decoded.protocol.0,
            v6: decoded.family == Family::V6,
            turned,
            tunnel: decoded.tunnel.map_or(0, |t| t.kind as u8),
            around: encapsulation_word(decoded),
        })
    }

    /// Like [`Key::of`], but for TCP or UDP in IPv4 without a tunnel.
    #[inline(always)]
    pub fn plain(decoded: &Decoded, head: &[u8; 20], bidirectional: bool) -> Self {
        let both = u64::from_be_bytes(*head.last_chunk().expect("an IPv4 header has more than eight bytes"));
        let (low, ports, turned) = order_v4(both, decoded.src_port.0, decoded.dst_port.0, bidirectional);
        Self {
            low,
            wide: [0; 3],
            ports,
            protocol: decoded.protocol.0,
            v6: false,
            turned,
            tunnel: 0,
            around: vlan_word(decoded),
        }
    }

    /// The addresses of the lesser and of the greater endpoint, as two words each. An IPv4 address is in the second of
    /// its two words.
    #[inline(always)]
    pub fn ends(&self) -> [u64; 4] {
        let Self { low, wide: [a, b, middle], .. } = *self;
        [a, middle & !LOW | low >> 32, b, middle << 32 | low & LOW]
    }
}

/// The mask of the lower half of a word.
const LOW: u64 = 0xffff_ffff;

/// Returns the addresses and the ports, those of the lesser endpoint first if `bidirectional`, and true if source and
/// destination were exchanged. The endpoints are compared as one number, and selected without a branch, which would be
/// mispredicted every other time.
#[inline(always)]
fn order_v4(addresses: u64, src_port: u16, dst_port: u16, bidirectional: bool) -> (u64, u32, bool) {
    let ports = u32::from(src_port) << 16 | u32::from(dst_port);
    let (turned_addresses, turned_ports) = (addresses.rotate_left(32), ports.rotate_left(16));
    let number = |addresses: u64, ports: u32| u128::from(addresses) << 64 | u128::from(ports);
    let turned = bidirectional & (number(addresses, ports) > number(turned_addresses, turned_ports));
    (
        select_unpredictable(turned, turned_addresses, addresses),
        select_unpredictable(turned, turned_ports, ports),
        turned,
    )
}

pub(crate) fn is_icmp(protocol: IpProtocol) -> bool {
    matches!(protocol, IpProtocol::ICMP | IpProtocol::ICMPV6)
}

#[inline(always)]
fn encapsulation_word(decoded: &Decoded) -> u64 {
    vlan_word(decoded) | u64::from(decoded.tunnel.map_or(0, |t| t.id))
}

#[inline(always)]
fn vlan_word(decoded: &Decoded) -> u64 {
    let id = |tag: Option<u16>| u64::from(tag.unwrap_or(NO_VLAN));
    id(decoded.vlans[0]) << 48 | id(decoded.vlans[1]) << 32
}

/// The ICMP fields of the record: type × 256 + code.
pub(crate) fn icmp_word(decoded: &Decoded) -> u16 {
    if is_icmp(decoded.protocol) && decoded.fragment != Fragment::Later {
        decoded.src_port.0 << 8 | decoded.dst_port.0 & 0xff
    } else {
        0
    }
}

/// Returns the tunnel kind that has this number in a key.
pub(crate) fn tunnel_kind(number: u8) -> Option<TunnelKind> {
    use TunnelKind::*;
    [Gre, Nvgre, Erspan1, Erspan2, Erspan3, Vxlan, Geneve, GtpU, IpInIp, Teredo]
        .into_iter()
        .find(|k| *k as u8 == number)
}

/// The two IPv6 addresses of a key.
pub(crate) fn addresses_v6(ends: &[u64; 4]) -> [IpAddr; 2] {
    let address = |high: u64, low: u64| IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)));
    [address(ends[0], ends[1]), address(ends[2], ends[3])]
}

/// The hash function, with the selection of the key fields.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    secrets: [u64; 4],
    /// For each tunnel kind, the bits of [`Key::around`] that are key fields.
    masks: [u64; KINDS],
    tunnel: bool,
    /// A mask of the hash: all ones, except in tests that force collisions.
    pub spread: u64,
}

impl Keys {
    pub fn new(seed: u64, levels: KeyFields) -> Self {
        let vlans = if levels.vlans { u64::MAX << 32 } else { 0 };
        let masks = std::array::from_fn(|kind| {
            let numbered = kind > 0 && levels.tunnel && (levels.teid || kind != TunnelKind::GtpU as usize);
            vlans | if numbered { 0xffff_ffff } else { 0 }
        });
        let secrets = [1, 2, 3, 4].map(|n| mix64(mix64(seed ^ 0x666c_6f77).wrapping_add(PHI.wrapping_mul(n))));
        Self { secrets, masks, tunnel: levels.tunnel, spread: u64::MAX }
    }

    /// The bits of [`Key::around`] that are key fields for flows in a tunnel of this kind.
    #[inline(always)]
    pub fn mask(&self, tunnel: u8) -> u64 {
        self.masks[usize::from(tunnel) % KINDS]
    }

    /// True if the kinds of two tunnels are equal, or the tunnel is not a key field.
    #[inline(always)]
    pub fn same_kind(&self, a: u8, b: u8) -> bool {
        a == b || !self.tunnel
    }

    #[inline(always)]
    pub fn hash(&self, key: &Key) -> u64 {
        let [s, t, u, v] = self.secrets;
        let tunnel = if self.tunnel { key.tunnel } else { 0 };
        let what = u64::from(key.ports) | u64::from(key.protocol) << 32 | u64::from(tunnel) << 40;
        let mut first = s ^ key.low;
        if key.v6 {
            let [a, b, middle] = key.wide;
            first ^= fold(t ^ a, u ^ b) ^ fold(v ^ middle, !s).rotate_left(32);
        }
        self.finish(fold(first, t ^ what), key.around & self.mask(key.tunnel))
    }

    /// Like [`Keys::hash`], but for IPv4 without a tunnel.
    #[inline(always)]
    pub fn hash_plain(&self, key: &Key) -> u64 {
        let what = u64::from(key.ports) | u64::from(key.protocol) << 32;
        let state = fold(self.secrets[0] ^ key.low, self.secrets[1] ^ what);
        self.finish(state, key.around & self.masks[0])
    }

    #[inline(always)]
    fn finish(&self, mut state: u64, around: u64) -> u64 {
        let [_, _, u, v] = self.secrets;
        if around != u64::MAX << 32 {
            state = fold(u ^ state, v ^ around);
        }
        fold(u ^ state, PHI) & self.spread
    }
}

/// The exclusive or of both halves of the product. The inputs are mixed with secrets before, so that an attacker
/// without the secrets cannot choose words with the product 0, or two pairs with the same product.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Digits of the golden ratio: an odd number without a pattern.
const PHI: u64 = 0x9e37_79b9_7f4a_7c15;

/// The shard of a hash, from its upper bits; the table of a shard uses the other bits.
#[inline(always)]
pub(crate) fn shard_of(hash: u64, shards: usize) -> usize {
    (((hash >> 48) * shards as u64) >> 16) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    fn any_key(prng: &mut Prng, v6: bool) -> Key {
        Key {
            low: prng.below(1 << 34),
            wide: if v6 { std::array::from_fn(|_| prng.below(5)) } else { [0; 3] },
            ports: prng.next_u64() as u32,
            protocol: [6, 17][prng.below(2) as usize],
            v6,
            turned: prng.below(2) == 0,
            tunnel: [0, TunnelKind::Vxlan as u8][prng.below(2) as usize],
            around: prng.below(1 << 40) | u64::from(NO_VLAN) << 48,
        }
    }

    #[test]
    fn every_bit_of_a_key_changes_about_half_of_the_hash() {
        let seed = testkit::seed("every_bit_of_a_key_changes_about_half_of_the_hash");
        let mut prng = Prng::new(seed);
        type Flip = fn(&mut Key, u32);
        let fields: [(&str, u32, Flip); 6] = [
            ("addresses", 64, |k, n| k.low ^= 1 << n),
            ("ports", 32, |k, n| k.ports ^= 1 << n),
            ("protocol", 8, |k, n| k.protocol ^= 1 << n),
            ("VLANs", 32, |k, n| k.around ^= 1 << (32 + n)),
            ("first halves", 128, |k, n| k.wide[n as usize / 64] ^= 1 << (n % 64)),
            ("middle", 64, |k, n| k.wide[2] ^= 1 << n),
        ];
        for (name, bits, flip) in fields {
            let mut changed = 0;
            for round in 0..40 * bits {
                let keys = Keys::new(prng.next_u64(), KeyFields::default());
                let is_v6 = matches!(name, "first halves" | "middle") || prng.below(2) == 0;
                let mut key = any_key(&mut prng, is_v6);
                let before = keys.hash(&key);
                flip(&mut key, round % bits);
                changed += (before ^ keys.hash(&key)).count_ones();
            }
            let mean = changed / (40 * bits);
            assert!((30..34).contains(&mean), "seed {seed}: flipping a bit of {name} changes {mean} of 64 bits");
        }
    }

    /// Neighbouring addresses and ports must spread as evenly as random numbers: the chi-squared statistic is within
    /// six standard deviations (Pearson, 1900).
    #[test]
    fn adjacent_keys_spread_like_random_numbers() {
        const PLACES: usize = 1 << 12;
        const KEYS: u64 = 1 << 18;
        for seed in 0..4 {
            let keys = Keys::new(seed, KeyFields::default());
            // Shifts of the bits that select the bucket, the tag and the shard.
            for shift in [20, 28, 32, 48] {
                let mut counts = vec![0_u64; PLACES];
                for n in 0..KEYS {
                    let (client, port) = (0x0a00_0000 + n / 64, 1024 + (n % 64) as u32);
                    let key =
                        Key { low: client << 32 | 0xc0a8_0001, ports: port << 16 | 443, protocol: 6, ..Key::default() };
                    counts[(keys.hash_plain(&Key { around: u64::MAX << 32, ..key }) >> shift) as usize % PLACES] += 1;
                }
                let expected = KEYS as f64 / PLACES as f64;
                let chi: f64 = counts.iter().map(|c| (*c as f64 - expected).powi(2) / expected).sum();
                let far = (chi - PLACES as f64) / (2.0 * PLACES as f64).sqrt();
                assert!(far.abs() < 6.0, "seed {seed}, shift {shift}: chi-squared {far:.1} deviations from its mean");
            }
        }
    }
}
