//! Tests the programs of `examples/groups`. For each program, the tests implement its description in plain Rust, and
//! compare the results of this implementation with those of the program.
//!
//! The programs run as machine code and in the interpreter, on generated frames and on capture files. The expected
//! results are computed with tables of flows, fragments and ports that belong to the tests and share no code with the
//! product.

mod frames;
mod plain;
mod trial;

use base::Prng;
use difftest::naive_duplicates::{Naive, OwnedPacket};
use frames::{FragmentTargets, ParsedFrame, Ports, captured, generated};
use plain::{Ip, Plain, TCP, UDP, inside};
use std::collections::HashMap;
use std::time::Duration;
use testkit::copies::{Copied, Planted, plant};
use trial::{ALL_CLASSES, DeliveryCounts, Expected, To, Trial};
use wire::IpProtocol;
use wire::build::{Frame, tunnel};

/// The expected recipients: all members of the default class.
const DEFAULT: To = To::All(1);
const TO_ALL_CLASSES: To = To::All(ALL_CLASSES);

/// Runs an example on generated frames and then, if capture files are present, on frames from these files. Returns the
/// delivery counts for the generated frames.
fn check(test: &str, file: &str, expected: impl FnMut(&ParsedFrame) -> Expected) -> DeliveryCounts {
    check_frames(test, file, generated(&mut Prng::new(testkit::seed(test)), 20_000), expected)
}

/// Runs an example like [`check`], but on the given frames instead of generated frames.
fn check_frames(
    test: &str,
    file: &str,
    mut all: Vec<ParsedFrame>,
    mut expected: impl FnMut(&ParsedFrame) -> Expected,
) -> DeliveryCounts {
    let mut trial = Trial::new(test, file);
    let counts = trial.over(&all, &mut expected);
    eprintln!("{file}: {counts:?}");
    if let Some(directory) = testkit::extra_traces(test) {
        let last = all.last().map_or(0, |k| k.time);
        all = captured(&directory, 300);
        assert!(all.len() > 3000, "only {} captured frames were read", all.len());
        all.iter_mut().for_each(|k| k.time += last);
        eprintln!("{file}, captured: {:?}", trial.over(&all, expected));
    }
    counts
}

fn ip(k: &ParsedFrame) -> Option<&Ip> {
    k.plain.ip.as_ref()
}

#[test]
fn port_mirror_copies_every_frame_to_the_other_interface() {
    let test = "port_mirror_copies_every_frame_to_the_other_interface";
    let expected = |_: &ParsedFrame| Expected { out: vec!["eth2"], host: true, ..DEFAULT.into() };
    assert_eq!(check(test, "port-mirror.ng", expected).all, 20_000);
}

#[test]
fn flow_balancer_steers_flows_and_sends_other_frames_to_slot_0() {
    let test = "flow_balancer_steers_flows_and_sends_other_frames_to_slot_0";
    let mut fragment_targets = FragmentTargets::default();
    let expected =
        |k: &ParsedFrame| ip(k).map_or(To::Slot(0), |ip| fragment_targets.target(k, To::One(ip.flow()))).into();
    let counts = check(test, "flow-balancer.ng", expected);
    assert_eq!(counts.one, 20_000);
}

const ALL_ONES: u128 = plain::MAPPED | 0xffff_ffff;

#[test]
fn dns_broadcast_sends_dns_to_all_and_host_pairs_to_one_member() {
    let mut ports = Ports::default();
    let counts = check("dns_broadcast_sends_dns_to_all_and_host_pairs_to_one_member", "dns-broadcast.ng", |k| {
        let Some(ip) = ip(k) else { return To::None.into() };
        let all = ports.of(k).contains(&53) || [ip.src, ip.dst].contains(&ALL_ONES);
        if all { TO_ALL_CLASSES } else { To::One(ip.pair()) }.into()
    });
    assert!(counts.none > 1000 && counts.all > 1000 && counts.one > 1000, "{counts:?}");
}

#[test]
fn subnet_affinity_steers_by_subnet_and_to_both_for_internal_traffic() {
    let counts =
        check("subnet_affinity_steers_by_subnet_and_to_both_for_internal_traffic", "subnet-affinity.ng", |k| {
            let Some(ip) = ip(k) else { return To::None.into() };
            let ours = |a: u128| inside(a, [131, 114, 0, 0], 16).then(|| (a >> 8).to_be_bytes().to_vec());
            match (ours(ip.src), ours(ip.dst)) {
                (Some(src), Some(dst)) => To::Two(src, dst),
                (Some(one), None) | (None, Some(one)) => To::One(one),
                (None, None) => To::None,
            }
            .into()
        });
    assert!(counts.none > 1000 && counts.one > 1000 && counts.two > 300, "{counts:?}");
}

/// The key of a telephone call: both hosts, each with its pair of ports. In a pair, the even port is for RTP and the
/// next odd port for RTCP (RFC 3550 §11).
fn call(ip: &Ip) -> Option<Vec<u8>> {
    let [src, dst] = ip.ports()?;
    let looks = ip.protocol == UDP && src >= 1024 && dst >= 1024 && ip.body.len() >= 10 && ip.body[8] >> 6 == 2;
    let kind = ip.body.get(9)?;
    let media = match (src % 2, dst % 2) {
        (1, 1) => (200..=204).contains(kind),
        (0, 0) => matches!(kind & 0x7f, 0..=18 | 25 | 26 | 28 | 31..=34 | 96..=127),
        _ => true,
    };
    let ends = [(ip.src, src / 2), (ip.dst, dst / 2)];
    let ends = [ends[0].min(ends[1]), ends[0].max(ends[1])];
    (looks && media).then(|| ends.iter().flat_map(|e| [&e.0.to_be_bytes()[..], &e.1.to_be_bytes()].concat()).collect())
}

#[test]
fn voip_broadcasts_sip_and_steers_rtcp_with_its_rtp() {
    let mut fragment_targets = FragmentTargets::default();
    let counts = check("voip_broadcasts_sip_and_steers_rtcp_with_its_rtp", "voip.ng", |k| {
        let Some(ip) = ip(k) else { return To::None.into() };
        let sip = ip.has_port(5060) || ip.has_port(5061);
        fragment_targets.target(k, if sip { TO_ALL_CLASSES } else { call(ip).map_or(To::None, To::One) }).into()
    });
    assert!(counts.none > 1000 && counts.all > 1000 && counts.one > 300, "{counts:?}");
}

#[test]
fn gtp_drops_other_packets() {
    let mut fragment_targets = FragmentTargets::default();
    let counts = check("gtp_drops_other_packets", "gtp.ng", |k| {
        // The parser of the test does not parse packets on the GTP-U port; the next tests cover these packets.
        let control = ip(k).is_some_and(|ip| ip.protocol == UDP && ip.has_port(2123));
        fragment_targets.target(k, if control { TO_ALL_CLASSES } else { To::None }).into()
    });
    assert_eq!(counts.none, 20_000);
}

#[test]
fn gtp_steers_by_subscriber_whatever_the_tunnel() {
    let test = "gtp_steers_by_subscriber_whatever_the_tunnel";
    let mut prng = Prng::new(testkit::seed(test));
    let mut trial = Trial::new(test, "gtp.ng");
    let (mut frames, mut expected) = (Vec::new(), Vec::new());
    for n in 0..4000_u32 {
        let host = |prng: &mut Prng, ours: bool| match ours {
            true => [10, 45, 0, prng.below(60) as u8],
            false => [203, 0, 113, prng.below(60) as u8],
        };
        let (from_us, to_us) = (prng.below(2) == 0, prng.below(3) == 0);
        let (src, dst) = (host(&mut prng, from_us), host(&mut prng, to_us));
        let mut buffer = [0; 300];
        let inner = Frame::tcp4(src, 4000, dst, 443).raw().payload(b"hello").write(&mut buffer).expect("room").to_vec();
        let control = prng.below(4);
        let mut payload = tunnel::gtp_u(n, (n % 3 == 0).then_some(5), &[], inner.len());
        payload.extend(&inner);
        if control == 1 {
            // A GTP-U echo request.
            payload = vec![0x32, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        }
        let (gateways, port) =
            ([[10, 0, 0, 1 + n as u8 % 7], [10, 0, 1, 1 + n as u8 % 5]], if control == 2 { 2123 } else { 2152 });
        let [a, b] = if from_us { gateways } else { [gateways[1], gateways[0]] };
        let bytes = Frame::udp4(a, port, b, port).payload(&payload).write(&mut buffer).expect("room").to_vec();
        let plain = Plain { ethertype: 0x800, ip: Ip::of_packet(&inner) };
        frames.push(ParsedFrame { bytes, time: 0, plain });
        let name = |host: [u8; 4]| host.to_vec();
        expected.push(match (from_us, to_us) {
            _ if (1..=2).contains(&control) => TO_ALL_CLASSES,
            (true, true) => To::Two(name(src), name(dst)),
            (true, false) => To::One(name(src)),
            (false, true) => To::One(name(dst)),
            (false, false) => To::None,
        });
    }
    let mut next = expected.into_iter();
    let counts = trial.over(&frames, |_| next.next().expect("one expectation for each frame").into());
    assert!(counts.none > 300 && counts.all > 1000 && counts.one > 300 && counts.two > 300, "{counts:?}");
}

#[test]
fn gtp_fragments_in_captures_follow_their_subscriber() {
    let test = "gtp_fragments_in_captures_follow_their_subscriber";
    let Some(traces) = testkit::traces(test) else { return };
    // For each capture file, the address of the subscriber, and the numbers of its unfragmented packets, first
    // fragments and later fragments, as tshark counts them without reassembly.
    let captures = [
        ("gtp2_different_udp_port.pcap", [10, 131, 17, 170], [36, 42, 42]),
        ("gtp1_gn_normal_incl_fragmentation.pcap", [10, 131, 47, 185], [32, 40, 36]),
    ];
    let mut trial = Trial::with_replacement(test, "gtp.ng", "10.45.0.0", "10.131.0.0");
    for (file, subscriber, [whole, first, later]) in captures {
        let bytes = std::fs::read(traces.join("zeek/tunnels/gtp").join(file)).expect(file);
        let mut reader = pcap::Reader::open(&bytes[..]).expect(file);
        let mut frames = Vec::new();
        while let Ok(Some(packet)) = reader.next() {
            let time = packet.ts.map_or(0, base::Timestamp::nanos);
            frames.push(ParsedFrame { bytes: packet.data.to_vec(), time, plain: Plain { ethertype: 0x800, ip: None } });
        }
        let fragment = |k: &&ParsedFrame| u16::from_be_bytes([k.bytes[20], k.bytes[21]]) & 0x3fff;
        let counted = [
            frames.iter().filter(|k| fragment(k) == 0).count(),
            frames.iter().filter(|k| fragment(k) == 0x2000).count(),
            frames.iter().filter(|k| fragment(k) & 0x1fff > 0).count(),
        ];
        assert_eq!(counted, [whole, first, later], "{file}");
        let counts = trial.over(&frames, |_| To::One(subscriber.to_vec()).into());
        assert_eq!(counts, DeliveryCounts { one: whole + first + later, ..DeliveryCounts::default() }, "{file}");
    }
}

#[test]
fn stateless_firewall_forwards_allowed_and_delivers_other_packets() {
    let counts =
        check("stateless_firewall_forwards_allowed_and_delivers_other_packets", "stateless-firewall.ng", |k| {
            let allowed = match ip(k) {
                None => k.plain.ethertype == 0x806,
                Some(ip) if matches!(ip.protocol, 1 | 58) => ip.fragment != Some(true),
                Some(ip) if ip.protocol == TCP => ip.tcp_flags().is_some_and(|flags| {
                    let port = ip.ports().map_or(0, |p| p[1]);
                    flags & 0x10 != 0 || inside(ip.dst, [192, 0, 2, 0], 24) && [22, 80, 443].contains(&port)
                }),
                Some(ip) => ip.protocol == UDP && ip.ports().is_some_and(|p| p[0] == 53),
            };
            if allowed {
                Expected { out: vec!["eth2"], ..To::None.into() }
            } else {
                Expected { counts: Some(1), ..DEFAULT.into() }
            }
        });
    assert!(counts.none > 1000 && counts.all > 1000, "{counts:?}");
}

#[test]
fn dns_broadcast_sends_all_fragments_of_a_response_to_all() {
    let mut trial = Trial::new("dns_broadcast_sends_all_fragments_of_a_response_to_all", "dns-broadcast.ng");
    let (resolver, host) = ([10, 0, 0, 53], [10, 0, 0, 7]);
    let mut frames = Vec::new();
    let mut targets = Vec::new();
    for (id, port) in [(1, 53), (2, 5300), (3, 53)] {
        let mut buffer = [0; 3000];
        let response = Frame::udp4(resolver, port, host, 40_000).payload(&[b'x'; 2500]);
        let response = response.write(&mut buffer).expect("room").to_vec();
        let fragments = testkit::fragments(&response, id, 1480);
        assert_eq!(fragments.len(), 2, "the response has two fragments with an MTU of 1500");
        // In the last response, the later fragment arrives before the first fragment, when its ports are not known yet;
        // so both fragments are steered by addresses.
        for part in if id == 3 { [1, 0] } else { [0, 1] } {
            let plain = Plain::read(&fragments[part]).expect("the test parser accepts the frame");
            targets.push(if id == 1 { TO_ALL_CLASSES } else { To::One(plain.ip.as_ref().expect("IP").pair()) });
            frames.push(ParsedFrame { bytes: fragments[part].clone(), time: 0, plain });
        }
    }
    let mut expected = targets.into_iter();
    let counts = trial.over(&frames, |_| expected.next().expect("one expectation for each frame").into());
    assert_eq!((counts.all, counts.one), (2, 4), "{counts:?}");
}

/// The state of port knocking.
#[derive(Default)]
struct Knocking {
    progress: HashMap<(u128, u128, u8), usize>,
    open: Vec<(u128, u128, [u16; 2], u8)>,
}

impl Knocking {
    fn admits(&mut self, ip: &Ip, ports: [u16; 2]) -> bool {
        let connection = ip.one_way(ports);
        if self.open.contains(&connection) {
            return true;
        }
        let progress = self.progress.entry((ip.src, ip.dst, ip.protocol)).or_default();
        let port = ip.ports().filter(|_| ip.protocol == TCP).map(|p| p[1]);
        if *progress == 4 && port == Some(22) {
            self.open.push(connection);
            return true;
        }
        *progress =
            if port == [5123, 6234, 7345, 8456].get(*progress).copied() && port.is_some() { *progress + 1 } else { 0 };
        false
    }
}

#[test]
fn port_knocking_passes_packets_only_after_the_sequence() {
    let test = "port_knocking_passes_packets_only_after_the_sequence";
    let (mut knocking, mut ports) = (Knocking::default(), Ports::default());
    let expected = |admitted: bool| if admitted { Expected { host: true, ..DEFAULT.into() } } else { To::None.into() };
    check(test, "port-knocking.ng", |k| expected(ip(k).is_some_and(|ip| knocking.admits(ip, ports.of(k)))));
    // Random ports almost never form the knocking sequence, so in these frames a few hosts mostly follow the sequence.
    let mut prng = Prng::new(testkit::seed(test));
    let mut trial = Trial::new(test, "port-knocking.ng");
    let mut knocking = Knocking::default();
    let mut at = [0; 8];
    let frames: Vec<_> = (0..5000)
        .map(|_| {
            let host = prng.below(8) as usize;
            at[host] = if prng.below(9) == 0 { prng.below(6) as usize } else { (at[host] + 1) % 6 };
            let port = [5123, 6234, 7345, 8456, 22, 22][at[host]];
            let mut bytes = vec![0; 60];
            Frame::tcp4([10, 0, 0, host as u8], 900 + prng.below(2) as u16, [192, 0, 2, 1], port).fill(&mut bytes);
            let plain = Plain::read(&bytes).expect("the test parser accepts the frame");
            ParsedFrame { bytes, time: 0, plain }
        })
        .collect();
    let counts =
        trial.over(&frames, |k| expected(ip(k).is_some_and(|ip| knocking.admits(ip, ip.ports().unwrap_or_default()))));
    assert!(counts.all > 20 && counts.none > 1000, "{counts:?}");
}

/// For each service, the number of SYNs in the current second; a second begins with the first SYN after the previous
/// second.
#[derive(Default)]
struct SynLimit(HashMap<(u128, u16), (u64, u32)>);

impl SynLimit {
    fn expected(&mut self, k: &ParsedFrame, fragment_targets: &mut FragmentTargets) -> Expected {
        let Some(ip) = ip(k) else { return To::None.into() };
        if ip.tcp_flags().is_some_and(|flags| flags & 0x12 == 2) {
            let (begun, count) = self.0.entry((ip.dst, ip.dst_port())).or_insert((k.time, 0));
            if k.time - *begun > 1_000_000_000 {
                (*begun, *count) = (k.time, 0);
            }
            *count += 1;
            if *count > 100 {
                return Expected { counts: Some(1), ..To::None.into() };
            }
        }
        fragment_targets.target(k, To::One(ip.flow())).into()
    }
}

#[test]
fn syn_limiter_drops_excess_syns_and_steers_other_packets() {
    let test = "syn_limiter_drops_excess_syns_and_steers_other_packets";
    let (mut limit, mut fragment_targets) = (SynLimit::default(), FragmentTargets::default());
    let counts = check(test, "syn-limiter.ng", |k| limit.expected(k, &mut fragment_targets));
    assert!(counts.none > 100 && counts.one > 1000, "{counts:?}");
}

#[test]
fn syn_limiter_drops_a_captured_syn_flood() {
    let test = "syn_limiter_drops_a_captured_syn_flood";
    let Some(directory) = testkit::traces(test) else { return };
    let flood = captured(&directory.join("stopddos/synflood.pcap"), usize::MAX);
    assert!(flood.len() > 30_000, "{} packets of a captured flood", flood.len());
    let (mut limit, mut fragment_targets) = (SynLimit::default(), FragmentTargets::default());
    let counts = Trial::new(test, "syn-limiter.ng").over(&flood, |k| limit.expected(k, &mut fragment_targets));
    eprintln!("a captured flood: {counts:?}");
    assert!(counts.none > 10_000 && counts.one > 100, "{counts:?}");
}

#[test]
fn flow_counter_counts_packets_until_the_flow_expires() {
    let mut flows: HashMap<Vec<u8>, (u64, u64)> = HashMap::new();
    let (mut opened, mut fragment_targets, mut ports) = (0, FragmentTargets::default(), Ports::default());
    let test = "flow_counter_counts_packets_until_the_flow_expires";
    let mut frames = generated(&mut Prng::new(testkit::seed(test)), 20_000);
    // The second half of the frames follows after a pause longer than the program's timeout, so flows of the first half
    // are counted again from 1.
    frames[10_000..].iter_mut().for_each(|k| k.time += 90_000_000_000);
    let counts = check_frames(test, "flow-counter.ng", frames, |k| {
        let Some(ip) = ip(k) else { return To::None.into() };
        let (count, last) = flows.entry(ip.both_ways(ports.of(k))).or_insert((0, k.time));
        if k.time - *last > 60_000_000_000 {
            *count = 0;
        }
        (*count, *last) = (*count + 1, k.time);
        opened += usize::from(*count == 1);
        let (mark, counts) = match *count {
            1 => (1, Some(1)),
            1000 => (1000, Some(2)),
            _ => (0, None),
        };
        Expected { mark, counts, ..fragment_targets.target(k, To::One(ip.flow())).into() }
    });
    assert!(counts.one > 10_000 && opened > flows.len(), "{counts:?}, {opened} flows of {}", flows.len());
}

/// The number of the first rule of `twin.ng` and `twin-inverse.ng` that the packet matches.
fn twin_rule(ip: &Ip) -> Option<usize> {
    let host = |net, bits| inside(ip.src, net, bits) || inside(ip.dst, net, bits);
    let port = |low, high| ip.ports().is_some_and(|p| p.iter().any(|p| (low..=high).contains(p)));
    let rules = [
        (host([10, 1, 0, 0], 16) || host([10, 2, 0, 0], 16)) && port(5000, 5999),
        host([10, 3, 0, 0], 16) && (port(80, 80) || port(443, 443)),
        port(53, 53),
    ];
    rules.iter().position(|matches| *matches)
}

#[test]
fn twin_delivers_to_the_class_of_the_first_matching_rule() {
    let (mut counts, mut fragment_targets) = ([0; 4], FragmentTargets::default());
    check("twin_delivers_to_the_class_of_the_first_matching_rule", "twin.ng", |k| {
        let Some(ip) = ip(k) else { return To::None.into() };
        let first = twin_rule(ip);
        counts[first.unwrap_or(3)] += 1;
        first.map_or_else(|| fragment_targets.target(k, To::One(ip.flow())), |worker| To::All(8 << worker)).into()
    });
    assert!(counts.iter().all(|n| *n > 100), "{counts:?}");
}

/// Packets with identifications on two interfaces, of which some are copied by a switch or a router.
fn frames_with_copies(prng: &mut Prng) -> Vec<ParsedFrame> {
    let hosts = [[10, 1, 0, 5], [10, 2, 255, 1], [10, 3, 7, 7], [192, 0, 2, 10], [8, 8, 8, 8]];
    let ports = [53, 80, 443, 5000, 5999, 40_000];
    let frames = (1..=5000u16).map(|id| {
        let mut host = || hosts[prng.below(5) as usize];
        let (a, b) = (host(), host());
        let mut port = || ports[prng.below(6) as usize];
        let (p, q) = (port(), port());
        let mut buffer = [0; 100];
        let payload = id.to_be_bytes();
        let frame = Frame::udp4(a, p, b, q).fragment(id, 0, false).payload(&payload);
        let frame = frame.write(&mut buffer).expect("room").to_vec();
        (frame.clone(), frame.len() as u32)
    });
    let frames: Vec<_> = frames.collect();
    let ways = [Copied::Exact, Copied::Tagged, Copied::Routed];
    let planted = plant(frames, &ways, (1_000_000, 3, 150_000_000), prng);
    let parsed = |frame: Planted| {
        let plain = Plain::read(&frame.bytes).expect("the test parser accepts the frame");
        ParsedFrame { time: 1_000_000_000 + frame.nanos, bytes: frame.bytes, plain }
    };
    planted.into_iter().map(parsed).collect()
}

#[test]
fn twin_inverse_removes_copies_and_sends_the_packets_to_the_server_of_the_first_matching_rule() {
    let test = "twin_inverse_removes_copies_and_sends_the_packets_to_the_server_of_the_first_matching_rule";
    let frames = frames_with_copies(&mut Prng::new(testkit::seed(test)));
    let (mut counts, mut copies, all) = ([0; 4], 0, frames.len());
    let settings = duplicates::Settings { window: Duration::from_millis(100), ..duplicates::Settings::default() };
    let mut naive = Naive::new(settings);
    let delivered = Trial::new(test, "twin-inverse.ng").over(&frames, |k| {
        let wire_len = k.bytes.len() as u32;
        if naive.inspect(&OwnedPacket { nanos: k.time, data: k.bytes.clone(), wire_len, interface: 0 }).is_some() {
            copies += 1;
            return To::None.into();
        }
        let Some(ip) = ip(k) else { return To::None.into() };
        let first = twin_rule(ip);
        counts[first.unwrap_or(3)] += 1;
        match first {
            Some(server) => Expected { out: vec![["eth2", "eth3", "eth4"][server]], ..To::None.into() },
            None => To::One(ip.flow()).into(),
        }
    });
    assert!(copies > 800 && counts.iter().all(|n| *n > 100), "{copies} copies, {counts:?}");
    assert_eq!(delivered.none + delivered.one, all);
}

#[test]
fn the_test_parser_declines_tunnels_and_truncated_frames() {
    let mut buffer = [0; 300];
    let inner = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).write(&mut buffer).expect("room").to_vec();
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    let vxlan = Frame::udp4([1; 4], 50_000, [2; 4], 4789).payload(&payload).write(&mut buffer).expect("room").to_vec();
    let ipip =
        Frame::ip4([1; 4], [2; 4], IpProtocol(4)).payload(&inner[14..]).write(&mut buffer).expect("room").to_vec();
    assert!(Plain::read(&inner).is_some() && Plain::read(&vxlan).is_none() && Plain::read(&ipip).is_none());
    assert!((0..inner.len()).all(|cut| Plain::read(&inner[..cut]).is_none()));
}
