//! The filters against tcpdump, packet by packet over real captures, whole and cut short.
//!
//! The captures are joined into one file whose timestamps are packet numbers; tcpdump writes what matches to its standard
//! output, and the timestamps there say which packets it chose.

use crate::common;

use base::Prng;
use common::filters::{Values, agree, cut_some};
use common::{Packet, collect};
use netgrain_lang::tcpdump::Filter;
use wire::build::Frame;
use wire::{IpProtocol, link};

/// Most frames of one capture: many short captures say more than one long one.
const MOST: usize = 300;

const FILTERS: &[&str] = &[
    "len % 7 + 1 = 2",
    "-len % 7 = 0",
    "3 - -len ^ 1 > 5",
    "ip[2:2] % 4 + 1 = 2",
    "tcp[4:4] ^ 1 & 1 = 1",
    "len ^ 7 & 1 = 1",
    "1 | len & 2 = 3",
    "net 10 and 243 / 104 = tcp[13]",
    "",
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "igmp",
    "pim",
    "esp",
    "ah",
    "vrrp",
    "stp",
    "ipx",
    "atalk",
    "aarp",
    "netbeui",
    "iso",
    "clnp",
    "decnet",
    "not ip",
    "port 53",
    "tcp port 80 or 443",
    "udp src port 53",
    "portrange 1-1023",
    "udp dst portrange 5000-60000",
    "port http or https",
    "port (80 or 443 or 53)",
    "not port 53 or 80",
    "tcp port not 80",
    "src port 80 or dst port 80",
    "src or dst port 80",
    "src and dst port 53",
    "host 10.0.0.1",
    "net 10",
    "net 10.0.0.0/8 and not net 10.1",
    "src net 192.168 and dst net 192.168",
    "net 192.168.0.0 mask 255.255.0.0",
    "net 0.0.0.0/0",
    "arp host 192.168.1.1",
    "ip host 192.168.1.1 or 10.0.0.1",
    "net fe80::/10",
    "ip6 net 2000::/3",
    "src net fe80::/10 and dst net ff00::/8",
    "net ::/0",
    "host ff02::1",
    "ip proto 47",
    "ip proto \\tcp",
    "proto 17",
    "ip6 proto 58",
    "ip6 proto 0",
    "ip6 proto 44",
    "ether proto 0x806",
    "ether proto \\ip",
    "ether proto 0x42",
    "ether proto 0x88cc",
    "ether host ff:ff:ff:ff:ff:ff",
    "ether src 00:00:00:00:00:00 or dst ff:ff:ff:ff:ff:ff",
    "ether broadcast",
    "broadcast or multicast",
    "ether multicast and not ether broadcast",
    "ip multicast",
    "ip6 multicast",
    "less 60",
    "greater 1000",
    "len > 100 and len <= 200",
    "len == 60 or len = 66",
    "len != 60",
    "vlan",
    "vlan 10",
    "vlan and ip",
    "vlan 100 and vlan 200",
    "vlan and vlan and ip and tcp",
    "vlan and vlan and vlan",
    "ip or vlan and ip",
    "(vlan and tcp port 80) or udp",
    "not vlan and tcp",
    "mpls",
    "mpls and ip",
    "mpls and mpls and ip and tcp",
    "mpls 100000 and mpls 1024",
    "vlan and mpls and host 10.0.0.1",
    "pppoes",
    "pppoed",
    "pppoes and ip",
    "pppoes and ip6",
    "vlan and vlan and pppoes and ip and tcp",
    "pppoes 1 and udp port 53",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
    "tcp[13] = 2 or tcp[13] == 18",
    "not tcp[13] & 2 != 0",
    "icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply",
    "icmp6[icmp6type] == icmp6-neighborsolicit",
    "ip[0] & 0xf != 5",
    "ip[6:2] & 0x1fff != 0",
    "ip[2:2] > 576",
    "ip6[6] == 0 or ip6[6] == 44",
    "ip[8] < 64 && udp[4:2] > 100",
    "ether[0] & 1 = 0 and ip[16] >= 224",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "ip[((ip[0] & 0xf) << 2) + 13] & 0x3f == 0x10",
    "((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0",
    "ether[len - 1] != 0",
    "ether[100] = 0",
    "not ether[100] = 0",
    "not ether[len] = 0 or arp",
    "udp[8] / udp[9] > 1",
    "udp[8] % 3 == 1",
    "1 << udp[9] > 100",
    "-ip[8] < 10 or ip[8] * 2 > 200",
    "(ip[8] + 1) * 3 > 300",
    "arp[7] == 1",
    "5 < 3 or tcp",
    "len / 2 > 100 and (len & 1) == 0",
    "tcp and not port 80 or udp and (port 53 or port 123)",
    "! ( tcp and ( port 80 or port 443 ) ) and ( ip or ip6 )",
    "tcp && !port 80 || udp",
    "host 10.1",
    "ip broadcast or ip",
    "port http",
    "port ntp or port ssh",
    "port domain",
    "src port nfs or dst port mysql",
    "tcp port ssh or udp port snmp",
    "sctp port sip",
    "portrange ssh-http",
    "portrange ntp-snmp",
    "icmp6[icmp6type] == icmp6-redirect or icmp6[0] = icmp6-multicastlistenerreportv2",
    "ether host ffffffffffff",
    "ether dst ff.ff.ff.ff.ff.ff or ether dst 0100.5e00.00fb",
    "fddi[0] & 1 = 1 and wlan[1] != 0",
    "vlan 100 or vlan and ip",
    "(vlan and ip) or (ip)",
    "not vlan and ip",
    "mpls and tcp port 80",
    "pppoes and mpls",
    "ip[020] > 10 and ip[0x10] < 0377",
    "tcp[-1] = 3 or udp",
    "tcp[13] & 7 != 0",
    "ip6 proto \\tcp or ip proto \\udp",
    "port ssh",
    "portrange domain-ntp",
    "portrange 20-ftp",
    "portrange ftp-80",
    "udp portrange 1-http",
    "tcp src portrange 20-ssh or dst portrange 0x50-https",
    "port https or ntp",
    "udp port domain",
    "net 012.0.0.0/8",
    "host 010.0.0.1 or host 192.168.010.1",
    "host 167772161 or host 0x0a000001",
    "net 012",
    "net 0",
    "net 2560",
    "net 49320",
    "ip[-2:2] = 0x0800",
    "icmp6[-40] & 0xf0 = 0x60",
    "ip[8 - ip[8]] > 3",
    "tcp[ip[8] - 70:2] > 100",
    "ether[ip[8] - 100] = 0",
];

/// Services that the filters name.
const SERVICES: [&str; 8] = ["http", "ntp", "ssh", "domain", "nfs", "mysql", "snmp", "sip"];

/// tcpdump looks names up in a file of the machine. Some of those that differ between machines.
fn names_mean_the_same() -> bool {
    let file = std::fs::read_to_string("/etc/services").unwrap_or_default();
    let has = |name: &str, of: &str| file.lines().any(|l| l.split_whitespace().take(2).eq([name, of]));
    has("http", "80/tcp") && !has("http", "80/udp") && !has("ntp", "123/tcp") && has("domain", "53/udp")
}

/// Frames of protocols and ports that captures do not have together: a name may be that of one protocol alone.
fn odd_ports(packets: &mut Vec<Packet>) {
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    for port in [22, 53, 80, 123, 140, 161, 443, 2049, 3306, 5060] {
        let frames = [
            Frame::tcp4(a, 4000, b, port),
            Frame::udp4(a, port, b, 4000),
            Frame::tcp6([1; 8], port, [2; 8], 4000),
            Frame::ip4(a, b, IpProtocol(132)).payload(&[0; 12]),
        ];
        for frame in frames {
            let mut buffer = [0; 100];
            let mut bytes = frame.write(&mut buffer).unwrap().to_vec();
            if bytes[12..14] == [8, 0] && bytes[23] == 132 {
                bytes[34..36].copy_from_slice(&port.to_be_bytes());
            }
            packets.push(Packet { wire_len: bytes.len() as u32, bytes });
        }
    }
}

#[test]
fn the_filters_choose_what_tcpdump_chooses() {
    let name = "the_filters_choose_what_tcpdump_chooses";
    let Some(traces) = testkit::traces(name) else { return };
    if testkit::tool(name, "tcpdump").is_none() {
        return;
    }
    let mut packets = collect(&traces, MOST);
    assert!(packets.len() > 1000, "only {} packets in {}", packets.len(), traces.display());
    let seed = testkit::seed(name);
    let mut prng = Prng::new(seed);
    odd_ports(&mut packets);
    let values = Values::of(&packets, link::ETHERNET);
    let names_differ = !names_mean_the_same();
    if names_differ {
        testkit::skip(name, "filters with names of services: /etc/services gives them other protocols here");
    }
    let named = |f: &&&str| names_differ && SERVICES.iter().any(|s| f.contains(s));
    let random: Vec<_> = (0..400).map(|_| (values.filter(&mut prng, 3), false)).collect();
    let fixed = |optimised| FILTERS.iter().filter(|f| !named(f)).map(move |f| ((*f).to_owned(), optimised));
    // What they refuse and we read is less well formed than they like; what we refuse is told in words.
    let differs = |text: &str| match Filter::parse(text) {
        Ok(_) => true,
        Err(e) => text.contains("ip broadcast") && e.to_string().contains("mask"),
    };
    // Of frames that were cut, libpcap's optimiser may not miss what its code without it misses. Only with it are there places before a
    // header, and only with it the words of an address that a network's length leaves out are not missed, by us neither.
    let alike = |f: &String| !["net ", "[-", " - "].iter().any(|part| f.contains(part));
    let whole = agree(seed, &packets, link::ETHERNET, fixed(true), differs);
    cut_some(&mut packets, &mut prng);
    let sums = agree(seed, &packets, link::ETHERNET, fixed(false).filter(|(f, _)| alike(f)).chain(random), differs);
    // The comparison would prove nothing if most filters chose nothing, or were none.
    assert!(whole.telling > 100 && sums.telling > 200 && sums.filters > 450, "{whole:?} {sums:?}");
    eprintln!("{} packets; {sums:?}", packets.len());
}

#[test]
fn random_text_is_refused_and_never_panics() {
    let seed = testkit::seed("random_text_is_refused_and_never_panics");
    let mut prng = Prng::new(seed);
    let words: Vec<&str> = FILTERS.iter().flat_map(|f| f.split_whitespace()).collect();
    let mut read = 0;
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
            read += 1;
            assert_eq!(filter.program().verify(), Ok(()), "{text}");
        }
    }
    assert!(read > 100, "only {read} of them were filters");
    let deep = "(".repeat(100_000);
    assert!(Filter::parse(&deep).is_err() && Filter::parse(&"not ".repeat(100_000)).is_err());
}

#[test]
fn refusals_say_what_to_write_instead() {
    for (text, says) in [
        ("10.0.0.1", "write `host 10.0.0.1`"),
        ("udp port ssh", "it is a service of tcp; write `tcp port ssh`"),
        ("80", "write `port 80`"),
        ("hots 10.0.0.1", "did you mean `host`?"),
        ("host www.example.org", "names of hosts are not looked up"),
        ("net 10.0.0.1/8", "write `net 10.0.0.0/8`"),
        ("ip port 80", "write `ip and port 80`"),
        ("gateway 10.0.0.1", "needs the names of hosts"),
        ("ip6 protochain 6", "in a loop"),
        ("ifindex 3", "choose the port when capturing"),
        ("geneve 16777216", "at most 16777215"),
        ("llc foo", "no kind of 802.2"),
        ("decnet host 64.1", "AREA.NODE"),
        ("decnet net 1.1", "AREA.NODE"),
        ("pppoes and ether host 1:2:3:4:5:6", "no link addresses"),
        ("pppoes and llc", "no header of 802.2"),
        ("portrange 20-nosuchservice", "no range of ports"),
        ("tcp[0:3] = 1", "1, 2 or 4 bytes"),
        ("ip[0] / 0 = 1", "division by 0"),
        ("tcp port", "a value is missing"),
        ("tcp and", "a test is missing"),
        ("mpls and vlan", "no VLAN tag behind an MPLS label"),
        ("port 70000", "up to 65535"),
        ("port nosuchservice", "no service that is known here"),
        ("tcp port ntp", "write `udp port ntp`"),
        ("src port 80 or dst http", "write `port http`"),
        ("tcp[13] & 7", "compare it"),
        ("len", "compare it"),
        ("TCP", "words are written small: `tcp`"),
        ("Host 10.0.0.1", "`host`"),
        ("http", "write `port http`"),
        ("dhcp", "`port bootps or port bootpc`"),
        ("vxlan 5", "`udp port 4789`"),
        ("gre", "`proto gre`"),
        ("tcp6", "`ip6 and tcp`"),
        ("icmp[0] == icmp-echo or icmp-echoreply", "stands for a number"),
        ("tcp, udp", "join tests by `or`"),
        ("host \"a\"", "without quotes"),
    ] {
        let error = Filter::parse(text).expect_err(text).to_string();
        assert!(error.contains(says), "`{text}`: {error}");
    }
}
