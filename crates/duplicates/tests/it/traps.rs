//! Traffic in which other detectors report duplicates although the sender sent each packet: no packet is reported.

use crate::traffic::{bytes, detect};
use difftest::naive_duplicates::OwnedPacket;
use netgrain_duplicates::{Class, Classes, Counts, Settings};
use std::time::Duration;
use testkit::copies::{routed, tagged};
use wire::build::Frame;
use wire::{EtherType, IpProtocol, tcp_flags};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];

/// Packets with these frames. The timestamps of consecutive packets are `nanos` nanoseconds apart.
fn spaced(frames: impl IntoIterator<Item = Vec<u8>>, nanos: u64) -> Vec<OwnedPacket> {
    let owned = |(i, data): (usize, Vec<u8>)| OwnedPacket {
        nanos: 1_000_000 + i as u64 * nanos,
        wire_len: data.len() as u32,
        data,
        interface: 0,
    };
    frames.into_iter().enumerate().map(owned).collect()
}

/// The counts with all classes enabled. The timestamps of consecutive frames are `nanos` nanoseconds apart.
fn counts(frames: impl IntoIterator<Item = Vec<u8>>, nanos: u64) -> Counts {
    let settings = Settings { classes: Classes::ALL, records: 4096, ..Settings::default() };
    *detect(&settings, &spaced(frames, nanos), None).1.counts()
}

#[track_caller]
fn assert_none(frames: impl IntoIterator<Item = Vec<u8>>, nanos: u64) -> u64 {
    let counts = counts(frames, nanos);
    assert!(counts.packets > 1 && counts.duplicates() == 0, "{counts:?}");
    counts.repeats
}

/// Each frame over IPv4 with identification 0, and over IPv6.
fn without_identification(build: impl Fn(Frame<'static>, Frame<'static>) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    build(Frame::udp4(A, 5004, B, 5004), Frame::udp6(A6, 5004, B6, 5004))
}

#[test]
fn rtp_and_dns_packets_with_equal_headers_differ_in_their_payload() {
    for at in [12, 100, 700, 1399] {
        let packets = |frame: Frame<'static>| {
            (0..50u8).map(move |number| {
                let mut payload = [0x80; 1400];
                payload[at] = number;
                bytes(&frame.payload(&payload))
            })
        };
        let frames = without_identification(|v4, v6| packets(v4).chain(packets(v6)).collect());
        assert_eq!(assert_none(frames, 67), 0, "offset {at}");
        // The same with one constant identification.
        let constant = Frame::udp4(A, 5004, B, 53).fragment(1, 0, false);
        assert_eq!(assert_none(packets(constant), 67), 0);
    }
}

#[test]
fn packets_of_other_lengths_with_equal_first_bytes_are_other_packets() {
    let frames = (100..300).map(|len| bytes(&Frame::udp6(A6, 1, B6, 2).payload(&vec![0; len])));
    assert_none(frames, 100);
}

#[test]
fn equal_datagrams_without_identification_are_repeats() {
    for nanos in [67, 10_000, 1_000_000] {
        let repeated = |frame: Frame<'static>| std::iter::repeat_n(bytes(&frame.payload(b"requests:1|c")), 20);
        let frames = without_identification(|v4, v6| repeated(v4).chain(repeated(v6)).collect());
        assert_eq!(assert_none(frames, nanos), 38);
    }
}

#[test]
fn retransmissions_are_no_duplicates() {
    // The round trip is 20 microseconds or more. With a new identification, and without.
    let segment = |id: u16| {
        let mut frame = bytes(&Frame::tcp4(A, 80, B, 4000).tcp(24, 1000, 2000).payload(&[7; 900]));
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        frame
    };
    for nanos in [20_000, 300_000, 190_000_000] {
        assert_none((1..20).map(segment), nanos);
        assert_none((1..20).map(|_| segment(0)), nanos);
        assert_none((1..20).map(|_| bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(24, 1, 2).payload(&[7; 900]))), nanos);
        let syn = bytes(&Frame::tcp4(A, 80, B, 4000).tcp(tcp_flags::SYN, 1000, 0));
        assert_none(std::iter::repeat_n(syn, 4), nanos);
    }
    // The timestamp option changes, at any distance.
    let stamped = |time: u32| {
        let option = [&[1, 1, 8, 10][..], &time.to_be_bytes(), &[0; 4]].concat();
        bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(24, 1, 2).tcp_options(&option).payload(&[7; 900]))
    };
    assert_none((0..20).map(stamped), 500);
}

#[test]
fn duplicate_acknowledgements_and_keep_alives_are_repeats() {
    let acknowledgement = bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(tcp_flags::ACK, 1000, 2000));
    assert_eq!(assert_none(std::iter::repeat_n(acknowledgement, 10), 700), 9);
    // A keep-alive has one byte before the window, or no payload.
    let keep_alive = bytes(&Frame::tcp4(A, 80, B, 4000).tcp(tcp_flags::ACK, 999, 2000).payload(&[0]));
    assert_none(std::iter::repeat_n(keep_alive, 10), 100_000_000);
}

#[test]
fn arp_bpdu_and_lldp_frames_are_repeats() {
    let mut arp = vec![0; 60];
    Frame::ethernet(EtherType::ARP).fill(&mut arp);
    arp[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    // A BPDU has a length in place of the ethertype.
    let mut bpdu = vec![0; 60];
    bpdu[..17].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 38, 0x42, 0x42, 3]);
    let mut lldp = vec![0; 60];
    Frame::ethernet(EtherType(0x88cc)).fill(&mut lldp);
    for frame in [arp, bpdu, lldp] {
        for nanos in [67, 1000, 1_000_000, 100_000_000] {
            let repeats = if nanos <= 1_000_000 { 9 } else { 0 };
            assert_eq!(assert_none(std::iter::repeat_n(frame.clone(), 10), nanos), repeats);
        }
    }
}

#[test]
fn padding_of_small_frames_proves_nothing() {
    // The same padding after different packets, and after equal packets without identification.
    let acknowledgement = |number: u32| {
        let mut frame = bytes(&Frame::tcp4(A, 80, B, 4000).tcp(tcp_flags::ACK, number, 2000));
        frame.resize(60, 0x99);
        frame
    };
    assert_none((0..100).map(acknowledgement), 67);
    assert_eq!(assert_none((0..100).map(|_| acknowledgement(5)), 67), 99);
}

#[test]
fn other_padding_does_not_hide_a_duplicate() {
    let mut frame = bytes(&Frame::udp4(A, 1, B, 2).fragment(7, 0, false));
    frame.resize(60, 0);
    let mut copy = frame.clone();
    copy[59] = 0xff;
    let counts = counts([frame, copy], 1000);
    assert_eq!((counts.class(Class::Switching).packets, counts.repeats), (1, 0));
}

#[test]
fn probe_trains_are_no_duplicates() {
    // The probes have a sequence number at the end of the payload.
    let probe = |id: u16, number: u64| {
        let payload = [&[0x11; 1000][..], &number.to_be_bytes()].concat();
        let mut frame = bytes(&Frame::udp4(A, 9, B, 9).payload(&payload));
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        frame
    };
    for id in [0, 1] {
        assert_none((0..1000).map(|number| probe(id, number)), 67);
    }
    // Probes without any difference: none is reported without identification.
    assert_eq!(assert_none((0..1000).map(|_| probe(0, 0)), 67), 999);
    // A constant identification (RFC 6864 section 4.1 permits it) in equal packets within the window contradicts the
    // assumption of the detector; the limit of copies bounds the false positives.
    let constant = counts((0..1000).map(|_| probe(1, 0)), 67);
    let limit = u64::from(Settings::default().copies_max);
    assert_eq!((constant.duplicates(), constant.over_limit), (limit, 999 - limit));
}

#[test]
fn traceroute_probes_are_no_duplicates() {
    let probes = (1..30).map(|hops| bytes(&Frame::udp4(A, 40_000, B, 33_434).fragment(5, 0, false).hops(hops)));
    assert_none(probes, 50_000);
    // With decreasing TTL the MAC addresses are still those of the sender.
    let probes = (1..30).rev().map(|hops| bytes(&Frame::icmp6(A6, B6, 128, 0, [0; 4]).hops(hops)));
    assert_none(probes, 50_000);
}

#[test]
fn equal_requests_of_several_hosts_are_no_duplicates() {
    // Hosts that started at the same time: equal identification, ports and payload.
    let request = |host: u8, hops: u8| {
        bytes(&Frame::udp4([10, 0, 1, host], 5000, B, 514).fragment(1, 0, false).hops(hops).payload(b"started"))
    };
    assert_none((1..100).map(|host| request(host, 64)), 1000);
    // At several distances, but from the same router.
    assert_none((1..60).map(|host| request(host, 64 - host)), 1000);
    let hello = |host: u16| {
        let address = [0x2001, 0xdb8, 0, 0, 0, 0, 1, host];
        routed(&bytes(&Frame::udp6(address, 5000, B6, 514).payload(b"started")), host as u8)
    };
    assert_none((1..60).map(|host| hello(host).expect("IPv6")), 1000);
}

#[test]
fn evidence_makes_equal_packets_duplicates() {
    let datagram = bytes(&Frame::udp6(A6, 5004, B6, 5004).payload(b"voice"));
    let all = Settings { classes: Classes::ALL, records: 64, ..Settings::default() };
    let run = |settings: &Settings, packets: &[OwnedPacket]| {
        let (results, _) = detect(settings, packets, None);
        results.iter().flatten().map(|duplicate| duplicate.class).collect::<Vec<_>>()
    };
    let pair = |second: Vec<u8>| spaced([datagram.clone(), second], 5000);
    assert_eq!(run(&all, &pair(datagram.clone())), []);
    assert_eq!(run(&all, &pair(tagged(&datagram, 5).expect("a frame"))), [Class::Switching]);
    assert_eq!(run(&all, &pair(routed(&datagram, 1).expect("IPv6"))), [Class::Routing]);
    let repeats = Settings { repeat_window: Duration::from_micros(5), ..all.clone() };
    assert_eq!(run(&repeats, &pair(datagram.clone())), [Class::Switching]);
    let mirrored = Settings { mirrored_interfaces: true, ..all.clone() };
    let mut packets = pair(datagram.clone());
    assert_eq!(run(&mirrored, &packets), []);
    packets[1].interface = 1;
    assert_eq!(run(&mirrored, &packets), [Class::Switching]);
    // The sequence number of ESP identifies a packet, and so does the identification of an IPv6 fragment.
    let esp = bytes(&Frame::ip6(A6, B6, IpProtocol::ESP).payload(&[0, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4]));
    assert_eq!(run(&all, &spaced([esp.clone(), esp], 1000)), [Class::Switching]);
    let fragment = [(IpProtocol::FRAGMENT, &[0, 1, 0, 0, 0, 9][..])];
    let fragment = bytes(&Frame::ip6(A6, B6, IpProtocol::UDP).extensions(&fragment).payload(&[5; 64]));
    assert_eq!(run(&all, &spaced([fragment.clone(), fragment], 1000)), [Class::Switching]);
    // TCP data within the retransmission window.
    let segment = bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(24, 1, 2).payload(b"data"));
    assert_eq!(run(&all, &spaced([segment.clone(), segment], 10_000)), [Class::Switching]);
}

#[test]
fn a_class_that_is_not_enabled_is_not_reported() {
    let frame = bytes(&Frame::udp4(A, 1, B, 2).fragment(7, 0, false));
    let copies = [routed(&frame, 1).expect("IPv4"), tagged(&frame, 7).expect("a frame")];
    for (class, copy) in [Class::Routing, Class::Switching].into_iter().zip(copies) {
        for other in Class::ALL {
            let settings = Settings { classes: Classes::NONE.with(other), records: 64, ..Settings::default() };
            let (results, _) = detect(&settings, &spaced([frame.clone(), copy.clone()], 1000), None);
            let expected = (class == other).then_some(class);
            assert_eq!(results[1].map(|duplicate| duplicate.class), expected, "{class} with {other} enabled");
        }
    }
}
