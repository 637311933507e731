//! Secret keys of hashes, which a sender of packets cannot guess.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// Returns the key of flow hashes. All interfaces of a process use the same key, so that both directions of a flow have
/// the same hash.
pub fn hash_key() -> u64 {
    static KEY: OnceLock<u64> = OnceLock::new();
    *KEY.get_or_init(random_key)
}

/// Returns a random key. Its source is the hasher seed of the standard library, which comes from the system.
pub fn random_key() -> u64 {
    RandomState::new().build_hasher().finish()
}
