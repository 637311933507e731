//! Planted copies are found with their class, and no packet of the original traffic is reported.

use crate::traffic::{detect, owned, plain};
use base::Prng;
use difftest::naive_duplicates::{Naive, OwnedPacket};
use netgrain_duplicates::{Class, Classes, Detector, Packet, Settings};
use std::collections::HashMap;
use std::time::Duration;
use testkit::copies::{Copied, Planted, plant};
use wire::{Family, Headers, IpProtocol, link};

/// The bindings of NAT routers and proxies: the number of packets that confirmed each, and the last sequence number.
#[derive(Default)]
struct Bindings(HashMap<(Copied, Vec<u8>), (u32, u32)>);

impl Bindings {
    /// True if the binding of this copy was confirmed before. The copies of a binding are different packets.
    fn is_confirmed(&mut self, copied: Copied, copy: &[u8]) -> bool {
        let headers = Headers::of(copy, copy.len() as u32, link::ETHERNET);
        let (l3, l4) = (usize::from(headers.l3()), usize::from(headers.l4()));
        let flow = [
            &copy[l3 + if headers.family() == Family::V4 { 12 } else { 8 }..l4 + 4],
            &copy[l3..=l3],
            &[headers.protocol().map_or(0, |protocol| protocol.0)],
        ]
        .concat();
        let sequence = u32::from_be_bytes([copy[l4 + 4], copy[l4 + 5], copy[l4 + 6], copy[l4 + 7]]);
        let (count, last) = self.0.entry((copied, flow)).or_default();
        let wanted = if copied == Copied::Proxied { 3 } else { 2 };
        let is_confirmed = *count >= wanted;
        if copied == Copied::Translated || *count == 0 || sequence > *last {
            (*count, *last) = (*count + 1, sequence);
        }
        is_confirmed
    }
}

/// Bytes of payload of a TCP segment without options.
fn payload_len(headers: &Headers, copy: &Planted) -> usize {
    copy.bytes.len() - usize::from(headers.l4()) - 20
}

/// The class that the rules give a planted copy; `None` if the rules exclude the copy because it has no evidence.
fn expected(
    copy: &Planted,
    copied: Copied,
    (time, packets): (Duration, usize),
    bindings: &mut Bindings,
) -> Option<Class> {
    let headers = Headers::of(&copy.bytes, copy.wire_len, link::ETHERNET);
    let (is_v4, is_tcp) = (headers.family() == Family::V4, headers.protocol() == Some(IpProtocol::TCP));
    let mut is_confirmed = || bindings.is_confirmed(copied, &copy.bytes);
    match copied {
        Copied::Exact => {
            (is_v4 || is_tcp && time <= Duration::from_micros(10) && packets <= 4).then_some(Class::Switching)
        }
        Copied::Tagged => Some(Class::Switching),
        Copied::Routed => Some(Class::Routing),
        Copied::Translated => ((is_v4 || is_tcp) && is_confirmed()).then_some(Class::Nat),
        Copied::Proxied => (payload_len(&headers, copy) >= 8 && is_confirmed()).then_some(Class::Proxying),
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
    let (mut last_original, mut bindings) = (HashMap::new(), Bindings::default());
    for (i, (frame, result)) in planted.iter().zip(&results).enumerate() {
        let Some(copied) = frame.copied else {
            assert_eq!(*result, None, "seed {seed}, packet {i} of the original traffic is reported");
            last_original.insert(frame.bytes.clone(), (frame.nanos, i));
            continue;
        };
        let original = last_original.get(&frame.bytes);
        let distance = |(then, number): &(u64, usize)| (Duration::from_nanos(frame.nanos - then), i - number);
        let distance = original.map_or((Duration::MAX, usize::MAX), distance);
        let class = result.map(|duplicate| duplicate.class);
        assert_eq!(class, expected(frame, copied, distance, &mut bindings), "seed {seed}, packet {i}, {copied:?}");
        found.iter_mut().enumerate().for_each(|(i, sum)| *sum += u32::from(class.is_some_and(|c| c.index() == i)));
    }
    assert!(detector.counts().is_complete(), "{:?}", detector.counts());
    assert!(found.iter().all(|packets| *packets > 100), "{found:?}");
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

/// The capture contains a DNS query that its sender repeats with the same identification after 181.7 ms.
#[test]
fn a_repeated_query_below_pppoe_and_two_tags_is_no_duplicate() {
    let test = "a_repeated_query_below_pppoe_and_two_tags_is_no_duplicate";
    let Some(directory) = testkit::traces(test) else { return };
    let path = directory.join("zeek/pppoe-over-qinq.pcap");
    let Ok(file) = std::fs::File::open(&path) else { return testkit::skip(test, "the trace is missing") };
    let mut reader = pcap::Reader::open(file).expect("a capture");
    let mut detector = Detector::new(Settings::default(), 1).expect("valid settings");
    let link_type = link::ETHERNET;
    while let Some(packet) = reader.next().expect("a whole capture") {
        let (ts, wire_len) = (packet.ts.unwrap_or_default(), packet.wire_len);
        let result = detector.inspect(&Packet { ts, data: packet.data, wire_len, link_type, interface: 0 });
        assert_eq!(result, None, "packet {}", detector.counts().packets);
    }
    assert!(detector.counts().packets > 10);
}
