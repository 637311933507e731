//! What a filter needs of an index is never more than what it matches: random filters over random frames, beside a
//! reader of needs that works on the frame itself.

use base::Prng;
use netgrain_wire::filter::Need;
use netgrain_wire::{Arp, EtherType, Filter, Headers, Ipv6, VlanTag, link};
use std::net::IpAddr;
use testkit::random_frame;

fn need(text: &str) -> Need {
    Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).need()
}

#[test]
fn what_no_index_knows_asks_for_nothing() {
    for text in
        ["", "not port 80", "less 64", "ether host 1:2:3:4:5:6", "port 80 or greater 100", "not (udp and port 5)"]
    {
        assert_eq!(need(text), Need::Anything, "{text}");
    }
    assert_eq!(need("not not udp"), Need::Protocol(17));
    assert_eq!(need("not (not udp or not vlan)"), Need::All(vec![Need::Protocol(17), Need::Vlan(None)]));
    assert_eq!(need("not (not udp and not vlan 3)"), Need::Any(vec![Need::Protocol(17), Need::Vlan(Some(3))]));
}

#[test]
fn words_become_needs_without_repetition() {
    let host = |a: &str| Need::Host(a.parse().unwrap());
    assert_eq!(need("host 10.0.0.1 and src 10.0.0.1"), host("10.0.0.1"));
    assert_eq!(need("host 10.0.0.1 or 10.0.0.2"), Need::Any(vec![host("10.0.0.1"), host("10.0.0.2")]));
    assert_eq!(need("net 10.0.0.0 mask 255.0.255.0"), Need::Net("10.0.0.0".parse().unwrap(), 8));
    assert_eq!(need("icmp"), Need::All(vec![Need::Protocol(1), Need::EtherType(0x800)]));
    assert_eq!(need("udp portrange 5-7"), Need::All(vec![Need::Ports(5, 7), Need::Protocol(17)]));
    assert_eq!(need("net ::/0"), Need::EtherType(0x86dd));
}

#[test]
fn two_ends_are_a_conversation_as_far_as_their_directions_say() {
    let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let flows = |text: &str| match need(text) {
        Need::All(parts) => {
            parts.into_iter().filter(|p| matches!(p, Need::Flow(..) | Need::Any(_))).collect::<Vec<_>>()
        }
        other => panic!("{text}: {other:?}"),
    };
    let straight = Need::Flow(6, (a, 80), (b, 4000));
    let crossed = Need::Flow(6, (a, 4000), (b, 80));
    assert_eq!(
        flows("host 10.0.0.1 and port 80 and host 10.0.0.2 and port 4000 and tcp"),
        [Need::Any(vec![straight.clone(), crossed])]
    );
    assert_eq!(
        flows("src 10.0.0.1 and tcp src port 80 and dst 10.0.0.2 and dst port 4000"),
        std::slice::from_ref(&straight)
    );
    assert_eq!(flows("dst 10.0.0.1 and tcp dst port 80 and src 10.0.0.2 and src port 4000"), [straight]);
    assert_eq!(flows("host 10.0.0.1 and host 10.0.0.2 and icmp"), [Need::Flow(1, (a, 0), (b, 0))]);
    // One port leaves the other open, and so does one host.
    assert_eq!(flows("host 10.0.0.1 and host 10.0.0.2 and tcp port 80"), []);
    assert_eq!(flows("host 10.0.0.1 and port 80 and tcp port 4000"), []);
}

/// Whether a frame has what is needed, read with the header views rather than with the filter's own tests.
fn has(need: &Need, frame: &[u8], h: &Headers) -> bool {
    let (l3, l4) = (usize::from(h.l3()), usize::from(h.l4()));
    let addresses: Vec<IpAddr> = match (h.ethertype(), h.protocol()) {
        (EtherType::IPV4, Some(_)) => {
            let at = |n: usize| <[u8; 4]>::try_from(&frame[l3 + n..l3 + n + 4]).unwrap().into();
            vec![at(12), at(16)]
        }
        (EtherType::IPV6, Some(_)) => {
            let ip = Ipv6::parse(frame, l3).expect("a whole header");
            vec![ip.src().into(), ip.dst().into()]
        }
        (EtherType::ARP, _) => {
            Arp::parse(frame, l3).map_or(Vec::new(), |arp| vec![arp.sender_ip().into(), arp.target_ip().into()])
        }
        _ => Vec::new(),
    };
    let ports: Option<[u16; 2]> = h.protocol().filter(|p| l4 > 0 && p.has_ports()).and_then(|_| {
        let word = frame.get(l4..l4 + 4)?;
        Some([u16::from_be_bytes([word[0], word[1]]), u16::from_be_bytes([word[2], word[3]])])
    });
    match need {
        Need::Anything => true,
        Need::Host(a) => addresses.contains(a),
        Need::Net(net, length) => addresses.iter().any(|a| match (a, net) {
            (IpAddr::V4(a), IpAddr::V4(n)) => (a.to_bits() ^ n.to_bits()).leading_zeros() >= u32::from(*length),
            (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits() ^ n.to_bits()).leading_zeros() >= u32::from(*length),
            _ => false,
        }),
        Need::Ports(first, last) => ports.is_some_and(|p| p.iter().any(|p| (*first..=*last).contains(p))),
        Need::Protocol(p) => h.protocol().is_some_and(|is| is.0 == *p),
        Need::EtherType(e) => h.ethertype().0 == *e,
        Need::Vlan(None) => h.vlan().is_some(),
        Need::Vlan(Some(id)) => {
            let mut at = 14;
            let mut is_tag = h.vlan().is_some();
            while is_tag {
                let Ok(tag) = VlanTag::parse(frame, at) else { break };
                if tag.id() == *id {
                    return true;
                }
                (at, is_tag) = (at + VlanTag::LEN, tag.ethertype().is_vlan());
            }
            false
        }
        Need::Flow(protocol, a, b) => {
            let p = ports.unwrap_or_default();
            h.protocol().is_some_and(|is| is.0 == *protocol)
                && [[0, 1], [1, 0]].iter().any(|[i, j]| (addresses[*i], p[*i]) == *a && (addresses[*j], p[*j]) == *b)
        }
        Need::All(parts) => parts.iter().all(|n| has(n, frame, h)),
        Need::Any(parts) => parts.iter().any(|n| has(n, frame, h)),
    }
}

fn random_filter(prng: &mut Prng, depth: u64) -> String {
    let mut pick = |words: &[&str]| words[prng.below(words.len() as u64) as usize].to_owned();
    let direction = pick(&["", "", "src ", "dst ", "src and dst "]);
    let test = match pick(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]).as_str() {
        "0" | "1" => {
            format!("{direction}host {}", pick(&["10.0.0.1", "10.0.0.2", "10.0.1.1", "2001:db8::1", "2001:db8::2"]))
        }
        "2" => format!(
            "{direction}net {}",
            pick(&["10.0.0.0/24", "10.0.0.0/31", "0.0.0.0/0", "2001:db8::/32", "10.0.0.0 mask 255.0.255.0"])
        ),
        "3" | "4" => format!("{}{direction}port {}", pick(&["", "tcp ", "udp "]), pick(&["1", "2", "3"])),
        "5" => format!("{direction}portrange {}", pick(&["1-2", "2-70", "0-65535"])),
        "6" => {
            pick(&["ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "proto 44", "ip proto 17", "ether proto 0x8847"])
        }
        "7" => pick(&["vlan", "vlan 5", "vlan 6"]),
        "8" => pick(&["tcp", "udp", "ip host 10.0.0.1", "arp host 10.0.0.1", "arp net 10.0.0.0/8"]),
        _ => pick(&["less 60", "greater 61", "ether host 02:00:00:00:00:01"]),
    };
    match prng.below(6) {
        _ if depth == 0 => test,
        0 => format!("not ({})", random_filter(prng, depth - 1)),
        1..=3 => format!("({}) and ({})", random_filter(prng, depth - 1), random_filter(prng, depth - 1)),
        4 => format!("({}) or ({})", random_filter(prng, depth - 1), random_filter(prng, depth - 1)),
        _ => test,
    }
}

#[test]
fn whatever_matches_has_what_the_filter_needs() {
    let seed = testkit::seed("whatever_matches_has_what_the_filter_needs");
    let mut prng = Prng::new(seed);
    let frames: Vec<Vec<u8>> = (0..600).map(|_| random_frame(&mut prng)).collect();
    let (mut matched, mut refused) = (0, 0);
    for round in 0..1500 {
        let text = random_filter(&mut prng, 3);
        let filter = Filter::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let need = filter.need();
        for frame in &frames {
            let wire_len = frame.len() as u32 + prng.below(2) as u32 * 10;
            let headers = Headers::of(frame, wire_len, link::ETHERNET);
            let has = has(&need, frame, &headers);
            if filter.matches(frame, wire_len, &headers) {
                assert!(has, "seed {seed}, round {round}: {text}\nneeds {need:?}\nof {frame:02x?}");
                matched += 1;
            }
            refused += u64::from(!has);
        }
    }
    // A need that never refused anything would pass as well.
    assert!(matched > 50_000 && refused > 100_000, "{matched} matched, {refused} refused");
}

#[test]
fn a_thousand_tests_are_read_in_one_go() {
    let text = (0..1000).map(|i| format!("host 10.0.{}.{}", i / 250, i % 250)).collect::<Vec<_>>().join(" or ");
    let Need::Any(hosts) = need(&text) else { panic!("not any of them") };
    assert_eq!(hosts.len(), 1000);
    assert!(matches!(need(&text.replace(" or ", " and ")), Need::All(all) if all.len() == 1000));
}
