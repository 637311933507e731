//! Limits: settings, memory, and a table that is too small.

use crate::COUNTING;
use crate::traffic::{detect, mix, owned};
use base::Prng;
use difftest::naive_duplicates::OwnedPacket;
use netgrain_duplicates::{Class, Classes, Detector, Settings, SettingsError, settings};
use std::time::Duration;
use testkit::copies::{Copied, plant};
use wire::build::Frame;

#[test]
fn settings_out_of_range_are_named() {
    let error = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        Detector::new(settings, 0).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(error(|_| ()), "");
    assert!(error(|s| s.records = 0).starts_with("0 records are out of range: choose 1 to"));
    assert!(error(|s| s.records = settings::RECORDS_MAX + 1).contains("out of range"));
    assert_eq!(error(|s| s.stored_bytes = 69), "69 stored bytes are out of range: choose 70 to 16384");
    assert_eq!(
        error(|s| s.window = Duration::from_secs(61)),
        "a window of 61s is out of range: choose more than 0 and at most 60s"
    );
    assert!(error(|s| s.window = Duration::ZERO).contains("0ns"));
    assert!(error(|s| s.window_packets = 0).contains("at least 1"));
    assert!(error(|s| s.classes = Classes::NONE).contains("enable at least one"));
    let classes = Classes::NONE;
    assert_eq!(Detector::new(Settings { classes, ..Settings::default() }, 0).err(), Some(SettingsError::NoClass));
}

#[test]
fn the_memory_is_the_stated_memory_and_is_allocated_once() {
    for (records, stored_bytes, classes) in
        [(1, 70, Classes::USUAL), (1000, 76, Classes::ALL), (40_000, 200, Classes::USUAL), (32_768, 76, Classes::ALL)]
    {
        let settings = Settings { records, stored_bytes, classes, ..Settings::default() };
        let begun = COUNTING.begin_thread();
        let mut detector = Detector::new(settings.clone(), 0).expect("valid settings");
        let allocated = COUNTING.most_of_thread_since(begun) as u64;
        let stated = settings.memory();
        // The scratch space of a batch is in addition to the table.
        assert!((stated..stated + 8192).contains(&allocated), "{allocated} bytes allocated, {stated} stated");
        let mut prng = Prng::new(1);
        let packets: Vec<OwnedPacket> = mix(3000, &mut prng)
            .into_iter()
            .map(|(data, wire_len)| OwnedPacket { nanos: 5, data, wire_len, interface: 0 })
            .collect();
        let begun = COUNTING.begin_thread();
        for packet in &packets {
            detector.inspect(&packet.packet());
        }
        assert_eq!(COUNTING.most_of_thread_since(begun), 0, "a packet allocates memory");
    }
}

#[test]
fn a_small_table_counts_the_records_that_it_forgets_too_early() {
    let frame = |id: u16| {
        let mut buffer = [0; 100];
        let data = Frame::udp4([10, 0, 0, 1], 1, [10, 0, (id >> 8) as u8, id as u8], 2).write(&mut buffer);
        OwnedPacket { nanos: u64::from(id) * 1_000_000, data: data.expect("room").to_vec(), wire_len: 42, interface: 0 }
    };
    // One packet per millisecond: 100 records reach back 100 ms, half of the window.
    let packets: Vec<OwnedPacket> = (1..=500).map(frame).collect();
    let settings = Settings { records: 100, window: settings::WINDOW_HPCAP, ..Settings::default() };
    let (_, detector) = detect(&settings, &packets, None);
    let counts = detector.counts();
    assert_eq!((counts.overwritten, counts.evicted, counts.is_complete()), (400, 0, false));
    assert_eq!(counts.shortest_reach, Some(Duration::from_millis(100)));
    assert_eq!(detector.reach(), Duration::from_millis(99));
    let (_, detector) = detect(&Settings { records: 300, ..settings.clone() }, &packets, None);
    assert!(detector.counts().is_complete() && detector.counts().shortest_reach == Some(Duration::from_millis(300)));
    // If the table has a record for each packet of the window, no record is overwritten within the window.
    let (_, detector) = detect(&Settings { window_packets: 100, ..settings }, &packets, None);
    assert!(detector.counts().is_complete());
}

/// The hash for NAT does not contain the addresses: equal segments of many hosts have one hash.
#[test]
fn equal_packets_of_many_hosts_replace_each_other_and_no_other_packets() {
    let owned = |data: Vec<u8>| OwnedPacket { nanos: 1000, wire_len: data.len() as u32, data, interface: 0 };
    let segment = |host: u8| {
        let mut buffer = [0; 100];
        let frame = Frame::tcp4([10, 0, 0, host], 1, [10, 0, 0, 200], 2).fragment(1, 0, false);
        frame.write(&mut buffer).expect("room").to_vec()
    };
    let packets: Vec<OwnedPacket> = (1..=50).map(|host| owned(segment(host))).collect();
    let run = |classes, packets: &[OwnedPacket]| {
        *detect(&Settings { classes, records: 4096, ..Settings::default() }, packets, None).1.counts()
    };
    assert_eq!((run(Classes::USUAL, &packets).crowded, run(Classes::USUAL, &packets).duplicates()), (0, 0));
    let all = run(Classes::ALL, &packets);
    assert_eq!((all.crowded, all.evicted, all.duplicates(), all.is_complete()), (44, 0, 0, false));
    // The routed copies of all segments are found, and have the class routing.
    let copies = (1..=50).map(|host| owned(testkit::copies::routed(&segment(host), 1).expect("IPv4")));
    let packets: Vec<OwnedPacket> = packets.iter().cloned().chain(copies).collect();
    let all = run(Classes::ALL, &packets);
    assert_eq!((all.class(Class::Routing).packets, all.duplicates()), (50, 50));
}

#[test]
fn equal_packets_leave_room_for_other_packets_in_the_index() {
    let frame = |number: u16, payload: &[u8]| {
        let mut buffer = [0; 100];
        let frame = Frame::udp6([1; 8], 1, [2; 8], number).payload(payload).write(&mut buffer);
        let data = frame.expect("room").to_vec();
        OwnedPacket { nanos: 1000, wire_len: data.len() as u32, data, interface: 0 }
    };
    // A table with one bucket.
    let settings = Settings { records: 2, window_packets: 2, ..Settings::default() };
    let packets: Vec<OwnedPacket> = (0..100).map(|_| frame(7, b"equal")).collect();
    let (_, detector) = detect(&settings, &packets, None);
    let counts = detector.counts();
    assert_eq!((counts.evicted, counts.crowded, counts.repeats), (0, 0, 99), "{counts:?}");
    let settings = Settings { records: 100, ..settings };
    let counts = *detect(&Settings { window_packets: u64::MAX, ..settings }, &packets, None).1.counts();
    assert_eq!((counts.evicted, counts.crowded, counts.repeats), (0, 94, 99), "{counts:?}");
}

#[test]
fn damaged_frames_cause_no_panic() {
    let seed = testkit::seed("damaged_frames_cause_no_panic");
    let mut prng = Prng::new(seed);
    let planted = plant(mix(3000, &mut prng), &Copied::ALL, (1000, 2, 10_000), &mut prng);
    let mut packets = owned(&planted);
    for packet in &mut packets {
        for _ in 0..prng.below(4) {
            let at = prng.below(packet.data.len() as u64) as usize;
            packet.data[at] = prng.next_u64() as u8;
        }
        let cut = prng.below(4 * packet.data.len() as u64) as usize;
        packet.data.truncate(cut);
    }
    for (classes, exact) in [(Classes::ALL, false), (Classes::USUAL, false), (Classes::ALL, true)] {
        let settings = Settings { classes, exact, records: 500, ..Settings::default() };
        let (_, detector) = detect(&settings, &packets, Some(&mut prng));
        assert_eq!(detector.counts().packets, packets.len() as u64);
    }
}

#[test]
fn counts_contain_times_ttl_drops_and_changes() {
    let mut prng = Prng::new(3);
    let mut buffer = [0; 100];
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fragment(9, 0, false).write(&mut buffer);
    let frame = frame.expect("room").to_vec();
    let mut copy = testkit::copies::routed(&frame, 3).expect("IPv4");
    copy[15] ^= 0x40;
    let tagged = testkit::copies::tagged(&frame, 5).expect("a frame");
    let packets: Vec<OwnedPacket> = [(0, frame), (700, copy), (3000, tagged)]
        .into_iter()
        .map(|(nanos, data)| OwnedPacket { nanos, wire_len: data.len() as u32, data, interface: 0 })
        .collect();
    let (_, detector) = detect(&Settings::default(), &packets, Some(&mut prng));
    let (routing, switching) = (detector.counts().class(Class::Routing), detector.counts().class(Class::Switching));
    assert_eq!((routing.packets, routing.ttl_drops[3], routing.tos_changed, routing.bytes), (1, 1, 1, 42));
    assert_eq!((routing.times.min, routing.times.max), (Duration::from_nanos(700), Duration::from_nanos(700)));
    assert_eq!((switching.packets, switching.vlan_changed, switching.without_payload), (1, 1, 1));
    assert_eq!(switching.times.mean(), Some(Duration::from_micros(3)));
}

#[test]
fn a_forgotten_packet_is_no_original() {
    let mut buffer = [0; 900];
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fragment(9, 0, false).payload(&[5; 800]);
    let data = frame.write(&mut buffer).expect("room").to_vec();
    let packet = OwnedPacket { nanos: 1000, wire_len: data.len() as u32, data: data.clone(), interface: 0 };
    let mut detector =
        Detector::new(Settings { classes: Classes::ALL, ..Settings::default() }, 0).expect("valid settings");
    assert_eq!(detector.inspect(&packet.packet()), None);
    detector.forget(1, &packet.packet());
    for part in testkit::copies::divided(&data, 1, 160) {
        let part = OwnedPacket { nanos: 1500, wire_len: part.len() as u32, data: part, interface: 0 };
        assert_eq!(detector.inspect(&part.packet()), None);
    }
    assert_eq!(detector.inspect(&packet.packet()), None);
    assert_eq!(detector.inspect(&packet.packet()).map(|duplicate| duplicate.class), Some(Class::Switching));
}

#[test]
fn a_packet_is_forgotten_by_its_number_also_after_other_packets() {
    let frame = |id| {
        let mut buffer = [0; 60];
        let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], id).fragment(id, 0, false).fill(&mut buffer);
        OwnedPacket { nanos: 1000, wire_len: 60, data: frame.to_vec(), interface: 0 }
    };
    let mut detector = Detector::new(Settings { records: 4, ..Settings::default() }, 0).expect("valid settings");
    for id in 1..=3 {
        assert_eq!(detector.inspect(&frame(id).packet()), None);
    }
    detector.forget(2, &frame(2).packet());
    // The records of these numbers do not exist.
    [0, 9, u64::MAX].into_iter().for_each(|number| detector.forget(number, &frame(2).packet()));
    let is_found = [1, 2, 3].map(|id| detector.inspect(&frame(id).packet()).is_some());
    assert_eq!(is_found, [true, false, true]);
}

#[test]
fn a_forgotten_packet_does_not_hide_the_packet_before_it() {
    let mut buffer = [0; 60];
    let frame = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).fragment(9, 0, false).fill(&mut buffer);
    let packet = OwnedPacket { nanos: 1000, wire_len: 60, data: frame.to_vec(), interface: 0 };
    let settings = Settings { classes: Classes::NONE.with(Class::Switching), ..Settings::default() };
    let mut detector = Detector::new(settings, 0).expect("valid settings");
    let is_found = [1, 2, 3].map(|_| detector.inspect(&packet.packet()).is_some());
    assert_eq!(is_found, [false, true, true]);
    [3, 2].into_iter().for_each(|number| detector.forget(number, &packet.packet()));
    assert!(detector.inspect(&packet.packet()).is_some());
}
