//! The generic netlink family `netdev` (`include/uapi/linux/netdev.h`, kernel 6.3): the XDP features of a driver.
//!
//! A kernel without the family returns `ENOENT`; then the features are unknown, which differs from "no XDP".

use super::message::{Message, attributes, half, long, number};
use super::{Netlink, requested};
use rustix::net::netlink::GENERIC;
use std::io;

/// Bits of [`XdpFeatures::bits`].
pub mod feature {
    /// Native XDP: drop, pass, transmit.
    pub const BASIC: u64 = 1 << 0;
    /// XDP programs of this interface can redirect frames, which AF_XDP needs.
    pub const REDIRECT: u64 = 1 << 1;
    /// XDP programs of other interfaces can redirect frames to this interface. On a veth interface, this bit is set
    /// while the peer interface accepts such frames.
    pub const NDO_XMIT: u64 = 1 << 2;
    /// AF_XDP without a copy in the kernel (zero copy).
    pub const XSK_ZEROCOPY: u64 = 1 << 3;
    /// Frames in several buffers on receive (jumbo frames).
    pub const RX_SG: u64 = 1 << 5;
}

/// The XDP features of an interface's driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// [`feature`] bits; zero means that only generic XDP works.
    pub bits: u64,
    /// Largest number of buffers of one frame in zero-copy mode.
    pub zero_copy_max_segments: u32,
    /// True if a frame that is sent through AF_XDP in zero-copy mode can have a launch time (kernel 6.15; the NIC sends
    /// the frame at this time).
    pub has_launch_time: bool,
    /// True if an XDP program that is loaded for this interface can read the NIC's timestamp of a received frame.
    pub has_receive_timestamp: bool,
}

const CTRL_COMMAND_GET_FAMILY: u8 = 3;
const CTRL_FAMILY_ID: u16 = 1;
const CTRL_FAMILY_NAME: u16 = 2;
const NETDEV_COMMAND_DEV_GET: u8 = 1;
const NETDEV_IFINDEX: u16 = 1;
const NETDEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_XDP_RX_METADATA_FEATURES: u16 = 5;
const NETDEV_XSK_FEATURES: u16 = 6;
/// The bit of `NETDEV_XDP_RX_METADATA_FEATURES` for timestamps (`NETDEV_XDP_RX_METADATA_TIMESTAMP`).
const RX_METADATA_TIMESTAMP: u64 = 1 << 0;
/// The bit of `NETDEV_XSK_FEATURES` for launch times in order of time (`NETDEV_XSK_FLAGS_TX_LAUNCH_TIME_FIFO`).
const LAUNCH_TIME_FIFO: u64 = 1 << 2;
/// `struct genlmsghdr`: command, version, two reserved bytes.
const GENERIC_HEADER: usize = 4;

/// The XDP features of the driver of the interface with index `link`.
///
/// # Errors
/// `ENOENT` on kernels before 6.3, `ENODEV` if the interface does not exist.
pub fn xdp_features(link: u32) -> io::Result<XdpFeatures> {
    let mut socket = Netlink::open(Some(GENERIC))?;
    let mut family = None;
    let request = Message::new(libc::GENL_ID_CTRL as u16, requested(), &[CTRL_COMMAND_GET_FAMILY, 1, 0, 0]);
    socket.request(request.text(CTRL_FAMILY_NAME, "netdev"), |response| {
        family = attributes(response.body.get(GENERIC_HEADER..).unwrap_or(&[]))
            .find(|a| a.0 == CTRL_FAMILY_ID)
            .and_then(|a| half(a.1, 0));
    })?;
    let family = family.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;

    let mut features = XdpFeatures::default();
    let request = Message::new(family, requested(), &[NETDEV_COMMAND_DEV_GET, 1, 0, 0]);
    socket.request(request.number(NETDEV_IFINDEX, link), |response| {
        for (kind, payload) in attributes(response.body.get(GENERIC_HEADER..).unwrap_or(&[])) {
            match kind {
                NETDEV_XDP_FEATURES => features.bits = long(payload, 0).unwrap_or(0),
                NETDEV_XDP_ZC_MAX_SEGS => features.zero_copy_max_segments = number(payload, 0).unwrap_or(0),
                NETDEV_XDP_RX_METADATA_FEATURES => {
                    features.has_receive_timestamp =
                        long(payload, 0).is_some_and(|bits| bits & RX_METADATA_TIMESTAMP != 0);
                }
                NETDEV_XSK_FEATURES => {
                    features.has_launch_time = long(payload, 0).is_some_and(|bits| bits & LAUNCH_TIME_FIFO != 0);
                }
                _ => (),
            }
        }
    })?;
    Ok(features)
}
