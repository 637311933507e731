//! The detector: packets in, duplicates out. The result depends only on the packets, their timestamps, the settings and
//! the key.

use crate::compared::{Compared, Selector};
use crate::counts::Counts;
use crate::datagrams::Datagrams;
use crate::prepared::{Prepared, Preparer};
use crate::rules::{self, Candidate, Verdict};
use crate::settings::{Settings, SettingsError};
use crate::table::{Head, Prefetcher, Table};
use crate::{Class, Duplicate, Packet};
use base::Timestamp;
use base::memory::{Hints, NoHints};
use std::time::Duration;
use wire::Fragment;

/// Packets whose compared parts are found before the first of them is compared, so that the cache misses of their
/// buckets overlap.
const BATCH: usize = 32;

/// Finds duplicates.
///
/// ```
/// use base::Timestamp;
/// use netgrain_duplicates::{Class, Detector, Packet, Settings};
/// use wire::{build::Frame, link};
/// let mut bytes = [0; 64];
/// let data = Frame::udp4([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53).fragment(7, 0, false).fill(&mut bytes);
/// let packet = |nanos| Packet {
///     ts: Timestamp::from_nanos(nanos), data, wire_len: 64, link_type: link::ETHERNET, interface: 0,
/// };
/// let mut detector = Detector::new(Settings::default(), 1)?;
/// assert_eq!(detector.inspect(&packet(1000)), None);
/// let duplicate = detector.inspect(&packet(1700)).expect("a duplicate");
/// assert_eq!((duplicate.class, duplicate.time.as_nanos()), (Class::Switching, 700));
/// # Ok::<(), netgrain_duplicates::SettingsError>(())
/// ```
#[derive(Clone)]
pub struct Detector<H = NoHints> {
    settings: Settings,
    preparer: Preparer,
    table: Table<H>,
    datagrams: Option<Datagrams>,
    batch: Vec<Prepared>,
    last: Timestamp,
    counts: Counts,
}

impl<H> std::fmt::Debug for Detector<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Detector").field("settings", &self.settings).field("packets", &self.counts.packets).finish()
    }
}

/// What a search by the key found besides the original.
#[derive(Default)]
struct Others {
    /// The place in the bucket of an identical packet.
    identical: Option<usize>,
    /// True if a packet is equal, but without evidence that both are copies of one packet.
    is_repeat: bool,
}

/// The earlier packet that a search found.
struct Original {
    duplicate: Duplicate,
    copies: u8,
}

impl Detector {
    /// A detector without memory hints.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn new(settings: Settings, key: u64) -> Result<Self, SettingsError> {
        Self::with_hints(settings, key, NoHints)
    }
}

impl<H: Hints> Detector<H> {
    /// A detector whose memory gets these hints. The secret key prevents attacks on one bucket; it changes the result
    /// only through evictions.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn with_hints(settings: Settings, key: u64, hints: H) -> Result<Self, SettingsError> {
        settings.check()?;
        let table = Table::new(settings.records, settings.stored_bytes, hints);
        Ok(Self {
            preparer: Preparer::new(Selector::new(&settings, table.stride(), key)),
            datagrams: settings.compares_fragments().then(|| Datagrams::new(settings.records, hints)),
            table,
            batch: vec![Prepared::default(); BATCH],
            last: Timestamp::ZERO,
            counts: Counts::default(),
            settings,
        })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The reach of the table: the time from the oldest record to the last packet. While the table is not full, the
    /// reach is the time since the first packet.
    pub fn reach(&self) -> Duration {
        self.table.oldest().map_or(Duration::ZERO, |oldest| self.last.since(oldest))
    }

    /// A function of the settings and the key of this detector that prepares packets for it. Detectors with the same
    /// settings and key can use the same preparer.
    pub fn preparer(&self) -> Preparer {
        self.preparer.clone()
    }

    /// Prefetches the buckets of this detector.
    pub fn prefetcher(&self) -> Prefetcher<H> {
        self.table.prefetcher()
    }

    /// Compares a packet with the packets before it.
    pub fn inspect(&mut self, packet: &Packet<'_>) -> Option<Duplicate> {
        let prepared = self.preparer.prepare(packet);
        self.process(packet, &prepared.0)
    }

    /// As [`Detector::inspect`], for a packet that was prepared before.
    #[inline]
    pub fn inspect_prepared(&mut self, packet: &Packet<'_>, prepared: &Prepared) -> Option<Duplicate> {
        self.process(packet, &prepared.0)
    }

    /// Forgets the packet with this number ([`Counts::packets`] after the call that inspected it), because the packet
    /// was lost afterwards. Without this, a copy of the lost packet would be removed too, and no copy would be stored.
    pub fn forget(&mut self, number: u64, packet: &Packet<'_>) {
        self.table.forget(number.wrapping_sub(1));
        if let Some(datagrams) = &mut self.datagrams {
            let compared = self.preparer.prepare(packet).0;
            datagrams.forget(compared.region(packet.data), number);
        }
    }

    /// Compares packets in order. `each` gets the index of each packet and its result. The results are those of
    /// [`Detector::inspect`]; batches of 32 packets or more are faster.
    pub fn inspect_batch(&mut self, packets: &[Packet<'_>], mut each: impl FnMut(usize, Option<Duplicate>)) {
        let mut batch = std::mem::take(&mut self.batch);
        let prefetcher = self.prefetcher();
        for (first, chunk) in packets.chunks(BATCH).enumerate() {
            for (packet, prepared) in chunk.iter().zip(&mut batch) {
                self.preparer.prepare_into(packet, prepared);
                prefetcher.prefetch(prepared);
            }
            for (i, (packet, prepared)) in chunk.iter().zip(&batch).enumerate() {
                each(first * BATCH + i, self.process(packet, &prepared.0));
            }
        }
        self.batch = batch;
    }

    #[inline]
    fn process(&mut self, packet: &Packet<'_>, compared: &Compared) -> Option<Duplicate> {
        let region = compared.region(packet.data);
        let candidate = Candidate { compared, region };
        self.counts.packets += 1;
        self.last = packet.ts;
        let (mut original, mut others) = (None, Others::default());
        if self.table.find(compared.head.key, 0).is_some() {
            original = self.search(&candidate, &mut others);
        }
        if compared.head.body != 0 && original.is_none() {
            original = self.search_proxied(&candidate);
        }
        if self.datagrams.is_some() {
            original = self.fragment(original, &candidate);
        }
        let copies = original.as_ref().map_or(0, |original| original.copies.saturating_add(1));
        self.store(&candidate, others.identical, copies);
        let Some(Original { duplicate, .. }) = original.filter(|_| copies <= self.settings.copies_max) else {
            self.counts.repeats += u64::from(others.is_repeat || copies > 0);
            return None;
        };
        self.counts.add(&duplicate, packet.wire_len);
        Some(duplicate)
    }

    /// True if the window contains a packet of this time and age.
    fn is_within(&self, time: Duration, age: u64) -> bool {
        time <= self.settings.window && age <= self.settings.window_packets.min(self.settings.records as u64)
    }

    /// The newest packet of which the candidate is a copy.
    #[inline(never)]
    fn search(&self, new: &Candidate<'_>, others: &mut Others) -> Option<Original> {
        let (compared, mut from) = (new.compared, 0);
        while let Some(found) = self.table.find(compared.head.key, from) {
            from = found.way + 1;
            let (old, stored) = (self.table.head(found), self.table.stored(found));
            let time = rules::distance(old.ts, new.compared.head.ts);
            if old.key != compared.head.key || !self.is_within(time, found.age) {
                continue;
            }
            let comparison = rules::compare(&self.settings, old, stored, new);
            if comparison.is_identical && others.identical.is_none() {
                others.identical = Some(found.way);
            }
            match comparison.verdict {
                Verdict::Different => continue,
                Verdict::Repeat => others.is_repeat = true,
                Verdict::Copy(class) => {
                    let duplicate = Duplicate {
                        class,
                        time,
                        packets: found.age,
                        ttl_drop: comparison.ttl_drop,
                        is_vlan_changed: old.vlans != compared.head.vlans,
                        is_tos_changed: comparison.is_tos_changed,
                        has_payload: compared.has_payload,
                    };
                    return Some(Original { duplicate, copies: old.copies });
                }
            }
        }
        None
    }

    #[inline(never)]
    fn search_proxied(&self, new: &Candidate<'_>) -> Option<Original> {
        let (compared, mut from) = (new.compared, 0);
        while let Some(found) = self.table.find(compared.head.body, from) {
            from = found.way + 1;
            let (old, stored) = (self.table.head(found), self.table.stored(found));
            let time = rules::distance(old.ts, new.compared.head.ts);
            if old.body == compared.head.body && self.is_within(time, found.age) && rules::is_proxied(old, stored, new)
            {
                let duplicate = Duplicate {
                    class: Class::Proxying,
                    time,
                    packets: found.age,
                    ttl_drop: 0,
                    is_vlan_changed: old.vlans != compared.head.vlans,
                    is_tos_changed: false,
                    has_payload: true,
                };
                return Some(Original { duplicate, copies: old.copies });
            }
        }
        None
    }

    /// Searches the datagram of a fragment, and stores the packet if routers may divide it.
    #[inline(never)]
    fn fragment(&mut self, original: Option<Original>, new: &Candidate<'_>) -> Option<Original> {
        let (compared, region) = (new.compared, new.region);
        let (number, datagrams) = (self.counts.packets, self.datagrams.as_ref()?);
        let (mut found, mut lost) = (original, 0);
        if found.is_none() && (compared.fragment != Fragment::Whole) {
            let within = |time, age| self.is_within(time, age);
            let part = datagrams.find(compared, region, number, within, &mut lost);
            found = part.map(|part| Original {
                duplicate: Duplicate {
                    class: Class::Fragment,
                    time: part.time,
                    packets: part.age,
                    ttl_drop: part.ttl_drop,
                    is_vlan_changed: false,
                    is_tos_changed: false,
                    has_payload: compared.has_payload,
                },
                copies: 0,
            });
        }
        let evicted = self.datagrams.as_mut()?.store(compared, region, number);
        lost += u64::from(evicted.is_some_and(|(time, age)| self.is_within(time, age)));
        self.counts.evicted += lost;
        found
    }

    #[inline(always)]
    fn store(&mut self, new: &Candidate<'_>, replaces: Option<usize>, copies: u8) {
        let evicted = self.table.enter(new.compared.head.key, replaces);
        if let Some(evicted) = evicted {
            let time = rules::distance(self.table.head(evicted).ts, new.compared.head.ts);
            self.counts.evicted += u64::from(self.is_within(time, evicted.age));
        }
        if new.compared.head.body != 0 {
            let evicted = self.table.enter(new.compared.head.body, None);
            if let Some(evicted) = evicted {
                let time = rules::distance(self.table.head(evicted).ts, new.compared.head.ts);
                self.counts.evicted += u64::from(self.is_within(time, evicted.age));
            }
        }
        let head = Head { copies, ..new.compared.head };
        if let Some(overwritten) = self.table.write(head, new.region) {
            let reach = rules::distance(overwritten, new.compared.head.ts);
            if self.counts.shortest_reach.is_none_or(|shortest| reach < shortest) {
                self.counts.shortest_reach = Some(reach);
            }
            let is_early = reach <= self.settings.window && self.settings.window_packets > self.settings.records as u64;
            self.counts.overwritten += u64::from(is_early);
        }
    }
}
