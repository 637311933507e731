//! Names and numbers: of ports, protocols, fields and flags; the same on every machine, whatever its files say.

/// A port, and the protocol whose it is if its name is that of one protocol alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Port {
    pub number: u16,
    pub only: Option<u8>,
}

const TCP: Option<u8> = Some(6);
const UDP: Option<u8> = Some(17);

/// Ports that people write by name, and the one protocol that the name stands for (as IANA's registry and `/etc/services` have it).
const PORTS: [(&str, u16, Option<u8>); 39] = [
    ("ftp-data", 20, TCP),
    ("ftp", 21, TCP),
    ("ssh", 22, TCP),
    ("telnet", 23, TCP),
    ("smtp", 25, TCP),
    ("domain", 53, None),
    ("dns", 53, None),
    ("bootps", 67, UDP),
    ("bootpc", 68, UDP),
    ("tftp", 69, UDP),
    ("http", 80, TCP),
    ("kerberos", 88, None),
    ("pop3", 110, TCP),
    ("sunrpc", 111, None),
    ("ntp", 123, UDP),
    ("netbios-ns", 137, UDP),
    ("netbios-dgm", 138, UDP),
    ("netbios-ssn", 139, TCP),
    ("imap", 143, TCP),
    ("imap2", 143, TCP),
    ("snmp", 161, None),
    ("snmp-trap", 162, None),
    ("bgp", 179, TCP),
    ("ldap", 389, None),
    ("https", 443, None),
    ("isakmp", 500, UDP),
    ("syslog", 514, UDP),
    ("rtsp", 554, None),
    ("ldaps", 636, None),
    ("imaps", 993, TCP),
    ("pop3s", 995, TCP),
    ("ms-sql-s", 1433, TCP),
    ("l2tp", 1701, UDP),
    ("radius", 1812, None),
    ("nfs", 2049, None),
    ("mysql", 3306, TCP),
    ("sip", 5060, None),
    ("mdns", 5353, UDP),
    ("postgresql", 5432, TCP),
];

/// Protocols above IP.
const PROTOCOLS: [(&str, u8); 20] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("udp", 17),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("icmp6", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
];

/// Ethertypes, and the service access points of 802.2 below 256.
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

/// Offsets, flags and types that stand for numbers in arithmetic.
const NUMBERS: [(&str, u32); 38] = [
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
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
];

fn of<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|e| e.0 == name).map(|e| e.1)
}

pub fn port(name: &str) -> Option<Port> {
    let named = PORTS.iter().find(|e| e.0 == name).map(|e| Port { number: e.1, only: e.2 });
    named.or_else(|| Some(Port { number: u16::try_from(number(name)?).ok()?, only: None }))
}

pub fn protocol(name: &str) -> Option<u8> {
    of(&PROTOCOLS, name).or_else(|| u8::try_from(number(name)?).ok())
}

pub fn ethertype(name: &str) -> Option<u16> {
    of(&ETHERTYPES, name).or_else(|| u16::try_from(number(name)?).ok())
}

/// A number or a name that stands for one.
pub fn value(name: &str) -> Option<u32> {
    of(&NUMBERS, name).or_else(|| number(name))
}

/// Decimal, `0x…`, or octal with a 0 before it.
pub fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u32::from_str_radix(digits, radix).ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Six bytes, with colons, dashes, or dots between pairs of bytes.
pub fn mac(text: &str) -> Option<[u8; 6]> {
    let mut out = [0; 6];
    if text.contains('.') && !text.contains(':') {
        let words: Option<Vec<u16>> = text.split('.').map(|w| u16::from_str_radix(w, 16).ok()).collect();
        let words: [u16; 3] = words?.try_into().ok()?;
        for (to, from) in out.iter_mut().zip(words.iter().flat_map(|w| w.to_be_bytes())) {
            *to = from;
        }
        return Some(out);
    }
    let sign = if text.contains('-') { '-' } else { ':' };
    let mut parts = text.split(sign);
    for byte in &mut out {
        *byte = parts.next().filter(|p| (1..=2).contains(&p.len())).and_then(|p| u8::from_str_radix(p, 16).ok())?;
    }
    parts.next().is_none().then_some(out)
}
