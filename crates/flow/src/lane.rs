//! One packet on its way to its flow: who talks with whom, and the few numbers that counting needs. Both are read from the
//! headers at once, while they are in cache, and the packet is not looked at again but by what few packets need.
//!
//! PERF: 257 → 220 instructions per packet (`valgrind --tool=callgrind`) by a short way for what nearly all packets are:
//! IPv4 without options, outside of tunnels. It gives what [`Key::of`] and [`Seen::of`] do, which the tests compare.

use crate::config::Packet;
use crate::key::{Key, Keys};
use crate::seen::Seen;
use wire::{Family, Fragment, IpProtocol};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Lane {
    pub key: Key,
    pub seen: Seen,
    /// Of the key.
    pub hash: u64,
    /// Which of the packets it is.
    pub index: u32,
}

/// Offsets in an IPv4 header without options.
mod at {
    pub const TOS: usize = 1;
    pub const TTL: usize = 8;
    pub const END: usize = 20;
}

impl Lane {
    /// Writes what a packet says over another one's; not if it is not IP.
    #[inline(always)]
    pub fn set(&mut self, packet: &Packet, index: usize, keys: &Keys, bidirectional: bool) -> bool {
        self.index = index as u32;
        if let Some(head) = plain(packet) {
            self.key = Key::plain(packet.decoded, head, bidirectional);
            self.seen = Seen::with(packet, (head[at::TTL], head[at::TOS]));
            self.hash = keys.hash_plain(&self.key);
            return true;
        }
        self.set_any(packet, keys, bidirectional)
    }

    #[inline(never)]
    fn set_any(&mut self, packet: &Packet, keys: &Keys, bidirectional: bool) -> bool {
        let Some(key) = Key::of(packet, bidirectional) else { return false };
        self.hash = keys.hash(&key);
        self.key = key;
        self.seen = Seen::of(packet);
        true
    }
}

/// The network header of TCP or UDP over plain IPv4, outside of tunnels.
#[inline(always)]
fn plain<'a>(packet: &Packet<'a>) -> Option<&'a [u8; at::END]> {
    let decoded = packet.decoded;
    let is_plain = (decoded.family == Family::V4)
        & (decoded.l4 == decoded.l3.wrapping_add(at::END as u16))
        & (decoded.fragment == Fragment::Whole)
        & decoded.tunnel.is_none()
        & ((decoded.protocol == IpProtocol::TCP) | (decoded.protocol == IpProtocol::UDP));
    packet.data.get(usize::from(decoded.l3)..).filter(|_| is_plain)?.first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Levels;
    use crate::tests::traffic::Traffic;

    #[test]
    fn the_short_way_and_the_long_one_give_the_same() {
        let seed = testkit::seed("the_short_way_and_the_long_one_give_the_same");
        let mut traffic = Traffic::new(seed);
        traffic.jumps = false;
        let mut short = 0;
        for round in 0..20_000_u64 {
            let bidirectional = round % 3 > 0;
            let levels = Levels { vlans: round % 5 > 0, tunnel: round % 7 > 0, teid: round % 2 > 0 };
            let keys = Keys::new(round, levels);
            let owned = traffic.packet();
            let packet = owned.lend();
            let (mut any, mut lane) = (Lane { index: 7, ..Lane::default() }, Lane::default());
            let is_ip = any.set_any(&packet, &keys, bidirectional);
            assert_eq!(lane.set(&packet, 7, &keys, bidirectional), is_ip, "seed {seed}, round {round}");
            assert_eq!(format!("{lane:?}"), format!("{any:?}"), "seed {seed}, round {round}");
            short += u32::from(plain(&packet).is_some());
        }
        assert!(short > 2000, "seed {seed}: only {short} packets went the short way");
    }
}
