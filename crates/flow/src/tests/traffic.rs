//! Random traffic of a few hosts with many flows: flows that start, retransmit, lose packets, reset, pause and resume,
//! with clock steps.

use crate::Packet;
use base::{Prng, Timestamp};
use wire::{Decoded, Family, Fragment, IpProtocol, Port, Tunnel, TunnelKind, tcp_flags as tcp};

/// A packet that owns its bytes.
#[derive(Clone, Debug)]
pub struct Owned {
    pub ts: Timestamp,
    pub wire_len: u32,
    pub data: Vec<u8>,
    pub decoded: Decoded,
    pub position: u64,
    pub queue: u16,
}

impl Owned {
    pub fn lend(&self) -> Packet<'_> {
        let Self { ts, wire_len, ref data, ref decoded, position, queue } = *self;
        Packet { ts, wire_len, data, decoded, position, queue }
    }
}

/// The contents of a generated frame.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub v6: bool,
    pub src: u8,
    pub dst: u8,
    pub ports: (u16, u16),
    pub protocol: IpProtocol,
    pub flags: u8,
    pub seq: u32,
    pub window: u16,
    /// Transport payload in bytes on the wire, of which at most 20 are captured.
    pub payload: u32,
    pub ttl: u8,
    pub dscp: u8,
}

impl Plan {
    pub fn tcp(src: u8, dst: u8, ports: (u16, u16), flags: u8, seq: u32) -> Self {
        let protocol = IpProtocol::TCP;
        Self { v6: false, src, dst, ports, protocol, flags, seq, window: 1000, payload: 0, ttl: 64, dscp: 0 }
    }

    pub fn udp(src: u8, dst: u8, ports: (u16, u16)) -> Self {
        Self { protocol: IpProtocol::UDP, ..Self::tcp(src, dst, ports, 0, 0) }
    }

    pub fn carrying(self, payload: u32) -> Self {
        Self { payload, ..self }
    }

    /// The frame: Ethernet, IP, and the transport header.
    pub fn frame(&self, ts: Timestamp) -> Owned {
        let ip_header = if self.v6 { 40 } else { 20 };
        let header = if self.protocol == IpProtocol::TCP { 20 } else { 8 };
        let (l3, l4) = (14, 14 + ip_header);
        let payload_at = l4 + header;
        let mut data = vec![0; payload_at + self.payload.min(20) as usize];
        data[..12].copy_from_slice(&[2, 0, 0, 0, 0, self.dst, 2, 0, 0, 0, 0, self.src]);
        if self.v6 {
            data[l3] = 0x60 | self.dscp >> 2;
            data[l3 + 1] = self.dscp << 6;
            data[l3 + 7] = self.ttl;
            (data[l3 + 8], data[l3 + 23], data[l3 + 24], data[l3 + 39]) = (0xfd, self.src, 0xfd, self.dst);
        } else {
            data[l3] = 0x45;
            data[l3 + 1] = self.dscp << 2;
            data[l3 + 8] = self.ttl;
            data[l3 + 12..l3 + 20].copy_from_slice(&[10, 0, 0, self.src, 10, 0, 0, self.dst]);
        }
        if self.protocol == IpProtocol::TCP {
            data[l4 + 4..l4 + 8].copy_from_slice(&self.seq.to_be_bytes());
            data[l4 + 13] = self.flags;
            data[l4 + 14..l4 + 16].copy_from_slice(&self.window.to_be_bytes());
        }
        for (i, byte) in data[payload_at..].iter_mut().enumerate() {
            *byte = self.seq as u8 ^ i as u8;
        }
        let ip_len = (ip_header + header) as u32 + self.payload;
        let mut decoded = Decoded {
            l2: Some(0),
            l3: l3 as u16,
            l4: l4 as u16,
            payload: payload_at as u16,
            payload_len: self.payload,
            ip_len,
            family: if self.v6 { Family::V6 } else { Family::V4 },
            protocol: self.protocol,
            src_port: Port(self.ports.0),
            dst_port: Port(self.ports.1),
            ..Decoded::default()
        };
        decoded.is_common_case = decoded.is_common_case();
        Owned { ts, wire_len: 14 + ip_len, data, decoded, position: Packet::NOWHERE, queue: 0 }
    }
}

/// The generator's state of one flow.
#[derive(Clone, Debug)]
struct Conversation {
    v6: bool,
    hosts: (u8, u8),
    ports: (u16, u16),
    protocol: IpProtocol,
    /// The next sequence number of each direction, and the ranges of sequence numbers that the direction skipped (at
    /// most two).
    next: [u32; 2],
    holes: [Vec<(u32, u32)>; 2],
    step: u8,
}

/// An endless source of packets.
pub struct Traffic {
    pub prng: Prng,
    now: u64,
    position: u64,
    stored: bool,
    talks: Vec<Conversation>,
    /// True if the clock may jump by years and step back.
    pub jumps: bool,
}

impl Traffic {
    pub fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let stored = prng.below(4) > 0;
        Self { prng, now: 1_700_000_000_123_456_789, position: 24, stored, talks: Vec::new(), jumps: true }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.prng.below(one_in) == 0
    }

    fn step(&mut self) {
        const S: u64 = 1_000_000_000;
        let (far, back) = if self.jumps { (900, 1000) } else { (u64::MAX, u64::MAX) };
        self.now += match self.prng.below(100) {
            0..40 => self.prng.below(1000),
            40..80 => self.prng.below(30_000_000),
            80..95 => self.prng.below(2 * S),
            95..99 => self.prng.below(12 * S),
            _ => self.prng.below(100 * S),
        };
        if self.chance(far) {
            self.now += self.prng.below(40 * 365 * 86_400) * S;
        }
        if self.chance(back / 10) {
            self.now -= self.prng.below(59 * S);
        }
        if self.chance(back) {
            self.now -= self.prng.below(5000 * S);
        }
        // Sometimes the time is a whole number of seconds, because timeouts expire at whole seconds.
        if self.chance(20) {
            self.now -= self.now % S;
        }
    }

    fn talk(&mut self) -> Conversation {
        let p = &mut self.prng;
        let protocol = [IpProtocol::TCP, IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMP, IpProtocol::ESP];
        let near_end = u32::MAX - p.below(3000) as u32;
        Conversation {
            v6: p.below(3) == 0,
            hosts: (p.below(4) as u8, p.below(4) as u8),
            ports: (p.below(3) as u16, p.below(3) as u16),
            protocol: protocol[p.below(5) as usize],
            next: [near_end, p.next_u64() as u32],
            holes: [Vec::new(), Vec::new()],
            step: 0,
        }
    }

    /// The next packet.
    pub fn packet(&mut self) -> Owned {
        self.step();
        if self.talks.len() < 12 || self.chance(30) {
            let talk = self.talk();
            if self.talks.len() >= 12 {
                self.talks.swap_remove(0);
            }
            self.talks.push(talk);
        }
        let which = self.prng.below(self.talks.len() as u64) as usize;
        let mut talk = self.talks[which].clone();
        let plan = self.plan(&mut talk);
        self.talks[which] = talk;
        let mut owned = plan.frame(Timestamp::from_nanos(self.now));
        self.vary(&mut owned);
        if self.stored && !self.chance(50) {
            owned.position = self.position;
        }
        self.position += 16 + owned.data.len() as u64;
        owned.queue = u16::from(self.chance(20));
        owned
    }

    fn plan(&mut self, talk: &mut Conversation) -> Plan {
        let shaking = talk.step < 3 && talk.protocol == IpProtocol::TCP;
        let side = if shaking { usize::from(talk.step == 1) } else { self.prng.below(2) as usize };
        let (src, dst) = if side == 0 { talk.hosts } else { (talk.hosts.1, talk.hosts.0) };
        let ports = if side == 0 { talk.ports } else { (talk.ports.1, talk.ports.0) };
        let mut flags = [tcp::SYN, tcp::SYN | tcp::ACK, tcp::ACK].get(usize::from(talk.step)).copied();
        talk.step = talk.step.saturating_add(1);
        if flags.is_none() {
            flags = Some(match self.prng.below(60) {
                0 => tcp::RST,
                1 => tcp::SYN,
                2 => self.prng.next_u64() as u8,
                3..7 => tcp::FIN | tcp::ACK,
                7..20 => tcp::PSH | tcp::ACK,
                _ => tcp::ACK,
            });
        }
        let flags = if talk.protocol == IpProtocol::TCP { flags.unwrap_or(0) } else { 0 };
        let payload = match self.prng.below(10) {
            0..4 => 0,
            4..9 => self.prng.below(1400) as u32,
            _ if self.chance(30) => 70_000,
            _ => 60_000,
        };
        let space = payload + (flags & (tcp::SYN | tcp::FIN)).count_ones();
        let (next, holes) = (&mut talk.next[side], &mut talk.holes[side]);
        let (mut seq, mut size) = (*next, payload);
        match self.prng.below(12) {
            0 if space > 0 => seq = next.wrapping_sub(space + self.prng.below(500) as u32),
            1 if holes.len() < 2 => {
                let gap = 1 + self.prng.below(2000) as u32;
                if space > 0 && flags & tcp::RST == 0 {
                    holes.push((*next, gap));
                }
                seq = next.wrapping_add(gap);
            }
            // The segment fills a whole hole, or the beginning or the end of a hole.
            2 | 3 if !holes.is_empty() && flags & (tcp::SYN | tcp::FIN | tcp::RST) == 0 => {
                let at = self.prng.below(holes.len() as u64) as usize;
                let (from, len) = holes[at];
                size = 1 + self.prng.below(u64::from(len)) as u32;
                seq = if self.prng.below(2) == 0 { from } else { from.wrapping_add(len - size) };
                holes[at] = if seq == from { (from.wrapping_add(size), len - size) } else { (from, len - size) };
                holes.retain(|h| h.1 > 0);
            }
            _ => (),
        }
        let end = seq.wrapping_add(if flags & tcp::RST != 0 { 0 } else { space });
        if size == payload && end.wrapping_sub(*next) as i32 > 0 {
            *next = end;
        }
        Plan {
            v6: talk.v6,
            src,
            dst,
            ports,
            protocol: talk.protocol,
            flags,
            seq,
            window: if self.chance(40) { 0 } else { 500 },
            payload: size,
            ttl: 60 + if self.chance(20) { self.prng.below(5) as u8 } else { 0 },
            dscp: if self.chance(20) { self.prng.below(64) as u8 } else { 0 },
        }
    }

    /// Adds encapsulation and irregularities to a packet.
    fn vary(&mut self, owned: &mut Owned) {
        let decoded = &mut owned.decoded;
        if self.chance(8) {
            decoded.vlans = [Some(self.prng.below(3) as u16), None];
        }
        if self.chance(8) {
            decoded.mpls = Some(self.prng.below(1 << 20) as u32);
        }
        if self.chance(8) {
            let kind = [TunnelKind::GtpU, TunnelKind::Vxlan, TunnelKind::Gre][self.prng.below(3) as usize];
            let counts = kind != TunnelKind::Vxlan && !self.chance(4);
            let sequence = counts.then(|| self.prng.next_u64() as u32);
            decoded.tunnel = Some(Tunnel { kind, id: self.prng.below(2) as u32, sequence, outer_l3: 14 });
        }
        match self.prng.below(60) {
            0 => decoded.family = Family::Other,
            1 => decoded.l2 = None,
            // Only seven bytes of the transport header were captured.
            2 => owned.data.truncate(usize::from(decoded.l4) + 7),
            3 => {
                decoded.fragment = Fragment::Later;
                (decoded.l4, decoded.payload) = (0, 0);
            }
            // The IP header states a larger length than the frame had on the wire.
            4 => owned.wire_len = owned.wire_len.saturating_sub(100),
            5 => owned.wire_len += 66_000,
            _ => (),
        }
        owned.decoded.is_common_case = owned.decoded.is_common_case();
    }
}
