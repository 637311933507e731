//! Sequence numbers of tunnels (ERSPAN II and III, GRE, GTP-U): counts missing numbers, which are packets that the
//! mirror port or the path lost.
//!
//! A *session* is one direction between two outer addresses with one tunnel kind and one tunnel ID. All packets of a
//! session are counted, for any content (any flow, ARP, other tunnels), and first fragments too. Therefore one thread
//! must see all packets in order, before packets are distributed to threads.
//!
//! Each sequence number is classified as in RFC 3550, appendix A.1, with the window of RFC 4303, section 3.4.3:
//!
//! ```text
//! ahead of the newest by up to 2^24 (GTP-U: 2^14)   next; the numbers skipped are missing
//! at most 128 behind the newest                      late if it was missing, else duplicate
//! any other number                                   out of window; a restart if its successor comes next
//! ```
//! A number that is late by more than the window is out of window, and that number remains counted as missing. Two
//! consecutive numbers out of window are taken for a restart. A wrap-around of the numbers is no gap. The loss of a
//! complete cycle of numbers is not detected, nor are losses before the first packet and after the last. The table has
//! a fixed size: if the four entries of a bucket are in use, a new session evicts the session whose last packet is the
//! longest ago, counted in packets.

use crate::bytes::{be32, chunk};
use crate::{Tunnel, TunnelKind, ipv4, ipv6, numbered_tunnels};
use base::hash;

/// The number of sessions in the table: 16,384, in 2 MiB that are allocated when the first session begins.
pub const CAPACITY: usize = 16_384;

/// The length of the window before the newest sequence number: for each number in the window, the table records whether
/// it arrived.
pub const WINDOW: u32 = u128::BITS;

/// Entries of a bucket.
const BUCKET_ENTRIES: usize = 4;

/// The counters of sequence numbers. Each sequence number is the next, ahead, late, a duplicate, out of the window, or
/// the first of a session or of a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Number of sequence numbers received: one for each packet, or more if tunnels with sequence numbers are nested.
    pub numbered: u64,
    /// Number of sessions that began.
    pub started: u64,
    /// Number of sequence numbers that were skipped.
    pub missing: u64,
    /// Number of sequence numbers that arrived after higher numbers: `missing - late` were lost.
    pub late: u64,
    /// Number of sequence numbers that had arrived before, or that precede the first number of their session.
    pub duplicate: u64,
    /// Number of sequence numbers outside the window.
    pub out_of_window: u64,
    /// Number of sessions whose sender restarted with another sequence number.
    pub restarts: u64,
    /// Number of sessions that were evicted.
    pub evicted: u64,
}

/// The key of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    src: u128,
    dst: u128,
    id: u32,
    kind: TunnelKind,
    is_v6: bool,
}

/// The state of a session.
#[derive(Clone, Copy)]
struct State {
    /// The sequence number that follows the newest sequence number.
    next: u32,
    /// Bit `n` is clear if the sequence number that is `n` less than the newest sequence number is missing.
    received: u128,
    /// The sequence number that would confirm a restart of the session.
    restart: Option<u32>,
}

#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    state: State,
    /// The value of [`SessionCounts::numbered`] when the session was last active.
    used: u64,
}

// An entry fits two cache lines, and the table fits its documented size.
const _: () = assert!(size_of::<Option<Entry>>() * CAPACITY <= 2 << 20);

/// The table of sessions; see the module documentation.
pub struct Sessions {
    /// Empty until the first session begins.
    buckets: Vec<[Option<Entry>; BUCKET_ENTRIES]>,
    /// The number of buckets to allocate.
    size: usize,
    key: u64,
    counts: SessionCounts,
}

impl Sessions {
    /// A table for [`CAPACITY`] sessions. The secret key prevents attacks on one bucket.
    pub fn new(key: u64) -> Self {
        Self::with(CAPACITY, key)
    }

    /// A table for at least `capacity` sessions.
    pub fn with(capacity: usize, key: u64) -> Self {
        let size = capacity.div_ceil(BUCKET_ENTRIES).next_power_of_two();
        Self { buckets: Vec::new(), size, key, counts: SessionCounts::default() }
    }

    /// Counts the sequence numbers of a frame for which
    /// [`Decoded::may_have_sequence`](crate::Decoded::may_have_sequence) is true.
    #[inline(never)]
    pub fn observe(&mut self, frame: &[u8], wire_len: u32, link_type: u16) {
        for tunnel in numbered_tunnels(frame, wire_len, link_type) {
            if let (Some(key), Some(number)) = (Key::of(&tunnel, frame), tunnel.sequence) {
                self.count(key, number);
            }
        }
    }

    /// The counters of sequence numbers since this table was created.
    pub const fn counts(&self) -> SessionCounts {
        self.counts
    }

    fn count(&mut self, key: Key, number: u32) {
        self.counts.numbered += 1;
        if self.buckets.is_empty() {
            self.buckets.resize(self.size, [None; BUCKET_ENTRIES]);
        }
        let at = self.bucket(&key);
        let bucket = &mut self.buckets[at];
        if let Some(entry) = bucket.iter_mut().flatten().find(|entry| entry.key == key) {
            entry.used = self.counts.numbered;
            return entry.state.observe(number, Space::of(key.kind), &mut self.counts);
        }
        self.counts.started += 1;
        let slot = bucket.iter().position(Option::is_none).unwrap_or_else(|| {
            self.counts.evicted += 1;
            let used = |index: &usize| bucket[*index].map_or(0, |entry| entry.used);
            (0..BUCKET_ENTRIES).min_by_key(used).unwrap_or(0)
        });
        let state = State::begin(number, Space::of(key.kind));
        bucket[slot] = Some(Entry { key, state, used: self.counts.numbered });
    }

    fn bucket(&self, key: &Key) -> usize {
        let Key { src, dst, id, kind, .. } = *key;
        let words = [src as u64, (src >> 64) as u64, dst as u64, (dst >> 64) as u64];
        let last = u64::from(id) | (kind as u64) << 32;
        let state = words.into_iter().chain([last]).fold(self.key, hash::combine);
        state as usize & (self.size - 1)
    }
}

impl Key {
    fn of(tunnel: &Tunnel, frame: &[u8]) -> Option<Self> {
        let l3 = usize::from(tunnel.outer_l3);
        let is_v6 = frame.get(l3)? >> 4 == 6;
        let (src, dst) = if is_v6 {
            let address = |at| chunk(frame, l3 + at).map(|b| u128::from_be_bytes(*b));
            (address(ipv6::at::SRC)?, address(ipv6::at::DST)?)
        } else {
            let head: &[u8; ipv4::at::END] = chunk(frame, l3)?;
            (be32(head, ipv4::at::SRC).into(), be32(head, ipv4::at::DST).into())
        };
        Some(Self { src, dst, id: tunnel.id, kind: tunnel.kind, is_v6 })
    }
}

/// The range of the sequence numbers of a tunnel kind.
#[derive(Clone, Copy)]
struct Space {
    /// The largest sequence number: all bits set.
    last: u32,
    /// The largest forward jump whose skipped sequence numbers count as missing.
    ahead: u32,
}

impl Space {
    const fn of(kind: TunnelKind) -> Self {
        match kind {
            TunnelKind::GtpU => Self { last: 0xffff, ahead: 1 << 14 },
            _ => Self { last: u32::MAX, ahead: 1 << 24 },
        }
    }

    const fn after(self, number: u32) -> u32 {
        number.wrapping_add(1) & self.last
    }
}

impl State {
    /// A new session. Sequence numbers before its first number do not count as missing.
    const fn begin(number: u32, space: Space) -> Self {
        Self { next: space.after(number), received: u128::MAX, restart: None }
    }

    fn observe(&mut self, number: u32, space: Space, counts: &mut SessionCounts) {
        let ahead = number.wrapping_sub(self.next) & space.last;
        if ahead <= space.ahead {
            counts.missing += u64::from(ahead);
            // Shifts in a set bit for `number`, and a clear bit for each missing number before it.
            self.received = self.received.unbounded_shl(ahead + 1) | 1;
            (self.next, self.restart) = (space.after(number), None);
            return;
        }
        // A repetition of the newest sequence number has distance 0.
        let behind = self.next.wrapping_sub(1).wrapping_sub(number) & space.last;
        if behind < WINDOW {
            let bit = 1 << behind;
            if self.received & bit == 0 {
                self.received |= bit;
                counts.late += 1;
            } else {
                counts.duplicate += 1;
            }
        } else if self.restart == Some(number) {
            counts.restarts += 1;
            *self = Self::begin(number, space);
        } else {
            counts.out_of_window += 1;
            self.restart = Some(space.after(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use std::collections::BTreeSet;

    fn key(id: u32, kind: TunnelKind) -> Key {
        Key { src: 1, dst: 2, id, kind, is_v6: false }
    }

    /// The counters after these sequence numbers of one session.
    fn counts(kind: TunnelKind, numbers: &[u32]) -> SessionCounts {
        let mut sessions = Sessions::with(16, 7);
        numbers.iter().for_each(|n| sessions.count(key(5, kind), *n));
        let counts = sessions.counts();
        assert_eq!((counts.numbered, counts.started), (numbers.len() as u64, 1));
        SessionCounts { numbered: 0, started: 0, ..counts }
    }

    const EMPTY: SessionCounts = SessionCounts {
        numbered: 0,
        started: 0,
        missing: 0,
        late: 0,
        duplicate: 0,
        out_of_window: 0,
        restarts: 0,
        evicted: 0,
    };

    #[test]
    fn gaps_and_late_packets_are_counted_and_a_wrap_around_is_no_gap() {
        use TunnelKind::{Erspan2, GtpU};
        assert_eq!(counts(Erspan2, &[7, 8, 9]), EMPTY);
        assert_eq!(counts(Erspan2, &[7, 10]), SessionCounts { missing: 2, ..EMPTY });
        assert_eq!(counts(Erspan2, &[7, 10, 8]), SessionCounts { missing: 2, late: 1, ..EMPTY });
        assert_eq!(counts(Erspan2, &[7, 10, 8, 8, 10]), SessionCounts { missing: 2, late: 1, duplicate: 2, ..EMPTY });
        assert_eq!(
            counts(Erspan2, &[7, 6]),
            SessionCounts { duplicate: 1, ..EMPTY },
            "a number before the session's first number"
        );
        assert_eq!(counts(Erspan2, &[u32::MAX - 1, u32::MAX, 0, 1]), EMPTY);
        assert_eq!(counts(Erspan2, &[u32::MAX, 1]), SessionCounts { missing: 1, ..EMPTY });
        assert_eq!(counts(GtpU, &[0xffff, 0, 1]), EMPTY);
        assert_eq!(
            counts(Erspan2, &[0xffff, 0]).out_of_window,
            1,
            "a 32-bit sequence number does not wrap after 65535"
        );
        assert_eq!(counts(GtpU, &[0xfffe, 1, 0xffff]), SessionCounts { missing: 2, late: 1, ..EMPTY });
        assert_eq!(
            counts(Erspan2, &[0; 5]),
            SessionCounts { duplicate: 4, ..EMPTY },
            "a sender that never increments its sequence number"
        );
    }

    #[test]
    fn one_distant_number_is_an_outlier_and_two_in_a_row_restart_the_session() {
        let far = 1_000_000_000;
        let one = counts(TunnelKind::Gre, &[5, 6, far, 7, 8]);
        assert_eq!(one, SessionCounts { out_of_window: 1, ..EMPTY });
        let two = counts(TunnelKind::Gre, &[far, far + 1, 0, 1, 3]);
        assert_eq!(two, SessionCounts { out_of_window: 1, restarts: 1, missing: 1, ..EMPTY });
        // The largest jump that counts as a gap, and the smallest that does not; the oldest number that counts as late,
        // and the next older number.
        assert_eq!(counts(TunnelKind::Gre, &[9, 10 + (1 << 24)]).missing, 1 << 24);
        assert_eq!(counts(TunnelKind::Gre, &[9, 11 + (1 << 24)]), SessionCounts { out_of_window: 1, ..EMPTY });
        assert_eq!(counts(TunnelKind::GtpU, &[9, 11 + (1 << 14)]), SessionCounts { out_of_window: 1, ..EMPTY });
        assert_eq!(counts(TunnelKind::Gre, &[1, 1000, 1000 - 127]).late, 1);
        assert_eq!(counts(TunnelKind::Gre, &[1, 1000, 1000 - 128]).out_of_window, 1);
    }

    #[test]
    fn each_session_has_its_own_numbers() {
        let mut sessions = Sessions::with(64, 7);
        let others = [
            Key { src: 2, dst: 1, ..key(5, TunnelKind::Gre) },
            Key { is_v6: true, ..key(5, TunnelKind::Gre) },
            key(6, TunnelKind::Gre),
            key(5, TunnelKind::Erspan2),
        ];
        for n in 0..100 {
            sessions.count(key(5, TunnelKind::Gre), n);
            others.iter().enumerate().for_each(|(i, key)| sessions.count(*key, 50 * i as u32 + 2 * n));
        }
        let counts = sessions.counts();
        assert_eq!((counts.started, counts.missing, counts.evicted), (5, 4 * 99, 0));
        assert_eq!((counts.late, counts.duplicate, counts.out_of_window), (0, 0, 0));
    }

    #[test]
    fn a_full_bucket_evicts_the_session_with_the_oldest_last_packet() {
        let mut sessions = Sessions::with(BUCKET_ENTRIES, 7);
        for id in [0, 1, 2, 3, 0, 4] {
            sessions.count(key(id, TunnelKind::Gre), 10);
        }
        assert_eq!((sessions.counts().started, sessions.counts().evicted), (5, 1));
        // The first session is still in the table, the second was evicted.
        sessions.count(key(0, TunnelKind::Gre), 13);
        sessions.count(key(1, TunnelKind::Gre), 13);
        let counts = sessions.counts();
        assert_eq!((counts.missing, counts.started, counts.evicted), (2, 6, 2));
    }

    /// A model test: sequence numbers are lost, duplicated and reordered within the window. The model stores the set of
    /// all sequence numbers received, without wrapping.
    #[test]
    fn the_counts_equal_those_of_a_set_of_all_numbers_on_any_path() {
        let seed = testkit::seed("the_counts_equal_those_of_a_set_of_all_numbers_on_any_path");
        let mut sums = SessionCounts::default();
        for round in 0..40 {
            let mut prng = Prng::new(seed ^ round);
            let kind = [TunnelKind::GtpU, TunnelKind::Erspan3][prng.below(2) as usize];
            let first = (u64::from(Space::of(kind).last) + 1) * 4 - prng.below(3000);
            let (mut sent, mut pause, mut arrivals) = (first, 0, Vec::new());
            for time in 0..4000_u64 {
                sent += 1;
                let time = time + 100 * pause;
                match prng.below(100) {
                    0..5 => (),
                    5..8 => arrivals.extend([(time, sent), (time + prng.below(50), sent)]),
                    8..20 => arrivals.push((time + prng.below(60), sent)),
                    // An outage: no packet sent before the outage arrives after it.
                    20 => (sent, pause) = (sent + prng.below(Space::of(kind).ahead.into()) / 4, pause + 1),
                    _ => arrivals.push((time, sent)),
                }
            }
            arrivals.sort_by_key(|(time, _)| *time);
            let (mut newest, begin) = (arrivals[0].1, arrivals[0].1);
            let (mut received, mut expected) = (BTreeSet::from([newest]), SessionCounts::default());
            let mut sessions = Sessions::with(16, prng.next_u64());
            sessions.count(key(1, kind), newest as u32 & Space::of(kind).last);
            for (_, number) in &arrivals[1..] {
                sessions.count(key(1, kind), *number as u32 & Space::of(kind).last);
                let is_new = received.insert(*number);
                if *number > newest {
                    expected.missing += number - newest - 1;
                    newest = *number;
                } else if is_new && *number > begin {
                    expected.late += 1;
                } else {
                    expected.duplicate += 1;
                }
            }
            let counts = sessions.counts();
            let expected = SessionCounts { numbered: arrivals.len() as u64, started: 1, ..expected };
            assert_eq!(counts, expected, "seed {seed}, round {round}");
            let lost = newest - begin + 1 - received.range(begin..).count() as u64;
            assert_eq!(counts.missing - counts.late, lost, "seed {seed}, round {round}");
            sums.late += counts.late;
            sums.duplicate += counts.duplicate;
            sums.missing += counts.missing;
        }
        assert!(sums.late > 1000 && sums.duplicate > 1000 && sums.missing > 1_000_000, "seed {seed}: {sums:?}");
    }
}
