//! Decode errors: the reason for each frame that is not decoded to its transport header.
//!
//! A frame has at most one decode error. A contradiction takes precedence over an unsupported header. Of two equally
//! severe errors, the error of the outer header is reported. The caller counts errors per [`DecodeError`] with
//! [`DecodeError::index`].

use std::fmt;

/// The reason why a frame was not decoded to its transport header, or the contradiction found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "DecodeError::description and docs/reference/decoding.md describe each error")]
pub enum DecodeError {
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
    error: DecodeError,
    malformed: bool,
    name: &'static str,
    meaning: &'static str,
}

const fn entry(error: DecodeError, malformed: bool, name: &'static str, meaning: &'static str) -> Entry {
    Entry { error, malformed, name, meaning }
}

const MALFORMED: bool = true;
const UNUSUAL: bool = false;

/// Names and descriptions, in the order of the error numbers.
static TABLE: [Entry; DecodeError::COUNT] = [
    entry(DecodeError::LinkUnknown, UNUSUAL, "link_unknown", "the link type of the capture is not supported"),
    entry(
        DecodeError::LinkShort,
        MALFORMED,
        "link_short",
        "the frame, or the payload of a tunnel, ends inside a link header, tag, label or IP header",
    ),
    entry(DecodeError::TagsTooMany, UNUSUAL, "tags_too_many", "more VLAN tags than the decoder parses (8)"),
    entry(DecodeError::LabelsTooMany, UNUSUAL, "labels_too_many", "more MPLS labels than the decoder parses (16)"),
    entry(
        DecodeError::PppoeHeader,
        MALFORMED,
        "pppoe_header",
        "a PPPoE session header of another version, or longer than its frame",
    ),
    entry(
        DecodeError::IpVersion,
        MALFORMED,
        "ip_version",
        "an IP header of another version than the enclosing header states",
    ),
    entry(DecodeError::IpHeader, MALFORMED, "ip_header", "an IPv4 header with a header length below 20 bytes"),
    entry(
        DecodeError::IpLength,
        MALFORMED,
        "ip_length",
        "an IP packet that is shorter than its header or longer than the enclosing packet",
    ),
    entry(
        DecodeError::ExtensionLength,
        MALFORMED,
        "extension_length",
        "an IPv6 extension header that is longer than its packet",
    ),
    entry(
        DecodeError::ExtensionsTooMany,
        UNUSUAL,
        "extensions_too_many",
        "more IPv6 extension headers than the decoder parses (8)",
    ),
    entry(
        DecodeError::TransportShort,
        MALFORMED,
        "transport_short",
        "an IP packet that is too short for the header of its protocol",
    ),
    entry(
        DecodeError::TransportLength,
        MALFORMED,
        "transport_length",
        "a TCP or UDP header whose length contradicts the length of its packet",
    ),
    entry(DecodeError::Cut, UNUSUAL, "cut", "the captured bytes end within the headers"),
    entry(DecodeError::TunnelHeader, UNUSUAL, "tunnel_header", "a GRE or ERSPAN header of an unsupported kind"),
    entry(DecodeError::TunnelNotIp, UNUSUAL, "tunnel_not_ip", "a tunnel whose payload is not IP"),
    entry(
        DecodeError::TunnelImplausible,
        UNUSUAL,
        "tunnel_implausible",
        "a UDP datagram on a tunnel port that does not begin with a plausible tunnel header",
    ),
    entry(
        DecodeError::TunnelFragment,
        UNUSUAL,
        "tunnel_fragment",
        "a fragment of a tunnel packet, whose payload is not decoded",
    ),
    entry(DecodeError::TunnelsTooMany, UNUSUAL, "tunnels_too_many", "more nested tunnels than the decoder enters (4)"),
    entry(
        DecodeError::FragmentOrphan,
        UNUSUAL,
        "fragment_orphan",
        "a later fragment whose first fragment did not arrive before it, so its ports are unknown",
    ),
];

impl DecodeError {
    /// The number of decode errors.
    pub const COUNT: usize = Self::FragmentOrphan as usize + 1;

    /// All decode errors, in the order of [`DecodeError::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|entry| entry.error)
    }

    /// The index in an array of counters, below [`DecodeError::COUNT`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the error in counters and records.
    pub fn name(self) -> &'static str {
        TABLE[self.index()].name
    }

    /// A short description for people.
    pub fn description(self) -> &'static str {
        TABLE[self.index()].meaning
    }

    /// True if the length in a header is below its minimum or beyond the end of the enclosing packet, or the IP version
    /// is not that which the enclosing header states.
    pub fn is_malformed(self) -> bool {
        TABLE[self.index()].malformed
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mpls, vlan};

    #[test]
    fn the_table_is_sorted_by_number_and_names_are_unique() {
        let mut names: Vec<_> = DecodeError::all().map(DecodeError::name).collect();
        assert!(DecodeError::all().enumerate().all(|(i, error)| error.index() == i));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DecodeError::COUNT);
    }

    #[test]
    fn the_documentation_has_this_table() {
        let page = include_str!("../../../../docs/reference/decoding.md");
        for error in DecodeError::all() {
            let malformed = if error.is_malformed() { "yes" } else { "" };
            let row = format!("| `{error}` | {malformed} | {} |\n", error.description());
            assert!(page.contains(&row), "docs/reference/decoding.md lacks: {row}");
        }
    }

    #[test]
    fn descriptions_state_the_limits_of_the_code() {
        for (error, limit) in [
            (DecodeError::TagsTooMany, vlan::MAX_TAGS),
            (DecodeError::LabelsTooMany, mpls::MAX_LABELS),
            (DecodeError::ExtensionsTooMany, crate::ipv6::MAX_EXTENSIONS),
            (DecodeError::TunnelsTooMany, crate::decode::MAX_TUNNELS.into()),
        ] {
            assert!(error.description().contains(&format!("({limit})")), "{error}");
        }
    }
}
