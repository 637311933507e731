//! What is odd about a frame, by name: every frame that is not decoded to its end says why.
//!
//! A frame has at most one of these. What contradicts itself comes before what is merely unusual, and of two alike the
//! outer one is said. The caller counts: one number per [`Odd`], at [`Odd::index`].

use std::fmt;

/// Why a frame was not decoded to its end, or what in it cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "Odd::meaning says each in a sentence, and docs/DECODING.md repeats it")]
pub enum Odd {
    LinkUnknown,
    LinkShort,
    TagsTooMany,
    LabelsTooMany,
    PppoeHeader,
    IpVersion,
    IpHeader,
    IpLength,
    ExtensionLength,
    ExtensionsTooMany,
    TransportShort,
    TransportLength,
    Cut,
    TunnelHeader,
    TunnelNotIp,
    TunnelImplausible,
    TunnelFragment,
    TunnelsTooMany,
    FragmentOrphan,
}

struct Entry {
    odd: Odd,
    malformed: bool,
    name: &'static str,
    meaning: &'static str,
}

const fn entry(odd: Odd, malformed: bool, name: &'static str, meaning: &'static str) -> Entry {
    Entry { odd, malformed, name, meaning }
}

const LIES: bool = true;
const RARE: bool = false;

/// In the order of the numbers.
static TABLE: [Entry; Odd::COUNT] = [
    entry(Odd::LinkUnknown, RARE, "link_unknown", "the link type of the capture is not understood"),
    entry(
        Odd::LinkShort,
        LIES,
        "link_short",
        "the frame, or what a tunnel carries, ends inside a link header, tag, label or IP header",
    ),
    entry(Odd::TagsTooMany, RARE, "tags_too_many", "more VLAN tags than are looked through (8)"),
    entry(Odd::LabelsTooMany, RARE, "labels_too_many", "more MPLS labels than are looked through (16)"),
    entry(
        Odd::PppoeHeader,
        LIES,
        "pppoe_header",
        "a PPPoE session header of another version, or longer than its frame",
    ),
    entry(Odd::IpVersion, LIES, "ip_version", "an IP header of another version than what is around it says"),
    entry(Odd::IpHeader, LIES, "ip_header", "an IPv4 header that says it is shorter than 20 bytes"),
    entry(
        Odd::IpLength,
        LIES,
        "ip_length",
        "an IP packet that is shorter than its header or longer than what is around it",
    ),
    entry(Odd::ExtensionLength, LIES, "extension_length", "an IPv6 extension header that reaches beyond its packet"),
    entry(Odd::ExtensionsTooMany, RARE, "extensions_too_many", "more IPv6 extension headers than are walked (8)"),
    entry(Odd::TransportShort, LIES, "transport_short", "an IP packet without room for the header of its protocol"),
    entry(Odd::TransportLength, LIES, "transport_length", "a TCP or UDP header whose length contradicts its packet"),
    entry(Odd::Cut, RARE, "cut", "the captured bytes end before the headers do"),
    entry(Odd::TunnelHeader, RARE, "tunnel_header", "a GRE or ERSPAN header of a kind that is not looked through"),
    entry(Odd::TunnelNotIp, RARE, "tunnel_not_ip", "a tunnel that carries something else than IP"),
    entry(Odd::TunnelImplausible, RARE, "tunnel_implausible", "UDP on the port of a tunnel that does not look like it"),
    entry(
        Odd::TunnelFragment,
        RARE,
        "tunnel_fragment",
        "a part of a fragmented tunnel packet, which is not looked into",
    ),
    entry(Odd::TunnelsTooMany, RARE, "tunnels_too_many", "more tunnels in each other than are looked into (4)"),
    entry(
        Odd::FragmentOrphan,
        RARE,
        "fragment_orphan",
        "a later fragment whose first was not seen before it: without ports",
    ),
];

impl Odd {
    /// How many there are.
    pub const COUNT: usize = Self::FragmentOrphan as usize + 1;

    /// All of them, in the order of [`Odd::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|entry| entry.odd)
    }

    /// Its place in a list of counters, below [`Odd::COUNT`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name as a counter.
    pub fn name(self) -> &'static str {
        TABLE[self.index()].name
    }

    /// What it says of a frame, in a few words.
    pub fn meaning(self) -> &'static str {
        TABLE[self.index()].meaning
    }

    /// Whether a header contradicts its length or what is around it.
    pub fn is_malformed(self) -> bool {
        TABLE[self.index()].malformed
    }
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mpls, vlan};

    #[test]
    fn the_table_is_in_the_order_of_the_numbers_and_names_are_unique() {
        let mut names: Vec<_> = Odd::all().map(Odd::name).collect();
        assert!(Odd::all().enumerate().all(|(i, odd)| odd.index() == i));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Odd::COUNT);
    }

    #[test]
    fn the_documentation_has_this_table() {
        let page = include_str!("../../../../docs/DECODING.md");
        for odd in Odd::all() {
            let lies = if odd.is_malformed() { "yes" } else { "" };
            let row = format!("| `{odd}` | {lies} | {} |\n", odd.meaning());
            assert!(page.contains(&row), "docs/DECODING.md lacks: {row}");
        }
    }

    #[test]
    fn limits_in_the_meanings_are_those_of_the_code() {
        for (odd, limit) in [
            (Odd::TagsTooMany, vlan::MAX_TAGS),
            (Odd::LabelsTooMany, mpls::MAX_LABELS),
            (Odd::ExtensionsTooMany, crate::ipv6::MAX_EXTENSIONS),
            (Odd::TunnelsTooMany, crate::decode::MAX_TUNNELS.into()),
        ] {
            assert!(odd.meaning().contains(&format!("({limit})")), "{odd}");
        }
    }
}
