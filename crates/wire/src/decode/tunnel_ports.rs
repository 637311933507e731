//! The UDP ports of tunnels.

/// The ports by tunnel.
pub(super) mod port {
    pub const GTP_U: u16 = 2152;
    pub const TEREDO: u16 = 3544;
    pub const GRE: u16 = 4754;
    pub const VXLAN: u16 = 4789;
    pub const VXLAN_GPE: u16 = 4790;
    pub const GENEVE: u16 = 6081;
    pub const VXLAN_LINUX: u16 = 8472;
}

/// The UDP ports of tunnels, ascending. Callers can test before decoding whether a packet may be a tunnel packet.
pub const TUNNEL_PORTS: [u16; 7] =
    [port::GTP_U, port::TEREDO, port::GRE, port::VXLAN, port::VXLAN_GPE, port::GENEVE, port::VXLAN_LINUX];

/// True if one of these ports may belong to a tunnel. A perfect hash maps each tunnel port to its own slot, so the test
/// is one comparison instead of an unpredictable binary search.
#[inline(always)]
pub(super) fn may_be_tunnel(src: u32, dst: u32) -> bool {
    (OWN[slot(dst)] == dst) | (src == port::TEREDO as u32)
}

const SLOTS: usize = 16;
/// The factor of the hash, found by search, with which the hash gives each tunnel port its own slot.
const FACTOR: u32 = 0x7f31_4877;

#[inline(always)]
const fn slot(port: u32) -> usize {
    (port.wrapping_mul(FACTOR) >> 28) as usize % SLOTS
}

static OWN: [u32; SLOTS] = {
    let (mut all, mut at) = ([u32::MAX; SLOTS], 0);
    while at < TUNNEL_PORTS.len() {
        let port = TUNNEL_PORTS[at] as u32;
        assert!(all[slot(port)] == u32::MAX, "two tunnel ports have the same slot: change FACTOR");
        all[slot(port)] = port;
        at += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_of_a_port_accepts_exactly_the_tunnel_ports() {
        let accepted = (0..=u16::MAX).filter(|p| may_be_tunnel((*p).into(), 1) || may_be_tunnel(1, (*p).into()));
        assert_eq!(accepted.collect::<Vec<_>>(), TUNNEL_PORTS);
    }
}
