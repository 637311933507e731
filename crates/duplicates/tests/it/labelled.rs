//! Traffic whose copies are labelled where they are made: a sender sends frames, perhaps several times, and a monitor
//! gets each frame at one or more places.

use base::Prng;
use difftest::naive_duplicates::OwnedPacket;
use netgrain_duplicates::{Duplicate, Settings};
use testkit::copies::{routed, tagged};

/// A place at which a frame is captured.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The delay after the frame was sent.
    pub nanos: u64,
    pub interface: u16,
    /// The ID of the VLAN tag that is added; 0 for none.
    pub vlan: u16,
    /// The number of routers before this place.
    pub hops: u8,
}

impl View {
    pub const FIRST: Self = Self { nanos: 0, interface: 0, vlan: 0, hops: 0 };

    fn of(&self, frame: &[u8]) -> Vec<u8> {
        let frame = if self.hops > 0 { routed(frame, self.hops).expect("an IP packet") } else { frame.to_vec() };
        if self.vlan > 0 { tagged(&frame, self.vlan).expect("a frame") } else { frame }
    }
}

/// The mirror of a switch port before and after the VLAN tag is removed.
pub const INGRESS_AND_EGRESS: [View; 2] = [View { vlan: 10, ..View::FIRST }, View { nanos: 4_000, ..View::FIRST }];
/// The mirrors of both ends of a link.
pub const TWO_MIRRORS: [View; 2] = [View::FIRST, View { nanos: 3_000, interface: 1, ..View::FIRST }];
/// One mirror that gets each frame twice.
pub const TWICE: [View; 2] = [View::FIRST, View { nanos: 2_000, ..View::FIRST }];
/// The links before and after a router.
pub const TWO_LINKS: [View; 2] = [View::FIRST, View { nanos: 60_000, interface: 1, hops: 1, ..View::FIRST }];

/// Captured packets; `true` for a copy.
#[derive(Clone, Debug, Default)]
pub struct Labelled(Vec<(OwnedPacket, bool)>);

impl Labelled {
    /// The sender sends a frame at this time, and the monitor gets the frame at these places. The packet of the first
    /// place is the original.
    pub fn send(&mut self, nanos: u64, frame: &[u8], views: &[View]) -> &mut Self {
        for (i, view) in views.iter().enumerate() {
            let data = view.of(frame);
            let (nanos, interface, wire_len) = (nanos + view.nanos, view.interface, data.len() as u32);
            self.0.push((OwnedPacket { nanos, data, wire_len, interface }, i > 0));
        }
        self
    }

    /// The sender sends the same frame several times.
    pub fn repeat(&mut self, count: u64, gap: u64, frame: &[u8], views: &[View]) -> &mut Self {
        let begin = self.end() + 5_000_000;
        for number in 0..count {
            self.send(begin + number * gap, frame, views);
        }
        self
    }

    /// As [`Labelled::repeat`], with another IPv4 identification in each frame.
    pub fn repeat_with(
        &mut self,
        ids: impl IntoIterator<Item = u16>,
        gap: u64,
        frame: &[u8],
        views: &[View],
    ) -> &mut Self {
        let begin = self.end() + 5_000_000;
        for (number, id) in (0..).zip(ids) {
            self.send(begin + number * gap, &with_id(frame, id), views);
        }
        self
    }

    fn end(&self) -> u64 {
        self.0.iter().map(|(packet, _)| packet.nanos).max().unwrap_or(1_000_000_123)
    }

    /// All packets are captured with this snaplen.
    pub fn cut(&mut self, snaplen: usize) -> &mut Self {
        self.0.iter_mut().for_each(|(packet, _)| packet.data.truncate(snaplen));
        self
    }

    /// Joins two captures that begin at the same time.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub fn copies(&self) -> u64 {
        self.0.iter().filter(|(_, is_copy)| *is_copy).count() as u64
    }

    /// The packets and labels in order of time.
    pub fn sorted(&self) -> (Vec<OwnedPacket>, Vec<bool>) {
        let mut sorted = self.0.clone();
        sorted.sort_by_key(|(packet, _)| packet.nanos);
        sorted.into_iter().unzip()
    }

    /// The number of copies that are found. Panics if another packet is reported.
    #[track_caller]
    pub fn found(&self, settings: &Settings) -> u64 {
        let (packets, labels) = self.sorted();
        let (results, _) = crate::traffic::detect(settings, &packets, None);
        let wrong = |(number, (result, label)): (usize, (&Option<Duplicate>, &bool))| {
            result.filter(|_| !*label).map(|found| (number, found))
        };
        let wrong: Vec<_> = results.iter().zip(&labels).enumerate().filter_map(wrong).collect();
        assert!(wrong.is_empty(), "{} of {} packets are no copies: {:?}", wrong.len(), packets.len(), wrong[0]);
        results.iter().flatten().count() as u64
    }

    /// Asserts that no packet is reported that is no copy, and that this number of copies is found.
    #[track_caller]
    pub fn expect(&self, settings: &Settings, found: u64) {
        assert_eq!(self.found(settings), found, "of {} copies", self.copies());
    }
}

/// The frame with this IPv4 identification; the checksum is updated.
pub fn with_id(frame: &[u8], id: u16) -> Vec<u8> {
    let mut copy = frame.to_vec();
    let old = u16::from_be_bytes([frame[18], frame[19]]);
    let sum = u16::from_be_bytes([frame[24], frame[25]]);
    copy[18..20].copy_from_slice(&id.to_be_bytes());
    copy[24..26].copy_from_slice(&wire::update_checksum(sum, old, id).to_be_bytes());
    copy
}

/// Random identifications; 0 is not among them.
pub fn random_ids(count: usize, prng: &mut Prng) -> Vec<u16> {
    (0..count).map(|_| (1 + prng.below(65_535)) as u16).collect()
}
