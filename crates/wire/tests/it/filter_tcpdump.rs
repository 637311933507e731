//! The filter against tcpdump, packet by packet over real captures.
//!
//! The captures are joined into one file whose timestamps are packet numbers; tcpdump writes what matches to its standard
//! output, and the timestamps there say which packets it chose. Left out are the frames on which we differ on purpose
//! (tags, labels, IPv6 extension headers) and those whose headers contradict themselves.

use netgrain_wire::{EtherType, Family, Filter, Fragment, Headers, IpProtocol, Ipv6, link};
use std::path::Path;
use std::process::Command;

const FILTERS: [&str; 75] = [
    "",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "not ip",
    "tcp or udp",
    "not tcp and not udp",
    "ip and not (tcp or udp or icmp)",
    "port 53",
    "tcp port 80 or 443",
    "tcp port 80 or port 53",
    "udp src port 53",
    "udp dst port 53",
    "src port 80 and dst port 40000",
    "portrange 1-1023",
    "udp portrange 5000-60000",
    "tcp dst portrange 80-443",
    "src portrange 1024-65535",
    "port (80 or 443 or 53)",
    "tcp port not 80",
    "not port 53 or 80",
    "not (port 53 or 80)",
    "src or dst port 80",
    "src and dst port 53",
    "dst or src port 443",
    "port http or https",
    "port domain",
    "host 10.0.0.1",
    "net 10.0.0.0/8",
    "net 10",
    "net 192.168",
    "net 192.168.0.0/16 and not net 192.168.1",
    "net 192.168.0.0 mask 255.255.0.0",
    "net 0.0.0.0/1",
    "net 0.0.0.0/0",
    "src net 10.0.0.0/8 and dst net 10.0.0.0/8",
    "src and dst net 192.168.0.0/16",
    "ip net 10.0.0.0/8",
    "arp net 192.168.0.0/16",
    "ip host 192.168.1.1 or 10.0.0.1",
    "src host 192.168.1.1",
    "dst 192.168.1.1",
    "src 192.168.1.1 or 10.1.1.1",
    "src host 192.168.1.1 and not 192.168.1.2",
    "net fe80::/10",
    "net 2001::/16",
    "ip6 net 2000::/3",
    "host ff02::1",
    "src net fe80::/10 and dst net ff00::/8",
    "ip6 and udp port 53",
    "ip6 and tcp",
    "proto 17",
    "ip proto 6",
    "ip6 proto 58",
    "proto 1 or 17",
    "ip proto 47",
    "ether proto 0x806",
    "ether host ff:ff:ff:ff:ff:ff",
    "ether dst ff:ff:ff:ff:ff:ff and not arp",
    "ether src 00:00:00:00:00:00",
    "less 60",
    "greater 1000",
    "len > 100 and len <= 200",
    "len = 60 or len == 66",
    "len != 60",
    "greater 60 and less 100 and tcp",
    "tcp or udp and port 53",
    "port 53 and udp or tcp",
    "tcp && !port 80 || udp",
    "! ( tcp and ( port 80 or port 443 ) ) and ( ip or ip6 )",
];

#[test]
fn chooses_the_same_packets_as_tcpdump() {
    let name = "chooses_the_same_packets_as_tcpdump";
    let Some(traces) = testkit::traces(name) else { return };
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    let mut packets = Vec::new();
    collect(&traces, &mut packets);
    assert!(packets.len() > 1000, "only {} packets in {}", packets.len(), traces.display());
    let folder = testkit::TempDir::new(name);
    let file = folder.join("joined.pcap");
    std::fs::write(&file, joined(&packets)).unwrap();

    let (mut chosen, mut some_and_not_all) = (0, 0);
    for text in FILTERS.into_iter().map(str::to_owned).chain(hosts_of(&packets)) {
        let filter = Filter::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let ours: Vec<u32> = (0..packets.len() as u32)
            .filter(|i| {
                let p = &packets[*i as usize];
                filter.matches(&p.bytes, p.wire_len, &Headers::of(&p.bytes, p.wire_len, link::ETHERNET))
            })
            .collect();
        let theirs = tcpdump(&file, &text);
        let differs = ours.iter().find(|i| theirs.binary_search(i).is_err()).map(|i| (i, "only we"));
        let differs =
            differs.or_else(|| theirs.iter().find(|i| ours.binary_search(i).is_err()).map(|i| (i, "only tcpdump")));
        if let Some((i, who)) = differs {
            panic!(
                "`{text}`: we {}, tcpdump {}; {who} chose {:02x?}",
                ours.len(),
                theirs.len(),
                packets[*i as usize].bytes
            );
        }
        chosen += ours.len();
        some_and_not_all += usize::from(!ours.is_empty() && ours.len() < packets.len());
    }
    // The comparison would prove nothing if most filters chose nothing.
    assert!(some_and_not_all > FILTERS.len() / 2, "only {some_and_not_all} filters told packets apart");
    eprintln!("{} packets; {some_and_not_all} telling filters; {chosen} choices agree", packets.len());
}

struct Packet {
    bytes: Vec<u8>,
    wire_len: u32,
}

/// Filters on the first addresses and ports that the captures really have.
fn hosts_of(packets: &[Packet]) -> Vec<String> {
    let keys = packets
        .iter()
        .step_by(packets.len() / 12 + 1)
        .filter_map(|p| netgrain_wire::FlowKey::of(&p.bytes, &Headers::of(&p.bytes, p.wire_len, link::ETHERNET)));
    keys.map(|k| format!("host {} and ( src {} or dst port {} )", k.src, k.dst, k.dst_port)).collect()
}

/// The packets of every Ethernet capture in classic pcap below `folder` on which the semantics agree.
fn collect(folder: &Path, packets: &mut Vec<Packet>) {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, packets);
        } else if path.extension().is_some_and(|e| e == "pcap") {
            read_pcap(&std::fs::read(&path).unwrap(), packets);
        }
    }
}

fn read_pcap(file: &[u8], packets: &mut Vec<Packet>) {
    let Some(head) = file.first_chunk::<24>() else { return };
    let number: fn([u8; 4]) -> u32 = match head[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => u32::from_le_bytes,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => u32::from_be_bytes,
        _ => return,
    };
    let at = |b: &[u8], i: usize| number([b[i], b[i + 1], b[i + 2], b[i + 3]]);
    if at(head, 20) != u32::from(link::ETHERNET) {
        return;
    }
    let mut rest = &file[24..];
    while let Some((record, after)) = rest.split_first_chunk::<16>() {
        let Some((bytes, after)) = after.split_at_checked(at(record, 8) as usize) else { return };
        let wire_len = at(record, 12);
        if wire_len < 65_536 && means_the_same(bytes, wire_len) {
            packets.push(Packet { bytes: bytes.to_vec(), wire_len });
        }
        rest = after;
    }
}

fn means_the_same(bytes: &[u8], wire_len: u32) -> bool {
    let headers = Headers::of(bytes, wire_len, link::ETHERNET);
    let Some(announced) = bytes.get(12..14).map(|b| EtherType(u16::from_be_bytes([b[0], b[1]]))) else { return false };
    if headers.malformed() || announced != headers.ethertype() {
        return false;
    }
    if headers.family() == Family::V6 {
        let next = Ipv6::parse(bytes, 14).unwrap().next_header();
        let plain_fragment = next == IpProtocol::FRAGMENT && headers.fragment() == Fragment::Later;
        return !next.is_extension() || plain_fragment;
    }
    true
}

/// One nanosecond-free pcap file in which packet `i` was captured at second `i`.
fn joined(packets: &[Packet]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, u32::from(link::ETHERNET)] {
        out.extend(word.to_le_bytes());
    }
    for (i, p) in packets.iter().enumerate() {
        for word in [i as u32, 0, p.bytes.len() as u32, p.wire_len] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&p.bytes);
    }
    out
}

/// The numbers of the packets that tcpdump chooses, in order.
fn tcpdump(file: &Path, filter: &str) -> Vec<u32> {
    let output = Command::new("tcpdump").arg("-nr").arg(file).args(["-w", "-", filter]).output().unwrap();
    assert!(output.status.success(), "{filter}: {}", String::from_utf8_lossy(&output.stderr));
    let mut numbers = Vec::new();
    let mut rest = output.stdout.get(24..).unwrap_or_default();
    while let Some((record, after)) = rest.split_first_chunk::<16>() {
        let word = |i: usize| u32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]]);
        numbers.push(word(0));
        rest = &after[word(8) as usize..];
    }
    numbers
}
