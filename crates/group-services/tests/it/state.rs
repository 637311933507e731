//! Tests of the state of programs (flow maps and fragment tracking) over queues and swaps.

use crate::{compile, evaluate, frames, instance, instances, passed};
use group::{Delivery, FragmentCounts, MapUsage, Packet, Program, Verdict};
use ring::Desc;
use wire::build::Frame;

/// A program that passes only the first three packets of a flow.
const THREE: &str = "flows = flow_map 0 key_5tuple\nmain = incr_fstate flows >-> filter (get_fstate flows .<= 3)";

#[test]
fn a_swap_transfers_maps_and_reports_counts_once() {
    let with = |rest: &str| format!("{THREE} >-> inc 1{rest}");
    let (mut old, mut new) = (instance(&with("")), instance(&with(" >-> mark 9")));
    let [tcp, _] = frames();
    assert_eq!(passed(&evaluate(&mut old, &[tcp; 2])), 2);
    new.transfer_state(&mut *old);
    assert_eq!(new.counters(), [0, 0], "the group itself adds the counts of the previous program");
    assert_eq!(passed(&evaluate(&mut new, &[tcp; 2])), 1, "the transferred map already counts two packets of the flow");
    assert_eq!((old.counters(), new.counters()), (vec![2, 0], vec![1, 0]));
    let mut other = instance("flows = flow_map 0 key_ip_src\nmain = incr_fstate flows");
    other.transfer_state(&mut *new);
    assert_eq!(passed(&evaluate(&mut other, &[tcp])), 1, "a map with another key starts empty");
}

#[test]
fn queues_share_maps_and_a_swap_of_one_queue_after_the_other_loses_no_update() {
    let compiled = compile(THREE);
    assert!(compiled.about(2).notes.iter().any(|n| n.contains("share one worker")));
    assert!(compiled.about(1).notes.is_empty());
    let mut old = instances(THREE, 2);
    let [tcp, _] = frames();
    assert_eq!(passed(&evaluate(&mut old[0], &[tcp])) + passed(&evaluate(&mut old[1], &[tcp])), 2);
    let mut new = instances(THREE, 2);
    let (mut first, mut second) = (new.remove(0), new.remove(0));
    // The first queue swaps and then evaluates packets, while the second queue still runs the old program.
    first.transfer_state(&mut *old[0]);
    let waiting = std::thread::spawn(move || {
        let out = evaluate(&mut first, &[tcp; 2]);
        (first, passed(&out))
    });
    assert_eq!(passed(&evaluate(&mut old[1], &[tcp])), 1, "the packet is the third of its flow");
    second.transfer_state(&mut *old[1]);
    let (_, more) = waiting.join().expect("no panic");
    assert_eq!(more, 0, "the first queue waited for the update of the second");
    assert_eq!(passed(&evaluate(&mut second, &[tcp])), 0);
}

/// A queue leaves the old worker and then passes the old worker to the new one. Another queue may complete the state
/// transfer between these two steps.
#[test]
fn a_queue_that_swaps_after_the_transfer_does_not_transfer_again() {
    let (mut old, mut new) = (instances(THREE, 2), instances(THREE, 2));
    let [tcp, _] = frames();
    drop(old.remove(1));
    assert_eq!(passed(&evaluate(&mut old[0], &[tcp; 3])), 3);
    new[0].transfer_state(&mut *old[0]);
    assert_eq!(passed(&evaluate(&mut new[0], &[tcp])), 0, "the count of the flow is transferred");
    new[1].transfer_state(&mut *old[0]);
    assert_eq!(passed(&evaluate(&mut new[1], &[tcp])), 0, "the second queue does not reset the count of the flow");
}

#[test]
fn queues_report_shared_maps_and_a_swap_reports_transferred_maps() {
    let with = |capacity: u32| format!("m = up_to {capacity} (flow_map 0 key_ip_dst)\nmain = incr_fstate m");
    let mut queues = instances(&with(1), 2);
    let mut other = frames()[0];
    Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 3], 53).fill(&mut other);
    evaluate(&mut queues[0], &frames());
    evaluate(&mut queues[1], &[other]);
    let usage = MapUsage { map: "m".into(), used: 1, capacity: 1, refused: 1 };
    queues.iter().for_each(|queue| assert_eq!(queue.maps(), std::slice::from_ref(&usage)));
    let transfer = |new: &str, old: &str| compile(new).state_transfer(&*compile(old));
    assert_eq!(transfer(&with(1), &with(1)).as_deref(), Some("keeps m"));
    assert_eq!(transfer(&with(2), &with(1)).as_deref(), Some("m starts empty (up_to 2 instead of 1)"));
    assert_eq!(transfer("main = ip", "main = tcp"), None);
}

/// Returns the hash by which a queue steers the frame.
fn hash(queue: &mut Box<dyn Program>, frame: &[u8]) -> u32 {
    let desc = Desc::default();
    let mut out = [Verdict::default()];
    queue.evaluate(&[Packet { desc: &desc, bytes: frame, wire_len: frame.len() as u32 }], &mut out);
    let Delivery::Steer(hash) = out[0].delivery else { panic!("{:?}", out[0].delivery) };
    hash
}

#[test]
fn fragments_of_a_datagram_are_steered_together_over_queues_and_swaps() {
    let mut buffer = [0; 600];
    let mut tcp = |payload: &[u8]| {
        let frame = Frame::tcp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 443).payload(payload);
        frame.write(&mut buffer).expect("space in the buffer").to_vec()
    };
    let (whole, cut) = (tcp(&[]), tcp(&[0; 400]));
    let programs = [
        "main = steer_flow",
        "main = ip >-> mark 7 >-> steer_flow",
        "n = flow_map 0 key_3tuple\nmain = incr_fstate n >-> steer_flow",
    ];
    for (id, (before, after)) in (0..).zip(programs.iter().flat_map(|a| programs.map(|b| (*a, b)))) {
        let context = format!("{before:?}, then {after:?}");
        let (mut old, mut new) = (instances(before, 2), instances(after, 2));
        let fragments = testkit::fragments(&cut, id, 96);
        let flow = hash(&mut old[1], &whole);
        assert_eq!(hash(&mut old[0], &fragments[0]), flow, "{context}");
        assert_eq!(hash(&mut old[1], &fragments[1]), flow, "{context}: a fragment on the other queue");
        let counts = old[0].datagrams().expect("fragment tracking");
        assert_eq!((counts.created, counts.entries, counts.matched, counts.orphaned), (1, 1, 1, 0), "{context}");
        new.iter_mut().zip(&mut old).for_each(|(new, old)| new.transfer_state(&mut **old));
        assert!(
            new.iter().all(|queue| queue.datagrams() == Some(counts)),
            "{context}: the new program reports the same counts"
        );
        assert_eq!(hash(&mut new[1], &fragments[2]), flow, "{context}: a fragment after the swap");
        // The first fragment arrives last, on the other queue.
        let fragments = testkit::fragments(&cut, 100 + id, 96);
        let orphan = hash(&mut new[0], &fragments[3]);
        assert!(orphan != flow && hash(&mut new[1], &fragments[0]) == orphan, "{context}");
        let after = FragmentCounts { created: 2, entries: 2, matched: 2, orphaned: 1, ..counts };
        assert!(new.iter().all(|queue| queue.datagrams() == Some(after)), "{context}");
    }
}
