//! The filter language: what it refuses and how it says so, its canonical text, its meaning on tagged frames, and that
//! no text makes it panic.

use crate::common;

use base::Prng;
use netgrain_wire::build::{Frame, tunnel};
use netgrain_wire::filter::{FilterCause, MAX_NESTING, MAX_TESTS};
use netgrain_wire::{EtherType, Filter, Headers, IpProtocol, MacAddr, link};

fn matches(filter: &str, frame: Frame<'_>) -> bool {
    let mut buffer = [0; 2000];
    let bytes = frame.write(&mut buffer).unwrap();
    let wire_len = bytes.len() as u32;
    let headers = Headers::of(bytes, wire_len, link::ETHERNET);
    Filter::parse(filter).unwrap_or_else(|e| panic!("{filter}: {e}")).matches(bytes, wire_len, &headers)
}

#[test]
fn errors_say_where_what_and_what_to_write() {
    for (text, message) in [
        ("hots 10.0.0.1", "`hots` at column 1: did you mean `host`?"),
        ("host 10.0.0.1 adn port 80", "`adn` at column 15: did you mean `and`?"),
        ("tcp prot 80", "`prot` at column 5: did you mean `port`?"),
        ("TCP", "`TCP` at column 1: did you mean `tcp`?"),
        (
            "broadcast",
            "`broadcast` at column 1: not a filter word; write host, net, port, portrange, proto, vlan, less, greater, len, ether, or a protocol",
        ),
        ("10.0.0.1", "`10.0.0.1` at column 1: nothing before it says what it is; write `host 10.0.0.1`"),
        ("2001:db8::1", "`2001:db8::1` at column 1: nothing before it says what it is; write `host 2001:db8::1`"),
        ("10.0.0.0/8", "`10.0.0.0/8` at column 1: nothing before it says what it is; write `net 10.0.0.0/8`"),
        ("tcp 80", "`80` at column 5: nothing before it says what it is; write `port 80`"),
        ("udp 80-90", "`80-90` at column 5: nothing before it says what it is; write `portrange 80-90`"),
        ("host", "end of the filter at column 5: expected an address such as 10.0.0.1"),
        ("port 80 and", "end of the filter at column 12: expected a test such as `host 10.0.0.1`"),
        ("port )", "`)` at column 6: expected a port such as 80"),
        ("(port 80", "end of the filter at column 9: expected `)`, `and` or `or`"),
        ("port 80)", "`)` at column 8: expected `and`, `or`, or the end of the filter"),
        ("and port 80", "`and` at column 1: expected a test such as `host 10.0.0.1`"),
        ("host 10.0.0.1 port 80", "`port` at column 15: expected `and`, `or`, or the end of the filter"),
        ("port 80 & udp", "`&` at column 9: expected `and` (or `&&`)"),
        ("port 80 | udp", "`|` at column 9: expected `or` (or `||`)"),
        ("port 80;", "`;` at column 8: expected words, numbers, addresses and parentheses only"),
        ("größe 5", "`ö` at column 3: expected words, numbers, addresses and parentheses only"),
        (
            "tcp[13] & 2 != 0",
            "`[` at column 4: bytes of a header cannot be tested; write what they mean (host, port, proto, len)",
        ),
        (
            "host www.example.org",
            "`www.example.org` at column 6: not an address; write it as numbers, such as `host 10.0.0.1` or `host 2001:db8::1` (names are not looked up)",
        ),
        ("host 10.0.0.0/8", "`10.0.0.0/8` at column 6: not a single address; write `net 10.0.0.0/8`"),
        ("host 80", "`80` at column 6: not an address; write `port 80` if it is a port"),
        ("host 1:2:3:4:5:6", "`1:2:3:4:5:6` at column 6: not an IP address; write `ether host 1:2:3:4:5:6`"),
        (
            "ether host 10.0.0.1",
            "`10.0.0.1` at column 12: not a link address; write six bytes such as `ether host 00:1b:21:0a:0b:0c`",
        ),
        ("net 10.1.2.3/8", "`10.1.2.3/8` at column 5: has bits set beyond its prefix; write `net 10.0.0.0/8`"),
        (
            "net 2001:db8::1/32",
            "`2001:db8::1/32` at column 5: has bits set beyond its prefix; write `net 2001:db8::/32`",
        ),
        ("net 10.0.0.0/33", "`10.0.0.0/33` at column 5: not a network; write `net 10.0.0.0/8` or `net 2001:db8::/32`"),
        ("net 10 mask 300", "`300` at column 13: not a mask; write `mask 255.255.0.0`"),
        ("net 10/8 mask 255.0.0.0", "`255.0.0.0` at column 15: expected either `/` or `mask`, not both"),
        ("port 80-90", "`80-90` at column 6: not one port; write `portrange 80-90`"),
        ("port 65536", "`65536` at column 6: not a port; write a number from 0 to 65535, or a name such as `http`"),
        ("portrange 90-80", "`90-80` at column 11: not a range upwards; write `portrange 80-90`"),
        (
            "proto 256",
            "`256` at column 7: not an IP protocol; write a number from 0 to 255, or tcp, udp, sctp, icmp, icmp6, igmp, gre, esp, ah",
        ),
        ("vlan 4096", "`4096` at column 6: not a VLAN id; write `vlan 100`, at most 4095"),
        ("vlan 5 or 6", "`6` at column 11: nothing before it says what it is; write `port 6`"),
        ("less", "end of the filter at column 5: expected a length in bytes"),
        ("len 64", "`64` at column 5: expected a comparison such as `len <= 64`"),
        ("tcp host 10.0.0.1", "`tcp` at column 1: does not go with `host`; write `tcp and host 10.0.0.1`"),
        ("ip port 80", "`ip` at column 1: does not go with `port`; write `ip and port 80`"),
        ("ether net 10", "`ether` at column 1: does not go with `net`; write `net 10.0.0.0/8`"),
        ("tcp src 80", "`tcp` at column 1: does not go with `src` or `dst` without `port`; write `tcp src port 80`"),
        ("src proto 6", "`src` at column 1: does not go with `proto`; write `proto 6`"),
        ("ip6 host 10.0.0.1", "`10.0.0.1` at column 10: does not go with `ip6`; write `ip host 10.0.0.1`"),
        ("arp src net fe80::/10", "`fe80::/10` at column 13: does not go with `arp`; write `ip6 src net fe80::/10`"),
        ("mask 255.0.0.0", "`mask` at column 1: expected `mask` only after `net` and an address"),
    ] {
        assert_eq!(Filter::parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn limits_are_errors_and_not_crashes() {
    let cause = |text: &str| Filter::parse(text).unwrap_err().cause;
    assert_eq!(cause(&"(".repeat(100_000)), FilterCause::TooDeep);
    assert_eq!(cause(&"not ".repeat(100_000)), FilterCause::TooDeep);
    assert_eq!(cause(&vec!["port 1"; MAX_TESTS + 1].join(" or ")), FilterCause::TooManyTests);
    let most = vec!["port 1 and udp"; MAX_TESTS / 2].join(" or ");
    assert!(!matches(&most, Frame::udp4(1, 3, 2, 2)));
    assert!(matches(
        &format!("{}port 1{}", "not (".repeat(MAX_NESTING / 2), ")".repeat(MAX_NESTING / 2)),
        Frame::udp4(1, 1, 2, 2)
    ));
}

#[test]
fn short_forms_are_written_out_in_the_canonical_text() {
    for (text, canonical) in [
        ("", ""),
        ("  \t\n", ""),
        ("port 80 or 443", "port 80 or port 443"),
        ("tcp dst port (80 or 443)", "tcp dst port 80 or tcp dst port 443"),
        ("src host 10.0.0.1 or 10.0.0.2 and port 53", "(src host 10.0.0.1 or src host 10.0.0.2) and port 53"),
        ("udp or tcp and port 53", "(udp or tcp) and port 53"),
        ("udp or (tcp and port 53)", "udp or (tcp and port 53)"),
        ("not udp and tcp", "not udp and tcp"),
        ("!(udp||tcp)", "not (udp or tcp)"),
        ("not host 10.0.0.1 and 10.0.0.2", "not host 10.0.0.1 and host 10.0.0.2"),
        ("port not 80", "not port 80"),
        ("host 10.0.0.1 and not 10.0.0.2", "host 10.0.0.1 and not host 10.0.0.2"),
        (
            "host 10.0.0.1 and (port 80 or 443) or 10.0.0.2",
            "(host 10.0.0.1 and (port 80 or port 443)) or host 10.0.0.2",
        ),
        ("src 10.0.0.1", "src host 10.0.0.1"),
        ("src or dst port 80", "port 80"),
        ("dst and src net 10", "src and dst net 10.0.0.0/8"),
        ("net 192.168", "net 192.168.0.0/16"),
        ("net 10.0.0.1", "host 10.0.0.1"),
        ("net 10.0.1.0 mask 255.0.255.0", "net 10.0.1.0 mask 255.0.255.0"),
        ("net ::/0", "net ::/0"),
        ("ip6 host 2001:DB8:0::1", "host 2001:db8::1"),
        ("portrange ftp-data-http", "portrange 20-80"),
        ("portrange 53", "port 53"),
        ("port https", "port 443"),
        ("proto \\tcp", "tcp"),
        ("ip proto icmp", "icmp"),
        ("ip proto tcp", "ip proto 6"),
        ("ether proto \\arp", "arp"),
        ("ether proto 0x88cc", "ether proto 0x88cc"),
        ("ether src 0:1b:21:a:b:c", "ether src host 00:1b:21:0a:0b:0c"),
        ("vlan 5 && vlan", "vlan 5 and vlan"),
        ("len <= 64 or len >= 0x100 or len=9", "less 64 or greater 256 or len = 9"),
    ] {
        let filter = Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(filter.to_string(), canonical, "{text}");
        assert_eq!(Filter::parse(canonical).unwrap(), filter, "{text}");
        assert_eq!(filter.is_empty(), canonical.is_empty());
    }
}

#[test]
fn tags_and_labels_hide_nothing() {
    let plain = Frame::udp4([10, 0, 0, 1], 1000, [10, 0, 0, 2], 53);
    let tagged = plain.tag(EtherType::QINQ, 100).tag(EtherType::VLAN, 200);
    let labelled = plain.label(77);
    for frame in [plain, tagged, labelled] {
        for text in ["ip", "udp", "port 53", "host 10.0.0.1", "src net 10 and dst port 53", "not ip6 and not arp", ""] {
            assert!(matches(text, frame), "{text}");
        }
    }
    for text in ["vlan", "vlan 100", "vlan 200", "vlan 100 and vlan 200 and port 53", "port 53 and vlan 100"] {
        assert!(matches(text, tagged), "{text}");
        assert!(!matches(text, plain), "{text}");
    }
    assert!(!matches("vlan 53 or vlan 0 or vlan 300", tagged));
    assert!(matches("vlan 0", plain.tag(EtherType::VLAN, 0xe000)), "a priority tag is a tag of VLAN 0");
}

#[test]
fn sessions_pseudowires_and_lengths_hide_nothing() {
    let mut room = [0; 200];
    let mut built = |frame: Frame<'_>| frame.write(&mut room).unwrap().to_vec();
    let plain = Frame::udp4([10, 0, 0, 1], 1000, [10, 0, 0, 2], 53);
    let (whole, packet) = (built(plain.tag(EtherType::VLAN, 200)), built(plain.raw()));
    let session = [&tunnel::pppoe(1, 0x21, packet.len())[..], &packet].concat();
    let (wire, controlled) =
        ([&[0, 0, 0x11, 64], &whole[..]].concat(), [&[0, 0, 0x11, 64, 0, 0, 0, 0], &whole[..]].concat());
    let snap = [&tunnel::snap(EtherType::IPV4)[..], &packet].concat();
    for (what, ethertype, payload) in [
        ("PPPoE", EtherType::PPPOE, &session),
        ("a pseudowire", EtherType::MPLS, &wire),
        ("a pseudowire with a control word", EtherType::MPLS, &controlled),
        ("SNAP", EtherType(snap.len() as u16), &snap),
    ] {
        let frame = Frame::ethernet(ethertype).payload(payload);
        for outer in [frame, frame.tag(EtherType::QINQ, 100)] {
            for text in ["ip", "udp", "port 53", "src host 10.0.0.1 and dst port 53", "not ip6 and not arp"] {
                assert!(matches(text, outer), "{text} in {what}");
            }
        }
        assert!(matches("vlan 100", frame.tag(EtherType::QINQ, 100)) && !matches("vlan 100", frame), "{what}");
        let tagged = ethertype == EtherType::MPLS;
        assert_eq!(matches("vlan 200", frame), tagged, "{what}");
        assert_eq!(matches("vlan 200 and vlan 100", frame.tag(EtherType::QINQ, 100)), tagged, "{what}");
    }
    let control = [&tunnel::pppoe(1, 0xc021, 4)[..], &[1, 1, 0, 4]].concat();
    assert!(matches("ether proto 0x8864 and not ip", Frame::ethernet(EtherType::PPPOE).payload(&control)));
}

#[test]
fn extension_headers_hide_nothing() {
    let chain: [(IpProtocol, &[u8]); 2] = [(IpProtocol::HOP_BY_HOP, &[0; 6]), (IpProtocol::DEST_OPTIONS, &[0; 14])];
    let frame = Frame::tcp6([1; 8], 1000, [2; 8], 80).extensions(&chain);
    assert!(matches("ip6 and tcp dst port 80 and ip6 proto 6", frame));
    assert!(!matches("udp or icmp6 or ip or port 81", frame));
}

#[test]
fn ports_are_asked_of_the_first_fragment_only() {
    let udp = [0, 53, 0, 53, 0, 100, 0, 0];
    let part = |offset, more| Frame::ip4(1, 2, IpProtocol::UDP).fragment(1, offset, more).payload(&udp);
    assert!(matches("udp port 53", part(0, true)));
    assert!(!matches("udp port 53", part(8, false)));
    assert!(matches("udp and not port 53", part(8, false)));
}

#[test]
fn lengths_are_those_on_the_wire_also_where_the_capture_cut() {
    let mut buffer = [0; 1000];
    let bytes = Frame::udp4(1, 1, 2, 2).fill(&mut buffer);
    let headers = Headers::of(&bytes[..96], 1000, link::ETHERNET);
    let is = |text: &str| Filter::parse(text).unwrap().matches(&bytes[..96], 1000, &headers);
    assert!(is("greater 1000") && is("less 1000") && is("len = 1000") && is("len >= 1000"));
    assert!(!is("less 999") && !is("greater 1001") && !is("len < 1000") && !is("len != 1000"));
}

#[test]
fn link_addresses_and_arp() {
    let (a, b) = (MacAddr([2, 0, 0, 0, 0, 0xa]), MacAddr([2, 0, 0, 0, 0, 0xb]));
    let mut message = [0; 28];
    message[14..18].copy_from_slice(&[10, 0, 0, 1]);
    message[24..].copy_from_slice(&[10, 0, 0, 2]);
    let arp = Frame::ethernet(EtherType::ARP).macs(a, b).payload(&message);
    for text in [
        "arp",
        "host 10.0.0.1",
        "arp src host 10.0.0.1",
        "dst 10.0.0.2",
        "ether src 02:00:00:00:00:0a",
        "ether dst host 2:0:0:0:0:b",
        "ether host 02:00:00:00:00:0b",
    ] {
        assert!(matches(text, arp), "{text}");
    }
    for text in ["ip host 10.0.0.1", "src host 10.0.0.2", "ether dst 02:00:00:00:00:0a", "port 0", "net ::/0"] {
        assert!(!matches(text, arp), "{text}");
    }
}

const PIECES: [&str; 46] = [
    "host",
    "net",
    "port",
    "portrange",
    "proto",
    "ether",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "src",
    "dst",
    "vlan",
    "less",
    "greater",
    "len",
    "mask",
    "and",
    "or",
    "not",
    "&&",
    "||",
    "!",
    "(",
    ")",
    "<",
    "<=",
    "==",
    "10.0.0.1",
    "10",
    "10.0.0.0/8",
    "2001:db8::/32",
    "::1",
    "80",
    "80-90",
    "255.0.0.0",
    "2:0:0:0:0:1",
    "0x",
    "hots",
    "[",
    "ü",
    "-",
];

#[test]
fn random_words_never_panic_and_what_parses_has_a_canonical_text() {
    let seed = testkit::seed("random_words_never_panic_and_what_parses_has_a_canonical_text");
    let mut prng = Prng::new(seed);
    let mut parsed = 0;
    for round in 0..common::rounds(100_000) {
        let text: Vec<&str> = (0..prng.below(12)).map(|_| PIECES[prng.below(PIECES.len() as u64) as usize]).collect();
        let text = text.join(["", " "][usize::from(prng.below(8) > 0)]);
        match Filter::parse(&text) {
            Ok(filter) => {
                parsed += usize::from(!filter.is_empty());
                let canonical = filter.to_string();
                let again = Filter::parse(&canonical)
                    .unwrap_or_else(|e| panic!("seed {seed}, round {round}: {canonical}: {e}"));
                assert_eq!(again, filter, "seed {seed}, round {round}: {text}");
                assert_eq!(again.to_string(), canonical, "seed {seed}, round {round}: {text}");
            }
            Err(e) => {
                assert!((1..=text.chars().count() + 1).contains(&e.column), "seed {seed}, round {round}: {text}: {e}");
                assert!(
                    text.contains(&e.found) && !e.to_string().is_empty(),
                    "seed {seed}, round {round}: {text}: {e}"
                );
            }
        }
    }
    assert!(parsed > 500, "only {parsed} texts were filters");
}

#[test]
fn random_bytes_as_text_never_panic() {
    let seed = testkit::seed("random_bytes_as_text_never_panic");
    let mut prng = Prng::new(seed);
    for _ in 0..common::rounds(20_000) {
        let mut bytes = vec![0; prng.below(60) as usize];
        prng.fill(&mut bytes);
        _ = Filter::parse(&String::from_utf8_lossy(&bytes));
        bytes.iter_mut().for_each(|b| *b = 32 + *b % 95);
        _ = Filter::parse(&String::from_utf8_lossy(&bytes));
    }
}

/// The meaning of a random tree, beside the text that says it.
fn random_tree(prng: &mut Prng, depth: usize, truth: &[bool; 4]) -> (String, bool) {
    let leaves = ["udp", "tcp", "port 53", "less 64"];
    match prng.below(if depth == 0 { 1 } else { 4 }) {
        0 => {
            let i = prng.below(4) as usize;
            (leaves[i].to_owned(), truth[i])
        }
        1 => {
            let (text, value) = random_tree(prng, depth - 1, truth);
            (format!("not ({text})"), !value)
        }
        n => {
            let (a, x) = random_tree(prng, depth - 1, truth);
            let (b, y) = random_tree(prng, depth - 1, truth);
            if n == 2 { (format!("({a}) and ({b})"), x && y) } else { (format!("({a}) or ({b})"), x || y) }
        }
    }
}

#[test]
fn compiled_jumps_mean_what_the_tree_means() {
    let seed = testkit::seed("compiled_jumps_mean_what_the_tree_means");
    let mut prng = Prng::new(seed);
    for round in 0..common::rounds(20_000) {
        let (udp, dns, short) = (prng.below(2) == 0, prng.below(2) == 0, prng.below(2) == 0);
        let port = if dns { 53 } else { 54 };
        let payload = vec![0; if short { 0 } else { 100 }];
        let frame = if udp { Frame::udp4(1, 9, 2, port) } else { Frame::tcp4(1, 9, 2, port) };
        let (text, expected) = random_tree(&mut prng, 5, &[udp, !udp, dns, short]);
        assert_eq!(matches(&text, frame.payload(&payload)), expected, "seed {seed}, round {round}: {text}");
    }
}

#[test]
fn any_filter_survives_any_frame_and_any_headers() {
    let seed = testkit::seed("any_filter_survives_any_frame_and_any_headers");
    let mut prng = Prng::new(seed);
    let filters: Vec<Filter> = [
        "host 10.0.0.1 or net 10 or arp host 1.2.3.4",
        "net ::/0 or host ::1",
        "port 1 or src port 2 or tcp portrange 1-1000",
        "vlan 5 or vlan 4095 or ether host 2:0:0:0:0:1",
        "ip proto 1 or ip6 proto 2 or icmp6 or ether proto 0x900 or len < 9",
    ]
    .map(|t| Filter::parse(t).unwrap())
    .into();
    let mut headers = Headers::default();
    for _ in 0..common::rounds(50_000) {
        let mut made = common::frame(&mut prng);
        common::damage(&mut prng, &mut made.bytes);
        made.bytes.truncate(prng.below(made.bytes.len() as u64 + 1) as usize);
        // Every other time the headers are those of the frame before.
        if prng.below(2) == 0 {
            headers = Headers::of(&made.bytes, prng.next_u64() as u32, made.link_type);
        }
        for filter in &filters {
            filter.matches(&made.bytes, prng.next_u64() as u32, &headers);
        }
        netgrain_wire::FlowHasher::new(1).hash(&made.bytes, &headers);
        netgrain_wire::FlowKey::of(&made.bytes, &headers);
    }
}
