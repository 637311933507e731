//! Compares filters with tcpdump, packet by packet: on generated traffic and on capture files, with complete and
//! truncated frames.
//!
//! The packets are joined into one capture file in which each timestamp is a packet number. tcpdump writes the matching
//! packets to its standard output, where the timestamps identify the packets.

use crate::common;

use base::Prng;
use common::agree::{Values, agree, truncate_some};
use common::{Packet, collect, traffic};
use netgrain_filter::Filter;
use wire::link;

/// Expressions that tcpdump accepts, one per line.
pub const CORPUS: &str = include_str!("../corpus.txt");

/// Maximum number of frames of one capture file. Many short files cover more cases than one long file.
const MAX_FRAMES: usize = 300;

/// Filters that libpcap's optimiser rejects because they match no packet; netgrain accepts them.
const REJECTING: [&str; 3] = ["1 = 0", "tcp and udp", "tcp or udp and icmp"];

/// Names of services and protocols in the corpus; tcpdump looks these names up in files of the host.
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

/// True if the names in `/etc/services` and `/etc/protocols`, which tcpdump uses, agree with those of netgrain. Only a
/// few names that differ between distributions are tested.
fn host_names_agree() -> bool {
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

/// If `is_named`, the filters of the corpus that contain a service name; otherwise the filters that contain none and
/// hence mean the same on all hosts.
fn corpus(is_named: bool) -> impl Iterator<Item = String> + Clone {
    let named = |f: &str| SERVICES.iter().any(|s| f.contains(s));
    CORPUS.lines().filter(move |f| named(f) == is_named).map(str::to_owned)
}

/// True if the filter has the same results on truncated frames with and without libpcap's optimiser. The results differ
/// for negative offsets, which only the optimiser permits. They also differ for address words that a network's mask
/// excludes: libpcap without the optimiser loads these words, and netgrain does not.
fn is_independent_of_optimiser(f: &str) -> bool {
    !["net ", "[-", " - "].iter().any(|part| f.contains(part))
}

fn compare_with_tcpdump(name: &str, mut packets: Vec<Packet>) {
    let seed = testkit::seed(name);
    let mut prng = Prng::new(seed);
    let values = Values::of(&packets, link::ETHERNET);
    let random: Vec<_> = (0..400).map(|_| (values.filter(&mut prng, 3), false)).collect();
    let differs = |text: &str| REJECTING.contains(&text);
    // Frames are padded to 128 bytes, so that they contain every byte that a filter of the corpus reads.
    let long = |p: &Packet| {
        let mut bytes = p.bytes.clone();
        bytes.resize(bytes.len().max(128), 0);
        Packet { wire_len: p.wire_len.max(128), bytes }
    };
    let padded: Vec<_> = packets.iter().map(long).collect();
    let whole = agree(seed, &padded, link::ETHERNET, corpus(false).map(|f| (f, true)), differs);
    truncate_some(&mut packets, &mut prng);
    let cut = corpus(false).filter(|f| is_independent_of_optimiser(f)).map(|f| (f, false));
    let sums = agree(seed, &packets, link::ETHERNET, cut.chain(random), |_| false);
    eprintln!(
        "{} packets; complete frames: {} filters, {} selective; truncated frames: {sums:?}",
        packets.len(),
        whole.filters,
        whole.selective
    );
    // The comparison detects errors only if enough filters match some packets and do not match others.
    assert!(whole.selective > 400 && sums.selective > 500 && whole.filters > 500, "{whole:?} {sums:?}");
}

#[test]
fn corpus_agrees_with_tcpdump_on_generated_traffic() {
    let name = "corpus_agrees_with_tcpdump_on_generated_traffic";
    if testkit::tool(name, "tcpdump").is_some() {
        compare_with_tcpdump(name, traffic::ethernet());
    }
}

#[test]
fn corpus_agrees_with_tcpdump_on_captures() {
    let name = "corpus_agrees_with_tcpdump_on_captures";
    let Some(traces) = testkit::traces(name) else { return };
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    let mut packets = collect(&traces, MAX_FRAMES);
    assert!(packets.len() > 1000, "only {} packets in {}", packets.len(), traces.display());
    packets.extend(traffic::ethernet());
    compare_with_tcpdump(name, packets);
}

#[test]
fn service_names_agree_with_tcpdump() {
    let name = "service_names_agree_with_tcpdump";
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    if !host_names_agree() {
        return testkit::skip(name, "/etc/services or /etc/protocols has other names than in Debian");
    }
    let packets = traffic::ethernet();
    let sums = agree(testkit::seed(name), &packets, link::ETHERNET, corpus(true).map(|f| (f, true)), |_| false);
    assert!(sums.filters > 40 && sums.selective > 20, "{sums:?}");
}

#[test]
fn filters_that_reject_all_packets_are_valid_and_match_none() {
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
        // The payload is eight bytes of TCP, the smallest fragment payload that RFC 791 permits.
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
