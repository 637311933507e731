//! The encoding of an idle-compressed flow. It contains the packet list and the counters of the flow in few bits.
//!
//! Invariant: [`decompress`] returns exactly the state that was the argument of [`compress`], for any state. Nearly
//! every value is predicted from the values encoded before it, or is within bounds that these values determine:
//!
//! * the packet list: lengths and the times between packets;
//! * counters: the increments of the packets after the list over the counters that the list determines;
//! * sums of lengths and inter-arrival times, and their squares: within bounds from minimum, maximum and count;
//! * bytes of frames and payloads: the difference from the number that headers of the usual length imply.
//!
//! If a prediction fails for a flow (a length over 65535 in the list, times that the list cannot hold exactly), the
//! flow is encoded in loose form, in which each value is encoded independently. [`crate::meter::compressed`] decides which
//! flows are compressed, and where the bits are stored.

use crate::bits::{Coder, Reader, Writer};
use crate::compact_counters::CompactCounters;
use crate::macs;
use crate::packet_list::{self, LOG};
use crate::record::InitialPacket;
use crate::wide_counters::{NEVER, WideDirection};
use wire::tcp_flags::{ACK, PSH, SYN};

/// Values that stay in the entry of a compressed flow, so that the encoding can use them for predictions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryFields {
    pub start: u64,
    /// Timestamp of the last packet.
    pub last: u64,
    /// Stream position of the first packet.
    pub position: u64,
    /// IP length and TCP flags of the first packet.
    pub first_length: u16,
    pub first_flags: u8,
    /// Packets in the packet list; only the first record of a flow has a list.
    pub listed: usize,
    /// For each direction, true if the source MAC address is present.
    pub has_mac: [bool; 2],
    pub is_tcp: bool,
    pub is_v6: bool,
}

/// The beginning of the encoding of a flow, which can be decoded without the remainder of the encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CompressedHead {
    pub is_full: bool,
    /// The number of earlier records.
    pub part: u32,
    /// Timestamp of the first packet of this record; `None` if the record has no packet.
    pub first: Option<u64>,
    /// The MPLS label, if the flow also has a tunnel; such a flow has wide counters.
    pub label: Option<u32>,
}

/// The state that is encoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FlowState {
    pub head: CompressedHead,
    /// Stream position of the last packet.
    pub position: u64,
    /// The two times of the TCP handshake ([`crate::tcp::HandshakeUpdate`]).
    pub handshake: [u64; 2],
    /// The source MAC addresses in the encoding of [`crate::macs`]; 0 if unknown.
    pub macs: [u64; 2],
    /// The packet list without the first packet; [`EntryFields::listed`] is its length with the first packet.
    pub log: [u64; LOG - 1],
    pub sides: [WideDirection; 2],
}

/// Encodes a flow.
pub(crate) fn compress(state: &FlowState, fields: &EntryFields) -> Writer {
    let mut tight = Writer::new(false);
    code(&mut tight, &mut state.clone(), fields);
    if tight.finish().is_some() {
        return tight;
    }
    let mut loose = Writer::new(true);
    code(&mut loose, &mut state.clone(), fields);
    loose
}

/// Decodes a flow.
pub(crate) fn decompress(words: &[u64], fields: &EntryFields) -> FlowState {
    let mut reader = Reader::new(words);
    let mut state = FlowState::default();
    code(&mut reader, &mut state, fields);
    state
}

/// Decodes only the beginning of the encoding of a flow.
pub(crate) fn peek(words: &[u64], fields: &EntryFields) -> CompressedHead {
    let (mut reader, mut head) = (Reader::new(words), CompressedHead::default());
    code_head(&mut reader, &mut head, fields);
    head
}

/// Encodes or decodes: a writer encodes the values in `state`, a reader overwrites `state` with the decoded values.
fn code(c: &mut impl Coder, state: &mut FlowState, fields: &EntryFields) {
    code_head(c, &mut state.head, fields);
    state.position = fields.position.wrapping_add(c.number(state.position.wrapping_sub(fields.position)));
    state.handshake = state.handshake.map(|time| c.number(time));
    for (mac, is_known) in state.macs.iter_mut().zip(fields.has_mac) {
        *mac = if is_known { code_mac(c, *mac) } else { 0 };
    }
    let listed = if state.head.part == 0 { fields.listed } else { 0 };
    let log = &mut state.log[..listed.saturating_sub(1)];
    code_list(c, log, fields);
    let mut reported = reported(log, listed, c.is_loose(), fields);
    for (side, reported) in state.sides.iter_mut().zip(&mut reported) {
        code_before(c, side, reported, state.head.part, fields);
        code_counters(c, side, reported, state.head.first.unwrap_or(fields.start), fields);
        code_sums(c, side, fields);
    }
}

fn code_head(c: &mut impl Coder, head: &mut CompressedHead, fields: &EntryFields) {
    c.begin();
    head.is_full = c.bit(head.is_full);
    head.part = c.number(head.part.into()) as u32;
    head.first = if head.part == 0 {
        Some(fields.start)
    } else if c.bit(head.first.is_some()) {
        Some(fields.last.wrapping_sub(c.number(fields.last.wrapping_sub(head.first.unwrap_or(0)))))
    } else {
        None
    };
    head.label = c.bit(head.label.is_some()).then(|| c.number(head.label.unwrap_or(0).into()) as u32);
}

fn code_mac(c: &mut impl Coder, mac: u64) -> u64 {
    match c.bit(mac < macs::NAMES) {
        true => c.bits(mac, macs::BITS),
        false => c.bits(mac.wrapping_sub(macs::NAMES), 48) + macs::NAMES,
    }
}

/// Bits for the shortest inter-arrival time in the list. A longer time has up to 31 more bits, and five bits hold the
/// number of additional bits.
const GAP: u32 = 7;
/// The longest inter-arrival time that this encoding can hold.
const LEN_MAX: u64 = (1 << (GAP + 31)) - 1;
const _: () = assert!(packet_list::is_exact(LEN_MAX) && !packet_list::is_exact(LEN_MAX + 1));

/// Encodes or decodes the packets of the list after the first.
fn code_list(c: &mut impl Coder, log: &mut [u64], fields: &EntryFields) {
    if c.is_loose() {
        log.iter_mut().for_each(|word| *word = c.bits(*word, 64));
        return;
    }
    let answer = if fields.first_flags & (SYN | ACK) == SYN { SYN | ACK } else { fields.first_flags };
    let mut before = [
        InitialPacket { offset_ns: 0, length: fields.first_length, flags: fields.first_flags, reverse: false },
        InitialPacket { offset_ns: 0, length: fields.first_length, flags: answer, reverse: true },
    ];
    let mut after = 0;
    for word in log {
        let mut early = packet_list::unpack(*word);
        early.reverse = c.bit(early.reverse);
        let before = &mut before[usize::from(early.reverse)];
        early.flags = code_flags(c, early.flags, before.flags);
        early.length = match c.bit(early.length == before.length) {
            true => before.length,
            false if c.bit(early.length < 1 << 11) => c.bits(early.length.into(), 11) as u16,
            false => c.bits(early.length.into(), 16) as u16,
        };
        let gap = early.offset_ns.wrapping_sub(after) & LEN_MAX;
        let more = u64::BITS - (gap >> GAP).leading_zeros();
        let more = c.bits(more.into(), 5) as u32;
        let below = (GAP + more).saturating_sub(u32::from(more > 0));
        let top = u64::from(more > 0) << below;
        early.offset_ns = (after + (c.bits(gap & ((1 << below) - 1), below) | top)).min(LEN_MAX);
        after = early.offset_ns;
        *before = early;
        let joined = packet_list::join(&early);
        c.claim(joined == *word);
        *word = joined;
    }
}

/// The TCP flags of one packet: mostly equal to those of the previous packet, or ACK with or without PSH.
fn code_flags(c: &mut impl Coder, flags: u8, before: u8) -> u8 {
    let other = if before == ACK { ACK | PSH } else { ACK };
    match c.bit(flags == before) {
        true => before,
        false if c.bit(flags == other) => other,
        false => c.bits(flags.into(), 8) as u8,
    }
}

/// The counters of both directions as the packet list determines them; all zero if the flow is encoded in loose form.
fn reported(log: &[u64], listed: usize, is_loose: bool, fields: &EntryFields) -> [WideDirection; 2] {
    if is_loose || listed == 0 {
        return Default::default();
    }
    // Compact counters can hold the values of every packet list, and counting with them is three times as fast as with
    // wide counters.
    let mut pair = CompactCounters::new();
    pair.sides[0].count(fields.start, fields.first_length, fields.first_flags);
    for word in log {
        let early = packet_list::unpack(*word);
        let at = fields.start.saturating_add(early.offset_ns);
        pair.sides[usize::from(early.reverse)].count(at, early.length, early.flags);
    }
    [pair.sides[0].wide(fields.start, NEVER), pair.sides[1].wide(pair.first_back(), NEVER)]
}

/// The timestamp of the last packet before this record, which the first inter-arrival time of the record needs.
fn code_before(
    c: &mut impl Coder,
    side: &mut WideDirection,
    reported: &mut WideDirection,
    part: u32,
    fields: &EntryFields,
) {
    side.before = if part == 0 {
        c.known(side.before.into(), NEVER.into()) as u64
    } else if c.bit(side.before == NEVER) {
        NEVER
    } else {
        fields.last.wrapping_sub(c.number(fields.last.wrapping_sub(side.before)))
    };
    if part > 0 {
        (reported.before, reported.last) = (side.before, if side.before == NEVER { 0 } else { side.before });
    }
}

/// Encodes or decodes the number of packets, the first and last timestamps, and the counters of lengths, TCP flags and
/// inter-arrival times of one direction. Numbers are encoded as the difference from the counters of the packet list.
fn code_counters(
    c: &mut impl Coder,
    side: &mut WideDirection,
    reported: &WideDirection,
    first: u64,
    fields: &EntryFields,
) {
    let count = c.number(side.packets.wrapping_sub(reported.packets).into()) as u32;
    side.packets = reported.packets.wrapping_add(count);
    if count == 0 {
        side.first = c.known(side.first.into(), reported.first.into()) as u64;
        side.last = c.known(side.last.into(), reported.last.into()) as u64;
    } else {
        side.first = if reported.packets > 0 {
            c.known(side.first.into(), reported.first.into()) as u64
        } else {
            first.wrapping_add(c.number(side.first.wrapping_sub(first)))
        };
        side.last = fields.last.wrapping_sub(c.number(fields.last.wrapping_sub(side.last)));
    }
    code_lengths(c, side, reported, count);
    code_flag_counts(c, side, reported, count, fields.is_tcp);
    code_gaps(c, side, reported);
}

fn code_lengths(c: &mut impl Coder, side: &mut WideDirection, reported: &WideDirection, count: u32) {
    if count == 0 {
        side.length = c.known(side.length.into(), reported.length.into()) as u64;
        side.length_min = c.known(side.length_min.into(), reported.length_min.into()) as u32;
        side.length_max = c.known(side.length_max.into(), reported.length_max.into()) as u32;
        side.length_squares = words(c.known(wide(side.length_squares), wide(reported.length_squares)));
        return;
    }
    if reported.packets > 0 {
        let below = c.number(reported.length_min.wrapping_sub(side.length_min).into()) as u32;
        side.length_min = reported.length_min.wrapping_sub(below);
        let above = c.number(side.length_max.wrapping_sub(reported.length_max).into()) as u32;
        side.length_max = reported.length_max.wrapping_add(above);
    } else {
        side.length_min = c.number(side.length_min.into()) as u32;
        side.length_max =
            side.length_min.wrapping_add(c.number(side.length_max.wrapping_sub(side.length_min).into()) as u32);
    }
    let (count, min, max) = (u128::from(count), u128::from(side.length_min), u128::from(side.length_max));
    let least = count * min;
    let sum = u128::from(side.length.wrapping_sub(reported.length)).wrapping_sub(least);
    let sum = c.within(sum, (count * max).wrapping_sub(least)).wrapping_add(least);
    side.length = reported.length.wrapping_add(sum as u64);
    // For each length, (length - min) x (max - length) is not negative, and it is 0 if the length is the minimum or the
    // maximum.
    let most =
        sum.wrapping_mul(min + max).wrapping_sub(least.wrapping_mul(max)).wrapping_add(wide(reported.length_squares));
    side.length_squares = words(most.wrapping_sub(c.wide(most.wrapping_sub(wide(side.length_squares)))));
}

/// Encodes or decodes, for each TCP flag, the number of packets with this flag, among `count` packets.
fn code_flag_counts(c: &mut impl Coder, side: &mut WideDirection, reported: &WideDirection, count: u32, is_tcp: bool) {
    if count == 0 {
        for (flag, reported) in side.flags.iter_mut().zip(reported.flags) {
            *flag = c.known((*flag).into(), reported.into()) as u32;
        }
        return;
    }
    let (ack, psh) = (ACK.trailing_zeros() as usize, PSH.trailing_zeros() as usize);
    let usual = |bit: usize| if bit == ack && is_tcp { count } else { 0 };
    let added = |bit: usize| side.flags[bit].wrapping_sub(reported.flags[bit]);
    let is_usual = (0..8).all(|bit| added(bit) == usual(bit) || (bit == psh && is_tcp));
    let is_usual = c.bit(is_usual);
    for bit in 0..8 {
        let added = side.flags[bit].wrapping_sub(reported.flags[bit]);
        let added = match is_usual {
            true if bit == psh && is_tcp => c.within(added.into(), count.into()) as u32,
            true => usual(bit),
            false => usual(bit).wrapping_sub(c.number(usual(bit).wrapping_sub(added).into()) as u32),
        };
        side.flags[bit] = reported.flags[bit].wrapping_add(added);
    }
}

/// The inter-arrival times: their sum is known from the first and the last timestamp.
fn code_gaps(c: &mut impl Coder, side: &mut WideDirection, reported: &WideDirection) {
    let count = side.gap_count().wrapping_sub(reported.gap_count());
    let sum = side.gap_sum().wrapping_sub(reported.gap_sum());
    let is_first = reported.gap_count() == 0;
    let base = wide(reported.iat_squares);
    match count {
        0 => {
            side.gap_min = c.known(side.gap_min.into(), reported.gap_min.into()) as u64;
            side.gap_max = c.known(side.gap_max.into(), reported.gap_max.into()) as u64;
            side.iat_squares = words(c.known(wide(side.iat_squares), base));
        }
        1 => {
            let min = if is_first { sum } else { reported.gap_min.min(sum) };
            side.gap_min = c.known(side.gap_min.into(), min.into()) as u64;
            side.gap_max = c.known(side.gap_max.into(), reported.gap_max.max(sum).into()) as u64;
            side.iat_squares = words(c.known(wide(side.iat_squares), base.wrapping_add(square(sum))));
        }
        _ => {
            let is_min = is_first || c.bit(side.gap_min != reported.gap_min);
            let is_max = is_first || c.bit(side.gap_max != reported.gap_max);
            // The minimum of several values is at most their mean.
            side.gap_min = match is_min {
                true => c.within(side.gap_min.into(), (sum / u64::from(count)).into()) as u64,
                false => reported.gap_min,
            };
            side.gap_max = if is_max { c.within(side.gap_max.into(), sum.into()) as u64 } else { reported.gap_max };
            // The squares of the minimum and of the maximum are known. The remainder of the sum of squares bounds the
            // squares of the other values.
            let (mut count, mut sum, mut known) = (count, sum, base);
            for gap in [(is_min, side.gap_min), (is_max, side.gap_max)].into_iter().filter(|g| g.0).map(|g| g.1) {
                (count, sum) = (count - 1, sum.wrapping_sub(gap));
                known = known.wrapping_add(square(gap));
            }
            let squares = wide(side.iat_squares).wrapping_sub(known);
            let squares = match count {
                0 => c.known(squares, 0),
                1 => c.known(squares, square(sum)),
                _ => c.within(squares, u128::from(sum) * u128::from(side.gap_max)),
            };
            side.iat_squares = words(squares.wrapping_add(known));
        }
    }
}

/// Bytes of an Ethernet header, of an IPv4 or IPv6 header without options, and of a UDP or TCP header.
const LINK: u64 = 14;
const IP: [u64; 2] = [20, 40];
const TRANSPORT: [u64; 2] = [8, 20];

/// Encodes or decodes the values that the packet list does not contain.
fn code_sums(c: &mut impl Coder, side: &mut WideDirection, fields: &EntryFields) {
    let packets = u64::from(side.packets);
    let headers = IP[usize::from(fields.is_v6)] + TRANSPORT[usize::from(fields.is_tcp)];
    side.bytes = c.near(side.bytes, side.length.wrapping_add(packets * LINK));
    side.payload = c.near(side.payload, side.length.wrapping_sub(packets * headers));
    side.payload_packets = c.within(side.payload_packets.into(), packets.into()) as u32;
    for range in [&mut side.ttl, &mut side.dscp] {
        range.0 = if c.bit(range.0 != 0) { c.bits(range.0.into(), 8) as u8 } else { 0 };
        range.1 = range.0.wrapping_add(c.number(range.1.wrapping_sub(range.0).into()) as u8);
    }
    let odd = [side.zero_window.into(), side.retransmitted.into(), side.retransmitted_bytes, side.out_of_order.into()];
    let odd = if c.bit(odd != [0; 4]) { odd.map(|count| c.number(count)) } else { [0; 4] };
    (side.zero_window, side.retransmitted) = (odd[0] as u32, odd[1] as u32);
    (side.retransmitted_bytes, side.out_of_order) = (odd[2], odd[3] as u32);
    side.sent.code(c);
}

fn wide([low, high]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn words(value: u128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

fn square(value: u64) -> u128 {
    u128::from(value) * u128::from(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// A random number with a random length from 0 to 64 bits.
    fn any(prng: &mut Prng) -> u64 {
        prng.next_u64().unbounded_shr(prng.below(65) as u32)
    }

    /// Random counters. Most of them have values that no sequence of packets could produce.
    fn any_side(prng: &mut Prng, part: u32) -> WideDirection {
        WideDirection {
            last: any(prng),
            bytes: any(prng),
            length: any(prng),
            payload: any(prng),
            packets: any(prng) as u32,
            payload_packets: any(prng) as u32,
            length_min: any(prng) as u32,
            length_max: any(prng) as u32,
            length_squares: [any(prng), any(prng)],
            iat_squares: [any(prng), any(prng)],
            gap_min: any(prng),
            gap_max: any(prng),
            flags: std::array::from_fn(|_| any(prng) as u32),
            first: any(prng),
            before: if part > 0 && prng.below(2) == 0 { any(prng) } else { NEVER },
            retransmitted_bytes: any(prng),
            retransmitted: any(prng) as u32,
            out_of_order: any(prng) as u32,
            zero_window: any(prng) as u32,
            ttl: (any(prng) as u8, any(prng) as u8),
            dscp: (any(prng) as u8, any(prng) as u8),
            ..WideDirection::default()
        }
    }

    fn any_fields(prng: &mut Prng) -> EntryFields {
        EntryFields {
            start: any(prng),
            last: any(prng),
            position: any(prng),
            first_length: any(prng) as u16,
            first_flags: any(prng) as u8,
            listed: prng.below(LOG as u64 + 1) as usize,
            has_mac: [prng.below(2) == 0, prng.below(2) == 0],
            is_tcp: prng.below(2) == 0,
            is_v6: prng.below(2) == 0,
        }
    }

    fn any_state(prng: &mut Prng, fields: &EntryFields) -> FlowState {
        let part = if prng.below(2) == 0 { any(prng) as u32 } else { 0 };
        let first = if part == 0 { Some(fields.start) } else { (prng.below(3) > 0).then(|| any(prng)) };
        let label = (prng.below(3) == 0).then(|| any(prng) as u32);
        let mut log = [0; LOG - 1];
        let listed = if part == 0 { fields.listed.saturating_sub(1) } else { 0 };
        log[..listed].fill_with(|| any(prng));
        FlowState {
            head: CompressedHead { is_full: prng.below(2) == 0, part, first, label },
            position: any(prng),
            handshake: [any(prng), any(prng)],
            macs: fields.has_mac.map(|has| if has { prng.below(macs::NAMES + (1 << 48)) } else { 0 }),
            log,
            sides: [any_side(prng, part), any_side(prng, part)],
        }
    }

    #[test]
    fn any_state_survives_compression() {
        let seed = testkit::seed("any_state_survives_compression");
        let mut prng = Prng::new(seed);
        for round in 0..20_000 {
            let fields = any_fields(&mut prng);
            let state = any_state(&mut prng, &fields);
            let writer = compress(&state, &fields);
            let words = writer.finish().expect("`compress` uses the loose form if a prediction does not hold");
            assert_eq!(decompress(words, &fields), state, "seed {seed}, round {round}");
            assert_eq!(peek(words, &fields), state.head, "seed {seed}, round {round}");
        }
    }

    #[test]
    fn the_longest_encoding_fits() {
        let fields = EntryFields {
            start: 0,
            last: 0,
            position: 0,
            first_length: 0,
            first_flags: 0,
            listed: LOG,
            has_mac: [true; 2],
            is_tcp: true,
            is_v6: true,
        };
        // Values far from every prediction.
        let side = WideDirection {
            last: 1,
            bytes: 1 << 63,
            length: u64::MAX,
            payload: 1 << 62,
            packets: u32::MAX,
            payload_packets: u32::MAX,
            length_min: u32::MAX,
            length_max: u32::MAX - 1,
            length_squares: [u64::MAX, 1 << 63],
            iat_squares: [u64::MAX, 1 << 63],
            gap_min: u64::MAX,
            gap_max: u64::MAX,
            flags: [u32::MAX; 8],
            first: u64::MAX,
            before: NEVER,
            retransmitted_bytes: u64::MAX,
            retransmitted: u32::MAX,
            out_of_order: u32::MAX,
            zero_window: u32::MAX,
            ttl: (255, 254),
            dscp: (255, 254),
            ..WideDirection::default()
        };
        let state = FlowState {
            head: CompressedHead { is_full: true, part: 0, first: Some(0), label: Some(u32::MAX) },
            position: u64::MAX,
            handshake: [u64::MAX; 2],
            macs: [macs::NAMES + (1 << 48) - 1; 2],
            log: [u64::MAX; LOG - 1],
            sides: [side.clone(), side],
        };
        let writer = compress(&state, &fields);
        assert_eq!(decompress(writer.finish().expect("the loose form has no predictions"), &fields), state);
    }
}
