//! Records and rows as bytes of a journal: short, quick to make, and read back exactly.
//!
//! A side or a row is a list of words of which most are zero: a mask says which are not, and those follow as LEB128 numbers.
//! Everything else is numbers too, so that there is one way to read a byte wrong, and it ends in `None`.

use base::{Cause, Note, Timestamp};
use flow::{Around, Early, EndReason, Key, Locator, Moments, Record, Side, TcpState};
use series::{Direction, Kind, Row, SIZES};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{IpProtocol, MacAddr, TunnelKind};

/// Something that a journal keeps.
pub trait Pack: Sized + Clone + Send {
    /// Appends the bytes of this one.
    fn pack(&self, out: &mut Vec<u8>);

    /// Takes one from the beginning of `bytes`; `None` if that is not one.
    fn unpack(bytes: &mut &[u8]) -> Option<Self>;

    /// First and last moment.
    fn span(&self) -> (Timestamp, Timestamp);

    /// Sorted by this in a sealed file, and in every answer.
    fn order(&self) -> Order;

    /// When something of this order begins.
    fn moment(order: &Order) -> Timestamp;
}

/// The order of time; what begins at the same moment has one order too, whichever file it lies in.
pub type Order = (u64, u64, u32);

/// Most first packets, and bytes of payload, that a record is believed to have.
const MOST: u64 = 1 << 16;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Tunnels, by their number less one.
const TUNNELS: [TunnelKind; 10] = [
    TunnelKind::Gre,
    TunnelKind::Nvgre,
    TunnelKind::Erspan1,
    TunnelKind::Erspan2,
    TunnelKind::Erspan3,
    TunnelKind::Vxlan,
    TunnelKind::Geneve,
    TunnelKind::GtpU,
    TunnelKind::IpInIp,
    TunnelKind::Teredo,
];

/// The tunnel with this number.
pub fn tunnel(number: u64) -> Option<TunnelKind> {
    TUNNELS.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
}

/// The reason with this number.
pub fn end(number: u64) -> Option<EndReason> {
    let all = [EndReason::Idle, EndReason::Active, EndReason::Ended, EndReason::Forced, EndReason::Lack];
    all.into_iter().find(|end| *end as u64 == number)
}

/// The state with this number.
pub fn tcp(number: u64) -> Option<TcpState> {
    let all = [
        TcpState::None,
        TcpState::Midstream,
        TcpState::SynSent,
        TcpState::SynReceived,
        TcpState::Established,
        TcpState::HalfClosed,
        TcpState::Closed,
        TcpState::Reset,
    ];
    all.into_iter().find(|state| *state as u64 == number)
}

impl Pack for Record {
    fn pack(&self, out: &mut Vec<u8>) {
        let (v4, src, dst) = match (self.key.src, self.key.dst) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (true, u128::from(u32::from(a)), u128::from(u32::from(b))),
            (a, b) => (false, six(a), six(b)),
        };
        let bits = [
            (v4, 0),
            (self.around != Around::default(), 1),
            (self.syn_rtt.is_some(), 2),
            (self.ack_rtt.is_some(), 3),
            (!self.payload[0].is_empty() || !self.payload[1].is_empty(), 4),
            (self.locator.is_some(), 5),
            (self.sides[1] != Side::default(), 6),
            (self.key.src.is_ipv4() && !v4, 7),
            (self.key.dst.is_ipv4() && !v4, 8),
        ];
        number(bits.iter().fold(0, |sum, (set, bit)| sum | u64::from(*set) << bit), out);
        out.extend(self.id.to_le_bytes());
        if v4 {
            out.extend((src as u32).to_be_bytes());
            out.extend((dst as u32).to_be_bytes());
        } else {
            out.extend(src.to_be_bytes());
            out.extend(dst.to_be_bytes());
        }
        out.extend(self.key.src_port.to_le_bytes());
        out.extend(self.key.dst_port.to_le_bytes());
        out.extend([self.key.protocol.0, self.end as u8 | (self.tcp as u8) << 4]);
        out.extend(self.began.nanos().to_le_bytes());
        number(u64::from(self.interface), out);
        number(u64::from(self.part), out);
        number(self.lost, out);
        if self.around != Around::default() {
            for vlan in self.around.vlans {
                number(vlan.map_or(0, |id| u64::from(id) + 1), out);
            }
            number(self.around.mpls.map_or(0, |label| u64::from(label) + 1), out);
            number(self.around.tunnel.map_or(0, |(kind, _)| kind as u64), out);
            number(self.around.tunnel.map_or(0, |(_, id)| u64::from(id)), out);
        }
        [self.syn_rtt, self.ack_rtt].into_iter().flatten().for_each(|rtt| number(rtt, out));
        if let Some(locator) = self.locator {
            number(u64::from(locator.queue), out);
            number(locator.first, out);
            number(locator.last.wrapping_sub(locator.first), out);
        }
        let sides = if self.sides[1] == Side::default() { &self.sides[..1] } else { &self.sides[..] };
        for side in sides {
            masked(&side_words(side, self.began), out);
        }
        number(self.early.len() as u64, out);
        let mut before = 0;
        for early in &self.early {
            number(early.after.wrapping_sub(before), out);
            before = early.after;
            number(u64::from(early.length) << 1 | u64::from(early.reverse), out);
            out.push(early.flags);
        }
        if !self.payload[0].is_empty() || !self.payload[1].is_empty() {
            for payload in &self.payload {
                number(payload.len() as u64, out);
                out.extend(payload);
            }
        }
    }

    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let bits = take(bytes)?;
        let bit = |n: u32| bits >> n & 1 == 1;
        let id = u64::from_le_bytes(chunk(bytes)?);
        let mut address = |mapped: bool| {
            Some(if bit(0) {
                IpAddr::V4(Ipv4Addr::from(chunk::<4>(bytes)?))
            } else {
                let six = Ipv6Addr::from(chunk::<16>(bytes)?);
                match six.to_ipv4_mapped().filter(|_| mapped) {
                    Some(four) => IpAddr::V4(four),
                    None => IpAddr::V6(six),
                }
            })
        };
        let (src, dst) = (address(bit(7))?, address(bit(8))?);
        let src_port = u16::from_le_bytes(chunk(bytes)?);
        let dst_port = u16::from_le_bytes(chunk(bytes)?);
        let [protocol, how] = chunk(bytes)?;
        let began = Timestamp::from_nanos(u64::from_le_bytes(chunk(bytes)?));
        let mut record = Record {
            id,
            key: Key { src, dst, src_port, dst_port, protocol: IpProtocol(protocol) },
            end: end(u64::from(how & 15))?,
            tcp: tcp(u64::from(how >> 4))?,
            began,
            interface: u16::try_from(take(bytes)?).ok()?,
            part: u32::try_from(take(bytes)?).ok()?,
            lost: take(bytes)?,
            ..blank()
        };
        if bit(1) {
            for vlan in &mut record.around.vlans {
                *vlan = take(bytes)?.checked_sub(1).map(u16::try_from).transpose().ok()?;
            }
            record.around.mpls = take(bytes)?.checked_sub(1).map(u32::try_from).transpose().ok()?;
            let (kind, id) = (take(bytes)?, u32::try_from(take(bytes)?).ok()?);
            record.around.tunnel = if kind == 0 { None } else { Some((tunnel(kind)?, id)) };
        }
        record.syn_rtt = if bit(2) { Some(take(bytes)?) } else { None };
        record.ack_rtt = if bit(3) { Some(take(bytes)?) } else { None };
        if bit(5) {
            let queue = u16::try_from(take(bytes)?).ok()?;
            let first = take(bytes)?;
            record.locator = Some(Locator { queue, first, last: first.wrapping_add(take(bytes)?) });
        }
        for side in record.sides.iter_mut().take(1 + usize::from(bit(6))) {
            *side = side_of(&unmasked(bytes)?, began)?;
        }
        let early = take(bytes).filter(|n| *n <= MOST)?;
        record.early.reserve_exact(early.min(16) as usize);
        let mut before = 0u64;
        for _ in 0..early {
            before = before.wrapping_add(take(bytes)?);
            let length = take(bytes)?;
            let [flags] = chunk(bytes)?;
            let (reverse, length) = (length & 1 == 1, u16::try_from(length >> 1).ok()?);
            record.early.push(Early { after: before, length, flags, reverse });
        }
        if bit(4) {
            for payload in &mut record.payload {
                let len = take(bytes).filter(|n| *n <= MOST)? as usize;
                *payload = bytes.split_off(..len)?.to_vec();
            }
        }
        Some(record)
    }

    fn span(&self) -> (Timestamp, Timestamp) {
        let (first, last) = (self.first(), self.last());
        (first, last.max(first))
    }

    fn order(&self) -> Order {
        (self.first().nanos(), self.id, self.part)
    }

    fn moment(order: &Order) -> Timestamp {
        Timestamp::from_nanos(order.0)
    }
}

/// A record without anything in it.
pub fn blank() -> Record {
    let zero = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Record {
        id: 0,
        key: Key { src: zero, dst: zero, src_port: 0, dst_port: 0, protocol: IpProtocol(0) },
        around: Around::default(),
        interface: 0,
        began: Timestamp::ZERO,
        part: 0,
        sides: [Side::default(); 2],
        end: EndReason::Forced,
        tcp: TcpState::None,
        syn_rtt: None,
        ack_rtt: None,
        early: Vec::new(),
        payload: [Vec::new(), Vec::new()],
        locator: None,
        lost: 0,
    }
}

/// As IPv6 has it, mapped if it must be.
fn six(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_ipv6_mapped()),
        IpAddr::V6(six) => u128::from(six),
    }
}

/// How many words a side has.
const SIDE: usize = 32;

fn side_words(s: &Side, began: Timestamp) -> [u64; SIDE] {
    let [fin, syn, rst, psh, ack, urg, ece, cwr] = s.flags;
    let ranges = u32::from_le_bytes([s.ttl.0, s.ttl.1, s.dscp.0, s.dscp.1]);
    let mac = s.mac.map_or(0, |MacAddr([a, b, c, d, e, f])| u64::from_be_bytes([0, 1, a, b, c, d, e, f]));
    [
        s.first.nanos().wrapping_sub(began.nanos()),
        s.last.nanos().wrapping_sub(s.first.nanos()),
        s.packets,
        s.bytes,
        s.bytes.wrapping_sub(s.ip_bytes),
        s.ip_bytes.wrapping_sub(s.payload_bytes),
        s.payload_packets,
        s.length.min,
        s.length.max,
        s.length.sum.wrapping_sub(s.ip_bytes),
        s.length.squares as u64,
        (s.length.squares >> 64) as u64,
        s.gap.min,
        s.gap.max,
        s.gap.sum,
        s.gap.squares as u64,
        (s.gap.squares >> 64) as u64,
        s.gaps,
        fin,
        syn,
        rst,
        psh,
        ack,
        urg,
        ece,
        cwr,
        s.zero_window,
        s.retransmitted,
        s.retransmitted_bytes,
        s.out_of_order,
        u64::from(ranges),
        mac,
    ]
}

fn side_of(words: &[u64; SIDE], began: Timestamp) -> Option<Side> {
    let &[first, last, packets, bytes, link, header, payload_packets, ..] = words;
    let first = began.nanos().wrapping_add(first);
    let ip_bytes = bytes.wrapping_sub(link);
    let wide = |at: usize| u128::from(words[at]) | u128::from(words[at + 1]) << 64;
    let [ttl, ttl_most, dscp, dscp_most] = u32::try_from(words[30]).ok()?.to_le_bytes();
    let [high, set, mac @ ..] = words[31].to_be_bytes();
    if high != 0 || set > 1 {
        return None;
    }
    Some(Side {
        first: Timestamp::from_nanos(first),
        last: Timestamp::from_nanos(first.wrapping_add(last)),
        packets,
        bytes,
        ip_bytes,
        payload_bytes: ip_bytes.wrapping_sub(header),
        payload_packets,
        length: Moments { min: words[7], max: words[8], sum: words[9].wrapping_add(ip_bytes), squares: wide(10) },
        gap: Moments { min: words[12], max: words[13], sum: words[14], squares: wide(15) },
        gaps: words[17],
        flags: std::array::from_fn(|i| words[18 + i]),
        zero_window: words[26],
        retransmitted: words[27],
        retransmitted_bytes: words[28],
        out_of_order: words[29],
        ttl: (ttl, ttl_most),
        dscp: (dscp, dscp_most),
        mac: (set == 1).then_some(MacAddr(mac)),
    })
}

/// How many words a row has; in masks of 32.
const ROW: usize = 96;

/// Words of a row that are used.
const ROW_USED: usize = 4 + 2 * Kind::COUNT + SIZES + 2 + 4 + 3 + 2 + 4 + 5 + Cause::COUNT + Note::COUNT;
const _: () = assert!(ROW_USED <= ROW);

/// Everything in a row but when and where, in the order of its fields.
fn row_words(row: &mut Row) -> impl Iterator<Item = &mut u64> {
    let Row { total, kinds, sizes, ipv6, ledger, peak_1ms, peak_10ms, .. } = row;
    let t = ledger;
    [&mut total.packets, &mut total.bytes]
        .into_iter()
        .chain(kinds.iter_mut().flat_map(|v| [&mut v.packets, &mut v.bytes]))
        .chain(sizes)
        .chain([&mut ipv6.packets, &mut ipv6.bytes])
        .chain([&mut row.syn, &mut row.syn_ack, &mut row.fin, &mut row.rst])
        .chain([&mut row.flows_active, &mut row.flows_new, &mut row.flows_ended])
        .chain([&mut row.sources, &mut row.destinations])
        .chain([&mut peak_1ms.bytes, &mut peak_1ms.packets, &mut peak_10ms.bytes, &mut peak_10ms.packets])
        .chain([&mut t.offered, &mut t.stored, &mut t.stored_bytes, &mut t.filtered, &mut t.duplicate])
        .chain(&mut t.lost)
        .chain(&mut t.notes)
}

impl Pack for Row {
    fn pack(&self, out: &mut Vec<u8>) {
        number(self.second, out);
        number(u64::from(self.interface) << 1 | self.direction as u64, out);
        let mut words = [0; ROW];
        let mut row = *self;
        words.iter_mut().zip(row_words(&mut row)).for_each(|(word, value)| *word = *value);
        words.as_chunks().0.iter().for_each(|part| masked(part, out));
    }

    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let second = take(bytes)?;
        let port = take(bytes)?;
        let direction = if port & 1 == 1 { Direction::Out } else { Direction::In };
        let mut row = Row { second, interface: u16::try_from(port >> 1).ok()?, direction, ..Row::default() };
        let mut words = [0; ROW];
        for part in words.as_chunks_mut().0 {
            *part = unmasked(bytes)?;
        }
        row_words(&mut row).zip(words).for_each(|(value, word)| *value = word);
        words[ROW_USED..].iter().all(|word| *word == 0).then_some(row)
    }

    fn span(&self) -> (Timestamp, Timestamp) {
        let first = Timestamp::from_secs_nanos(self.second, 0);
        (first, Timestamp::from_secs_nanos(self.second, NANOS_PER_SEC - 1))
    }

    fn order(&self) -> Order {
        (self.second, u64::from(self.interface), self.direction as u32)
    }

    fn moment(order: &Order) -> Timestamp {
        Timestamp::from_secs_nanos(order.0, 0)
    }
}

/// A mask of the words that are not zero, and those.
fn masked(words: &[u64; 32], out: &mut Vec<u8>) {
    let mask = words.iter().enumerate().fold(0u32, |mask, (i, word)| mask | u32::from(*word != 0) << i);
    out.extend(mask.to_le_bytes());
    let mut left = mask;
    while left != 0 {
        number(words[left.trailing_zeros() as usize], out);
        left &= left - 1;
    }
}

fn unmasked(bytes: &mut &[u8]) -> Option<[u64; 32]> {
    let mut words = [0; 32];
    let mut left = u32::from_le_bytes(chunk(bytes)?);
    while left != 0 {
        words[left.trailing_zeros() as usize] = take(bytes)?;
        left &= left - 1;
    }
    Some(words)
}

/// Seven bits in a byte, the lowest first (LEB128).
#[inline]
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift == 63 && *first > 1 {
            return None;
        }
        value |= u64::from(first & 0x7f) << shift;
        if *first < 0x80 {
            return Some(value);
        }
    }
    None
}

#[inline]
fn chunk<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// A word of a row by its place.
pub fn row_word(row: &mut Row, at: usize) -> Option<&mut u64> {
    row_words(row).nth(at)
}
