//! Tests the lock-free protocol under every interleaving and every reordering that the memory model allows (loom).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p netgrain-ring --test loom --release`, with a separate target
//! directory. Producer and readers call the functions of `netgrain_ring::protocol` on atomics of loom. There are two
//! tests for each property. In the first, the production function satisfies the property. In the second, the same model
//! without one of the memory orderings violates it, which shows that the model can detect the fault.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use netgrain_ring::protocol::{self, Positions, Released};
use netgrain_ring::{Desc, DescPosition};

/// A ring so small that loom explores every overwrite. `N` is the capacity in descriptors and in words of packet bytes.
struct Ring<const N: usize> {
    head: AtomicU64,
    controls_before: AtomicU64,
    controls_after: AtomicU64,
    claimed_desc: AtomicU64,
    claimed_pos: AtomicU64,
    released_desc: AtomicU64,
    released_pos: AtomicU64,
    slots: [[AtomicU64; 4]; N],
    words: [AtomicU64; N],
    /// Memory without synchronisation: loom reports every access that could race.
    held: [UnsafeCell<u64>; N],
}

impl<const N: usize> Ring<N> {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            head: zero(),
            controls_before: zero(),
            controls_after: zero(),
            claimed_desc: zero(),
            claimed_pos: zero(),
            released_desc: zero(),
            released_pos: zero(),
            slots: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            words: std::array::from_fn(|_| zero()),
            held: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    fn positions(&self) -> Positions<'_> {
        Positions {
            head: &self.head,
            controls_before: &self.controls_before,
            controls_after: &self.controls_after,
            claimed_desc: &self.claimed_desc,
            claimed_pos: &self.claimed_pos,
        }
    }

    fn released(&self) -> Released<'_> {
        Released { desc: &self.released_desc, pos: &self.released_pos }
    }

    fn slot(&self, index: u64) -> &[AtomicU64; 4] {
        &self.slots[index as usize % N]
    }
}

/// The descriptor at `index`: all four words hold the index, so a torn copy is detected.
fn desc(index: u64) -> Desc {
    let n = index + 1;
    Desc::from_words([n, n, n, n])
}

/// Explores with at most this many preemptions per execution; bugs of protocols this size need one or two.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

type Claim = fn(&Positions<'_>, u64, u64);
type Publish = fn(&Positions<'_>, u64, u64);
type Oldest = fn(&Positions<'_>, u64) -> u64;
type Set = fn(&Released<'_>, DescPosition);
type Believe = fn(&Released<'_>, DescPosition, DescPosition) -> DescPosition;

fn claim(p: &Positions<'_>, desc: u64, pos: u64) {
    p.claim(desc, pos);
}

fn publish(p: &Positions<'_>, head: u64, controls: u64) {
    p.publish(head, controls);
}

fn oldest_desc(p: &Positions<'_>, capacity: u64) -> u64 {
    p.oldest_desc(capacity)
}

fn oldest_pos(p: &Positions<'_>, capacity: u64) -> u64 {
    p.oldest_pos(capacity)
}

fn claim_without_fence(p: &Positions<'_>, desc: u64, pos: u64) {
    p.claimed_desc.store(desc, Ordering::Relaxed);
    p.claimed_pos.store(pos, Ordering::Relaxed);
}

fn publish_relaxed(p: &Positions<'_>, head: u64, controls: u64) {
    p.controls_before.store(controls, Ordering::Relaxed);
    p.head.store(head, Ordering::Relaxed);
    p.controls_after.store(controls, Ordering::Relaxed);
}

fn set(r: &Released<'_>, to: DescPosition) {
    r.set(to);
}

fn credible(r: &Released<'_>, known: DescPosition, written: DescPosition) -> DescPosition {
    r.credible(known, written)
}

/// A reader copies everything below the head; the producer overwrites nothing.
fn below_the_head(publish: Publish) {
    explore(5, move || {
        let ring = Ring::<2>::new();
        let writer = Arc::clone(&ring);
        let thread = loom::thread::spawn(move || {
            for i in 0..2 {
                protocol::store(writer.slot(i), desc(i));
                writer.words[i as usize].store(i + 1, Ordering::Relaxed);
                publish(&writer.positions(), i + 1, 0);
            }
        });
        for i in 0..ring.positions().head() {
            assert_eq!(protocol::load(ring.slot(i)), desc(i), "published data must be visible");
            assert_eq!(ring.words[i as usize].load(Ordering::Relaxed), i + 1, "published data must be visible");
        }
        thread.join().unwrap();
    });
}

#[test]
fn data_below_the_head_is_visible() {
    below_the_head(publish);
}

#[test]
#[should_panic(expected = "published data must be visible")]
fn loom_finds_a_head_stored_without_release() {
    below_the_head(publish_relaxed);
}

/// A lossy reader copies a descriptor while the producer overwrites it, and then compares the index of the descriptor
/// with the producer's claim (the position up to which the producer may have written).
fn lapped_in_descriptors(claim: Claim, oldest: Oldest) {
    explore(5, move || {
        const CAPACITY: u64 = 1;
        let ring = Ring::<1>::new();
        protocol::store(ring.slot(0), desc(0));
        ring.positions().claim(1, 0);
        ring.positions().publish(1, 0);
        let writer = Arc::clone(&ring);
        let thread = loom::thread::spawn(move || {
            for i in 1..3 {
                claim(&writer.positions(), i + 1, 0);
                protocol::store(writer.slot(i), desc(i));
                writer.positions().publish(i + 1, 0);
            }
        });
        let index = ring.positions().head() - 1;
        let copy = protocol::load(ring.slot(index));
        if oldest(&ring.positions(), CAPACITY) <= index {
            assert_eq!(copy, desc(index), "an accepted copy must be complete");
        }
        thread.join().unwrap();
    });
}

#[test]
fn an_overtaken_reader_accepts_no_torn_descriptor() {
    lapped_in_descriptors(claim, oldest_desc);
}

#[test]
#[should_panic(expected = "an accepted copy must be complete")]
fn loom_finds_a_claim_without_fence() {
    lapped_in_descriptors(claim_without_fence, oldest_desc);
}

#[test]
#[should_panic(expected = "an accepted copy must be complete")]
fn loom_finds_a_check_of_the_claim_without_fence() {
    lapped_in_descriptors(claim, |p, capacity| p.claimed_desc.load(Ordering::Relaxed).saturating_sub(capacity));
}

#[test]
#[should_panic(expected = "an accepted copy must be complete")]
fn loom_finds_a_claim_after_the_write() {
    lapped_in_descriptors(|_, _, _| (), oldest_desc);
}

/// A lossy reader copies two words of packet bytes that belong together, while the producer overwrites them.
fn lapped_in_bytes(claim: Claim, oldest: Oldest) {
    explore(5, move || {
        const CAPACITY: u64 = 2;
        let ring = Ring::<2>::new();
        let writer = Arc::clone(&ring);
        let thread = loom::thread::spawn(move || {
            for lap in 0..3 {
                let pos = lap * CAPACITY;
                claim(&writer.positions(), 0, pos + CAPACITY);
                for word in &writer.words {
                    word.store(lap + 1, Ordering::Relaxed);
                }
                writer.positions().publish(lap + 1, 0);
            }
        });
        if let Some(lap) = ring.positions().head().checked_sub(1) {
            let copy = [0, 1].map(|i: usize| ring.words[i].load(Ordering::Relaxed));
            if oldest(&ring.positions(), CAPACITY) <= lap * CAPACITY {
                assert_eq!(copy, [lap + 1; 2], "an accepted copy must be complete");
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn an_overtaken_reader_accepts_no_torn_bytes() {
    lapped_in_bytes(claim, oldest_pos);
}

#[test]
#[should_panic(expected = "an accepted copy must be complete")]
fn loom_finds_a_claim_of_bytes_without_fence() {
    lapped_in_bytes(claim_without_fence, oldest_pos);
}

/// Tests that head and number of control descriptors, from which a listener computes the missed packets, belong to the
/// same publication.
fn pairs(publish: Publish) {
    explore(5, move || {
        const PUBLISHED: [(u64, u64); 5] = [(0, 0), (1, 0), (3, 2), (5, 2), (6, 3)];
        let ring = Ring::<1>::new();
        let writer = Arc::clone(&ring);
        let thread = loom::thread::spawn(move || {
            for (head, controls) in &PUBLISHED[1..] {
                publish(&writer.positions(), *head, *controls);
            }
        });
        if let Some(pair) = ring.positions().head_and_controls() {
            assert!(PUBLISHED.contains(&pair), "{pair:?} was never published");
        }
        thread.join().unwrap();
        assert_eq!(ring.positions().head_and_controls(), Some((6, 3)), "an idle producer leaves a matching pair");
    });
}

#[test]
fn head_and_controls_belong_together() {
    pairs(publish);
}

#[test]
#[should_panic(expected = "was never published")]
fn loom_finds_counts_stored_without_order() {
    pairs(publish_relaxed);
}

/// The producer never waits: it drops packets while the ring is full because of the lossless reader. It must not write
/// to data that the reader still reads in place. Loom checks this, because `held` has no synchronisation.
fn unreleased_data(set: Set, believe: Believe) {
    explore(5, move || {
        const CAPACITY: u64 = 1;
        let ring = Ring::<1>::new();
        let writer = Arc::clone(&ring);
        let thread = loom::thread::spawn(move || {
            let (mut at, mut known) = (0, DescPosition::default());
            for _ in 0..3 {
                known = believe(&writer.released(), known, DescPosition { desc: at, pos: at });
                if at < known.desc + CAPACITY && at < known.pos + CAPACITY {
                    // SAFETY: the cell is loom's, which detects any conflicting access.
                    writer.held[0].with_mut(|p| unsafe { *p = at + 1 });
                    at += 1;
                    writer.positions().publish(at, 0);
                } else {
                    // Without the yield, loom treats the next read as the same read and never explores a second round.
                    loom::thread::yield_now();
                }
            }
        });
        for _ in 0..2 {
            let head = ring.positions().head();
            if head > ring.released().get().desc {
                // SAFETY: the cell is loom's, which detects any conflicting access.
                ring.held[0].with(|p| assert_eq!(unsafe { *p }, head, "unreleased data must not change"));
                set(&ring.released(), DescPosition { desc: head, pos: head });
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn unreleased_data_of_a_lossless_reader_is_never_overwritten() {
    unreleased_data(set, credible);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_finds_a_release_without_release_order() {
    unreleased_data(
        |r, to| {
            r.desc.store(to.desc, Ordering::Relaxed);
            r.pos.store(to.pos, Ordering::Relaxed);
        },
        credible,
    );
}

/// A packet in a branch: the producer of the ring, the lossless reader that writes the branch, and the reader of the
/// branch. The branch reader gets the descriptor from the branch and the bytes from the ring. It must get the complete
/// bytes, or detect that they were overwritten.
fn through_a_branch(publish: Publish, claim: Claim) {
    explore(3, move || {
        const CAPACITY: u64 = 2;
        let (ring, branch) = (Ring::<2>::new(), Ring::<1>::new());
        let writer = Arc::clone(&ring);
        let writing = loom::thread::spawn(move || {
            for lap in 0..2 {
                // The second round reuses the memory of the first; the producer does not wait until that memory is
                // released.
                if lap == 1 && writer.released().get().pos < CAPACITY {
                    return;
                }
                claim(&writer.positions(), lap + 1, (lap + 1) * CAPACITY);
                writer.words.iter().for_each(|word| word.store(lap + 1, Ordering::Relaxed));
                writer.positions().publish(lap + 1, 0);
            }
        });
        let (from, to) = (Arc::clone(&ring), Arc::clone(&branch));
        let handing_on = loom::thread::spawn(move || {
            if from.positions().head() == 1 {
                to.positions().claim(1, 0);
                protocol::store(to.slot(0), desc(0));
                publish(&to.positions(), 1, 0);
                from.released().set(DescPosition { desc: 1, pos: CAPACITY });
            }
        });
        if branch.positions().head() == 1 {
            assert_eq!(protocol::load(branch.slot(0)), desc(0), "published data must be visible");
            let copy = [0, 1].map(|i: usize| ring.words[i].load(Ordering::Relaxed));
            if ring.positions().oldest_pos(CAPACITY) == 0 {
                assert_eq!(copy, [1; 2], "an accepted copy must be complete");
            }
        }
        writing.join().unwrap();
        handing_on.join().unwrap();
    });
}

#[test]
fn packets_of_a_branch_are_complete_or_detected_as_overwritten() {
    through_a_branch(publish, claim);
}

#[test]
#[should_panic(expected = "must be")]
fn loom_finds_a_branch_whose_head_is_stored_without_release() {
    through_a_branch(publish_relaxed, claim);
}

#[test]
#[should_panic(expected = "an accepted copy must be complete")]
fn loom_finds_a_branch_over_bytes_with_an_unfenced_claim() {
    through_a_branch(publish, claim_without_fence);
}

#[test]
fn a_false_release_is_ignored() {
    loom::model(|| {
        let ring = Ring::<1>::new();
        let liar = Arc::clone(&ring);
        let thread = loom::thread::spawn(move || {
            liar.released().set(DescPosition { desc: u64::MAX, pos: 2 });
            liar.released().set(DescPosition { desc: 3, pos: 3 });
        });
        let (known, written) = (DescPosition { desc: 1, pos: 1 }, DescPosition { desc: 3, pos: 3 });
        let believed = ring.released().credible(known, written);
        assert!([known, written].contains(&believed) || believed == DescPosition { desc: 3, pos: 2 }, "{believed:?}");
        thread.join().unwrap();
    });
}
