//! Planted copies are found with their class, and no packet of the original traffic is reported.

use crate::traffic::{detect, owned, plain};
use base::Prng;
use difftest::naive_duplicates::{Naive, OwnedPacket};
use netgrain_duplicates::{Class, Classes, Detector, Packet, Settings};
use std::time::Duration;
use testkit::copies::{Copied, Planted, plant};
use wire::{Family, Headers, IpProtocol, link};

/// The class that the rules give a planted copy; `None` if the rules exclude the copy because it has no evidence.
fn expected(copy: &Planted, copied: Copied, time: Duration) -> Option<Class> {
    let headers = Headers::of(&copy.bytes, copy.wire_len, link::ETHERNET);
    let (is_v4, is_tcp) = (headers.family() == Family::V4, headers.protocol() == Some(IpProtocol::TCP));
    match copied {
        Copied::Exact => (is_v4 || is_tcp && time <= Duration::from_micros(10)).then_some(Class::Switching),
        Copied::Tagged => Some(Class::Switching),
        Copied::Routed => Some(Class::Routing),
        Copied::Translated => (is_v4 || is_tcp).then_some(Class::Nat),
        Copied::Proxied => Some(Class::Proxying),
        Copied::Divided => Some(Class::Fragment),
    }
}

#[test]
fn every_planted_copy_is_found_and_no_other_packet_is_reported() {
    let test = "every_planted_copy_is_found_and_no_other_packet_is_reported";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let frames = (0..50_000).map(|number| plain(number, &mut prng)).collect::<Vec<_>>();
    let frames = frames.into_iter().map(|frame| (frame.len() as u32, frame)).map(|(len, frame)| (frame, len));
    let planted = plant(frames, &Copied::ALL, (500, 4, 100_000), &mut prng);
    let settings =
        Settings { classes: Classes::ALL, records: 1 << 14, window: Duration::from_micros(200), ..Settings::default() };
    let (results, detector) = detect(&settings, &owned(&planted), Some(&mut prng));
    let mut found = [0; Class::COUNT];
    let mut last_original = std::collections::HashMap::new();
    for (i, (frame, result)) in planted.iter().zip(&results).enumerate() {
        let Some(copied) = frame.copied else {
            assert_eq!(*result, None, "seed {seed}, packet {i} of the original traffic is reported");
            last_original.insert(frame.bytes.clone(), frame.nanos);
            continue;
        };
        let time =
            last_original.get(&frame.bytes).map_or(Duration::MAX, |then| Duration::from_nanos(frame.nanos - then));
        let class = result.map(|duplicate| duplicate.class);
        assert_eq!(class, expected(frame, copied, time), "seed {seed}, packet {i}, {copied:?}");
        found.iter_mut().enumerate().for_each(|(i, sum)| *sum += u32::from(class.is_some_and(|c| c.index() == i)));
    }
    assert!(detector.counts().is_complete(), "{:?}", detector.counts());
    assert!(found.iter().all(|packets| *packets > 200), "{found:?}");
}

#[test]
fn copies_of_generated_traffic_are_found_for_every_number_of_packets_between() {
    let test = "copies_of_generated_traffic_are_found_for_every_number_of_packets_between";
    let seed = testkit::seed(test);
    let mut prng = Prng::new(seed);
    let settings = Settings { records: 256, ..Settings::default() };
    for between in [0, 1, 2, 254, 255, 256, 300] {
        let mut detector = Detector::new(settings.clone(), 1).expect("valid settings");
        let mut frames = vec![plain_v4(0, &mut prng)];
        frames.extend((1..=between).map(|number| plain_v4(number, &mut prng)));
        frames.push(frames[0].clone());
        let results: Vec<_> = frames.iter().map(|frame| detector.inspect(&packet(frame))).collect();
        let last = results.last().copied().flatten().map(|duplicate| duplicate.packets);
        // The table has the records of 256 packets before a packet.
        assert_eq!(last, (between < 256).then_some(u64::from(between) + 1), "seed {seed}");
    }
}

fn plain_v4(number: u32, prng: &mut Prng) -> Vec<u8> {
    std::iter::repeat_with(|| plain(number, prng))
        .find(|frame| Headers::of(frame, frame.len() as u32, link::ETHERNET).family() == Family::V4)
        .expect("an IPv4 packet")
}

fn packet(data: &[u8]) -> Packet<'_> {
    let wire_len = data.len() as u32;
    Packet { ts: base::Timestamp::from_nanos(5), data, wire_len, link_type: link::ETHERNET, interface: 0 }
}

#[test]
fn real_captures_without_planted_copies_have_only_the_duplicates_of_the_naive_detector() {
    let test = "real_captures_without_planted_copies_have_only_the_duplicates_of_the_naive_detector";
    let Some(directory) = testkit::traces(test) else { return };
    let settings = Settings { records: 2000, ..Settings::default() };
    let mut naive = Naive::new(settings.clone());
    let mut detector = Detector::new(settings, 3).expect("valid settings");
    let mut duplicates = 0;
    for (i, frame) in testkit::captures::collect(&directory, 400).into_iter().enumerate() {
        let nanos = (i as u64 + 1) * 1000;
        let packet = OwnedPacket { nanos, data: frame.bytes, wire_len: frame.wire_len, interface: 0 };
        let class = detector.inspect(&packet.packet()).map(|duplicate| duplicate.class);
        assert_eq!(class, naive.inspect(&packet), "packet {i}");
        duplicates += u32::from(class.is_some());
    }
    eprintln!("{test}: {duplicates} duplicates in the captures, {} repeats", detector.counts().repeats);
}
