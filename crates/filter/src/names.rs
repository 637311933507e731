//! Contains the names and numbers of protocols, fields and flags. The names of ports are in [`super::services`]. The
//! names are the same on every host, because no file of the host is read.

/// IP protocol numbers, by those names of the IANA registry that are usual in `/etc/protocols`.
const PROTOCOLS: [(&str, u8); 57] = [
    ("hopopt", 0),
    ("ip", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("skip", 57),
    ("icmp6", 58),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ax.25", 93),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("manet", 138),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
    ("ethernet", 143),
];

/// Names of IP protocols, each of which is a complete primitive without a further word.
const ABOVE: [(&str, u32); 12] = [
    ("tcp", 6),
    ("udp", 17),
    ("sctp", 132),
    ("icmp", 1),
    ("icmp6", 58),
    ("igmp", 2),
    ("igrp", 9),
    ("pim", 103),
    ("ah", 51),
    ("esp", 50),
    ("vrrp", 112),
    ("carp", 112),
];

/// Names of protocols above Ethernet and above the ISO network layer, each of which is a complete primitive without a
/// further word.
const BELOW: [&str; 20] = [
    "ip", "ip6", "arp", "rarp", "atalk", "aarp", "decnet", "lat", "sca", "moprc", "mopdl", "iso", "stp", "ipx",
    "netbeui", "esis", "es-is", "isis", "is-is", "clnp",
];

/// Keywords of filters for the link layer; all have the same meaning.
const LINKS: [&str; 7] = ["ether", "link", "ppp", "slip", "fddi", "tr", "wlan"];

/// The IP protocol number of a protocol name.
pub fn above(name: &str) -> Option<u32> {
    of(&ABOVE, name)
}

/// The protocol name, if the word is a name of a protocol; `ether` for all synonyms of the link layer.
pub fn protocol_word(name: &str) -> Option<&'static str> {
    if LINKS.contains(&name) {
        return Some("ether");
    }
    let above = ABOVE.iter().map(|e| e.0);
    BELOW.into_iter().chain(above).find(|word| *word == name)
}

/// Ethertypes, and 802.2 service access points (below 256).
const ETHERTYPES: [(&str, u16); 19] = [
    ("ip", 0x0800),
    ("arp", 0x0806),
    ("rarp", 0x8035),
    ("ip6", 0x86dd),
    ("pup", 0x0200),
    ("sprite", 0x0500),
    ("trail", 0x1000),
    ("moprc", 0x6002),
    ("mopdl", 0x6001),
    ("decnet", 0x6003),
    ("lat", 0x6004),
    ("sca", 0x6007),
    ("atalk", 0x809b),
    ("aarp", 0x80f3),
    ("loopback", 0x9000),
    ("iso", 0xfe),
    ("stp", 0x42),
    ("ipx", 0xe0),
    ("netbeui", 0xf0),
];

/// Names for offsets, flags and types that arithmetic expressions may contain.
const NUMBERS: [(&str, u32); 57] = [
    ("tcpflags", 13),
    ("tcp-fin", 1),
    ("tcp-syn", 2),
    ("tcp-rst", 4),
    ("tcp-push", 8),
    ("tcp-ack", 16),
    ("tcp-urg", 32),
    ("tcp-ece", 64),
    ("tcp-cwr", 128),
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
    ("icmp6-routerrenum", 138),
    ("icmp6-nodeinformationquery", 139),
    ("icmp6-nodeinformationresponse", 140),
    ("icmp6-ineighbordiscoverysolicit", 141),
    ("icmp6-ineighbordiscoveryadvert", 142),
    ("icmp6-multicastlistenerreportv2", 143),
    ("icmp6-homeagentdiscoveryrequest", 144),
    ("icmp6-homeagentdiscoveryreply", 145),
    ("icmp6-mobileprefixsolicit", 146),
    ("icmp6-mobileprefixadvert", 147),
    ("icmp6-certpathsolicit", 148),
    ("icmp6-certpathadvert", 149),
    ("icmp6-multicastrouteradvert", 151),
    ("icmp6-multicastroutersolicit", 152),
    ("icmp6-multicastroutertermination", 153),
];

fn of<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|e| e.0 == name).map(|e| e.1)
}

/// The IP protocol with this name or number. Numbers above 255 are accepted, although no packet has them.
pub fn protocol(name: &str) -> Option<u32> {
    let lower = || name.to_ascii_lowercase();
    of(&PROTOCOLS, name).or_else(|| of(&PROTOCOLS, &lower())).map(u32::from).or_else(|| number(name))
}

/// The name of an IP protocol that is most similar to an unknown name.
pub fn near_protocol(name: &str) -> Option<&'static str> {
    base::nearest(name, PROTOCOLS.iter().map(|entry| entry.0))
}

/// The ethertype with this name or number. Numbers above 65535 are accepted, although no packet has them.
pub fn ethertype(name: &str) -> Option<u32> {
    of(&ETHERTYPES, name).map(u32::from).or_else(|| number(name))
}

/// Protocols of the ISO network layer.
pub fn iso(name: &str) -> Option<u32> {
    Some(match name {
        "clnp" => 0x81,
        "esis" | "es-is" => 0x82,
        "isis" | "is-is" => 0x83,
        _ => return None,
    })
}

/// Names of 802.2 frame types, each with the mask and the value of the control field.
pub fn llc(name: &str) -> Option<(u64, u64)> {
    Some(match name {
        "i" => (0x01, 0x00),
        "s" => (0x03, 0x01),
        "u" => (0x03, 0x03),
        "rr" => (0x0f, 0x01),
        "rnr" => (0x0f, 0x05),
        "rej" => (0x0f, 0x09),
        "ui" => (0xef, 0x03),
        "ua" => (0xef, 0x63),
        "disc" => (0xef, 0x43),
        "dm" => (0xef, 0x0f),
        "sabme" => (0xef, 0x6f),
        "test" => (0xef, 0xe3),
        "xid" => (0xef, 0xaf),
        "frmr" => (0xef, 0x87),
        _ => return None,
    })
}

/// PDU type numbers of IS-IS, by name: level 1, level 2, hello, link state, and complete and partial sequence numbers.
pub fn isis(name: &str) -> Option<&'static [u8]> {
    Some(match name {
        "l1" => &[26, 24, 18, 15, 17],
        "l2" => &[27, 25, 20, 16, 17],
        "iih" => &[17, 15, 16],
        "lsp" => &[18, 20],
        "snp" => &[27, 26, 24, 25],
        "csnp" => &[24, 25],
        "psnp" => &[26, 27],
        _ => return None,
    })
}

/// Parses a DECnet address: area and node.
pub fn decnet(text: &str) -> Option<(u16, u16)> {
    let (area, node) = text.split_once('.')?;
    let (area, node) = (area.parse().ok()?, node.parse().ok()?);
    (area < 64 && node < 1024).then_some((area, node))
}

/// The value of a number, or of a name that stands for a number.
pub fn value(name: &str) -> Option<u32> {
    of(&NUMBERS, name).or_else(|| number(name))
}

/// Parses a number: decimal, hexadecimal with `0x`, or octal with a leading 0.
pub fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u32::from_str_radix(digits, radix).ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Parses a MAC address: with colons or dashes, with dots between bytes or between pairs of bytes, or as twelve digits.
pub fn mac(text: &str) -> Option<[u8; 6]> {
    let mut out = [0; 6];
    if text.len() == 12 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        for (to, at) in out.iter_mut().zip((0..).step_by(2)) {
            *to = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        return Some(out);
    }
    if text.matches('.').count() == 2 && !text.contains(':') {
        let words: Option<Vec<u16>> = text.split('.').map(|w| u16::from_str_radix(w, 16).ok()).collect();
        let words: [u16; 3] = words?.try_into().ok()?;
        for (to, from) in out.iter_mut().zip(words.iter().flat_map(|w| w.to_be_bytes())) {
            *to = from;
        }
        return Some(out);
    }
    let sign = ['-', '.'].into_iter().find(|sign| text.contains(*sign)).unwrap_or(':');
    let mut parts = text.split(sign);
    for byte in &mut out {
        *byte = parts.next().filter(|p| (1..=2).contains(&p.len())).and_then(|p| u8::from_str_radix(p, 16).ok())?;
    }
    parts.next().is_none().then_some(out)
}
