//! Defines for each link type the length of the link header, and how this header encodes the protocol of its payload.

use crate::header_offset::HeaderOffset;
use crate::test::Test;
use crate::tree::Cmp;
use wire::link;

pub const IP: u32 = 0x0800;
pub const IP6: u32 = 0x86dd;
pub const ARP: u32 = 0x0806;
pub const RARP: u32 = 0x8035;
pub const MPLS: u32 = 0x8847;
const ATALK: u32 = 0x809b;
const AARP: u32 = 0x80f3;
const IPX: u32 = 0xe0;
const IPX_TYPE: u32 = 0x8137;
const ISO: u32 = 0xfe;
const NETBEUI: u32 = 0xf0;
/// The largest value of the ethertype field that is the length of an 802.3 frame. Greater values are ethertypes.
const LEN_MAX: u32 = 1500;

/// A link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Ethernet,
    /// The frame begins with an IP header; its first four bits contain the IP version.
    Raw,
    Ipv4,
    Ipv6,
    /// The frame begins with an address family number, in the byte order of the capturing host.
    Null,
    /// The frame begins with an address family number, in network byte order.
    Loop,
    Cooked,
    Cooked2,
    /// PPP in a PPPoE session.
    Ppp,
    /// An unsupported link type: filters can test only the length and the bytes of its frames.
    Other,
}

impl Link {
    /// The link layer of a link type, as pcap numbers link types.
    pub const fn of(link_type: u16) -> Self {
        match link_type {
            link::ETHERNET => Self::Ethernet,
            link::RAW_IP => Self::Raw,
            link::RAW_IPV4 => Self::Ipv4,
            link::RAW_IPV6 => Self::Ipv6,
            link::NULL => Self::Null,
            link::LOOP => Self::Loop,
            link::LINUX_SLL => Self::Cooked,
            link::LINUX_SLL2 => Self::Cooked2,
            _ => Self::Other,
        }
    }

    /// Returns two offsets from the start of the link header: that of its protocol field, and that of its payload.
    pub const fn header_offsets(self) -> (u32, u32) {
        match self {
            Self::Ethernet => (12, 14),
            Self::Raw | Self::Ipv4 | Self::Ipv6 | Self::Other => (0, 0),
            Self::Null | Self::Loop => (0, 4),
            Self::Cooked => (14, 16),
            Self::Cooked2 => (0, 20),
            Self::Ppp => (0, 2),
        }
    }

    /// The test that the link header contains this ethertype or this 802.2 service access point. `kind` is the offset
    /// of the protocol field, and `payload` that of the payload.
    pub fn carries(self, ethertype: u32, kind: HeaderOffset, payload: HeaderOffset) -> Result<Test, &'static str> {
        Ok(match self {
            Self::Other => {
                return Err(
                    "frames of this link type are not decoded; only `len`, `less`, `greater` and `link[…]` apply to \
                     them",
                );
            }
            Self::Ethernet => ethernet(ethertype, kind, payload),
            Self::Raw => match ethertype {
                IP => Test::masked(payload, 1, 0xf0, 0x40),
                IP6 => Test::masked(payload, 1, 0xf0, 0x60),
                _ => Test::Always(false),
            },
            Self::Ipv4 => Test::Always(ethertype == IP),
            Self::Ipv6 => Test::Always(ethertype == IP6),
            Self::Null | Self::Loop => family(ethertype, kind, self == Self::Null),
            Self::Cooked => cooked(ethertype, kind, payload),
            Self::Cooked2 => Test::equal(kind, 2, ethertype.into()),
            Self::Ppp => Test::equal(kind, 2, ppp(ethertype).into()),
        })
    }
}

/// The eight bytes of an 802.2 header with SNAP extension, which contain this organisation and this type.
fn snap(payload: HeaderOffset, organisation: u64, ethertype: u32) -> Test {
    Test::equal(payload, 8, 0xaaaa_0300_0000_0000 | organisation << 16 | u64::from(ethertype))
}

const APPLE: u64 = 0x08_0007;

/// The test that the ethertype field contains the length of an 802.3 frame.
pub fn has_length(kind: HeaderOffset) -> Test {
    Test::Field {
        place: crate::test::ByteLocation::At(kind),
        width: 2,
        mask: u64::MAX,
        cmp: Cmp::Le,
        value: LEN_MAX.into(),
    }
}

fn ethernet(ethertype: u32, kind: HeaderOffset, payload: HeaderOffset) -> Test {
    let typed = |t: u32| Test::equal(kind, 2, t.into());
    match ethertype {
        ISO | NETBEUI => has_length(kind).and(Test::equal(payload, 2, u64::from(ethertype) * 0x0101)),
        IPX => {
            let by_length =
                Test::equal(payload, 1, IPX.into()).or(Test::equal(payload, 2, 0xffff)).or(snap(payload, 0, IPX_TYPE));
            typed(IPX_TYPE).or(has_length(kind).and(by_length))
        }
        ATALK => typed(ATALK).or(has_length(kind).and(snap(payload, APPLE, ATALK))),
        AARP => typed(AARP).or(has_length(kind).and(snap(payload, 0, AARP))),
        sap if sap <= LEN_MAX => has_length(kind).and(Test::equal(kind.plus(2), 1, sap.into())),
        t => typed(t),
    }
}

fn cooked(ethertype: u32, kind: HeaderOffset, payload: HeaderOffset) -> Test {
    /// Values of the protocol field in Linux cooked headers: for 802.3 frames without an 802.2 header, and with one.
    const NOVELL: u32 = 1;
    const LLC: u32 = 4;
    let typed = |t: u32| Test::equal(kind, 2, t.into());
    match ethertype {
        ISO | NETBEUI => typed(LLC).and(Test::equal(payload, 2, u64::from(ethertype) * 0x0101)),
        IPX => {
            let by_llc = Test::equal(payload, 1, IPX.into()).or(snap(payload, 0, IPX_TYPE));
            typed(IPX_TYPE).or(typed(NOVELL)).or(typed(LLC).and(by_llc))
        }
        ATALK => typed(ATALK).or(typed(LLC).and(snap(payload, APPLE, ATALK))),
        AARP => typed(AARP).or(typed(LLC).and(snap(payload, 0, AARP))),
        sap if sap <= LEN_MAX => typed(LLC).and(Test::equal(payload, 1, sap.into())),
        t => typed(t),
    }
}

/// Three different numbers of the IPv6 address family are in use: one on NetBSD and OpenBSD, one on FreeBSD, and one on
/// Darwin. In a `NULL` header, the number is in the byte order of the capturing host. A filter cannot determine this
/// byte order from the frame, so the test accepts the numbers in both byte orders.
fn family(ethertype: u32, kind: HeaderOffset, either_order: bool) -> Test {
    let families: &[u32] = match ethertype {
        IP => &[2],
        IP6 => &[30, 24, 28],
        _ => return Test::Always(false),
    };
    let turned = families.iter().filter(|_| either_order).map(|f| f.swap_bytes());
    Test::any(kind, 4, families.iter().copied().chain(turned).map(u64::from))
}

/// The PPP protocol number of an ethertype (RFC 1661 and the RFC of each protocol).
const fn ppp(ethertype: u32) -> u32 {
    match ethertype {
        IP => 0x21,
        IP6 => 0x57,
        0x0600 => 0x25,
        0x6003 => 0x27,
        ATALK => 0x29,
        IPX => 0x2b,
        ISO => 0x23,
        0x42 => 0x31,
        MPLS => 0x281,
        other => other,
    }
}
