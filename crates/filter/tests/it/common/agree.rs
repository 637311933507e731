//! Compares the packets that netgrain and tcpdump select with the same filters.

use super::{Packet, joined, tcpdump};
use base::Prng;
use netgrain_filter::{Filter, LinkFilter};
use wire::{Headers, link};

/// Counts of a comparison.
#[derive(Debug, Default)]
pub struct Agreement {
    /// Filters that both accept.
    pub filters: usize,
    /// Number of filters that match some but not all packets.
    pub selective: usize,
    /// The texts of the filters that match no packet or all packets.
    pub unselective: Vec<String>,
    /// Number of filters that both netgrain and tcpdump reject.
    pub refused: usize,
    /// Number of pairs of a filter and a packet that matches it.
    pub matches: usize,
}

/// Compares netgrain with tcpdump: both must accept the same filters and select the same packets. Each filter has a
/// flag: if the flag is true, tcpdump runs the filter with libpcap's optimiser. `differs` returns true for filters of
/// which it is known that only one of the two programs accepts them.
pub fn agree(
    seed: u64,
    packets: &[Packet],
    link_type: u16,
    filters: impl IntoIterator<Item = (String, bool)>,
    differs: impl Fn(&str) -> bool,
) -> Agreement {
    let directory = testkit::TempDir::new(&format!("agree-{link_type}"));
    let file = directory.join("joined.pcap");
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
            // libpcap wrongly rejects a divisor or shift count whose code begins with a load at a constant index of 0
            // or more than 31: it takes the index for the value of the operand (`gen_arth`).
            (Err(e), Ok(_)) if ["by zero", "more than 31 bits"].iter().any(|why| e.contains(why)) => continue,
            (Err(e), Ok(_)) => panic!("seed {seed}, link type {link_type}: only netgrain accepts `{text}`: {e}"),
            (Ok(_), Err(e)) => panic!("seed {seed}, link type {link_type}: only tcpdump accepts `{text}`: {e}"),
        };
        let ours = chosen(&filter, packets, link_type);
        let differs =
            (0..packets.len() as u32).find(|i| ours.binary_search(i).is_ok() != theirs.binary_search(i).is_ok());
        if let Some(i) = differs {
            let program = if ours.binary_search(&i).is_ok() { "netgrain" } else { "tcpdump" };
            panic!(
                "seed {seed}, link type {link_type}: `{text}`: netgrain {} matches, tcpdump {}; only {program} matches \
                 {} of {} bytes: {:02x?}",
                ours.len(),
                theirs.len(),
                packets[i as usize].bytes.len(),
                packets[i as usize].wire_len,
                packets[i as usize].bytes
            );
        }
        sums.filters += 1;
        sums.matches += ours.len();
        match !ours.is_empty() && ours.len() < packets.len() {
            true => sums.selective += 1,
            false => sums.unselective.push(text),
        }
    }
    sums
}

/// Parses the filter; `None` if it is not valid for this link type.
pub fn read(text: &str, link_type: u16) -> Result<Filter, String> {
    LinkFilter::parse(text, link_type).map_err(|e| e.to_string())?;
    Filter::parse(text).map_err(|e| e.to_string())
}

/// The numbers of the packets that the filter matches, in order.
pub fn chosen(filter: &Filter, packets: &[Packet], link_type: u16) -> Vec<u32> {
    let matches = |p: &Packet| filter.matches(&p.bytes, p.wire_len, &Headers::of(&p.bytes, p.wire_len, link_type));
    (0..packets.len() as u32).filter(|i| matches(&packets[*i as usize])).collect()
}

/// Truncates a fifth of the frames, because missing bytes affect the results of filters.
pub fn truncate_some(packets: &mut [Packet], prng: &mut Prng) {
    for p in packets {
        if prng.below(5) == 0 {
            let len = prng.below(p.bytes.len() as u64 + 1) as usize;
            p.bytes.truncate(len.max(1));
        }
    }
}

/// Values that occur in the captures. Random filters contain these values, so that the filters match some packets.
pub struct Values {
    hosts: Vec<String>,
    ports: Vec<u16>,
    /// MAC addresses; empty for link types without them.
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
                        // Tests after `pppoes` read inside the PPPoE session, including `ether[…]` and `link[…]`.
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
                // An expression with a third operand tests the precedence of two operators.
                let more = match prng.below(3) {
                    0 => format!(" {} {}", any(prng, &["+", "-", "*", "&", "|", "^", "%"]), 1 + prng.below(9)),
                    _ => String::new(),
                };
                format!("{a} {op} {b}{more} {} {c}", any(prng, &["<", ">", "<=", ">=", "=", "!="]))
            }
        }
    }
}
