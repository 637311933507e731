//! Filters and what they choose, ours and tcpdump's.

use super::{Packet, joined, tcpdump};
use base::Prng;
use netgrain_filter::{Filter, LinkFilter};
use wire::{Headers, link};

/// How often the two agreed.
#[derive(Debug, Default)]
pub struct Agreement {
    /// Filters that both read.
    pub filters: usize,
    /// Those that chose some packets and not all.
    pub telling: usize,
    /// Those that chose none, or all.
    pub silent: Vec<String>,
    /// Those that both refuse.
    pub refused: usize,
    /// Packets chosen.
    pub choices: usize,
}

/// Holds our verdicts on all packets against tcpdump's, filter by filter, and whether a filter is one. With the filter
/// goes whether libpcap may optimise it, and with its text how it is read where that is known to differ: `None` for the
/// same.
pub fn agree(
    seed: u64,
    packets: &[Packet],
    link_type: u16,
    filters: impl IntoIterator<Item = (String, bool)>,
    differs: impl Fn(&str) -> bool,
) -> Agreement {
    let folder = testkit::TempDir::new(&format!("agree-{link_type}"));
    let file = folder.join("joined.pcap");
    std::fs::write(&file, joined(packets, link_type)).unwrap();
    let mut sums = Agreement::default();
    for (text, optimised) in filters {
        let (theirs, ours) = (tcpdump(&file, &text, optimised), read(&text, link_type));
        let (theirs, filter) = match (theirs, ours) {
            (Ok(theirs), Ok(filter)) => (theirs, filter),
            (Err(_), Err(_)) => {
                sums.refused += 1;
                continue;
            }
            _ if differs(&text) => continue,
            // Where a divisor or a shift begins with an index that is 0 or more than 31, libpcap takes that for all of
            // it (`gen_arth` looks at its first instruction).
            (Err(e), Ok(_)) if ["by zero", "more than 31 bits"].iter().any(|why| e.contains(why)) => continue,
            (Err(e), Ok(_)) => panic!("seed {seed}, link type {link_type}: we read `{text}`, tcpdump does not: {e}"),
            (Ok(_), Err(e)) => panic!("seed {seed}, link type {link_type}: tcpdump reads `{text}`, we do not: {e}"),
        };
        let ours = chosen(&filter, packets, link_type);
        let differs =
            (0..packets.len() as u32).find(|i| ours.binary_search(i).is_ok() != theirs.binary_search(i).is_ok());
        if let Some(i) = differs {
            let who = if ours.binary_search(&i).is_ok() { "only we" } else { "only tcpdump" };
            panic!(
                "seed {seed}, link type {link_type}: `{text}`: we {}, tcpdump {}; {who} chose {} of {} bytes: {:02x?}",
                ours.len(),
                theirs.len(),
                packets[i as usize].bytes.len(),
                packets[i as usize].wire_len,
                packets[i as usize].bytes
            );
        }
        sums.filters += 1;
        sums.choices += ours.len();
        match !ours.is_empty() && ours.len() < packets.len() {
            true => sums.telling += 1,
            false => sums.silent.push(text),
        }
    }
    sums
}

/// The filter, if frames of this link can be asked.
pub fn read(text: &str, link_type: u16) -> Result<Filter, String> {
    LinkFilter::parse(text, link_type).map_err(|e| e.to_string())?;
    Filter::parse(text).map_err(|e| e.to_string())
}

/// The numbers of the packets that the filter chooses, in order.
pub fn chosen(filter: &Filter, packets: &[Packet], link_type: u16) -> Vec<u32> {
    let takes = |p: &Packet| filter.matches(&p.bytes, p.wire_len, &Headers::of(&p.bytes, p.wire_len, link_type));
    (0..packets.len() as u32).filter(|i| takes(&packets[*i as usize])).collect()
}

/// Every fifth frame is captured only in part: bytes that are not there have a meaning of their own.
pub fn cut_some(packets: &mut [Packet], prng: &mut Prng) {
    for p in packets {
        if prng.below(5) == 0 {
            let len = prng.below(p.bytes.len() as u64 + 1) as usize;
            p.bytes.truncate(len.max(1));
        }
    }
}

/// Values that occur in the captures, so that filters tell packets apart.
pub struct Values {
    hosts: Vec<String>,
    ports: Vec<u16>,
    /// Link addresses; none where frames have none.
    macs: Vec<String>,
}

impl Values {
    pub fn of(packets: &[Packet], link_type: u16) -> Self {
        let step = packets.len() / 40 + 1;
        let keys: Vec<_> = packets
            .iter()
            .step_by(step)
            .filter_map(|p| {
                let headers = wire::Headers::of(&p.bytes, p.wire_len, link_type);
                wire::FlowKey::of(&p.bytes, &headers)
            })
            .collect();
        let addressed = packets.iter().filter(|_| link_type == link::ETHERNET);
        let macs = addressed.step_by(step).filter_map(|p| p.bytes.get(..6));
        let macs = macs.map(|m| m.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")).collect();
        Self {
            hosts: keys.iter().map(|k| k.src.to_string()).collect(),
            ports: keys.iter().flat_map(|k| [k.src_port.0, k.dst_port.0]).collect(),
            macs,
        }
    }

    pub fn filter(&self, prng: &mut Prng, depth: u32) -> String {
        let any = |prng: &mut Prng, of: &[&str]| of[prng.below(of.len() as u64) as usize].to_owned();
        if depth > 0 && prng.below(3) > 0 {
            let (a, b) = (self.filter(prng, depth - 1), self.filter(prng, depth - 1));
            return match prng.below(5) {
                0 => format!("not ({a})"),
                1 => format!("{a} and not {b}"),
                2 => format!("({a}) or ({b})"),
                3 => format!("{a} or {b}"),
                _ => format!("{a} and {b}"),
            };
        }
        let dir = any(prng, &["", "", "src ", "dst ", "src or dst ", "src and dst "]);
        match prng.below(10) {
            0 => any(prng, &["ip", "ip6", "tcp", "udp", "icmp", "arp", "icmp6", "sctp", "igmp"]),
            1 => format!(
                "{}{dir}port {}",
                any(prng, &["", "tcp ", "udp "]),
                self.ports[prng.below(self.ports.len() as u64) as usize]
            ),
            2 => format!("{dir}portrange {}-{}", prng.below(2000), 1000 + prng.below(60_000)),
            3 | 4 => format!("{dir}host {}", self.hosts[prng.below(self.hosts.len() as u64) as usize]),
            5 => format!("{dir}net {}.0.0.0/{}", prng.below(256) & 0xf0, 4),
            6 if !self.macs.is_empty() => {
                format!("ether {dir}host {}", self.macs[prng.below(self.macs.len() as u64) as usize])
            }
            6 | 7 => any(
                prng,
                match self.macs.as_slice() {
                    [] => &["less 100", "greater 200", "ip multicast", "ether proto 0x88cc", "ip proto 41"],
                    _ => &[
                        "vlan",
                        "mpls",
                        "less 100",
                        "greater 200",
                        "multicast",
                        "ether proto 0x88cc",
                        "ip proto 41",
                        "stp",
                        // What follows looks into the session, `ether[…]` and `link[…]` as well.
                        "pppoes",
                        "vlan and vlan and pppoes",
                    ],
                },
            ),
            _ => {
                let n = |prng: &mut Prng| match prng.below(5) {
                    0 => "len".to_owned(),
                    1 => prng.below(300).to_string(),
                    _ => {
                        let p = any(prng, &["ip", "tcp", "udp", "ether", "link", "ip6", "icmp", "arp"]);
                        format!("{p}[{}:{}]", prng.below(60), [1, 2, 4][prng.below(3) as usize])
                    }
                };
                let (a, b, c) = (n(prng), n(prng), n(prng));
                let op = any(prng, &["+", "-", "*", "&", "|", "^", "/", "%", ">>", "<<"]);
                let b = if matches!(&*op, ">>" | "<<") { prng.below(32).to_string() } else { b };
                // A third operand shows which of two operators is stronger.
                let more = match prng.below(3) {
                    0 => format!(" {} {}", any(prng, &["+", "-", "*", "&", "|", "^", "%"]), 1 + prng.below(9)),
                    _ => String::new(),
                };
                format!("{a} {op} {b}{more} {} {c}", any(prng, &["<", ">", "<=", ">=", "=", "!="]))
            }
        }
    }
}
