//! NAT routers and proxies: a binding of addresses is confirmed before a copy is reported, and senders whose packets
//! look like copies of such devices have none.

use crate::traffic::{bytes, detect};
use difftest::naive_duplicates::OwnedPacket;
use netgrain_duplicates::{Class, Classes, Counts, Settings};
use testkit::copies::{proxied, routed, translated};
use wire::build::Frame;
use wire::tcp_flags;

const B: [u8; 4] = [10, 0, 0, 2];
const MICRO: u64 = 1000;

fn all() -> Settings {
    Settings { classes: Classes::ALL, records: 4096, ..Settings::default() }
}

/// Packets at this distance; every second packet is from another interface.
fn counts(frames: impl IntoIterator<Item = Vec<u8>>, nanos: u64) -> Counts {
    let owned = |(i, data): (u64, Vec<u8>)| {
        let (nanos, wire_len) = (1_000_000 + i * nanos, data.len() as u32);
        OwnedPacket { nanos, data, wire_len, interface: (i % 2) as u16 }
    };
    let packets: Vec<OwnedPacket> = (0..).zip(frames).map(owned).collect();
    *detect(&all(), &packets, None).1.counts()
}

/// A frame that leaves a host behind this number of routers.
fn behind(frame: Vec<u8>, hops: u8) -> Vec<u8> {
    if hops > 0 { routed(&frame, hops).expect("an IP packet") } else { frame }
}

fn segment(number: u32) -> Vec<u8> {
    let payload = [&number.to_be_bytes()[..], b"request"].concat();
    bytes(&Frame::tcp4([10, 0, 1, 1], 4000, B, 80).tcp(24, 1 + number * 11, 7).payload(&payload))
}

#[test]
fn nat_is_reported_after_two_packets_and_a_proxy_after_three() {
    type Copy = fn(&[u8]) -> Vec<u8>;
    let devices: [(Class, u64, Copy); 2] = [
        (Class::Nat, 2, |frame| translated(frame, 1, 0x2355).expect("TCP")),
        (Class::Proxying, 3, |frame| proxied(frame, 99).expect("TCP")),
    ];
    for (class, wanted, copy) in devices {
        let frames = (0..20).flat_map(|number| [segment(number), copy(&segment(number))]);
        let found = counts(frames, MICRO);
        assert_eq!((found.class(class).packets, found.duplicates()), (20 - wanted, 20 - wanted), "{found:?}");
        assert_eq!(found.unconfirmed, wanted);
        // The same packet does not confirm a binding twice.
        let again = (0..20).flat_map(|_| [segment(1), copy(&segment(1))]);
        assert_eq!(counts(again, 100 * MICRO).class(class).packets, 0);
    }
}

#[test]
fn statistics_of_proxied_copies_contain_their_changes() {
    let copy = |number| {
        let mut copy = proxied(&segment(number), 99).expect("TCP");
        copy[15] = 0x48;
        copy
    };
    let found = counts((0..10).flat_map(|number| [segment(number), copy(number)]), MICRO);
    let proxying = found.class(Class::Proxying);
    assert_eq!((proxying.packets, proxying.ttl_drops[1], proxying.tos_changed), (7, 7, 7));
}

#[test]
fn retransmissions_around_a_proxy_are_no_copies() {
    // Client, proxy, and server; the proxy sends each segment three times, then the client does.
    let by_proxy = |number| proxied(&segment(number), 99).expect("TCP");
    let mut frames = Vec::new();
    for number in 0..10 {
        frames.extend([segment(number), by_proxy(number), by_proxy(number), by_proxy(number), segment(number)]);
    }
    let found = counts(frames, 20 * MICRO);
    assert_eq!((found.class(Class::Proxying).packets, found.class(Class::Nat).packets), (7, 0), "{found:?}");
}

#[test]
fn polls_of_several_devices_are_no_proxied_copies() {
    // A master sends the same short poll to many devices with constant acknowledgement numbers.
    let poll = |device: u8, hops: u8| {
        let frame = Frame::tcp4([10, 0, 1, 1], 4000, [10, 0, 2, device], 502).tcp(24, 5, 7);
        behind(bytes(&frame.payload(b"\0\x01\0\0\0\x06\x01\x03\0\0\0\x0a")), hops)
    };
    let polls = (0..100).map(|number| poll((number % 10) as u8, (number % 2) as u8));
    assert_eq!(counts(polls, 10 * MICRO).duplicates(), 0);
    // A flood with a constant sequence number.
    let flood = (0..200u8).map(|host| {
        let frame = Frame::tcp4([10, 0, 3, host], 4000, B, 80).tcp(24, 5, 7).payload(b"flood flood flood");
        behind(bytes(&frame), host % 2)
    });
    assert_eq!(counts(flood, 10 * MICRO).duplicates(), 0);
}

#[test]
fn equal_packets_of_many_hosts_on_two_links_are_no_translated_copies() {
    type Packet = fn(u8) -> Vec<u8>;
    let kinds: [Packet; 5] = [
        // TCP RST segments with which scanned hosts answer.
        |host| bytes(&Frame::tcp4([10, 0, 1, host], 80, B, 4000).tcp(tcp_flags::RST | tcp_flags::ACK, 0, 1)),
        |host| {
            let frame = Frame::tcp4([10, 0, 1, host], 80, B, 4000).fragment(1, 0, false);
            bytes(&frame.tcp(tcp_flags::RST | tcp_flags::ACK, 9, 1))
        },
        // A scan with constant sequence number.
        |host| bytes(&Frame::tcp4(B, 4000, [10, 0, 1, host], 80).tcp(tcp_flags::SYN, 77, 0)),
        |host| bytes(&Frame::udp4([10, 0, 1, host], 514, B, 514).fragment(1, 0, false).payload(b"started")),
        |host| bytes(&Frame::icmp4([10, 0, 1, host], B, 8, 0, [0, 1, 0, 1]).fragment(1, 0, false)),
    ];
    for kind in kinds {
        let found = counts((1..=100).map(|host| behind(kind(host), host % 2)), 10 * MICRO);
        assert_eq!(found.duplicates(), 0, "{found:?}");
        // Also if each host sends twice.
        let twice = (1..=100).chain(1..=100).map(|host| behind(kind(host), host % 2));
        assert_eq!(counts(twice, 10 * MICRO).class(Class::Nat).packets, 0);
    }
}

#[test]
fn a_translated_query_may_have_another_identifier_and_its_checksum_follows_it() {
    let query = |source: u8, id: u16, number: u8| {
        let [high, low] = id.to_be_bytes();
        let frame = Frame::icmp4([10, 0, 1, source], B, 8, 0, [high, low, 0, number]);
        bytes(&frame.fragment(u16::from(number) + 1, 0, false).payload(b"echo"))
    };
    let pairs = |id| (0..10).flat_map(move |number| [query(1, 5, number), behind(query(2, id, number), 1)]);
    assert_eq!(counts(pairs(999), MICRO).class(Class::Nat).packets, 8);
    assert_eq!(counts(pairs(5), MICRO).class(Class::Nat).packets, 8);
    // The checksum of ICMP does not contain the addresses, so it does not change without the identifier.
    let wrong = pairs(5).enumerate().map(|(number, mut frame)| {
        frame[37] ^= (number % 2) as u8;
        frame
    });
    assert_eq!(counts(wrong, MICRO).class(Class::Nat).packets, 0);
}

#[test]
fn a_part_of_another_datagram_with_another_address_is_no_fragment() {
    let datagram =
        |host: u8| bytes(&Frame::udp4([10, 0, 1, host], 514, B, 514).fragment(1, 0, false).payload(&[0; 1400]));
    for host in [1, 2] {
        let parts = testkit::copies::divided(&datagram(host), 1, 640);
        let found = counts(std::iter::once(datagram(1)).chain(parts[1..].iter().cloned()), MICRO);
        let expected = if host == 1 { parts.len() as u64 - 1 } else { 0 };
        assert_eq!(found.class(Class::Fragment).packets, expected);
    }
}
