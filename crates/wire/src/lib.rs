//! Layer 0: decoding of packet headers, and construction of test frames.
//!
//! * Header views, one protocol per file, all files with the same structure: [`Ethernet`], [`VlanTag`], [`mpls`],
//!   [`Arp`], [`Ipv4`], [`Ipv6`], [`Tcp`], [`Udp`], [`Sctp`], [`Icmp`]. `parse` checks the lengths once; afterwards no
//!   accessor panics.
//! * [`Headers`]: the offsets of the outermost headers, found in one pass without allocation, for the capture path.
//! * [`Decoded`]: the offsets of the innermost headers, through tunnels, for flow metering. [`Fragments`] gives later
//!   fragments the ports of their first fragment. [`Sessions`] counts missing sequence numbers of tunnels.
//!   [`DecodeError`] names the reason why a frame was not decoded to its transport header.
//! * [`FlowKey`] and [`FlowHasher`]: the flow that a frame belongs to, and a keyed hash that is the same for both
//!   directions.
//! * [`community_id`]: the flow hash that Zeek, Suricata and Arkime share.
//! * [`build`]: frames with correct lengths and checksums, for tests, the simulator and the generator.
//!
//! All modules of this crate distinguish two lengths. One is the length of the slice (the captured bytes, caplen); the
//! other is the *wire length* (the bytes sent). A header that ends after the slice is truncated by the capture. A
//! header that ends after the wire length, or after the length stated by the enclosing header, is malformed.
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
pub use decode::{DecodeError, Decoded, FragmentKey, MAX_TUNNELS, TUNNEL_PORTS, Tunnel, TunnelKind, numbered_tunnels};
pub use error::{Layer, ParseError};
pub use ethernet::Ethernet;
pub use flow::{FlowHasher, FlowKey};
pub use fragments::{FragmentCounts, Fragments};
pub use headers::{Family, Headers, link};
pub use icmp::Icmp;
pub use ipv4::Ipv4;
pub use ipv6::{Ipv6, UpperLayer};
pub use sctp::Sctp;
pub use sessions::{SessionCounts, Sessions};
pub use tcp::{Tcp, flags as tcp_flags};
pub use types::{EtherType, Fragment, IpProtocol, MacAddr, ParseMacError, Port};
pub use udp::Udp;
pub use vlan::{MAX_TAGS, VlanTag};
