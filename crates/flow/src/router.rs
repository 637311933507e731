//! Which of several meters a packet belongs to, and when their time passes: for who runs them in threads.

use crate::config::{Config, Packet};
use crate::key::{Key, Keys, shard_of};
use crate::meter::STEP_BACK;
use base::Timestamp;

/// See the module. One router sees all packets of an interface, in their order.
#[derive(Clone, Debug)]
pub struct Router {
    keys: Keys,
    bidirectional: bool,
    shards: usize,
    second: Option<u64>,
}

impl Router {
    /// Among `shards` meters that were made with [`crate::Shards::part`] of this configuration.
    pub fn new(config: &Config, shards: usize) -> Self {
        let keys = Keys::new(config.seed, config.key_fields);
        Self { keys, bidirectional: config.bidirectional, shards: shards.max(1), second: None }
    }

    /// The meter that takes a packet; the first for what is not IP.
    pub fn shard(&self, packet: &Packet) -> usize {
        Key::of(packet, self.bidirectional).map_or(0, |key| shard_of(self.keys.hash(&key), self.shards))
    }

    /// Whether a packet or a tick of this time begins a second: then every meter is given a tick with it before anything
    /// else.
    pub fn second(&mut self, ts: Timestamp) -> bool {
        let second = ts.secs();
        let begins = self.second.is_none_or(|now| second > now || second + STEP_BACK.as_secs() < now);
        if begins {
            self.second = Some(second);
        }
        begins
    }
}
