//! The assignment of packets to shards, and the ticks of the shards, for programs that run each shard in its own
//! thread.

use crate::config::{Config, Packet};
use crate::key::{Key, Keys, shard_of};
use crate::meter::STEP_BACK;
use base::Timestamp;

/// Assigns packets to shards. One router must see all packets of an interface in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Router {
    keys: Keys,
    bidirectional: bool,
    shards: usize,
    second: Option<u64>,
}

impl Router {
    /// A router for `shards` meters, each made with [`crate::Shards::part`] of this configuration.
    pub fn new(config: &Config, shards: usize) -> Self {
        let keys = Keys::new(config.seed, config.key_fields);
        Self { keys, bidirectional: config.bidirectional, shards: shards.max(1), second: None }
    }

    /// The index of the meter that counts a packet; 0 for packets that are not IP.
    pub fn shard(&self, packet: &Packet) -> usize {
        Key::of(packet, self.bidirectional).map_or(0, |key| shard_of(self.keys.hash(&key), self.shards))
    }

    /// The second begun last.
    pub fn now(&self) -> Option<u64> {
        self.second
    }

    /// True if a packet or a tick of this time begins a second. The caller must then call `Meter::tick` of
    /// every meter with this time before it passes further packets.
    pub fn second(&mut self, ts: Timestamp) -> bool {
        let second = ts.secs();
        let begins = self.second.is_none_or(|now| second > now || second + STEP_BACK.as_secs() < now);
        if begins {
            self.second = Some(second);
        }
        begins
    }
}
