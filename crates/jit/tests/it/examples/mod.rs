//! The programs of `examples/groups`, each against what it promises, written down once more in plain Rust.
//!
//! Frames made for the purpose and real captures; machine code and interpreter; hosts, ports and tables kept by the
//! test itself.

mod frames;
mod plain;
mod trial;

use base::Prng;
use frames::{Known, Parts, Ports, made, real};
use plain::{Ip, Plain, TCP, UDP, inside};
use std::collections::HashMap;
use trial::{EVERY, Met, To, Trial, Wish};
use wire::IpProtocol;
use wire::build::{Frame, tunnel};

/// Members that join without a class.
const DEFAULT: To = To::All(1);
const EVERYBODY: To = To::All(EVERY);

/// Runs an example over generated frames and then, where captures are present, over those; counts of the generated
/// frames.
fn holds(test: &str, file: &str, options: impl FnMut(&Known) -> Wish) -> Met {
    holds_over(test, file, made(&mut Prng::new(testkit::seed(test)), 20_000), options)
}

/// Like [`holds`], with the given generated frames.
fn holds_over(test: &str, file: &str, mut all: Vec<Known>, mut options: impl FnMut(&Known) -> Wish) -> Met {
    let mut trial = Trial::new(test, file);
    let met = trial.over(&all, &mut options);
    eprintln!("{file}: {met:?}");
    if let Some(folder) = testkit::extra_traces(test) {
        let last = all.last().map_or(0, |k| k.time);
        all = real(&folder, 300);
        assert!(all.len() > 3000, "only {} real frames were read", all.len());
        all.iter_mut().for_each(|k| k.time += last);
        eprintln!("{file}, real: {:?}", trial.over(&all, options));
    }
    met
}

fn ip(k: &Known) -> Option<&Ip> {
    k.plain.ip.as_ref()
}

#[test]
fn a_port_mirror_copies_everything_out_of_the_other_port() {
    let test = "a_port_mirror_copies_everything_out_of_the_other_port";
    let options = |_: &Known| Wish { out: vec!["eth2"], host: true, ..DEFAULT.into() };
    assert_eq!(holds(test, "port-mirror.ng", options).all, 20_000);
}

#[test]
fn a_balancer_keeps_flows_together_and_lowest_place_gets_the_rest() {
    let test = "a_balancer_keeps_flows_together_and_lowest_place_gets_the_rest";
    let mut parts = Parts::default();
    let options = |k: &Known| ip(k).map_or(To::Place(0), |ip| parts.way(k, To::One(ip.flow()))).into();
    let met = holds(test, "flow-balancer.ng", options);
    assert_eq!(met.one, 20_000);
}

const ALL_ONES: u128 = plain::MAPPED | 0xffff_ffff;

#[test]
fn names_go_to_all_and_pairs_of_hosts_to_one() {
    let mut ports = Ports::default();
    let met = holds("names_go_to_all_and_pairs_of_hosts_to_one", "dns-broadcast.ng", |k| {
        let Some(ip) = ip(k) else { return To::Nobody.into() };
        let all = ports.of(k).contains(&53) || [ip.src, ip.dst].contains(&ALL_ONES);
        if all { EVERYBODY } else { To::One(ip.pair()) }.into()
    });
    assert!(met.nobody > 1000 && met.all > 1000 && met.one > 1000, "{met:?}");
}

#[test]
fn a_subnet_is_with_one_worker_and_talk_between_two_with_both() {
    let met = holds("a_subnet_is_with_one_worker_and_talk_between_two_with_both", "subnet-affinity.ng", |k| {
        let Some(ip) = ip(k) else { return To::Nobody.into() };
        let ours = |a: u128| inside(a, [131, 114, 0, 0], 16).then(|| (a >> 8).to_be_bytes().to_vec());
        match (ours(ip.src), ours(ip.dst)) {
            (Some(src), Some(dst)) => To::Two(src, dst),
            (Some(one), None) | (None, Some(one)) => To::One(one),
            (None, None) => To::Nobody,
        }
        .into()
    });
    assert!(met.nobody > 1000 && met.one > 1000 && met.two > 300, "{met:?}");
}

/// A call is its hosts and its pairs of ports, of which the even one is for media (RFC 3550, 11).
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
fn signalling_goes_to_all_and_reports_go_with_their_media() {
    let mut parts = Parts::default();
    let met = holds("signalling_goes_to_all_and_reports_go_with_their_media", "voip.ng", |k| {
        let Some(ip) = ip(k) else { return To::Nobody.into() };
        let sip = ip.has_port(5060) || ip.has_port(5061);
        parts.way(k, if sip { EVERYBODY } else { call(ip).map_or(To::Nobody, To::One) }).into()
    });
    assert!(met.nobody > 1000 && met.all > 1000 && met.one > 300, "{met:?}");
}

#[test]
fn what_is_no_gtp_is_dropped() {
    let mut parts = Parts::default();
    let met = holds("what_is_no_gtp_is_dropped", "gtp.ng", |k| {
        // The plain reader declines the port of user packets; the next tests are about them.
        let control = ip(k).is_some_and(|ip| ip.protocol == UDP && ip.has_port(2123));
        parts.way(k, if control { EVERYBODY } else { To::Nobody }).into()
    });
    assert_eq!(met.nobody, 20_000);
}

#[test]
fn a_subscriber_is_with_one_worker_whatever_tunnel_brings_the_packet() {
    let test = "a_subscriber_is_with_one_worker_whatever_tunnel_brings_the_packet";
    let mut prng = Prng::new(testkit::seed(test));
    let mut trial = Trial::new(test, "gtp.ng");
    let (mut frames, mut wishes) = (Vec::new(), Vec::new());
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
            // An echo request on the port of user packets.
            payload = vec![0x32, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        }
        let (gateways, port) =
            ([[10, 0, 0, 1 + n as u8 % 7], [10, 0, 1, 1 + n as u8 % 5]], if control == 2 { 2123 } else { 2152 });
        let [a, b] = if from_us { gateways } else { [gateways[1], gateways[0]] };
        let bytes = Frame::udp4(a, port, b, port).payload(&payload).write(&mut buffer).expect("room").to_vec();
        let plain = Plain { ethertype: 0x800, ip: Ip::of_packet(&inner) };
        frames.push(Known { bytes, time: 0, plain });
        let name = |host: [u8; 4]| host.to_vec();
        wishes.push(match (from_us, to_us) {
            _ if (1..=2).contains(&control) => EVERYBODY,
            (true, true) => To::Two(name(src), name(dst)),
            (true, false) => To::One(name(src)),
            (false, true) => To::One(name(dst)),
            (false, false) => To::Nobody,
        });
    }
    let mut next = wishes.into_iter();
    let met = trial.over(&frames, |_| next.next().expect("one for each").into());
    assert!(met.nobody > 300 && met.all > 1000 && met.one > 300 && met.two > 300, "{met:?}");
}

#[test]
fn user_packets_that_were_cut_on_their_way_are_with_their_subscriber() {
    let test = "user_packets_that_were_cut_on_their_way_are_with_their_subscriber";
    let Some(traces) = testkit::traces(test) else { return };
    // By tshark, reassembly off: of one subscriber each, and how many packets are whole, first fragments and later
    // ones.
    let captures = [
        ("gtp2_different_udp_port.pcap", [10, 131, 17, 170], [36, 42, 42]),
        ("gtp1_gn_normal_incl_fragmentation.pcap", [10, 131, 47, 185], [32, 40, 36]),
    ];
    let mut trial = Trial::where_it_says(test, "gtp.ng", "10.45.0.0", "10.131.0.0");
    for (file, subscriber, [whole, first, later]) in captures {
        let bytes = std::fs::read(traces.join("zeek/tunnels/gtp").join(file)).expect(file);
        let mut reader = pcap::Reader::open(&bytes[..]).expect(file);
        let mut frames = Vec::new();
        while let Ok(Some(packet)) = reader.next() {
            let time = packet.ts.map_or(0, base::Timestamp::nanos);
            frames.push(Known { bytes: packet.data.to_vec(), time, plain: Plain { ethertype: 0x800, ip: None } });
        }
        let fragment = |k: &&Known| u16::from_be_bytes([k.bytes[20], k.bytes[21]]) & 0x3fff;
        let counted = [
            frames.iter().filter(|k| fragment(k) == 0).count(),
            frames.iter().filter(|k| fragment(k) == 0x2000).count(),
            frames.iter().filter(|k| fragment(k) & 0x1fff > 0).count(),
        ];
        assert_eq!(counted, [whole, first, later], "{file}");
        let met = trial.over(&frames, |_| To::One(subscriber.to_vec()).into());
        assert_eq!(met, Met { one: whole + first + later, ..Met::default() }, "{file}");
    }
}

#[test]
fn the_wall_lets_through_what_it_says_and_shows_the_rest() {
    let met = holds("the_wall_lets_through_what_it_says_and_shows_the_rest", "stateless-firewall.ng", |k| {
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
            Wish { out: vec!["eth2"], ..To::Nobody.into() }
        } else {
            Wish { counts: Some(1), ..DEFAULT.into() }
        }
    });
    assert!(met.nobody > 1000 && met.all > 1000, "{met:?}");
}

/// An answer that is longer than a frame is an answer as a whole.
#[test]
fn a_long_answer_about_a_name_goes_to_all_in_all_its_parts() {
    let mut trial = Trial::new("a_long_answer_about_a_name_goes_to_all_in_all_its_parts", "dns-broadcast.ng");
    let (resolver, host) = ([10, 0, 0, 53], [10, 0, 0, 7]);
    let mut frames = Vec::new();
    let mut met = Vec::new();
    for (id, port) in [(1, 53), (2, 5300), (3, 53)] {
        let mut buffer = [0; 3000];
        let answer = Frame::udp4(resolver, port, host, 40_000).payload(&[b'x'; 2500]);
        let answer = answer.write(&mut buffer).expect("room").to_vec();
        let parts = testkit::fragments(&answer, id, 1480);
        assert_eq!(parts.len(), 2, "as a link of Ethernet cuts it");
        // The last one's parts come in the wrong order: nobody knows what they are, and they stay together.
        for part in if id == 3 { [1, 0] } else { [0, 1] } {
            let plain = Plain::read(&parts[part]).expect("plain enough");
            met.push(if id == 1 { EVERYBODY } else { To::One(plain.ip.as_ref().expect("IP").pair()) });
            frames.push(Known { bytes: parts[part].clone(), time: 0, plain });
        }
    }
    let mut wishes = met.into_iter();
    let met = trial.over(&frames, |_| wishes.next().expect("one for each").into());
    assert_eq!((met.all, met.one), (2, 4), "{met:?}");
}

/// The door of port knocking, in the test's own words.
#[derive(Default)]
struct Door {
    far: HashMap<(u128, u128, u8), usize>,
    open: Vec<(u128, u128, [u16; 2], u8)>,
}

impl Door {
    fn admits(&mut self, ip: &Ip, ports: [u16; 2]) -> bool {
        let connection = ip.one_way(ports);
        if self.open.contains(&connection) {
            return true;
        }
        let far = self.far.entry((ip.src, ip.dst, ip.protocol)).or_default();
        let port = ip.ports().filter(|_| ip.protocol == TCP).map(|p| p[1]);
        if *far == 4 && port == Some(22) {
            self.open.push(connection);
            return true;
        }
        *far = if port == [5123, 6234, 7345, 8456].get(*far).copied() && port.is_some() { *far + 1 } else { 0 };
        false
    }
}

#[test]
fn who_has_knocked_in_order_may_come_in() {
    let test = "who_has_knocked_in_order_may_come_in";
    let (mut door, mut ports) = (Door::default(), Ports::default());
    let options = |admitted: bool| if admitted { Wish { host: true, ..DEFAULT.into() } } else { To::Nobody.into() };
    holds(test, "port-knocking.ng", |k| options(ip(k).is_some_and(|ip| door.admits(ip, ports.of(k)))));
    // By chance hardly anybody knocks right: a few hosts that mostly know how.
    let mut prng = Prng::new(testkit::seed(test));
    let mut trial = Trial::new(test, "port-knocking.ng");
    let mut door = Door::default();
    let mut at = [0; 8];
    let frames: Vec<_> = (0..5000)
        .map(|_| {
            let host = prng.below(8) as usize;
            at[host] = if prng.below(9) == 0 { prng.below(6) as usize } else { (at[host] + 1) % 6 };
            let port = [5123, 6234, 7345, 8456, 22, 22][at[host]];
            let mut bytes = vec![0; 60];
            Frame::tcp4([10, 0, 0, host as u8], 900 + prng.below(2) as u16, [192, 0, 2, 1], port).fill(&mut bytes);
            let plain = Plain::read(&bytes).expect("plain enough");
            Known { bytes, time: 0, plain }
        })
        .collect();
    let met = trial.over(&frames, |k| options(ip(k).is_some_and(|ip| door.admits(ip, ip.ports().unwrap_or_default()))));
    assert!(met.all > 20 && met.nobody > 1000, "{met:?}");
}

/// What a service may be sent in a second that begins with its first packet.
#[derive(Default)]
struct Limit(HashMap<(u128, u16), (u64, u32)>);

impl Limit {
    fn options(&mut self, k: &Known, parts: &mut Parts) -> Wish {
        let Some(ip) = ip(k) else { return To::Nobody.into() };
        if ip.tcp_flags().is_some_and(|flags| flags & 0x12 == 2) {
            let (begun, count) = self.0.entry((ip.dst, ip.dst_port())).or_insert((k.time, 0));
            if k.time - *begun > 1_000_000_000 {
                (*begun, *count) = (k.time, 0);
            }
            *count += 1;
            if *count > 100 {
                return Wish { counts: Some(1), ..To::Nobody.into() };
            }
        }
        parts.way(k, To::One(ip.flow())).into()
    }
}

#[test]
fn a_flood_of_connections_is_held_back_and_the_rest_flows() {
    let test = "a_flood_of_connections_is_held_back_and_the_rest_flows";
    let (mut limit, mut parts) = (Limit::default(), Parts::default());
    let met = holds(test, "syn-limiter.ng", |k| limit.options(k, &mut parts));
    assert!(met.nobody > 100 && met.one > 1000, "{met:?}");
}

#[test]
fn a_captured_flood_of_connections_is_held_back() {
    let test = "a_captured_flood_of_connections_is_held_back";
    let Some(folder) = testkit::traces(test) else { return };
    let flood = real(&folder.join("stopddos/synflood.pcap"), usize::MAX);
    assert!(flood.len() > 30_000, "{} packets of a real flood", flood.len());
    let (mut limit, mut parts) = (Limit::default(), Parts::default());
    let met = Trial::new(test, "syn-limiter.ng").over(&flood, |k| limit.options(k, &mut parts));
    eprintln!("a real flood: {met:?}");
    assert!(met.nobody > 10_000 && met.one > 100, "{met:?}");
}

#[test]
fn packets_of_a_flow_are_counted_until_it_is_forgotten() {
    let mut flows: HashMap<Vec<u8>, (u64, u64)> = HashMap::new();
    let (mut opened, mut parts, mut ports) = (0, Parts::default(), Ports::default());
    let test = "packets_of_a_flow_are_counted_until_it_is_forgotten";
    let mut frames = made(&mut Prng::new(testkit::seed(test)), 20_000);
    // A pause longer than the program's timeout: the flows of the first half are counted from one again.
    frames[10_000..].iter_mut().for_each(|k| k.time += 90_000_000_000);
    let met = holds_over(test, "flow-counter.ng", frames, |k| {
        let Some(ip) = ip(k) else { return To::Nobody.into() };
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
        Wish { mark, counts, ..parts.way(k, To::One(ip.flow())).into() }
    });
    assert!(met.one > 10_000 && opened > flows.len(), "{met:?}, {opened} flows of {}", flows.len());
}

#[test]
fn the_first_rule_that_fits_says_which_worker_gets_it() {
    let (mut met, mut parts) = ([0; 4], Parts::default());
    holds("the_first_rule_that_fits_says_which_worker_gets_it", "twin.ng", |k| {
        let Some(ip) = ip(k) else { return To::Nobody.into() };
        let host = |net, bits| inside(ip.src, net, bits) || inside(ip.dst, net, bits);
        let port = |low, high| ip.ports().is_some_and(|p| p.iter().any(|p| (low..=high).contains(p)));
        let rules = [
            (host([10, 1, 0, 0], 16) || host([10, 2, 0, 0], 16)) && port(5000, 5999),
            host([10, 3, 0, 0], 16) && (port(80, 80) || port(443, 443)),
            port(53, 53),
        ];
        let first = rules.iter().position(|fits| *fits);
        met[first.unwrap_or(3)] += 1;
        first.map_or_else(|| parts.way(k, To::One(ip.flow())), |worker| To::All(8 << worker)).into()
    });
    assert!(met.iter().all(|n| *n > 100), "{met:?}");
}

#[test]
fn the_plain_reader_declines_what_it_cannot_know() {
    let mut buffer = [0; 300];
    let inner = Frame::udp4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2).write(&mut buffer).expect("room").to_vec();
    let payload = [&tunnel::vxlan(7)[..], &inner].concat();
    let vxlan = Frame::udp4([1; 4], 50_000, [2; 4], 4789).payload(&payload).write(&mut buffer).expect("room").to_vec();
    let ipip =
        Frame::ip4([1; 4], [2; 4], IpProtocol(4)).payload(&inner[14..]).write(&mut buffer).expect("room").to_vec();
    assert!(Plain::read(&inner).is_some() && Plain::read(&vxlan).is_none() && Plain::read(&ipip).is_none());
    assert!((0..inner.len()).all(|cut| Plain::read(&inner[..cut]).is_none()));
}
