//! Floor 0: what the bytes on the wire mean.
//!
//! * Header views, one protocol per file and every file the same shape: [`Ethernet`], [`VlanTag`], [`mpls`], [`Arp`],
//!   [`Ipv4`], [`Ipv6`], [`Tcp`], [`Udp`], [`Sctp`], [`Icmp`]. `parse` checks the lengths once; afterwards no accessor
//!   panics.
//! * [`Headers`]: the offsets of all of them in one pass without allocation, for the packet path.
//! * [`Decoded`]: the same for the innermost packet, through tunnels, for flow metering; [`Fragments`], by which later
//!   fragments inherit ports; [`Sessions`], what is missing in tunnels that count; [`DecodeError`], what is odd about a frame.
//! * [`FlowKey`] and [`FlowHasher`]: which conversation a frame belongs to, and a keyed hash that is the same for both
//!   directions.
//! * [`community_id`]: the name of a conversation that other programs give it too.
//! * [`build`]: frames with correct lengths and checksums, for tests, the simulator and the generator.
//!
//! Two lengths run through the whole room: that of the slice (what was captured) and the *wire length* (what was
//! sent). A header that does not fit the slice is merely cut; one that does not fit the wire length, or the length that
//! the header around it states, is malformed.
#![forbid(unsafe_code)]

mod arp;
pub mod build;
mod bytes;
mod checksum;
mod community;
mod decode;
mod error;
mod ethernet;
mod flow;
pub mod fragments;
mod headers;
mod icmp;
mod ipv4;
mod ipv6;
pub mod mpls;
mod sctp;
pub mod sessions;
mod sha1;
mod shim;
mod tcp;
mod types;
mod udp;
mod vlan;

pub use arp::Arp;
pub use checksum::{Checksum, checksum, update_checksum};
pub use community::community_id;
pub use decode::{DecodeError, Decoded, FragmentKey, MAX_TUNNELS, TUNNEL_PORTS, Tunnel, TunnelKind, has_sequence};
pub use error::{Layer, ParseError};
pub use ethernet::Ethernet;
pub use flow::{FlowHasher, FlowKey};
pub use fragments::{FragmentCounts, Fragments};
pub use headers::{Family, Fragment, Headers, link};
pub use icmp::Icmp;
pub use ipv4::Ipv4;
pub use ipv6::{Ipv6, UpperLayer};
pub use sctp::Sctp;
pub use sessions::{SessionCounts, Sessions};
pub use tcp::{Tcp, flags as tcp_flags};
pub use types::{EtherType, IpProtocol, MacAddr, ParseMacError, Port};
pub use udp::Udp;
pub use vlan::{MAX_TAGS, VlanTag};
