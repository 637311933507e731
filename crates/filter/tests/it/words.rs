//! Tests that invalid filters are rejected with a correction, and that no text causes a panic.

use crate::common::{Packet, joined, tcpdump};
use crate::libpcap::CORPUS;
use base::Prng;
use netgrain_filter::{Filter, FlowFilter, LinkFilter};
use wire::{Headers, link};

#[test]
fn random_text_never_panics_the_parser() {
    let seed = testkit::seed("random_text_never_panics_the_parser");
    let mut prng = Prng::new(seed);
    let words: Vec<&str> =
        CORPUS.lines().flat_map(|f| f.split_whitespace()).chain(["anylink", "bytes", "flags", "10s"]).collect();
    let mut valid = 0;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..prng.below(12) {
            match prng.below(8) {
                0 => text.push(char::from_u32(prng.below(0x300) as u32).unwrap_or('?')),
                1 => text.push_str(["(", ")", "[", "]", ":", "!", "&", "|", "<", "é"][prng.below(10) as usize]),
                _ => text.push_str(words[prng.below(words.len() as u64) as usize]),
            }
            if prng.below(5) > 0 {
                text.push(' ');
            }
        }
        if let Ok(filter) = Filter::parse(&text) {
            valid += 1;
            filter.matches(&[0; 60], 60, &Headers::of(&[0; 60], 60, link::ETHERNET));
        }
        if let Err(e) = FlowFilter::parse(&text) {
            assert!(format!("{e:#}").contains('^'), "{e:#}");
        }
    }
    assert!(valid > 100, "only {valid} texts were valid filters");
    let deep = "(".repeat(100_000);
    assert!(Filter::parse(&deep).is_err() && Filter::parse(&"not ".repeat(100_000)).is_err());
}

/// Expressions of pcap-filter(7) that netgrain rejects, one per line. Each line contains the expression, then `reads`
/// or `refuses` for the behaviour of tcpdump on Ethernet (or `depends` if that depends on the host names), then a part
/// of netgrain's message. `docs/reference/filters.md` gives the reasons.
const REFUSED: &str = include_str!("../refused.txt");

#[test]
fn rejected_tcpdump_expressions_are_listed_with_the_result_of_tcpdump() {
    let test = "rejected_tcpdump_expressions_are_listed_with_the_result_of_tcpdump";
    let lines = || {
        REFUSED.lines().map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [text, theirs, message] => (text, theirs, message),
            _ => panic!("three parts, separated by tabs: {line}"),
        })
    };
    for (text, _, message) in lines() {
        let refused = Filter::parse(text).expect_err(text).to_string();
        assert!(refused.contains(message), "{text}: {refused}");
    }
    if testkit::tool(test, "tcpdump").is_none() {
        return;
    }
    let directory = testkit::TempDir::new("filters-refused");
    let file = directory.join("one.pcap");
    let packet = Packet { bytes: vec![0; 60], wire_len: 60 };
    std::fs::write(&file, joined(&[packet], link::ETHERNET)).expect("a file");
    for (text, theirs, _) in lines().filter(|(_, theirs, _)| *theirs != "depends") {
        let does = if tcpdump(&file, text, true).is_ok() { "reads" } else { "refuses" };
        assert_eq!(does, theirs, "{text}");
    }
}

#[test]
fn errors_contain_a_correction() {
    for (text, message) in [
        ("10.0.0.1", "write `host 10.0.0.1`"),
        ("udp port ssh", "this service exists only over tcp; write `tcp port ssh`"),
        ("80", "write `port 80`"),
        ("hots 10.0.0.1", "did you mean `host`?"),
        ("host www.example.org", "host names are not resolved"),
        ("net 10.0.0.1/8", "write `net 10.0.0.0/8`"),
        ("ip port 80", "write `ip and port 80`"),
        ("gateway 10.0.0.1", "needs the names of hosts"),
        ("geneve 16777216", "the greatest possible number is 16777215"),
        ("llc foo", "not an 802.2 frame type"),
        ("decnet host 64.1", "AREA.NODE"),
        ("decnet net 1.1", "AREA.NODE"),
        ("pppoes and ether host 1:2:3:4:5:6", "link addresses are not supported"),
        ("pppoes and llc", "802.2 headers are not supported"),
        ("portrange 20-nosuchservice", "not a port range"),
        ("tcp[0:3] = 1", "1, 2 or 4 bytes"),
        ("ip[0] / 0 = 1", "division by 0"),
        ("tcp port", "a value is missing"),
        ("tcp and", "a test is missing"),
        ("mpls and vlan", "no VLAN tag behind an MPLS label"),
        ("port 70000", "a port is a number up to 65535"),
        ("port 80-90", "write `portrange 80-90`"),
        ("src port 80-http", "write `portrange 80-http`"),
        ("port 80-99999", "unknown service"),
        ("portrange 80-99999", "with ports up to 65535"),
        ("port nosuchservice", "unknown service"),
        ("port htpp", "unknown service; did you mean `http`?"),
        ("udp port domian", "did you mean `domain`?"),
        ("proto tpc", "unknown protocol; did you mean `tcp`?"),
        ("tcp adn port 80", "did you mean `and`?"),
        ("tcp ro udp", "did you mean `or`?"),
        ("nto tcp", "did you mean `not`?"),
        ("tcp port ntp", "write `udp port ntp`"),
        ("src port 80 or dst http", "write `port http`"),
        ("tcp[13] & 7", "must be compared with another"),
        ("len", "must be compared with another"),
        ("TCP", "write it in lower case: `tcp`"),
        ("Host 10.0.0.1", "`host`"),
        ("http", "write `port http`"),
        ("dhcp", "`port bootps or port bootpc`"),
        ("vxlan 5", "`udp port 4789`"),
        ("gre", "`proto gre`"),
        ("tcp6", "`ip6 and tcp`"),
        ("icmp[0] == icmp-echo or icmp-echoreply", "stands for a number"),
        ("tcp, udp", "join tests by `or`"),
        ("host \"a\"", "without quotes"),
        ("igpm", "did you mean `igmp`?"),
        ("hosst 10.0.0.1", "did you mean `host`?"),
        ("host 10.0.0.0/8", "write `net 10.0.0.0/8`"),
        ("bytes > 1M", "`netgrain flows`"),
        ("ifindex 3", "select the interface when capturing"),
        ("anylink", "a test is missing"),
        ("anylink mpls 5", "already skips these headers"),
        ("bytes 5", "a comparison is missing"),
        ("bytes > 5x", "not an amount"),
        ("duration > 10", "write `10ms` or `10s`"),
        ("src duration > 10s", "no direction"),
        ("state open", "possible values are `midstream`"),
        ("flags Q", "letters of FSRPAUEC"),
        ("syn-sent", "write `state syn_sent`"),
        ("established", "write `state established`"),
    ] {
        let error = LinkFilter::parse(text, link::ETHERNET).expect_err(text).to_string();
        assert!(error.contains(message), "`{text}`: {error}");
    }
}

#[test]
fn nfdump_notations_are_rejected_with_the_equivalent_filter() {
    for (text, instead) in [
        ("src ip 10.0.0.1", "write `src host 10.0.0.1`"),
        ("dst ip in [10.0.0.1 10.0.0.2]", "write `dst host 10.0.0.1 or dst host 10.0.0.2`"),
        ("ip 10.0.0.1", "write `host 10.0.0.1`"),
        ("tcp and ip6 2001:db8::1", "write `host 2001:db8::1`"),
        ("port in [80 443]", "write `port 80 or port 443`"),
        ("tcp and src port in [80]", "write `src port 80`"),
        ("port > 1024", "write `portrange 1025-65535`"),
        ("tcp src port >= 1024", "write `tcp src portrange 1024-65535`"),
        ("dst port < 1024", "write `dst portrange 0-1023`"),
        ("port <= 1023", "write `portrange 0-1023`"),
        ("port = 80", "write `port 80`"),
        ("port != 80", "write `not port 80`"),
        ("proto = tcp", "write `proto tcp`"),
        ("host == 10.0.0.1", "write `host 10.0.0.1`"),
        ("net 10.0.0.0/255.0.0.0", "write `net 10.0.0.0/8` or `net 10.0.0.0 mask 255.0.0.0`"),
        ("net 10.0.0.0/255.0.255.0", "write `net 10.0.0.0 mask 255.0.255.0`"),
        ("flags .S....", "`flags S`"),
        ("flags S.A...", "`flags SA`"),
        ("duration > 1000", "write `1000ms` or `1000s`"),
        ("bytes > 1m", "write `1M`"),
        ("inet6", "write `ip6`"),
        ("any", "omit the filter"),
    ] {
        let error = FlowFilter::parse(text).expect_err(text).to_string();
        assert!(error.contains(instead), "`{text}`: {error}");
        // The expression that the error suggests must be a valid filter.
        let instead = instead.split('`').nth(1).filter(|_| !instead.contains("ms`") && !instead.ends_with("1M`"));
        instead.map(|filter| FlowFilter::parse(filter).unwrap_or_else(|e| panic!("{filter}: {e}")));
    }
}

#[test]
fn an_error_marks_the_word() {
    let error = Filter::parse("tcp and hots 10.0.0.1").unwrap_err();
    assert_eq!(error.to_string(), "`hots` at column 9: did you mean `host`?");
    assert_eq!(
        format!("{error:#}"),
        "`hots` at column 9: did you mean `host`?\n  tcp and hots 10.0.0.1\n          ^^^^"
    );
    let end = Filter::parse("tcp and").unwrap_err();
    assert!(format!("{end:#}").ends_with("\n  tcp and\n         ^"), "{end:#}");
}
