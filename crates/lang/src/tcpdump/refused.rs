//! Words that are no part of the filters here: why, and what was probably meant.

/// Words of pcap-filter(7) that are not done, and why.
pub fn refused(word: &str) -> Option<&'static str> {
    Some(match word {
        "gateway" => {
            "it needs the names of hosts and their link addresses; write `ether host MAC and not host ADDRESS`"
        }
        "protochain" => {
            "it walks headers in a loop; write `ip6[6]` and the offsets you mean, or `is_tcp` of the language"
        }
        "geneve" => "its length varies; the language looks through tunnels with `shift`",
        "inbound" | "outbound" => "the frame does not say which way it went; capture with the direction you want",
        "ifindex" => "the frame does not say which port it came from; choose the port when capturing",
        "wlan" | "fddi" | "tr" | "type" | "subtype" | "dir" | "addr1" | "addr2" | "addr3" | "addr4" | "ra" | "ta" => {
            "it is about another link layer than Ethernet"
        }
        "lane" | "metac" | "bcc" | "oam" | "oamf4" | "oamf4ec" | "oamf4sc" | "sc" | "ilmic" | "connectmsg"
        | "metaconnect" | "vpi" | "vci" | "sio" | "opc" | "dpc" | "sls" | "fisu" | "lssu" | "lsu" | "msu" | "hopc"
        | "hdpc" | "hsio" | "hsls" | "hfisu" | "hlssu" | "hmsu" => "it is about ATM or SS7, not Ethernet",
        "ifname" | "on" | "rnr" | "rulenum" | "reason" | "rset" | "ruleset" | "srnr" | "subrulenum" | "action" => {
            "it is about the log of a firewall, not about frames"
        }
        "llc" => "write `ether[12:2] <= 1500` and the bytes behind it",
        "radio" | "l1" | "l2" | "iih" | "lsp" | "snp" | "csnp" | "psnp" => "write it as `isis` and the bytes you mean",
        "byte" => "write `ether[n]`",
        _ => return None,
    })
}

pub fn suggestion(word: &str) -> String {
    const WORDS: [&str; 22] = [
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
    ];
    match crate::syntax::nearest(word, WORDS) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "it begins no test; write one such as `tcp`, `host 10.0.0.1` or `port 80`".to_owned(),
    }
}
