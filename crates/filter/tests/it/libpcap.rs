//! The filters against tcpdump, packet by packet: over traffic that the tests make, and over real captures, whole and
//! cut short.
//!
//! The packets are joined into one file whose timestamps are packet numbers; tcpdump writes what matches to its
//! standard output, and the timestamps there say which packets it chose.

use crate::common;

use base::Prng;
use common::agree::{Values, agree, cut_some};
use common::{Packet, collect, traffic};
use netgrain_filter::Filter;
use wire::link;

/// Expressions that tcpdump reads, each a line.
pub const CORPUS: &str = include_str!("../corpus.txt");

/// Most frames of one capture: many short captures say more than one long one.
const MOST: usize = 300;

/// Expressions that libpcap's optimiser refuses, because they reject all packets; here they are read and match nothing.
const REJECTING: [&str; 3] = ["1 = 0", "tcp and udp", "tcp or udp and icmp"];

/// Services and protocols that the corpus names, and that tcpdump looks up in files of the machine.
const SERVICES: [&str; 23] = [
    "http",
    "ntp",
    "ssh",
    "domain",
    "nfs",
    "mysql",
    "snmp",
    "sip",
    "syslog",
    "telnet",
    "smtp",
    "ftp",
    "bootp",
    "isakmp",
    "sunrpc",
    "gre",
    "ospf",
    "UDP",
    "TCP",
    r"\tcp",
    r"\udp",
    "ipv6-frag",
    "icmp6",
];

/// tcpdump looks names up in two files of the machine. Some of those that differ between machines.
fn names_mean_the_same() -> bool {
    let file = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (services, protocols) = (file("/etc/services"), file("/etc/protocols"));
    let has = |file: &str, name: &str, of: &str| file.lines().any(|l| l.split_whitespace().take(2).eq([name, of]));
    let is_service = |name, of| has(&services, name, of);
    is_service("http", "80/tcp")
        && !is_service("http", "80/udp")
        && !is_service("ntp", "123/tcp")
        && is_service("domain", "53/udp")
        && has(&protocols, "gre", "47")
}

/// The filters of the corpus that name no service, which mean the same on all machines; or only those that name one.
fn corpus(is_named: bool) -> impl Iterator<Item = String> + Clone {
    let named = |f: &str| SERVICES.iter().any(|s| f.contains(s));
    CORPUS.lines().filter(move |f| named(f) == is_named).map(str::to_owned)
}

/// Of frames that were cut, libpcap's optimiser may not miss what its code without it misses. Only with it are there
/// places before a header, and only with it the words of an address that a network's length leaves out are not missed,
/// by us neither.
fn alike(f: &str) -> bool {
    !["net ", "[-", " - "].iter().any(|part| f.contains(part))
}

fn hold(name: &str, mut packets: Vec<Packet>) {
    let seed = testkit::seed(name);
    let mut prng = Prng::new(seed);
    let values = Values::of(&packets, link::ETHERNET);
    let random: Vec<_> = (0..400).map(|_| (values.filter(&mut prng, 3), false)).collect();
    let differs = |text: &str| REJECTING.contains(&text);
    // Long enough for every byte that is asked for.
    let long = |p: &Packet| {
        let mut bytes = p.bytes.clone();
        bytes.resize(bytes.len().max(128), 0);
        Packet { wire_len: p.wire_len.max(128), bytes }
    };
    let padded: Vec<_> = packets.iter().map(long).collect();
    let whole = agree(seed, &padded, link::ETHERNET, corpus(false).map(|f| (f, true)), differs);
    cut_some(&mut packets, &mut prng);
    let cut = corpus(false).filter(|f| alike(f)).map(|f| (f, false));
    let sums = agree(seed, &packets, link::ETHERNET, cut.chain(random), |_| false);
    eprintln!("{} packets; whole {} filters, {} telling; cut {sums:?}", packets.len(), whole.filters, whole.telling);
    // The comparison would prove nothing if most filters chose nothing, or were none.
    assert!(whole.telling > 400 && sums.telling > 500 && whole.filters > 500, "{whole:?} {sums:?}");
}

#[test]
fn all_of_the_corpus_chooses_what_tcpdump_chooses_of_traffic_that_we_make() {
    let name = "all_of_the_corpus_chooses_what_tcpdump_chooses_of_traffic_that_we_make";
    if testkit::tool(name, "tcpdump").is_some() {
        hold(name, traffic::ethernet());
    }
}

#[test]
fn all_of_the_corpus_chooses_what_tcpdump_chooses_of_real_captures() {
    let name = "all_of_the_corpus_chooses_what_tcpdump_chooses_of_real_captures";
    let Some(traces) = testkit::traces(name) else { return };
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    let mut packets = collect(&traces, MOST);
    assert!(packets.len() > 1000, "only {} packets in {}", packets.len(), traces.display());
    packets.extend(traffic::ethernet());
    hold(name, packets);
}

#[test]
fn services_choose_what_tcpdump_chooses() {
    let name = "services_choose_what_tcpdump_chooses";
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    if !names_mean_the_same() {
        return testkit::skip(name, "the files services and protocols of /etc have other names than Debian's");
    }
    let packets = traffic::ethernet();
    let sums = agree(testkit::seed(name), &packets, link::ETHERNET, corpus(true).map(|f| (f, true)), |_| false);
    assert!(sums.filters > 40 && sums.telling > 20, "{sums:?}");
}

#[test]
fn what_rejects_all_packets_is_read_and_matches_none() {
    let packets = traffic::ethernet();
    for text in ["1 = 0", "tcp and udp", "ip and ip6", "not (len >= 0)"] {
        let filter = Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(common::agree::chosen(&filter, &packets, link::ETHERNET), [0; 0], "{text}");
    }
}

#[test]
fn a_port_in_a_tiny_first_fragment_is_found() {
    use wire::{EtherType, Headers, build::Frame};
    let whole = Frame::tcp4([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 8080).fragment(1, 0, true);
    for (frame, text) in [(whole, "tcp port 8080"), (whole.tag(EtherType::VLAN, 5), "anylink tcp port 8080")] {
        let mut bytes = [0; 100];
        let bytes = frame.write(&mut bytes).expect("room");
        // Eight bytes of TCP, as RFC 791 has it for the least fragment.
        let mut tiny = bytes[..bytes.len() - 12].to_vec();
        let ip = tiny.len() - 28;
        tiny[ip + 3] = 28;
        for padded in [tiny.len(), 60] {
            tiny.resize(padded, 0);
            let headers = Headers::of(&tiny, padded as u32, link::ETHERNET);
            assert!(Filter::parse(text).unwrap().matches(&tiny, padded as u32, &headers), "{text}");
        }
    }
}
