//! The detector against the naive detector: while no record is lost, both give the same result for every packet.

use crate::traffic::{detect, mix, owned};
use base::Prng;
use difftest::naive_duplicates::{Naive, OwnedPacket};
use netgrain_duplicates::{Class, Classes, Settings};
use std::time::Duration;
use testkit::copies::{Copied, plant};

/// Random settings with small windows.
fn settings(prng: &mut Prng) -> Settings {
    let mut classes = Class::ALL.into_iter().filter(|_| prng.below(3) > 0).collect::<Classes>();
    if classes.is_empty() {
        classes = Classes::ALL;
    }
    Settings {
        classes,
        window: Duration::from_nanos(1 + prng.below(3_000_000)),
        window_packets: [u64::MAX, 1 + prng.below(300)][prng.below(2) as usize],
        records: [1000, 1 + prng.below(2000) as usize][prng.below(2) as usize],
        stored_bytes: 70 + prng.below(100) as usize,
        retransmission_window: Duration::from_nanos(prng.below(2) * 20_000),
        repeat_window: Duration::from_nanos(prng.below(2) * prng.below(100_000)),
        mirrored_interfaces: prng.below(2) == 0,
        unordered_interfaces: prng.below(2) == 0,
        copies_max: prng.below(4) as u8,
        exact: false,
    }
}

#[track_caller]
fn agree(packets: &[OwnedPacket], settings: &Settings, prng: &mut Prng, text: &str) -> [u64; Class::COUNT] {
    let (results, detector) = detect(settings, packets, Some(prng));
    let mut naive = Naive::new(settings.clone());
    let counts = detector.counts();
    for (i, (packet, result)) in packets.iter().zip(&results).enumerate() {
        let expected = naive.inspect(packet);
        let class = result.map(|duplicate| duplicate.class);
        let is_permitted = counts.evicted + counts.crowded + counts.bindings_replaced > 0;
        assert!(
            class == expected || is_permitted,
            "{text}, packet {i}: {class:?} instead of {expected:?}, {settings:?}"
        );
    }
    if counts.evicted + counts.crowded + counts.bindings_replaced == 0 {
        let expected = (naive.repeats, naive.over_limit, naive.unconfirmed);
        let found = (counts.repeats, counts.over_limit, counts.unconfirmed);
        assert_eq!(found, expected, "{text}, {settings:?}");
    }
    let by_class = counts.classes.map(|class| class.packets);
    assert_eq!(by_class.iter().sum::<u64>(), results.iter().flatten().count() as u64);
    by_class
}

#[test]
fn planted_mixes_give_the_results_of_the_naive_detector() {
    let test = "planted_mixes_give_the_results_of_the_naive_detector";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let mut found = [0; Class::COUNT];
    for round in 0..36 {
        let frames = mix(800, &mut prng);
        // The copies of devices confirm bindings first, so some rounds have many of them.
        let ways = [&Copied::ALL[..], &[Copied::Translated], &[Copied::Proxied]][round % 3];
        let planted = plant(frames, ways, (1000, 2, 400_000), &mut prng);
        let mut packets = owned(&planted);
        for packet in &mut packets {
            packet.interface = prng.below(2) as u16;
        }
        let settings = settings(&mut prng);
        let by_class = agree(&packets, &settings, &mut prng, &format!("seed {seed}, round {round}"));
        found.iter_mut().zip(by_class).for_each(|(sum, packets)| *sum += packets);
    }
    assert!(found.iter().all(|packets| *packets > 20), "{found:?}");
}

#[test]
fn nearly_equal_packets_give_the_results_of_the_naive_detector() {
    let test = "nearly_equal_packets_give_the_results_of_the_naive_detector";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let mut duplicates = 0;
    for round in 0..60 {
        let bases: Vec<Vec<u8>> = (0..3).map(|_| testkit::random_frame(&mut prng)).filter(|f| !f.is_empty()).collect();
        let mut nanos = 1_000_000;
        let packets: Vec<OwnedPacket> = (0..300)
            .map(|_| {
                let mut data = bases[prng.below(bases.len() as u64) as usize].clone();
                for _ in 0..prng.below(3) {
                    // Single bytes, mostly of the headers, change to near values.
                    let at = prng.below(data.len().min(70) as u64) as usize;
                    data[at] = data[at].wrapping_add(prng.below(3) as u8).wrapping_sub(1);
                }
                if prng.below(3) == 0 {
                    data = testkit::copies::routed(&data, 1).unwrap_or(data);
                }
                nanos += prng.below(40_000);
                let wire_len = data.len() as u32 + prng.below(10).saturating_sub(8) as u32;
                OwnedPacket { nanos, data, wire_len, interface: prng.below(2) as u16 }
            })
            .collect();
        // The packets share few buckets, which have six entries for equal packets.
        let settings = Settings { window_packets: 1 + prng.below(6), ..settings(&mut prng) };
        let by_class = agree(&packets, &settings, &mut prng, &format!("seed {seed}, round {round}"));
        duplicates += by_class.iter().sum::<u64>();
    }
    assert!(duplicates > 500, "{duplicates}");
}

#[test]
fn real_captures_give_the_results_of_the_naive_detector() {
    let test = "real_captures_give_the_results_of_the_naive_detector";
    let Some(directory) = testkit::traces(test) else { return };
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let frames = testkit::captures::collect(&directory, 250).into_iter().map(|frame| (frame.bytes, frame.wire_len));
    let planted = plant(frames, &Copied::ALL, (1000, 4, 200_000), &mut prng);
    let settings = Settings {
        classes: Classes::ALL,
        window: Duration::from_micros(250),
        records: 1000,
        repeat_window: Duration::from_micros(2),
        ..Settings::default()
    };
    let found = agree(&owned(&planted), &settings, &mut prng, &format!("seed {seed}"));
    // Most flows of the captures are too short to confirm the binding of a device.
    let classes = [Class::Switching, Class::Routing, Class::Fragment].map(Class::index);
    assert!(classes.into_iter().all(|class| found[class] > 5), "{found:?}");
}

#[test]
fn single_calls_and_batches_give_the_same_results() {
    let test = "single_calls_and_batches_give_the_same_results";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let planted = plant(mix(2000, &mut prng), &Copied::ALL, (1000, 3, 100_000), &mut prng);
    let packets = owned(&planted);
    let settings = Settings { classes: Classes::ALL, records: 500, ..Settings::default() };
    let (single, one) = detect(&settings, &packets, None);
    let (batched, many) = detect(&settings, &packets, Some(&mut prng));
    assert_eq!((single, one.counts()), (batched, many.counts()), "seed {seed}");
}
