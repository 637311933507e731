//! The search for the original of a packet among the records with the same hash.

use crate::chain::{Chain, distance};
use crate::evidence::{self, Facts, Verdict};
use crate::rules::{self, Candidate, Relation, Translated};
use crate::settings::Settings;
use crate::table::{EQUAL_MAX, Found, Head, Table, WAYS};
use crate::{Class, Duplicate};
use base::memory::Hints;
use std::time::Duration;
use wire::IpProtocol;

/// The earlier packet that a search found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Original {
    pub duplicate: Duplicate,
    /// The place of the new packet in the chain of the earlier packet.
    pub chain: Chain,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Search {
    pub original: Option<Original>,
    /// True if a packet is equal, but without evidence that both are copies of one packet.
    pub is_repeat: bool,
    /// True if a record on another interface could be the routed copy of this packet: the copy was captured before its
    /// original.
    pub is_reversed: bool,
    /// The oldest entry with the same hash, if the index has no room for a further entry with this hash.
    pub crowd: Option<Found>,
}

/// A record with the same hash.
#[derive(Clone, Copy, Debug, Default)]
struct Match {
    found: Found,
    relation: Relation,
}

/// The windows in time and packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub time: Duration,
    pub packets: u64,
    pub records: u64,
}

impl Window {
    pub fn of(settings: &Settings) -> Self {
        Self { time: settings.window, packets: settings.window_packets, records: settings.records as u64 }
    }

    /// True if the window contains a packet of this time and age.
    #[inline]
    pub fn contains(&self, time: Duration, age: u64) -> bool {
        time <= self.time && age <= self.packets.min(self.records)
    }
}

/// Searches the packet of which the candidate is a switched or routed copy: the newest packet with evidence.
#[inline(never)]
pub(crate) fn search<H: Hints>(settings: &Settings, table: &Table<H>, new: &Candidate<'_>) -> Search {
    let (compared, window) = (new.compared, Window::of(settings));
    let head = &compared.head;
    let (mut matches, mut count) = ([Match::default(); WAYS], 0);
    let mut from = 0;
    while let Some(found) = table.find(head.key, from) {
        from = found.way + 1;
        let old = table.head(found);
        if old.key == head.key {
            let relation = rules::relation(old, table.stored(found), new);
            matches[count] = Match { found, relation };
            count += 1;
        }
    }
    let matches = &matches[..count];
    let mut out = Search { crowd: crowd(matches), ..Search::default() };
    if settings.exact {
        out.original = matches.iter().find_map(|found| exact(table, found, new, window));
        return out;
    }
    let is_identified = compared.is_identified && !is_repeating(table, matches, new, window);
    for Match { found, relation } in matches {
        let old = table.head(*found);
        let chain = Chain::of(old);
        let (time, age) = (distance(chain.first, head.ts), table.age(chain.number));
        // The chain and the packet itself are in the window.
        if !window.contains(time, found.age) || age > window.packets {
            continue;
        }
        let is_here = |other: &Match| {
            let record = table.head(other.found);
            record.chain == chain.number
                && evidence::is_same_frame(other.relation, record, head)
                && evidence::is_same_place(settings, record, head)
        };
        // The index forgets the oldest entry first: all packets of the chain are known if the first is known.
        let is_known = matches.iter().any(|other| other.found.age == age);
        let is_occupied = !is_known || matches.iter().any(is_here);
        let facts = Facts { is_identified, is_occupied, age: found.age };
        match evidence::verdict(settings, *relation, old, new, facts) {
            Verdict::Different => (),
            Verdict::Repeat => out.is_repeat = true,
            Verdict::Reversed => out.is_reversed = true,
            Verdict::Copy { class, is_lower } => {
                let (ttl_drop, is_tos_changed) = match *relation {
                    Relation::Hop { before, after, is_tos_changed } => (before.abs_diff(after), is_tos_changed),
                    _ => (0, false),
                };
                let duplicate = Duplicate {
                    class,
                    time,
                    packets: age,
                    ttl_drop,
                    is_vlan_changed: old.vlans != head.vlans,
                    is_tos_changed,
                    has_payload: compared.payload_len > 0,
                };
                // A routing loop makes many copies, whose TTL decreases.
                let copies = if is_lower { 0 } else { chain.copies.saturating_add(1) };
                out.original = Some(Original { duplicate, chain: Chain { copies, ..chain } });
                return out;
            }
        }
    }
    out
}

/// True if the sender sent the same bytes with another identification in the window, so that an equal identification
/// can also be chance. A TCP segment and its copy are next to each other: the sender sends the segment again after a
/// round trip, so the newest packet shows whether the segment is a copy.
fn is_repeating<H: Hints>(table: &Table<H>, matches: &[Match], new: &Candidate<'_>, window: Window) -> bool {
    let is_near = |found: &&Match| {
        let time = distance(table.head(found.found).ts, new.compared.head.ts);
        found.relation != Relation::Different && window.contains(time, found.found.age)
    };
    let is_sibling = |found: &Match| found.relation == Relation::Sibling;
    if new.compared.protocol == IpProtocol::TCP {
        return matches.iter().find(is_near).is_some_and(is_sibling);
    }
    matches.iter().filter(is_near).any(is_sibling)
}

/// The newest frame that is equal to the frame, for the setting `exact`.
fn exact<H: Hints>(table: &Table<H>, found: &Match, new: &Candidate<'_>, window: Window) -> Option<Original> {
    let head = &new.compared.head;
    let old = table.head(found.found);
    let (time, packets) = (distance(old.ts, head.ts), found.found.age);
    let is_equal = found.relation == Relation::Equal && window.contains(time, packets);
    is_equal.then(|| Original {
        duplicate: Duplicate {
            class: Class::Switching,
            time,
            packets,
            ttl_drop: 0,
            is_vlan_changed: false,
            is_tos_changed: false,
            has_payload: true,
        },
        chain: Chain::begin(table, head.ts),
    })
}

/// The entry of the oldest match, which the entry of the new packet replaces; `None` if there are fewer than
/// [`EQUAL_MAX`] matches.
fn crowd(matches: &[Match]) -> Option<Found> {
    matches.get(EQUAL_MAX - 1..).and_then(|rest| rest.last()).map(|oldest| oldest.found)
}

/// A record of which a packet is a copy with other addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    pub found: Found,
    pub original: Original,
}

/// Searches by one of the further hashes. `compare` gives the change of a record of which the packet is a copy. Returns
/// the newest of these records, and the entry that the entry of the packet replaces.
#[inline(never)]
pub(crate) fn search_by<H: Hints>(
    settings: &Settings,
    table: &Table<H>,
    (class, hash, lower): (Class, u64, fn(&Head) -> u32),
    new: &Candidate<'_>,
    compare: impl Fn(&Head, &[u8], &Candidate<'_>) -> Option<Translated>,
) -> (Option<Changed>, Option<Found>) {
    let (compared, window) = (new.compared, Window::of(settings));
    let (mut out, mut crowd, mut count, mut from) = (None, None, 0, 0);
    while let Some(found) = table.find(hash, from).filter(|_| hash != 0) {
        from = found.way + 1;
        let old = table.head(found);
        if lower(old) != hash as u32 {
            continue;
        }
        count += 1;
        crowd = (count >= EQUAL_MAX).then_some(found);
        let time = distance(old.ts, compared.head.ts);
        if out.is_some() || !window.contains(time, found.age) {
            continue;
        }
        out = compare(old, table.stored(found), new).map(|changed| {
            let duplicate = Duplicate {
                class,
                time,
                packets: found.age,
                ttl_drop: changed.ttl_drop,
                is_vlan_changed: old.vlans != compared.head.vlans,
                is_tos_changed: changed.is_tos_changed,
                has_payload: compared.payload_len > 0,
            };
            Changed { found, original: Original { duplicate, chain: Chain::begin(table, compared.head.ts) } }
        });
    }
    (out, crowd)
}
