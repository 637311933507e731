//! Binary search for a stream position among the descriptors while the producer overwrites the oldest descriptors.
//!
//! Stream positions only grow from descriptor to descriptor, and a descriptor does not change until the producer
//! overwrites it. Therefore a result from valid descriptors stays true, and only a read that overlaps an overwrite is
//! invalid. After each read the search loads the position up to which the producer may have written (the claim, see
//! `protocol`). After an invalid read it restarts at the oldest valid descriptor. Most control descriptors have no
//! position, so the search scans past them. Each scan without a result halves the remaining range, so that even a ring
//! full of control descriptors is scanned at most twice. For any memory contents the search ends and reads nothing
//! outside the ring.

use crate::desc::{Control, Desc};

/// Number of invalid reads after which the search ends. So many invalid reads mean that the producer overwrites
/// descriptors faster than the search reads them.
const INVALID_READS_MAX: u32 = 64;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchResult {
    /// Index of the first valid descriptor of a packet or segment at or after the position; the head if no such
    /// descriptor exists.
    pub index: u64,
    /// True if no packet or segment at or after the position has a lower index. False if such a packet or segment may
    /// have been overwritten.
    pub complete: bool,
}

/// Searches the descriptors below `head` for the first packet or segment at or after `pos`. `load` copies a descriptor;
/// `oldest` returns the index of the oldest descriptor that was valid after that copy.
pub fn first_from(pos: u64, head: u64, load: impl Fn(u64) -> Desc, oldest: impl Fn() -> u64) -> SearchResult {
    let mut from = oldest().min(head);
    let mut to = head;
    // True if every descriptor before `from` is known to precede the position.
    let mut complete = from == 0;
    // The most recent match, at or after `to`: its index, and true if no packet between the position and the match is
    // missing.
    let mut found = (head, false);
    let mut overwritten = 0;
    while from < to {
        let middle = from + (to - from) / 2;
        let placed = (middle..to).find_map(|i| Some((i, location_of(&load(i))?)));
        let whole = oldest();
        if whole > middle {
            overwritten += 1;
            if overwritten > INVALID_READS_MAX {
                return SearchResult { index: head, complete: false };
            }
            (from, to, complete, found) = (whole.min(head), head, false, (head, false));
            continue;
        }
        match placed {
            Some((index, location)) if location.pos < pos => (from, complete) = (index + 1, true),
            Some((index, location)) => (to, found) = (middle, (index, location.behind <= pos)),
            None => to = middle,
        }
    }
    SearchResult { index: found.0, complete: complete || found.1 }
}

/// The stream position of a descriptor.
struct DescLocation {
    /// Stream position at which the packet or segment begins.
    pos: u64,
    /// Every earlier packet begins before this position.
    behind: u64,
}

/// The position that a descriptor has in the stream; `None` for a control descriptor without a stream position.
fn location_of(desc: &Desc) -> Option<DescLocation> {
    match desc.as_control() {
        Some(Control::Segment { pos, gap }) => Some(DescLocation { pos, behind: pos.wrapping_sub(u64::from(gap)) }),
        Some(_) => None,
        None => desc.is_packet().then_some(DescLocation { pos: desc.pos(), behind: desc.pos() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::AnnotatedPosition;
    use base::{Prng, Timestamp};
    use std::cell::Cell;

    /// Descriptors as a producer writes them: packets, segments with gaps, and control descriptors without a position.
    fn stream(prng: &mut Prng, controls_in_100: u64) -> Vec<Desc> {
        let (mut pos, mut out) = (1000, Vec::new());
        let len = prng.below(300);
        while (out.len() as u64) < len {
            let ts = Timestamp::from_nanos(out.len() as u64);
            if prng.below(100) < controls_in_100 {
                out.push(Desc::control(Control::Tick, ts));
            } else if prng.below(10) == 0 {
                let gap = prng.below(50);
                out.push(Desc::control(Control::Segment { pos: pos + gap, gap: gap as u32 }, ts));
                pos += gap + 24;
            } else {
                let caplen = prng.below(100) as u16;
                out.push(Desc {
                    annotated_pos: AnnotatedPosition::new(pos),
                    ts: ts.nanos(),
                    caplen,
                    ..Desc::default()
                });
                pos += 16 + u64::from(caplen);
            }
        }
        out
    }

    fn pos_of(desc: &Desc) -> Option<u64> {
        location_of(desc).map(|p| p.pos)
    }

    #[test]
    fn a_search_during_overwrites_skips_no_valid_packet_and_reports_completeness() {
        let test = "a_search_during_overwrites_skips_no_valid_packet_and_reports_completeness";
        let mut prng = Prng::new(testkit::seed(test));
        let (mut complete, mut overwritten) = (0, 0);
        for round in 0..30_000 {
            let controls_in_100 = [0, 5, 50, 95, 100][prng.below(5) as usize];
            let all = stream(&mut prng, controls_in_100);
            let head = all.len() as u64;
            let target = 900 + prng.below(all.iter().filter_map(pos_of).max().unwrap_or(0) + 200);
            let target = match all.get(prng.below(head.max(1)) as usize).and_then(pos_of) {
                Some(pos) if prng.below(2) == 0 => pos,
                _ => target,
            };
            // Part of the ring is overwritten before the search and more during it; overwritten descriptors read as
            // random words.
            let initial_oldest = if prng.below(3) == 0 { 0 } else { prng.below(head + 1) };
            let (oldest, random_word) = (Cell::new(initial_oldest), Cell::new(prng.next_u64()));
            let overwrites_per_read = if prng.below(2) == 0 { 0 } else { prng.below(20) };
            let load = |i: u64| {
                random_word.set(random_word.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                if random_word.get() >> 60 == 0 {
                    oldest.set((oldest.get() + overwrites_per_read).min(head + 5));
                }
                if i >= oldest.get() { all[i as usize] } else { Desc::from_words([random_word.get(); 4]) }
            };
            let found = first_from(target, head, load, || oldest.get());
            overwritten += u64::from(oldest.get() > initial_oldest);
            let first = all.iter().position(|d| pos_of(d).is_some_and(|p| p >= target)).map_or(head, |i| i as u64);
            let packet = all.iter().position(|d| d.is_packet() && d.pos() >= target).map_or(head, |i| i as u64);
            let context = format!("round {round}: {found:?}, first {first}, packet {packet}, oldest {}", oldest.get());
            assert!(found.index >= first.min(head) && found.index <= head, "{context}");
            if found.complete {
                complete += 1;
                assert!(found.index <= packet, "a packet was skipped: {context}");
            }
            if overwrites_per_read == 0 {
                assert_eq!(found.index, first.max(first_valid_at(&all, initial_oldest, target)), "{context}");
            }
            if initial_oldest == 0 && overwrites_per_read == 0 {
                assert!(found.complete, "{context}");
            }
        }
        assert!(
            complete > 5000 && overwritten > 5000,
            "{complete} complete results and {overwritten} searches with overwrites, each of which must exceed 5000"
        );
    }

    /// Index of the first descriptor at or after `pos` among those that are not overwritten.
    fn first_valid_at(all: &[Desc], oldest: u64, pos: u64) -> u64 {
        let whole = all.iter().enumerate().skip(oldest as usize);
        whole.into_iter().find(|(_, d)| pos_of(d).is_some_and(|p| p >= pos)).map_or(all.len() as u64, |(i, _)| i as u64)
    }

    #[test]
    fn a_search_in_arbitrary_memory_ends_within_the_ring() {
        let test = "a_search_in_arbitrary_memory_ends_within_the_ring";
        let mut prng = Prng::new(testkit::seed(test));
        for _ in 0..20_000 {
            let (head, pos) = (prng.below(200), prng.next_u64() >> prng.below(64));
            let random_state = Cell::new(prng.next_u64());
            let random_word = || {
                random_state.set(base::hash::mix64(random_state.get().wrapping_add(1)));
                random_state.get()
            };
            let load = |i: u64| {
                assert!(i < head);
                Desc::from_words(std::array::from_fn(|_| random_word() >> (random_word() % 64)))
            };
            let found = first_from(pos, head, load, || random_word() >> (random_word() % 64));
            assert!(found.index <= head);
        }
    }
}
