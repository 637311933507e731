//! The detector: packets in, duplicates out. The result depends only on the packets, their timestamps, the settings and
//! the key.

use crate::bindings::{Bindings, Trust};
use crate::chain::{Chain, distance};
use crate::compared::{Compared, Selector};
use crate::counts::Counts;
use crate::datagrams::Datagrams;
use crate::prepared::{Prepared, Preparer};
use crate::rules::{self, Candidate};
use crate::search::{Original, Search, Window, search, search_by};
use crate::settings::{Settings, SettingsError};
use crate::table::{Found, Head, Prefetcher, Table};
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
    bindings: Option<Bindings>,
    batch: Vec<Prepared>,
    last: Timestamp,
    counts: Counts,
}

impl<H> std::fmt::Debug for Detector<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Detector").field("settings", &self.settings).field("packets", &self.counts.packets).finish()
    }
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
            bindings: settings.has_bindings().then(|| Bindings::new(key, hints)),
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
        let new = Candidate { compared, region };
        self.counts.packets += 1;
        self.last = packet.ts;
        let mut found = Search::default();
        if self.table.find(compared.head.key, 0).is_some() {
            found = search(&self.settings, &self.table, &new);
        }
        let (mut translated, mut body) = (None, None);
        if compared.translated | compared.body != 0 {
            (translated, body) = self.search_changed(&mut found, &new);
        }
        if self.datagrams.is_some() {
            found.original = self.fragment(found.original, &new);
        }
        let copies = found.original.as_ref().map_or(0, |original| original.chain.copies);
        self.store(&new, &found, translated, body);
        if copies > self.settings.copies_max {
            self.counts.over_limit += 1;
            return None;
        }
        let Some(Original { duplicate, .. }) = found.original else {
            self.counts.repeats += u64::from(found.is_repeat);
            self.counts.reversed += u64::from(found.is_reversed && !found.is_repeat);
            return None;
        };
        self.counts.add(&duplicate, packet.wire_len);
        Some(duplicate)
    }

    /// Searches the original by the hashes for NAT and proxying, unless it was found before. Returns the entries that
    /// the entries of the packet replace.
    #[inline(never)]
    fn search_changed(&mut self, search: &mut Search, new: &Candidate<'_>) -> (Option<Found>, Option<Found>) {
        let (settings, table, compared) = (&self.settings, &self.table, new.compared);
        let by_nat = (Class::Nat, compared.translated, (|head| head.translated) as fn(&Head) -> u32);
        let by_body = (Class::Proxying, compared.body, (|head| head.body) as fn(&Head) -> u32);
        let (nat, nat_crowd) = search_by(settings, table, by_nat, new, rules::translated);
        let (proxied, proxied_crowd) = search_by(settings, table, by_body, new, rules::proxied);
        for changed in [nat, proxied].into_iter().flatten() {
            let Some(bindings) = self.bindings.as_mut().filter(|_| search.original.is_none()) else { break };
            let class = changed.original.duplicate.class;
            let trust = bindings.confirm(class, self.table.stored(changed.found), new.region, compared);
            self.counts.bindings_replaced = bindings.replaced;
            if trust == Trust::Opposite {
                continue;
            }
            // A device sends one packet for each packet.
            self.table.consume(changed.found, |head| match class {
                Class::Nat => &mut head.translated,
                _ => &mut head.body,
            });
            if trust == Trust::Confirmed {
                search.original = Some(changed.original);
            } else {
                self.counts.unconfirmed += 1;
            }
            break;
        }
        (nat_crowd, proxied_crowd)
    }

    /// Searches the datagram of a fragment, and stores the packet if routers may divide it.
    #[inline(never)]
    fn fragment(&mut self, original: Option<Original>, new: &Candidate<'_>) -> Option<Original> {
        let (compared, region) = (new.compared, new.region);
        let window = Window::of(&self.settings);
        let (number, datagrams) = (self.counts.packets, self.datagrams.as_ref()?);
        let (mut found, mut lost) = (original, 0);
        if found.is_none() && (compared.fragment != Fragment::Whole) {
            let within = |time, age| window.contains(time, age);
            let part = datagrams.find(compared, region, number, within, &mut lost);
            found = part.map(|part| Original {
                duplicate: Duplicate {
                    class: Class::Fragment,
                    time: part.time,
                    packets: part.age,
                    ttl_drop: part.ttl_drop,
                    is_vlan_changed: part.is_vlan_changed,
                    is_tos_changed: part.is_tos_changed,
                    has_payload: compared.payload_len > 0,
                },
                chain: Chain::begin(&self.table, compared.head.ts),
            });
        }
        let evicted = self.datagrams.as_mut()?.store(compared, region, number);
        lost += u64::from(evicted.is_some_and(|(time, age)| window.contains(time, age)));
        self.counts.evicted += lost;
        found
    }

    #[inline(always)]
    fn store(&mut self, new: &Candidate<'_>, found: &Search, translated: Option<Found>, body: Option<Found>) {
        let mut head = new.compared.head;
        let chain = found.original.map_or_else(|| Chain::begin(&self.table, head.ts), |original| original.chain);
        chain.enter(&mut head);
        self.enter(head.key, found.crowd, head.ts);
        for (hash, crowd) in [(new.compared.translated, translated), (new.compared.body, body)] {
            if hash != 0 {
                self.enter(hash, crowd, head.ts);
            }
        }
        if let Some(overwritten) = self.table.write(head, new.region) {
            let reach = distance(overwritten, head.ts);
            if self.counts.shortest_reach.is_none_or(|shortest| reach < shortest) {
                self.counts.shortest_reach = Some(reach);
            }
            let is_early = reach <= self.settings.window && self.settings.window_packets > self.settings.records as u64;
            self.counts.overwritten += u64::from(is_early);
        }
    }

    /// Enters a hash of the packet into the index, in place of the oldest entry with this hash if there are many.
    #[inline(always)]
    fn enter(&mut self, hash: u64, crowd: Option<Found>, ts: Timestamp) {
        if let Some(lost) = self.table.enter(hash, crowd) {
            let is_within = Window::of(&self.settings).contains(distance(self.table.head(lost).ts, ts), lost.age);
            let count = if crowd.is_some() { &mut self.counts.crowded } else { &mut self.counts.evicted };
            *count += u64::from(is_within);
        }
    }
}
