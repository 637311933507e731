//! Words that filters do not support, with the reason and a suggestion for each.

/// The reason why filters do not support this word of pcap-filter(7).
pub fn refused(word: &str) -> Option<&'static str> {
    Some(match word {
        "gateway" => {
            "it needs the names of hosts and their link addresses; write `ether host MAC and not host ADDRESS`"
        }
        "type" | "subtype" | "dir" | "addr1" | "addr2" | "addr3" | "addr4" | "ra" | "ta" => {
            "a primitive of another link layer than Ethernet"
        }
        "lane" | "metac" | "bcc" | "oam" | "oamf4" | "oamf4ec" | "oamf4sc" | "sc" | "ilmic" | "connectmsg"
        | "metaconnect" | "vpi" | "vci" | "sio" | "opc" | "dpc" | "sls" | "fisu" | "lssu" | "lsu" | "msu" | "hopc"
        | "hdpc" | "hsio" | "hsls" | "hfisu" | "hlssu" | "hmsu" => "a primitive of ATM or SS7, not of Ethernet",
        "ifname" | "on" | "rnr" | "rulenum" | "reason" | "rset" | "ruleset" | "srnr" | "subrulenum" | "action" => {
            "a primitive of firewall logs, not of frames"
        }
        "radio" => "a primitive of another link layer than Ethernet",
        _ => return None,
    })
}

/// The most frequent words of filters, which are candidates for suggestions.
const WORDS: [&str; 49] = [
    "host",
    "net",
    "port",
    "portrange",
    "proto",
    "src",
    "dst",
    "ether",
    "vlan",
    "mpls",
    "less",
    "greater",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "sctp",
    "ip",
    "ip6",
    "arp",
    "broadcast",
    "multicast",
    "igmp",
    "rarp",
    "protochain",
    "gateway",
    "pppoes",
    "pppoed",
    "geneve",
    "llc",
    "stp",
    "iso",
    "isis",
    "ipx",
    "pim",
    "vrrp",
    "inbound",
    "outbound",
    "anylink",
    "bytes",
    "packets",
    "duration",
    "flags",
    "state",
    "bps",
    "pps",
    "bpp",
    "rtt",
    "len",
];

/// The known word that is most similar to an unknown word.
pub fn near(word: &str) -> Option<&'static str> {
    base::nearest(word, WORDS).filter(|near| *near != word)
}

/// The text about an unknown name of a service or protocol, with the most similar known name.
pub fn unknown(what: &str, near: Option<&str>, instead: &str) -> String {
    match near {
        Some(near) => format!("unknown {what}; did you mean `{near}`?"),
        None => format!("unknown {what}; write {instead}"),
    }
}

/// A suggestion for a word with which no test begins.
pub fn suggestion(word: &str) -> String {
    let instead = match word {
        "ipv4" | "ip4" | "inet" | "inet4" => "ip",
        "ipv6" | "inet6" => "ip6",
        "tcp6" => "ip6 and tcp",
        "udp6" => "ip6 and udp",
        "tcp4" => "ip and tcp",
        "udp4" => "ip and udp",
        "icmpv6" => "icmp6",
        "dhcp" | "bootp" => "port bootps or port bootpc",
        "vxlan" => "udp port 4789",
        "gtp" => "udp port 2152 or udp port 2123",
        "any" | "all" => return "omit the filter to select everything".to_owned(),
        "gre" | "ospf" | "eigrp" | "l2tp" | "rsvp" | "ipencap" => return format!("write `proto {word}`"),
        _ => "",
    };
    if !instead.is_empty() {
        return format!("write `{instead}`");
    }
    if WORDS.contains(&word.to_ascii_lowercase().as_str()) {
        return format!("write it in lower case: `{}`", word.to_ascii_lowercase());
    }
    if crate::services::find(word).is_some() {
        return format!("it is the name of a port; write `port {word}`");
    }
    if crate::names::value(word).is_some() {
        return format!("it stands for a number; write it after a comparison, as `icmp[icmptype] == {word}`");
    }
    let name = word.replace('-', "_");
    if crate::flow_words::TCP_STATES.contains(&&*name) {
        return format!("it is a TCP state of flow records; write `state {name}`");
    }
    if crate::flow_words::END_REASONS.contains(&&*name) {
        return format!("it is a flow end reason; write `end {name}`");
    }
    match near(word).or_else(|| base::nearest(word, ["not"])) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "no test begins with this word; write a test such as `tcp`, `host 10.0.0.1` or `port 80`".to_owned(),
    }
}
