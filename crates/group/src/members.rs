//! The members of a group, with the tables that delivery needs. A change creates a new value, and the dispatchers
//! replace the old value by it.

use crate::steering::{BucketTable, MEMBERS, Steering, Weights, bucket, fold, members, winner};
use crate::verdict::{CLASSES, MemberFilter, class};
use std::fmt;
use std::sync::Arc;

/// One member.
#[derive(Clone)]
pub struct Member {
    /// The member's classes, one bit each. Members of any class other than [`class::MANAGEMENT`] receive packets.
    pub classes: u64,
    /// The member's weight in steering; at least 1, at most [`crate::WEIGHT_MAX`].
    pub weight: u8,
    /// The filter of the member. Only packets that match the filter are delivered to the member. `None` if the member
    /// has no filter.
    pub filter: Option<Arc<dyn MemberFilter>>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filter = self.filter.as_ref().map(|f| f.text());
        f.debug_struct("Member")
            .field("classes", &self.classes)
            .field("weight", &self.weight)
            .field("filter", &filter)
            .finish()
    }
}

/// All members of a group. The value is immutable; a change makes a new value.
#[derive(Clone, Debug)]
pub struct Membership {
    members: [Option<Member>; MEMBERS],
    steering: Steering,
    weights: Weights,
    by_class: [u64; CLASSES],
    /// Slots of members with any class other than [`class::MANAGEMENT`]; a packet for all classes is delivered to them.
    any_class: u64,
    /// Slots of members with a filter.
    filtered: u64,
    /// The steering tables: one for the members of each class except [`class::MANAGEMENT`], and one for the members of
    /// all these classes together. Equal sets of members have one table. Empty with [`Steering::Fold`].
    tables: Vec<Arc<BucketTable>>,
}

/// The members that may get a packet, with the steering table that selects one of them.
#[derive(Clone, Copy, Debug)]
pub struct Eligible<'a> {
    /// The eligible member slots, one bit each.
    pub set: u64,
    table: Option<&'a BucketTable>,
    of: &'a Membership,
}

impl Default for Membership {
    fn default() -> Self {
        Self::new(Steering::default())
    }
}

impl Membership {
    /// Makes a group without members.
    pub fn new(steering: Steering) -> Self {
        Self {
            members: [const { None }; MEMBERS],
            steering,
            weights: [0; MEMBERS],
            by_class: [0; CLASSES],
            any_class: 0,
            filtered: 0,
            tables: Vec::new(),
        }
    }

    /// Returns a copy of the members in which `slot` has this member, or is free if `member` is `None`.
    pub fn with(&self, slot: u8, member: Option<Member>) -> Self {
        let mut new = self.clone();
        new.members[usize::from(slot)] = member;
        (new.weights, new.by_class, new.any_class, new.filtered) = ([0; MEMBERS], [0; CLASSES], 0, 0);
        for (slot, member) in new.members.iter().enumerate() {
            let Some(member) = member else { continue };
            let bit = 1u64 << slot;
            new.weights[slot] = member.weight;
            members(member.classes & class::ANY).for_each(|c| new.by_class[usize::from(c)] |= bit);
            new.any_class |= if member.classes & class::ANY != 0 { bit } else { 0 };
            new.filtered |= if member.filter.is_some() { bit } else { 0 };
        }
        new.tables = new.updated_tables(&self.tables);
        new
    }

    fn updated_tables(&self, before: &[Arc<BucketTable>]) -> Vec<Arc<BucketTable>> {
        let mut tables: Vec<Arc<BucketTable>> = Vec::new();
        if self.steering == Steering::Fold {
            return tables;
        }
        for set in [self.any_class].into_iter().chain(self.by_class) {
            if set == 0 || tables.iter().any(|t| t.set() == set) {
                continue;
            }
            let known = before.iter().find(|t| t.is_of(set, &self.weights)).cloned();
            tables.extend(known.or_else(|| BucketTable::new(set, &self.weights).map(Arc::new)));
        }
        tables
    }

    /// Returns the member in a slot.
    #[inline]
    pub fn member(&self, slot: u8) -> Option<&Member> {
        self.members.get(usize::from(slot)).and_then(Option::as_ref)
    }

    /// Returns the occupied slots with their members.
    pub fn taken(&self) -> impl Iterator<Item = (u8, &Member)> {
        self.members.iter().enumerate().filter_map(|(i, m)| Some((i as u8, m.as_ref()?)))
    }

    /// Returns the slots whose members have a filter, one bit each.
    #[inline]
    pub fn slots_with_filter(&self) -> u64 {
        self.filtered
    }

    /// Returns the members that may get a packet of these classes.
    pub fn eligible(&self, classes: u64) -> Eligible<'_> {
        let set = if classes == class::ANY {
            self.any_class
        } else {
            members(classes).fold(0, |set, c| set | self.by_class[usize::from(c)])
        };
        Eligible { set, table: self.tables.iter().map(Arc::as_ref).find(|t| t.set() == set), of: self }
    }

    /// Returns the class that a copy counts for: the lowest class that both the member and the packet have.
    #[inline]
    pub fn class_of(&self, slot: u8, classes: u64) -> u8 {
        let both = self.members[usize::from(slot)].as_ref().map_or(0, |m| m.classes) & classes;
        (both.trailing_zeros() & 63) as u8
    }
}

impl Eligible<'_> {
    /// Returns the member that this hash is steered to, as a set; empty if no member is eligible.
    #[inline]
    pub fn pick(&self, hash: u32) -> u64 {
        match self.table {
            Some(table) => 1 << (table.pick(hash) & 63),
            None => self.pick_slowly(hash),
        }
    }

    /// Returns the eligible member with the index `number` modulo the number of eligible members, as a set; the empty
    /// set if no member is eligible.
    #[inline]
    pub fn nth(&self, number: u32) -> u64 {
        let mut left = self.set;
        for _ in 0..number.checked_rem(left.count_ones()).unwrap_or(0) {
            left &= left - 1;
        }
        left & left.wrapping_neg()
    }

    /// Chooses the member without a precomputed table. Only packets that a program addresses to several classes at once
    /// have sets of members without a table.
    #[cold]
    fn pick_slowly(&self, hash: u32) -> u64 {
        let slot = match self.of.steering {
            Steering::Rendezvous => winner(bucket(hash), self.set, &self.of.weights),
            Steering::Fold => fold(hash, self.set, &self.of.weights),
        };
        slot.map_or(0, |slot| 1 << slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(classes: u64, weight: u8) -> Option<Member> {
        Some(Member { classes, weight, filter: None })
    }

    #[test]
    fn broadcasts_reach_all_classes_except_management() {
        let m = Membership::default()
            .with(0, member(1, 1))
            .with(1, member(0b11, 1))
            .with(5, member(1 << class::MANAGEMENT, 1))
            .with(6, member(1 << 40, 1));
        assert_eq!(m.eligible(1).set, 0b11);
        assert_eq!(m.eligible(0b10).set, 0b10);
        assert_eq!(m.eligible(class::ANY).set, 0b100_0011);
        assert_eq!(m.eligible(u64::MAX).set, 0b100_0011);
        assert_eq!(m.eligible(1 << class::MANAGEMENT).set, 0, "members of class management receive nothing");
        assert_eq!(m.eligible(0).set, 0);
        assert_eq!(m.class_of(1, 0b10), 1);
        assert_eq!([0, 1, 2, 3, 7].map(|n| m.eligible(class::ANY).nth(n)), [1, 0b10, 1 << 6, 1, 0b10]);
        assert_eq!(m.eligible(0).nth(3), 0);
    }

    #[test]
    fn steering_without_a_table_follows_the_same_rule() {
        let m = Membership::default().with(0, member(0b001, 1)).with(1, member(0b010, 2)).with(2, member(0b100, 1));
        let (two, all) = (m.eligible(0b011), m.eligible(class::ANY));
        assert!(two.table.is_none() && all.table.is_some());
        for hash in 0..10_000 {
            // A member that wins among three members also wins among any two that include it.
            let (a, b) = (all.pick(hash), two.pick(hash));
            assert!(a == b || a == 0b100, "{hash}: {a:b} {b:b}");
        }
        assert_eq!(m.eligible(0b1000).pick(7), 0);
    }

    #[test]
    fn unchanged_tables_are_shared_with_the_previous_value() {
        let m = Membership::default().with(0, member(1, 1)).with(1, member(1, 1));
        let n = m.with(2, member(2, 1));
        let kept = |t: &Arc<BucketTable>| m.tables.iter().any(|o| Arc::ptr_eq(o, t));
        assert_eq!(n.tables.iter().filter(|t| kept(t)).count(), 1, "the table of class 0 is shared");
        assert_eq!(n.with(2, None).tables.len(), 1);
    }
}
