//! Assigns packets of trains to their sessions.

use super::packet::{NoTrain, TrainPacket, parse};
use crate::style::plural;
use base::Timestamp;
use base::units::show_count;
use delay::{Analyser, PacketResult, ReceiverClock};
use r#gen::train::{DeparturePlace, PayloadError};
use std::collections::BTreeMap;
use wire::FlowKey;

/// The largest number of sessions. Each session takes up to about 3 MiB of memory.
pub const SESSIONS_MAX: usize = 64;

/// The key of a session at one interface. If packets of one session are captured at two interfaces, they are analysed
/// as two sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// Name of the interface, or of the file.
    pub interface: String,
    /// The number of the session.
    pub session: u32,
    /// Addresses and ports.
    pub flow: FlowKey,
}

/// The analysis of one session.
pub struct Session {
    pub analyser: Analyser,
    /// The point at which the sender took the departure times.
    pub place: DeparturePlace,
}

/// All sessions, and the numbers of packets that were not analysed, by reason.
pub struct Sessions {
    all: BTreeMap<SessionKey, Session>,
    only: Option<u32>,
    packets: u64,
    of_trains: u64,
    damaged: u64,
    malformed: u64,
    first_malformed: Option<PayloadError>,
    beyond_limit: u64,
    clock_steps: Option<u64>,
}

impl Sessions {
    /// An empty list of sessions. If `only` is given, packets of other session numbers are ignored.
    pub fn new(only: Option<u32>) -> Self {
        Self {
            all: BTreeMap::new(),
            only,
            packets: 0,
            of_trains: 0,
            damaged: 0,
            malformed: 0,
            first_malformed: None,
            beyond_limit: 0,
            clock_steps: None,
        }
    }

    /// Adds a packet. If it belongs to a session, returns the key of the session, the packet and its results.
    pub fn add(
        &mut self,
        (interface, clock): (&str, ReceiverClock),
        time: Timestamp,
        (data, wire_len, link_type): (&[u8], u32, u16),
    ) -> Option<(SessionKey, TrainPacket, PacketResult)> {
        self.packets += 1;
        let packet = match parse(data, wire_len, link_type) {
            Ok(packet) => packet,
            Err(NoTrain::Other) => return None,
            Err(NoTrain::Damaged) => {
                self.damaged += 1;
                return None;
            }
            Err(NoTrain::Malformed(e)) => {
                self.malformed += 1;
                self.first_malformed.get_or_insert(e);
                return None;
            }
        };
        if self.only.is_some_and(|only| only != packet.payload.session) {
            return None;
        }
        let key = SessionKey { interface: interface.to_owned(), session: packet.payload.session, flow: packet.flow };
        if self.all.len() >= SESSIONS_MAX && !self.all.contains_key(&key) {
            self.beyond_limit += 1;
            return None;
        }
        self.of_trains += 1;
        let place = packet.payload.place;
        let new = || Session { analyser: Analyser::new(clock), place };
        let session = self.all.entry(key.clone()).or_insert_with(new);
        let result = session.analyser.add(&packet.arrival(time), packet.payload.error);
        Some((key, packet, result))
    }

    /// Registers the state of this host's clock at the end of a live measurement, which applies to all sessions.
    pub fn end_live(&mut self, clock: ReceiverClock, clock_steps: u64) {
        self.clock_steps = Some(clock_steps);
        self.all.values_mut().for_each(|session| session.analyser.set_receiver(clock));
    }

    /// Number of times that this host's clock was set during a live measurement; `None` for stored packets.
    pub const fn clock_steps(&self) -> Option<u64> {
        self.clock_steps
    }

    /// The sessions in order of interface and number.
    pub fn all(&self) -> impl Iterator<Item = (&SessionKey, &Session)> {
        self.all.iter()
    }

    /// True if no packet of a train was added.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Number of all packets that were added, with packets of other traffic.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Number of packets that belong to a session.
    pub const fn of_trains(&self) -> u64 {
        self.of_trains
    }

    /// Messages about packets that were not analysed.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.damaged > 0 {
            let damaged = plural(self.damaged, "packet", "packets");
            notes.push(format!("{damaged} with a wrong UDP checksum counted as lost"));
        }
        if let Some(e) = self.first_malformed {
            notes.push(format!("{} not analysed: {e}", plural(self.malformed, "packet", "packets")));
        }
        if self.beyond_limit > 0 {
            notes.push(format!(
                "{} of more than {} sessions not analysed; select a session with --session or a filter",
                plural(self.beyond_limit, "packet", "packets"),
                show_count(SESSIONS_MAX as u64)
            ));
        }
        notes
    }
}
