//! Keys of hashes that outsiders cannot guess.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// Returns the key of flow hashes: one for all interfaces of a process, so that both directions of a flow have the same
/// hash.
pub fn hash_key() -> u64 {
    static KEY: OnceLock<u64> = OnceLock::new();
    *KEY.get_or_init(random_key)
}

/// Returns a key that outsiders cannot guess, from the hasher seeds that std takes from the system.
pub fn random_key() -> u64 {
    RandomState::new().build_hasher().finish()
}
