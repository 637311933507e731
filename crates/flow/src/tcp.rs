//! What TCP does, as far as somebody in between can see it: which bytes came before (RFC 9293 §3.4), and how far the
//! conversation got (§3.3.2).

use crate::record::TcpState;
use crate::seen::Seen;
use wire::tcp_flags::{ACK, FIN, RST, SYN};

/// Whether bytes were sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Some of them go beyond all that came before, or there are none.
    New,
    /// All of them came before.
    Again,
    /// They fill a hole.
    Late,
}

/// How far one side has sent: the highest sequence number, and the last two holes below it. Numbers wrap around;
/// one is before another if it is less than 2^31 behind it. A hole older than the last two is forgotten, and what fills it
/// counts as sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    high: Option<u32>,
    /// First missing number, and the one after the last; equal if there is no hole. The newer one first.
    holes: [(u32, u32); 2],
}

/// A SYN so far from what was sent before begins a new numbering.
const FAR: u32 = 1 << 16;

impl Sent {
    pub fn up_to(high: Option<u32>) -> Self {
        Self { high, ..Self::default() }
    }

    pub fn see(&mut self, seen: &Seen) -> Order {
        if !seen.tcp || seen.flags & RST != 0 {
            return Order::New;
        }
        let (seq, space) = (seen.seq, seen.space());
        let end = seq.wrapping_add(space);
        let Some(high) = self.high else {
            self.high = Some(end);
            return Order::New;
        };
        if space == 0 {
            return Order::New;
        }
        if seen.flags & SYN != 0 && high.wrapping_sub(seq) > FAR {
            *self = Self::up_to(Some(end));
            return Order::New;
        }
        if end.wrapping_sub(high) as i32 > 0 {
            if seq.wrapping_sub(high) as i32 > 0 {
                self.holes = [(high, seq), self.holes[0]];
            }
            self.high = Some(end);
            return Order::New;
        }
        if self.fill(seq, end) { Order::Late } else { Order::Again }
    }

    /// Whether some of `seq..end` were missing; they are not any more.
    fn fill(&mut self, seq: u32, end: u32) -> bool {
        let mut filled = false;
        for i in 0..self.holes.len() {
            let (from, to) = self.holes[i];
            let (left, right) = (seq.wrapping_sub(from) as i32, end.wrapping_sub(from) as i32);
            let len = to.wrapping_sub(from) as i32;
            if left >= len || right <= 0 {
                continue;
            }
            filled = true;
            let (before, after) = ((from, if left > 0 { seq } else { from }), (if right < len { end } else { to }, to));
            self.holes[i] = if before.0 == before.1 { after } else { before };
            // The middle of a hole leaves two; the second is remembered if there is room.
            if before.0 != before.1 && after.0 != after.1 && self.holes[1].0 == self.holes[1].1 {
                self.holes[1] = after;
            }
        }
        if self.holes[0].0 == self.holes[0].1 {
            self.holes.swap(0, 1);
        }
        filled
    }
}

/// If the packet is the next of its side and there is nothing remarkable about it: how far the side has sent then.
#[inline(always)]
pub(crate) fn in_order(high: Option<u32>, seen: &Seen) -> Option<Option<u32>> {
    if !seen.tcp || seen.flags & RST != 0 {
        return Some(high);
    }
    let space = seen.space();
    match high {
        None => Some(Some(seen.seq.wrapping_add(space))),
        Some(high) if space == 0 => Some(Some(high)),
        Some(high) if high == seen.seq => Some(Some(high.wrapping_add(space))),
        Some(_) => None,
    }
}

/// Which sides have sent FIN, as bits.
pub(crate) type Fins = u8;

/// The state after a packet. In unidirectional metering the FIN of the one side is the end.
#[inline(always)]
pub(crate) fn next(state: TcpState, fins: &mut Fins, seen: &Seen, bidirectional: bool) -> TcpState {
    use TcpState::*;
    if !seen.tcp {
        return state;
    }
    let flags = seen.flags;
    if flags & RST != 0 {
        return if state == Closed { Closed } else { Reset };
    }
    if flags & FIN != 0 {
        *fins |= 1 << seen.side;
    }
    match (state, *fins) {
        (Reset | Closed, _) | (_, 3) => return if state == Reset { Reset } else { Closed },
        (_, 1 | 2) => return if bidirectional { HalfClosed } else { Closed },
        _ => (),
    }
    match state {
        None if seen.side == 0 && flags & (SYN | ACK) == SYN => SynSent,
        None => Midstream,
        SynSent if seen.side == 1 && flags & (SYN | ACK) == SYN | ACK => SynReceived,
        // The answer went another way; that it came is seen from this.
        SynSent | SynReceived if seen.side == 0 && flags & (SYN | ACK) == ACK => Established,
        other => other,
    }
}

/// Whether nothing but repetitions is to come.
#[inline(always)]
pub(crate) fn is_over(state: TcpState) -> bool {
    matches!(state, TcpState::Closed | TcpState::Reset)
}
