//! Tests of the index conditions of filters. The tests of the index crate check that each frame that matches a filter
//! also fulfils its condition (`index/tests/it/agreement.rs`).

use netgrain_filter::{Filter, KeyCondition};
use std::net::IpAddr;

fn need(text: &str) -> KeyCondition {
    Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).need()
}

#[test]
fn tests_without_keys_yield_no_condition() {
    for text in
        ["", "not port 80", "less 64", "ether host 1:2:3:4:5:6", "port 80 or greater 100", "not (udp and port 5)"]
    {
        assert_eq!(need(text), KeyCondition::Anything, "{text}");
    }
    assert_eq!(need("not not udp"), KeyCondition::Protocol(17));
    assert_eq!(
        need("not (not udp or not vlan)"),
        KeyCondition::All(vec![KeyCondition::Protocol(17), KeyCondition::Vlan(None)])
    );
    assert_eq!(
        need("not (not udp and not vlan 3)"),
        KeyCondition::Any(vec![KeyCondition::Protocol(17), KeyCondition::Vlan(Some(3))])
    );
}

#[test]
fn conditions_are_simplified() {
    let host = |a: &str| KeyCondition::Host(a.parse().unwrap());
    assert_eq!(need("host 10.0.0.1 and src 10.0.0.1"), host("10.0.0.1"));
    assert_eq!(need("host 10.0.0.1 or 10.0.0.2"), KeyCondition::Any(vec![host("10.0.0.1"), host("10.0.0.2")]));
    assert_eq!(need("net 10.0.0.0 mask 255.0.255.0"), KeyCondition::Net("10.0.0.0".parse().unwrap(), 8));
    assert_eq!(need("icmp"), KeyCondition::All(vec![KeyCondition::Protocol(1), KeyCondition::EtherType(0x800)]));
    assert_eq!(
        need("udp portrange 5-7"),
        KeyCondition::All(vec![KeyCondition::Ports(5, 7), KeyCondition::Protocol(17)])
    );
    assert_eq!(need("net ::/0"), KeyCondition::EtherType(0x86dd));
}

#[test]
fn tests_of_both_endpoints_yield_a_flow_condition() {
    let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let flows = |text: &str| match need(text) {
        KeyCondition::All(parts) => {
            parts.into_iter().filter(|p| matches!(p, KeyCondition::Flow(..) | KeyCondition::Any(_))).collect::<Vec<_>>()
        }
        other => panic!("{text}: {other:?}"),
    };
    let straight = KeyCondition::Flow(6, (a, 80), (b, 4000));
    let crossed = KeyCondition::Flow(6, (a, 4000), (b, 80));
    assert_eq!(
        flows("host 10.0.0.1 and port 80 and host 10.0.0.2 and port 4000 and tcp"),
        [KeyCondition::Any(vec![straight.clone(), crossed])]
    );
    assert_eq!(
        flows("src 10.0.0.1 and tcp src port 80 and dst 10.0.0.2 and dst port 4000"),
        std::slice::from_ref(&straight)
    );
    assert_eq!(flows("dst 10.0.0.1 and tcp dst port 80 and src 10.0.0.2 and src port 4000"), [straight]);
    assert_eq!(flows("host 10.0.0.1 and host 10.0.0.2 and icmp"), [KeyCondition::Flow(1, (a, 0), (b, 0))]);
    // If a filter tests only one port or only one host, the other endpoint of the flow is not known completely.
    assert_eq!(flows("host 10.0.0.1 and host 10.0.0.2 and tcp port 80"), []);
    assert_eq!(flows("host 10.0.0.1 and port 80 and tcp port 4000"), []);
}

#[test]
fn headers_that_the_index_does_not_parse_yield_no_condition() {
    for text in ["mpls and host 10.0.0.1", "pppoes and tcp", "geneve and port 80", "proto 44", "ether proto 0x8847"] {
        assert_eq!(need(text), KeyCondition::Anything, "{text}");
    }
    let tagged = KeyCondition::All(vec![KeyCondition::Vlan(Some(5)), KeyCondition::Host("10.0.0.1".parse().unwrap())]);
    assert_eq!(need("vlan 5 and host 10.0.0.1"), tagged);
    assert_eq!(need("anylink vlan 5 and anylink host 10.0.0.1"), tagged);
    // In this filter, `tcp` follows more VLAN tags than the header parser skips.
    let nine = format!("{} and tcp", ["vlan"; 8].join(" and "));
    assert_eq!(need(&nine), KeyCondition::Vlan(None));
}

#[test]
fn packet_bytes_yield_a_condition_on_their_protocol() {
    let v4 = KeyCondition::EtherType(0x800);
    assert_eq!(need("tcp[tcpflags] & tcp-syn != 0"), KeyCondition::All(vec![KeyCondition::Protocol(6), v4.clone()]));
    assert_eq!(need("anylink tcp[13] & 2 != 0"), KeyCondition::Protocol(6));
    assert_eq!(need("ip[8] < 5"), v4);
    assert_eq!(need("ether[0] = 1"), KeyCondition::Anything);
}

#[test]
fn conditions_of_a_thousand_tests_are_complete() {
    let text = (0..1000).map(|i| format!("host 10.0.{}.{}", i / 250, i % 250)).collect::<Vec<_>>().join(" or ");
    let KeyCondition::Any(hosts) = need(&text) else { panic!("the condition is not a disjunction") };
    assert_eq!(hosts.len(), 1000);
    assert!(matches!(need(&text.replace(" or ", " and ")), KeyCondition::All(all) if all.len() == 1000));
}
