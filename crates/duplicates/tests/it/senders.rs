//! Senders that repeat packets. Each test is traffic in which a detector without these rules reports repeats.

use crate::labelled::{INGRESS_AND_EGRESS, Labelled, TWICE, TWO_LINKS, TWO_MIRRORS, View, random_ids, with_id};
use crate::traffic::{bytes, in_gre, in_vxlan};
use base::Prng;
use difftest::naive_duplicates::Naive;
use netgrain_duplicates::{Class, Classes, Settings, settings};
use std::time::Duration;
use wire::build::{Frame, tunnel};
use wire::{EtherType, IpProtocol, MacAddr, tcp_flags};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];
const MILLI: u64 = 1_000_000;

fn usual() -> Settings {
    Settings { records: 1 << 14, ..Settings::default() }
}

fn mirrored() -> Settings {
    Settings { mirrored_interfaces: true, ..usual() }
}

fn statsd() -> Vec<u8> {
    bytes(&Frame::udp4(A, 40_000, B, 8125).fragment(1, 0, false).payload(b"requests:1|c"))
}

fn statsd6() -> Vec<u8> {
    bytes(&Frame::udp6(A6, 40_000, B6, 8125).payload(b"requests:1|c"))
}

fn segment6() -> Vec<u8> {
    bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(24, 1, 2).payload(&[7; 900]))
}

fn segment_without_id() -> Vec<u8> {
    bytes(&Frame::tcp4(A, 80, B, 4000).tcp(24, 1, 2).payload(&[7; 900]))
}

fn acknowledgement6() -> Vec<u8> {
    bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(tcp_flags::ACK, 1, 2))
}

fn arp() -> Vec<u8> {
    let mut arp = vec![0; 60];
    Frame::ethernet(EtherType::ARP).macs(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])).fill(&mut arp);
    arp[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 2]);
    arp
}

fn with_destination(frame: &[u8], mac: [u8; 6]) -> Vec<u8> {
    [&mac[..], &frame[6..]].concat()
}

#[test]
fn each_send_that_two_mirrors_capture_remains_once() {
    for (frame, gap) in [
        (acknowledgement6(), 20 * MILLI),
        (segment_without_id(), 20 * MILLI),
        (statsd6(), 10 * MILLI),
        (arp(), 100 * MILLI),
        // Sends within the window.
        (acknowledgement6(), 50_000),
        (statsd6(), 5_000),
    ] {
        Labelled::default().repeat(5, gap, &frame, &TWO_MIRRORS).expect(&mirrored(), 5);
        // Without the setting, equal packets of two interfaces are repeats.
        let without = Labelled::default().repeat(5, gap, &frame, &TWO_MIRRORS).found(&usual());
        assert!(without == 0 || frame == segment_without_id() && without == 5);
    }
}

#[test]
fn each_send_that_a_mirror_captures_with_and_without_tag_remains_once() {
    for frame in [acknowledgement6(), segment_without_id(), statsd6(), arp()] {
        // A sender of TCP waits for a round trip.
        let least = if frame == segment_without_id() { 20_000 } else { 5_000 };
        for gap in [50 * MILLI, 20_000, least] {
            Labelled::default().repeat(4, gap, &frame, &INGRESS_AND_EGRESS).expect(&usual(), 4);
        }
    }
    // The sender is faster than the mirror: the copies are captured after the next sends. The index has six entries for
    // equal packets, so copies can be missed.
    for (gap, delay) in [(1_000, 1_500), (1_000, 3_500), (100, 3_500)] {
        let views = [INGRESS_AND_EGRESS[0], View { nanos: delay, ..View::FIRST }];
        let mut sent = Labelled::default();
        let found = sent.repeat(40, gap, &statsd6(), &views).found(&usual());
        assert!((1..=40).contains(&found) && (delay > 2 * gap || found >= 39), "{gap} {delay}: {found}");
    }
}

#[test]
fn a_host_that_sends_the_same_frame_in_each_of_its_vlans_repeats_it() {
    let all_routers = bytes(&Frame::icmp6(A6, [0xff02, 0, 0, 0, 0, 0, 0, 2], 133, 0, [0; 4]));
    let solicitation = with_destination(&all_routers, [0x33, 0x33, 0, 0, 0, 2]);
    let query = bytes(&Frame::ip4(A, [224, 0, 0, 1], IpProtocol::IGMP).payload(&[0x11, 100, 0xee, 0x9b, 0, 0, 0, 0]));
    let query = with_destination(&query, [1, 0, 0x5e, 0, 0, 1]);
    let probe = with_destination(&arp(), [0xff; 6]);
    for (frame, vlans) in [(solicitation, 10), (query, 20), (probe, 5)] {
        let mut sent = Labelled::default();
        for vlan in 1..=vlans {
            sent.send(MILLI + u64::from(vlan) * 5_000, &frame, &[View { vlan, ..View::FIRST }]);
        }
        sent.expect(&usual(), 0);
    }
    // Two different packets whose captured bytes are equal.
    for snaplen in [58, 62] {
        let mut sent = Labelled::default();
        for (number, vlan) in (0..8u8).zip([10, 20].into_iter().cycle()) {
            let voice = bytes(&Frame::udp6(A6, 5004, B6, 5004).payload(&[number; 160]));
            sent.send(MILLI + u64::from(number) * 20_000, &voice, &[View { vlan, ..View::FIRST }]);
        }
        sent.cut(snaplen).expect(&usual(), 0);
    }
}

/// The index forgets packets of a chain if many equal packets are in the window.
#[test]
fn no_more_packets_are_removed_than_mirrors_copied_with_any_gap_and_delay() {
    let mut prng = Prng::new(testkit::seed("no_more_packets_are_removed_than_mirrors_copied_with_any_gap_and_delay"));
    for frame in [statsd6(), arp(), acknowledgement6()] {
        for round in 0..200 {
            let (mut sent, mut nanos) = (Labelled::default(), MILLI);
            let (gap, delay) = (20_000 * prng.below(2) + 1 + prng.below(20_000), 1 + prng.below(40_000));
            for _ in 0..40 {
                nanos += prng.below(gap);
                let second = View { nanos: 1 + prng.below(delay), ..[TWO_MIRRORS, INGRESS_AND_EGRESS][round % 2][1] };
                let lost = prng.below(8) as usize;
                let views = [[TWO_MIRRORS, INGRESS_AND_EGRESS][round % 2][0], second];
                sent.send(nanos, &frame, if lost == 0 { &views[..1] } else { &views });
            }
            let (packets, _) = sent.sorted();
            let (results, _) = crate::traffic::detect(&mirrored(), &packets, None);
            let found = results.iter().flatten().count() as u64;
            assert!(found <= sent.copies() && found > 0, "round {round}: {found} of {} copies", sent.copies());
        }
    }
}

#[test]
fn a_priority_tag_is_no_other_vlan() {
    let mut tagged = testkit::copies::tagged(&statsd6(), 5).expect("a frame");
    tagged[14..16].copy_from_slice(&[0xa0, 0]);
    let mut sent = Labelled::default();
    sent.send(MILLI, &statsd6(), &[View::FIRST]).send(MILLI + 5000, &tagged, &[View::FIRST]).expect(&usual(), 0);
}

#[test]
fn identifications_that_wrap_or_are_random_are_no_evidence() {
    let mut prng = Prng::new(testkit::seed("identifications_that_wrap_or_are_random_are_no_evidence"));
    let wide = Settings { window: settings::WINDOW_HPCAP, records: 1 << 18, ..Settings::default() };
    let counter: Vec<u16> = (0..131_070u32).map(|number| (number % 65_535) as u16 + 1).collect();
    for settings in [usual(), wide.clone()] {
        Labelled::default().repeat_with(counter.clone(), 67, &statsd(), &[View::FIRST]).expect(&settings, 0);
        for gap in [40_000, 200_000] {
            let ids = random_ids(20_000, &mut prng);
            Labelled::default().repeat_with(ids, gap, &statsd(), &[View::FIRST]).expect(&settings, 0);
        }
    }
}

#[test]
fn a_constant_identification_at_distances_above_the_window_is_no_evidence() {
    let probe = bytes(&Frame::udp4(A, 3784, B, 3784).fragment(54_321, 0, false).payload(&[0x20; 24]));
    let syn = bytes(&Frame::tcp4(A, 4000, B, 80).fragment(54_321, 0, false).tcp(tcp_flags::SYN, 77, 0));
    let segment = with_id(&segment_without_id(), 5);
    let acknowledgement = bytes(&Frame::tcp4(A, 80, B, 4000).fragment(5, 0, false).tcp(tcp_flags::ACK, 1, 2));
    for (frame, gap) in [(&probe, 50 * MILLI), (&syn, 2 * MILLI), (&segment, 20 * MILLI), (&acknowledgement, 1_010_000)]
    {
        Labelled::default().repeat(400, gap, frame, &[View::FIRST]).expect(&usual(), 0);
        // All copies are found between the repeats.
        for views in [TWICE, INGRESS_AND_EGRESS, TWO_LINKS] {
            Labelled::default().repeat(100, gap, frame, &views).expect(&usual(), 100);
        }
    }
}

#[test]
fn a_tcp_segment_that_is_sent_again_with_another_identification_keeps_its_copies() {
    let segment = segment_without_id();
    // The round trip is shorter than the window.
    for views in [TWICE, INGRESS_AND_EGRESS, TWO_MIRRORS, TWO_LINKS] {
        Labelled::default().repeat_with(5..25, 300_000, &segment, &views).expect(&mirrored(), 20);
    }
}

#[test]
fn clocks_that_are_coarse_stopped_or_set_back_are_no_evidence() {
    let segment = segment6();
    let at = |times: &[u64]| {
        let mut sent = Labelled::default();
        for nanos in times {
            sent.send(*nanos, &segment, &[View::FIRST]);
        }
        sent
    };
    at(&[5 * MILLI; 4]).expect(&usual(), 0);
    at(&[0; 9]).expect(&usual(), 0);
    // A clock with microseconds: copies in the same microsecond are found.
    at(&[5 * MILLI + 1000]).send(5 * MILLI + 1000, &segment, &[View::FIRST]);
    let mut copies = Labelled::default();
    copies.send(5 * MILLI + 1000, &segment, &[View::FIRST, View::FIRST]).expect(&usual(), 1);
    // The clock is set back by 4 us between a segment and its retransmission.
    let packets = [MILLI + 5000, MILLI + 1000].map(|nanos| {
        let (mut packets, _) = at(&[nanos]).sorted();
        packets.remove(0)
    });
    let (results, _) = crate::traffic::detect(&usual(), &packets, None);
    assert_eq!(results, [None, None]);
}

#[test]
fn small_tcp_segments_in_quick_succession_are_repeats() {
    let syn = bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(tcp_flags::SYN, 1, 0));
    Labelled::default().repeat(3, 3_000, &syn, &[View::FIRST]).expect(&usual(), 0);
    let keep_alive = bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(tcp_flags::ACK, 1, 2).payload(&[0]));
    Labelled::default().repeat(3, 8_000, &keep_alive, &[View::FIRST]).expect(&usual(), 0);
    let fin = bytes(&Frame::tcp6(A6, 80, B6, 4000).tcp(tcp_flags::FIN | tcp_flags::ACK, 1, 2));
    Labelled::default().repeat(3, 8_000_000, &fin, &TWICE).expect(&usual(), 3);
    // The copy of a mirror follows within few packets.
    let mut sent = Labelled::default();
    sent.send(MILLI, &segment6(), &[View::FIRST]);
    for number in 1..=4u64 {
        let other = bytes(&Frame::udp6(A6, 1, B6, 2).payload(&number.to_be_bytes()));
        sent.send(MILLI + number * 100, &other, &[View::FIRST]);
    }
    sent.send(MILLI + 5000, &segment6(), &[View::FIRST]).expect(&usual(), 0);
}

#[test]
fn an_identification_that_was_not_captured_or_is_zero_is_no_evidence() {
    let ipsec = |v4: bool, number: u8| {
        let content = [&[0, 0, 0, 1, 0, 0, 0, number][..], &[5; 40]].concat();
        let frame = if v4 { Frame::ip4(A, B, IpProtocol::ESP) } else { Frame::ip6(A6, B6, IpProtocol::ESP) };
        bytes(&frame.payload(&content))
    };
    for (v4, snaplens) in [(true, 34..=41), (false, 54..=61)] {
        for snaplen in snaplens {
            let mut sent = Labelled::default();
            for number in 1..=100u8 {
                sent.send(MILLI + u64::from(number) * 1000, &ipsec(v4, number), &[View::FIRST]);
            }
            sent.cut(snaplen).expect(&usual(), 0);
        }
    }
    let fragment = [(IpProtocol::FRAGMENT, &[0, 1, 0, 0, 0, 0][..])];
    let fragment = bytes(&Frame::ip6(A6, B6, IpProtocol::UDP).extensions(&fragment).payload(&[5; 64]));
    Labelled::default().repeat(5, 10_000, &fragment, &[View::FIRST]).expect(&usual(), 0);
}

#[test]
fn a_repeated_packet_on_another_link_is_no_routed_copy() {
    // A retransmission takes another path than the segment.
    let behind = [View { interface: 1, hops: 1, ..View::FIRST }];
    for frame in [segment6(), statsd6(), segment_without_id()] {
        let mut sent = Labelled::default();
        sent.send(MILLI, &frame, &[View::FIRST]).send(61 * MILLI, &frame, &behind).expect(&usual(), 0);
    }
    // Equal datagrams that alternate between two links, at a distance above the window for such packets.
    let mut sent = Labelled::default();
    for number in 0..20 {
        let view = if number % 2 == 0 { [View::FIRST] } else { behind };
        sent.send(MILLI + number * 2 * MILLI, &statsd6(), &view);
    }
    sent.expect(&Settings { window: settings::WINDOW_HPCAP, ..usual() }, 0);
    // Each send on both links remains once, also if the sends follow quickly.
    for gap in [20 * MILLI, 70_000] {
        Labelled::default().repeat(6, gap, &statsd6(), &TWO_LINKS).expect(&usual(), 6);
    }
    Labelled::default().repeat(40, 10_000, &statsd6(), &TWO_LINKS).found(&usual());
}

#[test]
fn links_without_mac_addresses_have_no_routed_copies() {
    let mut prng = Prng::new(3);
    let probe = |hops: u8| bytes(&Frame::udp4(A, 1, B, 2).fragment(1, 0, false).raw().hops(hops).payload(b"probe"));
    let descending: Vec<u8> = (1..30).rev().collect();
    let random: Vec<u8> = (0..100).map(|_| 1 + prng.below(64) as u8).collect();
    for hops in [descending, random] {
        let mut detector = netgrain_duplicates::Detector::new(
            Settings { classes: Classes::ALL, unordered_interfaces: true, ..usual() },
            1,
        )
        .expect("valid settings");
        let mut last = std::collections::HashSet::new();
        for (number, hops) in hops.into_iter().enumerate().filter(|(_, hops)| last.insert(*hops)) {
            let data = probe(hops);
            let packet = netgrain_duplicates::Packet {
                ts: base::Timestamp::from_nanos(MILLI + number as u64 * 5000),
                data: &data,
                wire_len: data.len() as u32,
                link_type: wire::link::RAW_IP,
                interface: (number % 2) as u16,
            };
            assert_eq!(detector.inspect(&packet), None, "{hops}");
        }
    }
}

#[test]
fn packets_in_other_tunnels_are_no_copies() {
    let in_vni = |vni: u32, endpoint: u8, id: u16, inner: &[u8]| {
        let payload = [&tunnel::vxlan(vni)[..], inner].concat();
        let outer = Frame::udp4([192, 0, 2, 1], 40_000, [192, 0, 2, endpoint], 4789).fragment(id, 0, false);
        bytes(&outer.payload(&payload))
    };
    let (inner, segment) = (statsd(), segment6());
    let mut networks = Labelled::default();
    for vni in 1..=3 {
        networks.send(MILLI + u64::from(vni) * 1000, &in_vni(vni, 2, vni as u16, &inner), &[View::FIRST]);
        networks.send(9 * MILLI + u64::from(vni) * 5000, &in_vni(vni, 2, vni as u16, &segment), &[View::FIRST]);
    }
    networks.expect(&usual(), 0);
    // Replication to many endpoints by the head of the tunnel.
    let mut endpoints = Labelled::default();
    for endpoint in 2..10u8 {
        let nanos = MILLI + u64::from(endpoint) * 1000;
        endpoints.send(nanos, &in_vni(5, endpoint, endpoint.into(), &inner), &[View::FIRST]);
        let gre = [&tunnel::gre(EtherType::IPV4, None, Some(7), None)[..], &inner[14..]].concat();
        let outer = Frame::ip4([192, 0, 2, 1], [192, 0, 2, endpoint], IpProtocol::GRE).hops(100 - endpoint);
        let frame = bytes(&outer.fragment(endpoint.into(), 0, false).payload(&gre));
        let macs = [2, 0, 0, 1, 1, endpoint, 2, 0, 0, 2, 2, endpoint];
        endpoints.send(nanos + 9 * MILLI, &[&macs[..], &frame[12..]].concat(), &[View::FIRST]);
    }
    endpoints.expect(&usual(), 0);
    // The same packet was encapsulated twice.
    let mut twice = Labelled::default();
    twice.send(MILLI, &in_vni(5, 2, 1, &inner), &[View::FIRST]);
    twice.send(MILLI + 1000, &in_vni(5, 2, 2, &inner), &[View::FIRST]).expect(&usual(), 0);
    // Copies of the packet of a tunnel are found.
    for frame in [in_vxlan(&inner, 3), in_gre(&inner, 3), in_vni(5, 2, 9, &segment)] {
        let views = if frame.len() > 500 { TWICE } else { INGRESS_AND_EGRESS };
        Labelled::default().repeat(3, 20 * MILLI, &frame, &views).expect(&usual(), 3);
    }
}

#[test]
fn windows_begin_with_the_first_packet_of_a_chain() {
    let wide = Settings { window: settings::WINDOW_HPCAP, copies_max: 100, ..usual() };
    let run = |settings: &Settings, count: u64, gap: u64, frame: &[u8]| {
        let (packets, _) = Labelled::default().repeat(count, gap, frame, &[View::FIRST]).sorted();
        let (results, detector) = crate::traffic::detect(settings, &packets, None);
        let times = results.iter().flatten().map(|found| found.time).max();
        assert!(times.is_none_or(|time| time <= settings.window + Duration::from_micros(1)));
        detector.counts().duplicates()
    };
    // Eight packets 150 ms apart: each second packet begins a chain.
    assert_eq!(run(&wide, 8, 150 * MILLI, &statsd()), 4);
    let repeats = Settings { repeat_window: Duration::from_micros(50), copies_max: 100, ..usual() };
    assert_eq!(run(&repeats, 8, 40_000, &statsd6()), 4);
    let packets = Settings { window_packets: 2, copies_max: 100, ..usual() };
    assert_eq!(run(&packets, 9, 1000, &statsd()), 6);
}

#[test]
fn the_copies_of_a_routing_loop_have_no_limit_and_other_copies_have_one() {
    let frame = bytes(&Frame::udp4(A, 1, B, 2).fragment(7, 0, false).hops(64).payload(b"loop"));
    let views: Vec<View> = (0..60).map(|hops| View { nanos: u64::from(hops) * 10_000, hops, ..View::FIRST }).collect();
    // The MAC addresses alternate between two links.
    let mut looped = Labelled::default();
    looped.send(MILLI, &frame, &views);
    let (mut packets, _) = looped.sorted();
    for (number, packet) in packets.iter_mut().enumerate() {
        let link = (number % 2) as u8;
        packet.data[..12].copy_from_slice(&[2, 0, 0, 0, 0, link, 2, 0, 0, 0, 1, link]);
    }
    let (_, detector) = crate::traffic::detect(&usual(), &packets, None);
    let counts = detector.counts();
    assert_eq!((counts.class(Class::Routing).packets, counts.over_limit), (59, 0), "{counts:?}");
    let copies: Vec<View> = (0..9).map(|number| View { nanos: number * 1000, ..View::FIRST }).collect();
    let (packets, _) = Labelled::default().send(MILLI, &frame, &copies).sorted();
    let (_, detector) = crate::traffic::detect(&usual(), &packets, None);
    assert_eq!((detector.counts().duplicates(), detector.counts().over_limit), (3, 5));
}

#[test]
fn a_copy_that_was_captured_before_its_original_is_counted() {
    let frame = statsd();
    let reversed = [View { hops: 1, ..View::FIRST }, View { nanos: 5000, interface: 1, ..View::FIRST }];
    let (packets, _) = Labelled::default().send(MILLI, &frame, &reversed).sorted();
    let (results, detector) = crate::traffic::detect(&usual(), &packets, None);
    assert_eq!((results.iter().flatten().count(), detector.counts().reversed), (0, 1));
    let unordered = Settings { unordered_interfaces: true, ..usual() };
    let (results, detector) = crate::traffic::detect(&unordered, &packets, None);
    assert_eq!((results.iter().flatten().count(), detector.counts().reversed), (1, 0));
}

/// Senders of many kinds at the same time, with repeats and copies, under the default settings.
#[test]
fn mixed_senders_have_no_false_positive_and_no_missed_copy_with_evidence() {
    let seed = testkit::seed("mixed_senders_have_no_false_positive_and_no_missed_copy_with_evidence");
    let mut prng = Prng::new(seed);
    for round in 0..20 {
        let (mut all, mut expected) = (Labelled::default(), 0);
        for sender in 1..=40u8 {
            let (source, gap) = ([10, 1, 0, sender], 1_100_000 + prng.below(9 * MILLI));
            let views = [TWICE, INGRESS_AND_EGRESS, TWO_LINKS, [View::FIRST; 2]][prng.below(4) as usize];
            let views = if views[1].nanos == 0 { &views[..1] } else { &views[..] };
            let count = 20 + prng.below(30);
            let mut sent = Labelled::default();
            let payload = vec![sender; 2 + prng.below(700) as usize];
            let udp = bytes(&Frame::udp4(source, 5000, B, 514).fragment(1, 0, false).payload(&payload));
            let tcp = Frame::tcp4(source, 5000, B, 80).tcp(24, 5, 6).payload(&payload);
            let without = bytes(&tcp);
            let has_place = views.len() > 1 && (views[1].vlan != views[0].vlan || views[1].hops > 0);
            let is_found = match prng.below(6) {
                // Datagrams with a counter, in bursts: repeats within the window hide the evidence of the counter.
                0 => {
                    sent.repeat_with((1..).take(count as usize), gap / 30, &udp, views);
                    has_place
                }
                1 => {
                    sent.repeat_with(random_ids(count as usize, &mut prng), gap / 50, &udp, views);
                    has_place
                }
                // A constant identification.
                2 => {
                    sent.repeat(count, gap, &udp, views);
                    views.len() > 1
                }
                // Retransmissions with new identifications after 200 us.
                3 => {
                    sent.repeat_with((1..).take(count as usize), 200_000 + gap / 10, &without, views);
                    views.len() > 1
                }
                4 => {
                    sent.repeat(count, gap, &without, views);
                    views.len() > 1
                }
                _ => {
                    let flow = bytes(&Frame::udp6([1, 2, 3, 4, 5, 6, 7, sender.into()], 1, B6, 2).payload(&payload));
                    sent.repeat(count, gap / 40, &flow, views);
                    has_place
                }
            };
            expected += if is_found { sent.copies() } else { 0 };
            all.join(sent);
        }
        let found = all.found(&usual());
        let (mut naive, (packets, _)) = (Naive::new(usual()), all.sorted());
        let by_naive = packets.iter().filter_map(|packet| naive.inspect(packet)).count() as u64;
        assert!(found <= by_naive && found * 100 >= by_naive * 99, "seed {seed}, round {round}: {found}, {by_naive}");
        // TCP segments without identification have copies within 10 us only if few packets are between them.
        assert!(
            found <= all.copies() && found * 100 >= expected * 95,
            "seed {seed}, round {round}: {found}, {expected}"
        );
    }
}
