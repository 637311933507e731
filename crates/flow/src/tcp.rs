//! TCP as an observer of the packets sees it: sequence numbers sent before (RFC 9293 §3.4), and the connection state
//! (§3.3.2).

use crate::bits::Coder;
use crate::packet_fields::PacketFields;
use crate::record::TcpState;
use std::hint::select_unpredictable;
use wire::tcp_flags::{ACK, FIN, RST, SYN};

/// The relation of a segment to the sequence numbers sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentOrder {
    /// Some of the segment's sequence numbers are above all earlier numbers, or the segment has no sequence numbers.
    New,
    /// All of the segment's sequence numbers were sent before.
    Retransmitted,
    /// The segment fills a hole in the sequence numbers, at least in part.
    OutOfOrder,
}

/// The sequence numbers that one direction has sent: the highest number, and the last two holes below it. Sequence
/// numbers wrap around. Older holes are not stored, so a segment that fills an older hole counts as retransmitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SequenceSpace {
    high: Option<u32>,
    /// For each hole, the first missing sequence number and the number after the last missing one; the two are equal if
    /// there is no hole. The newer hole is first.
    holes: [(u32, u32); 2],
}

/// A SYN that is farther than this from the highest sequence number begins a new sequence space (a new connection).
const FAR: u32 = 1 << 16;
/// A segment farther from the highest sequence number than any window reaches (RFC 7323 §2.3) also begins a new
/// sequence space.
const WINDOW: u32 = 1 << 30;

impl SequenceSpace {
    pub fn up_to(high: Option<u32>) -> Self {
        Self { high, ..Self::default() }
    }

    pub const fn high(&self) -> Option<u32> {
        self.high
    }

    /// Encodes or decodes the state of an idle-compressed flow ([`crate::compress`]).
    pub fn code(&mut self, c: &mut impl Coder) {
        self.high = c.bit(self.high.is_some()).then(|| c.bits(self.high.unwrap_or(0).into(), 32) as u32);
        let high = self.high.unwrap_or(0);
        for hole in &mut self.holes {
            *hole = if c.bit(*hole != (0, 0)) {
                let from = high.wrapping_sub(c.number(high.wrapping_sub(hole.0).into()) as u32);
                (from, from.wrapping_add(c.number(hole.1.wrapping_sub(from).into()) as u32))
            } else {
                (0, 0)
            };
        }
    }

    pub fn observe(&mut self, seen: &PacketFields) -> SegmentOrder {
        if !seen.tcp || seen.flags & RST != 0 {
            return SegmentOrder::New;
        }
        let (seq, space) = (seen.seq, seen.space());
        let end = seq.wrapping_add(space);
        let Some(high) = self.high else {
            self.high = Some(end);
            return SegmentOrder::New;
        };
        if space == 0 {
            return SegmentOrder::New;
        }
        let is_new_syn = seen.flags & SYN != 0 && high.wrapping_sub(seq) > FAR;
        let is_elsewhere = (end.wrapping_sub(high) as i32).unsigned_abs() > WINDOW || space > WINDOW;
        if is_new_syn || is_elsewhere {
            *self = Self::up_to(Some(end));
            return SegmentOrder::New;
        }
        if end.wrapping_sub(high) as i32 > 0 {
            if seq.wrapping_sub(high) as i32 > 0 {
                self.holes = [(high, seq), self.holes[0]];
            }
            self.high = Some(end);
            self.remove_ambiguous_holes(end);
            return SegmentOrder::New;
        }
        if self.fill(seq, end) { SegmentOrder::OutOfOrder } else { SegmentOrder::Retransmitted }
    }

    /// Removes holes that are so old that their numbers would be ambiguous after the wrap-around.
    #[inline(always)]
    fn remove_ambiguous_holes(&mut self, high: u32) {
        let is_young = |h: (u32, u32)| h.0 != h.1 && high.wrapping_sub(h.0) <= WINDOW;
        if self.holes[0] != (0, 0) {
            self.keep(self.holes.into_iter().filter(|h| is_young(*h)));
        }
    }

    /// Removes `seq..end` from the holes; true if some of these numbers were missing.
    fn fill(&mut self, seq: u32, end: u32) -> bool {
        let is_in = |from: u32, to: u32| {
            let (left, right) = (seq.wrapping_sub(from) as i32, end.wrapping_sub(from) as i32);
            left < to.wrapping_sub(from) as i32 && right > 0
        };
        let rest = |(from, to): (u32, u32)| {
            if !is_in(from, to) {
                return [(from, to), (0, 0)];
            }
            // The remaining parts of the hole before and after the segment.
            let before = if seq.wrapping_sub(from) as i32 > 0 { (from, seq) } else { (0, 0) };
            let behind = if to.wrapping_sub(end) as i32 > 0 { (end, to) } else { (0, 0) };
            [before, behind]
        };
        let holes = self.holes;
        let filled = holes.iter().any(|h| h.0 != h.1 && is_in(h.0, h.1));
        if filled {
            self.keep(holes.into_iter().flat_map(rest));
        }
        filled
    }

    /// Stores the first two of `holes` that are not empty.
    fn keep(&mut self, holes: impl Iterator<Item = (u32, u32)>) {
        let mut kept = holes.filter(|h| h.0 != h.1);
        self.holes = [kept.next().unwrap_or_default(), kept.next().unwrap_or_default()];
    }
}

/// The highest sequence number after this packet, and true if that number is known; `None` if the packet does not
/// continue the sequence numbers of its direction. The function has only one branch, at its end: other branches would
/// be unpredictable, because every third packet is not TCP, and every second packet has no payload.
#[inline(always)]
pub(crate) fn in_order(high: u32, is_known: bool, seen: &PacketFields) -> Option<(u32, bool)> {
    let counts = seen.tcp & (seen.flags & RST == 0);
    let space = seen.space();
    let moves = counts & ((space > 0) | !is_known);
    let fits = !moves | !is_known | (high == seen.seq);
    let next = if moves { seen.seq.wrapping_add(space) } else { high };
    fits.then_some((next, is_known | counts))
}

/// The directions in which FIN was sent, as bits.
pub(crate) type Fins = u8;

/// The state after the first packet of a flow, which has direction 0: the result of [`next`], computed without a branch
/// on the protocol.
#[inline(always)]
pub(crate) fn first(seen: &PacketFields, bidirectional: bool) -> (TcpState, Fins) {
    let flags = seen.flags;
    let state = match flags {
        _ if flags & RST != 0 => TcpState::Reset,
        _ if flags & FIN != 0 && bidirectional => TcpState::HalfClosed,
        _ if flags & FIN != 0 => TcpState::Closed,
        _ => select_unpredictable(flags & (SYN | ACK) == SYN, TcpState::SynSent, TcpState::Midstream),
    };
    // For a packet that is not TCP, `flags` is 0.
    let has_ended = flags & (FIN | RST) == FIN;
    (select_unpredictable(seen.tcp, state, TcpState::None), has_ended.into())
}

/// The state after a packet. In uniflows a FIN of the only direction closes the connection.
#[inline(always)]
pub(crate) const fn next(state: TcpState, fins: &mut Fins, seen: &PacketFields, bidirectional: bool) -> TcpState {
    use TcpState::*;
    if !seen.tcp {
        return state;
    }
    let flags = seen.flags;
    if flags & RST != 0 {
        return if matches!(state, Closed) { Closed } else { Reset };
    }
    if flags & FIN != 0 {
        *fins |= 1 << seen.side;
    }
    match (state, *fins) {
        (Reset | Closed, _) | (_, 3) => return if matches!(state, Reset) { Reset } else { Closed },
        (_, 1 | 2) => return if bidirectional { HalfClosed } else { Closed },
        _ => (),
    }
    match state {
        None if seen.side == 0 && flags & (SYN | ACK) == SYN => SynSent,
        None => Midstream,
        SynSent if seen.side == 1 && flags & (SYN | ACK) == SYN | ACK => SynReceived,
        // An ACK from the initiator shows that the SYN+ACK arrived, even if the capture does not have the SYN+ACK.
        SynSent | SynReceived if seen.side == 0 && flags & (SYN | ACK) == ACK => Established,
        other => other,
    }
}

/// The effect of a packet on the two times of the TCP handshake, as bits. The first time is that from SYN to SYN+ACK,
/// the second that from SYN+ACK to ACK. Until the later of the two packets arrives, the value of a time is the
/// timestamp of the earlier packet; afterwards it is the duration between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandshakeUpdate(u8);

impl HandshakeUpdate {
    pub const EMPTY: Self = Self(0);
    /// The last of several SYNs counts, so that a lost SYN does not increase the round-trip time.
    const SYN: Self = Self(1);
    const ANSWER: Self = Self(1 << 1 | 1 << 2);
    const ANSWER_AGAIN: Self = Self(1 << 2);
    const END: Self = Self(1 << 3);

    pub const fn of(before: TcpState, after: TcpState, side: usize, flags: u8) -> Self {
        use TcpState::*;
        let is_syn = flags & SYN != 0;
        match (before, after) {
            (Established | Midstream, _) => Self::EMPTY,
            (_, SynSent) if side == 0 && is_syn => Self::SYN,
            (SynSent, SynReceived) => Self::ANSWER,
            (SynReceived, SynReceived) if side == 1 && is_syn => Self::ANSWER_AGAIN,
            (SynReceived, Established) => Self::END,
            _ => Self::EMPTY,
        }
    }

    /// The new values of the two times of the handshake after a packet with timestamp `at`.
    #[inline(always)]
    pub fn times(self, [syn, ack]: [u64; 2], at: u64) -> [u64; 2] {
        let does = |bit: u32| self.0 >> bit & 1 == 1;
        let first = select_unpredictable(does(1), at.wrapping_sub(syn), select_unpredictable(does(0), at, syn));
        let second = select_unpredictable(does(3), at.wrapping_sub(ack), select_unpredictable(does(2), at, ack));
        [first, second]
    }

    /// For each time, true if it has changed from a timestamp to a duration.
    #[inline(always)]
    pub const fn learned(self) -> [bool; 2] {
        [self.0 >> 1 & 1 == 1, self.0 >> 3 & 1 == 1]
    }
}

/// The results of [`next`] and [`HandshakeUpdate::of`] for packets without FIN and RST of a connection that is not
/// closed: the state in the lower four bits, the handshake update in the upper four.
static STEPS: [u8; 128] = {
    use TcpState::*;
    let states = [None, Midstream, SynSent, SynReceived, Established, HalfClosed, Closed, Reset];
    let mut all = [0; 128];
    let mut at = 0;
    while at < all.len() {
        let (before, tcp, side) = (states[at >> 4], at >> 3 & 1 == 1, at >> 2 & 1);
        let flags = if at & 1 == 1 { SYN } else { 0 } | if at >> 1 & 1 == 1 { ACK } else { 0 };
        let seen = PacketFields { tcp, flags, side, ..PacketFields::EMPTY };
        // A packet without FIN leaves the set of directions with a FIN unchanged, so a half-closed connection stays
        // half-closed.
        let after = if matches!(before, HalfClosed) { before } else { next(before, &mut 0, &seen, true) };
        all[at] = after as u8 | HandshakeUpdate::of(before, after, side, flags).0 << 4;
        at += 1;
    }
    all
};

/// The state after a packet without FIN and RST, and the handshake update. Both are looked up, because branches would
/// be unpredictable at the start of connections.
#[inline(always)]
pub(crate) fn step(state: TcpState, side: usize, seen: &PacketFields) -> (TcpState, HandshakeUpdate) {
    let flags = usize::from(seen.flags >> 1 & 1) | usize::from(seen.flags >> 3 & 2);
    const _: () = assert!(SYN == 1 << 1 && ACK == 1 << 4);
    let step = STEPS[(state as usize) << 4 | usize::from(seen.tcp) << 3 | (side & 1) << 2 | flags];
    (TcpState::of(step & 7), HandshakeUpdate(step >> 4))
}

/// True if a packet without SYN, FIN and RST does not change the state.
#[inline(always)]
pub(crate) fn is_final(state: TcpState) -> bool {
    const FINAL: u8 = 1 << TcpState::Midstream as u8
        | 1 << TcpState::Established as u8
        | 1 << TcpState::HalfClosed as u8
        | 1 << TcpState::Closed as u8
        | 1 << TcpState::Reset as u8;
    FINAL >> state as u8 & 1 == 1
}

/// True if the connection is closed or reset: only retransmissions can follow.
#[inline(always)]
pub(crate) fn is_over(state: TcpState) -> bool {
    state >= TcpState::Closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_after_a_first_packet_follows_the_general_rule() {
        for flags in 0..=255 {
            for (tcp, bidirectional) in [(true, true), (true, false), (false, true), (false, false)] {
                let seen = PacketFields { tcp, flags: if tcp { flags } else { 0 }, ..PacketFields::default() };
                let mut fins = 0;
                let state = next(TcpState::None, &mut fins, &seen, bidirectional);
                assert_eq!(first(&seen, bidirectional), (state, fins), "{seen:?}, {bidirectional}");
            }
        }
    }

    #[test]
    fn steps_agree_with_the_general_rule() {
        use TcpState::*;
        for flags in (0..=255).filter(|flags| flags & (FIN | RST) == 0) {
            for (tcp, side) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
                let seen = PacketFields { tcp, side, flags: if tcp { flags } else { 0 }, ..PacketFields::EMPTY };
                for (before, fins) in
                    [(None, 0), (Midstream, 0), (SynSent, 0), (SynReceived, 0), (Established, 0), (HalfClosed, 1)]
                {
                    let after = next(before, &mut { fins }, &seen, true);
                    let expected = (after, HandshakeUpdate::of(before, after, side, seen.flags));
                    assert_eq!(step(before, side, &seen), expected, "{before:?}, {seen:?}");
                }
            }
        }
    }

    #[test]
    fn handshake_times_are_timestamps_until_both_ends_are_known() {
        let mut times = [0, 0];
        for (handshake, at, expected) in [
            (HandshakeUpdate::SYN, 5, [5, 0]),
            (HandshakeUpdate::SYN, 7, [7, 0]),
            (HandshakeUpdate::ANSWER, 20, [13, 20]),
            (HandshakeUpdate::ANSWER_AGAIN, 22, [13, 22]),
            (HandshakeUpdate::EMPTY, 30, [13, 22]),
            (HandshakeUpdate::END, 40, [13, 18]),
        ] {
            times = handshake.times(times, at);
            assert_eq!(times, expected, "{handshake:?}");
        }
    }
}
