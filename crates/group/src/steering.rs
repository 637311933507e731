//! Choice of the member that a hash is steered to.
//!
//! The method is rendezvous hashing (Thaler and Ravishankar, 1998). A hash falls into one of [`BUCKETS`] buckets, each
//! member has a pseudo-random score for the bucket, and the member with the highest score gets the bucket. When a
//! member leaves, only the buckets of that member move to other members. When a member joins, only the buckets that it
//! wins move. No bucket moves between two members that stay. A member of weight *w* has *w* scores for each bucket, so
//! its share is *w* parts; when its weight grows, it gets only the additional share. The score depends on the member
//! slot, and a new member gets the lowest free slot, so a restarted worker gets the same flows again.
//!
//! The winning members of all buckets are computed once for each set of members and weights ([`BucketTable`]), so that
//! a packet needs one table access. With this number of buckets, the shares of a few members of equal weight differ by
//! less than 1 %.
//!
//! [`fold`] is the method of PFQ, implemented for comparison. With it, any change of the members moves nearly all
//! flows.

use base::hash::mix64;

/// Number of hash buckets. The relative standard deviation of a member's share is one over the square root of the
/// number of the member's buckets: 0.7 % for four members.
pub const BUCKETS: usize = 1 << 16;

/// The largest weight of a member, and therefore the largest number of its scores for a bucket.
pub const WEIGHT_MAX: u8 = 64;

/// The maximum number of members of a group.
pub const MEMBERS: usize = 64;

/// A constant that makes the scores independent of other uses of the hash function. Of 20 000 constants, it makes the
/// shares of the first 2 to 8 slots most even: within 0.6 % of equal shares, and for four slots within 0.2 %.
const SALT: u64 = 0x6e67_0000_2971_0000;

/// The steering rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// Rendezvous hashing, as the module documentation describes it.
    #[default]
    Rendezvous,
    /// PFQ's weighted list and fold.
    Fold,
}

/// Weights by member slot; 0 for a free slot.
pub type Weights = [u8; MEMBERS];

/// Returns the hash bucket into which a hash falls.
#[inline]
pub const fn bucket(hash: u32) -> usize {
    // A program may steer by a value that is not a hash, such as an address, so the value is mixed first. The bits of
    // the upper half are mixed best.
    (mix32(hash) >> 16) as usize
}

/// A bijection on 32 bits with full avalanche, so that programs may steer by any number. The constants come from the
/// search of C. Wellons (public domain, "lowbias32").
#[inline]
pub const fn mix32(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Returns a score of a member for a bucket. A member of weight *w* has *w* scores, which `draw` numbers from 0.
fn score(bucket: usize, slot: u8, draw: u8) -> u64 {
    mix64(mix64(SALT | (slot as u64) << 8 | draw as u64) ^ (bucket as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn best_draw(bucket: usize, slot: u8, weight: u8) -> u64 {
    (0..weight).map(|draw| score(bucket, slot, draw)).max().unwrap_or(0)
}

/// Returns the member slot that wins a bucket within this set; `None` if all weights in the set are zero.
pub fn winner(bucket: usize, set: u64, weights: &Weights) -> Option<u8> {
    members(set)
        .filter(|slot| weights[usize::from(*slot)] > 0)
        .max_by_key(|slot| (best_draw(bucket, *slot, weights[usize::from(*slot)]), *slot))
}

/// Returns the member slot that PFQ's fold chooses. The fold computes an index into a list in which each slot occurs as
/// often as its weight.
pub fn fold(hash: u32, set: u64, weights: &Weights) -> Option<u8> {
    let weight = |slot: u8| u32::from(weights[usize::from(slot)]);
    let n: u32 = members(set).map(weight).sum();
    let hash = mix32(hash);
    let mut index = match n {
        0 => return None,
        1 => 0,
        n if n.is_power_of_two() => hash & (n - 1),
        // As in PFQ, for a total weight that is not a power of two: a total weight above 8 gives the masked hash as the
        // index, provided that the masked hash is below the total weight. In all other cases the index is the hash
        // modulo the total weight.
        n if n > 8 && hash & (n.next_power_of_two() - 1) < n => hash & (n.next_power_of_two() - 1),
        n => hash % n,
    };
    members(set).find(|slot| {
        let here = index < weight(*slot);
        index = index.saturating_sub(weight(*slot));
        here
    })
}

/// Returns the slots in a set, lowest first.
pub fn members(set: u64) -> impl Iterator<Item = u8> {
    let mut left = set;
    std::iter::from_fn(move || {
        let slot = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (slot < 64).then_some(slot as u8)
    })
}

/// The winning member of each hash bucket, for one set of member slots.
#[derive(Clone, Debug)]
pub struct BucketTable {
    set: u64,
    weights: Weights,
    owner: Box<[u8]>,
}

impl BucketTable {
    /// Computes the table. Returns `None` if all members in the set have weight zero.
    pub fn new(set: u64, weights: &Weights) -> Option<Self> {
        winner(0, set, weights)?;
        let mut own = [0; MEMBERS];
        members(set).for_each(|p| own[usize::from(p)] = weights[usize::from(p)]);
        let mut owner = vec![0; BUCKETS].into_boxed_slice();
        for (bucket, owner) in owner.iter_mut().enumerate() {
            *owner = winner(bucket, set, weights)?;
        }
        Some(Self { set, weights: own, owner })
    }

    /// True if this table was computed for this set and these weights.
    pub fn is_of(&self, set: u64, weights: &Weights) -> bool {
        self.set == set && members(set).all(|p| self.weights[usize::from(p)] == weights[usize::from(p)])
    }

    /// Returns the set of member slots for which the table was computed.
    pub fn set(&self) -> u64 {
        self.set
    }

    /// Returns the member slot that this hash is steered to.
    #[inline]
    pub fn pick(&self, hash: u32) -> u8 {
        self.owner[bucket(hash) & (BUCKETS - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    fn weights(of: &[u8]) -> Weights {
        let mut w = [0; MEMBERS];
        w[..of.len()].copy_from_slice(of);
        w
    }

    fn shares(table: &BucketTable) -> [f64; MEMBERS] {
        let mut shares = [0.0; MEMBERS];
        table.owner.iter().for_each(|o| shares[usize::from(*o)] += 1.0 / BUCKETS as f64);
        shares
    }

    #[test]
    fn the_first_slots_have_even_shares() {
        for (n, most) in [(2, 0.002), (3, 0.006), (4, 0.0025), (5, 0.006), (8, 0.006), (16, 0.03), (64, 0.08)] {
            let table = BucketTable::new(u64::MAX >> (64 - n), &[1; MEMBERS]).unwrap();
            for share in &shares(&table)[..n] {
                let off = share * n as f64 - 1.0;
                assert!(off.abs() < most, "{n} members: {:+.2} %", 100.0 * off);
            }
        }
    }

    #[test]
    fn shares_follow_weights() {
        let table = BucketTable::new(0b111, &weights(&[1, 2, 5])).unwrap();
        for (share, parts) in shares(&table).iter().zip([1.0, 2.0, 5.0]) {
            assert!((share * 8.0 / parts - 1.0).abs() < 0.03, "the share is {share} for weight {parts} of 8");
        }
    }

    #[test]
    fn a_join_leave_or_weight_change_moves_only_the_share_of_that_member() {
        let seed = testkit::seed("a_join_leave_or_weight_change_moves_only_the_share_of_that_member");
        let mut random = Prng::new(seed);
        for _ in 0..12 {
            let mut w = [0; MEMBERS];
            let set = random.next_u64() & random.next_u64() & random.next_u64() | 1 << 40;
            members(set).for_each(|p| w[usize::from(p)] = 1 + random.below(3) as u8);
            let before = BucketTable::new(set, &w).unwrap();
            let (slot, mut changed) = (random.below(64) as u8, w);
            let bit = 1u64 << slot;
            // An absent member joins; a present member leaves or gains weight.
            let after_set = if set & bit == 0 || (random.below(2) == 0 && set != bit) { set ^ bit } else { set };
            changed[usize::from(slot)] = w[usize::from(slot)].max(1) + u8::from(after_set == set);
            let after = BucketTable::new(after_set, &changed).unwrap();
            let mut moved = 0;
            for (a, b) in before.owner.iter().zip(&after.owner) {
                assert!(a == b || *a == slot || *b == slot, "a flow moved from {a} to {b} because of {slot}");
                assert!(after_set != set || *b == slot || a == b, "a member whose weight grew lost a bucket");
                moved += u32::from(a != b);
            }
            assert!(moved > 0, "the change of member {slot} moved no bucket");
        }
    }

    #[test]
    fn the_bucket_table_agrees_with_the_steering_rule() {
        let w = weights(&[3, 0, 1, 2]);
        let table = BucketTable::new(0b1111, &w).unwrap();
        for hash in (0..u32::MAX).step_by(9_999_991) {
            assert_eq!(Some(table.pick(hash)), winner(bucket(hash), 0b1111, &w));
        }
        assert!(table.is_of(0b1111, &w) && !table.is_of(0b0111, &w) && !table.is_of(0b1111, &weights(&[3, 0, 1, 1])));
    }

    #[test]
    fn an_empty_set_of_members_yields_no_winner() {
        assert!(BucketTable::new(0, &weights(&[1])).is_none());
        assert!(BucketTable::new(0b10, &weights(&[1])).is_none(), "no member has a weight");
        assert_eq!((fold(7, 0, &weights(&[1])), winner(7, 0, &weights(&[1]))), (None, None));
    }

    #[test]
    fn the_fold_reaches_every_slot_in_proportion_to_its_weight() {
        for of in [&[1, 1][..], &[1, 1, 1], &[1, 2, 3], &[4, 4, 1], &[1; 13]] {
            let (w, set) = (weights(of), (1u64 << of.len()) - 1);
            let total: u32 = of.iter().map(|w| u32::from(*w)).sum();
            let mut seen = vec![0u32; of.len()];
            (0..200_000).for_each(|hash| seen[usize::from(fold(hash, set, &w).unwrap())] += 1);
            for (seen, weight) in seen.iter().zip(of) {
                let fair = 200_000.0 * f64::from(*weight) / f64::from(total);
                // PFQ's fold is uneven unless the total weight is a power of two, because it maps the hash values above
                // the total to some slots a second time.
                assert!((0.45..2.1).contains(&(f64::from(*seen) / fair)), "weight {weight} of {of:?}: {seen} hashes");
            }
        }
    }
}
