//! The `SIOCETHTOOL` requests that netgrain needs (`include/uapi/linux/ethtool.h`): offloads that change captured
//! frames, the driver, settings and limits of the NIC. Interfaces are those of the calling thread's network namespace.

mod feature;
mod settings;

pub use feature::{Feature, features, set_feature, statistics};
pub use settings::{
    Channels, FLOW_KINDS, Pause, Rings, Rss, Speed, Stamping, channels, hashes_ports, pause, rings, rss, set_channels,
    set_pause, set_rx_ring, speed, stamping,
};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;

/// An offload: work that the interface does for the host. It makes captured frames differ from the frames on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The interface computes the checksums of sent frames, so a capture on the host contains incomplete checksums.
    TxChecksum,
    /// The interface cuts data into TCP segments.
    Tso,
    /// The kernel cuts data into segments as late as possible.
    Gso,
    /// The kernel merges received segments.
    Gro,
    /// The NIC merges received segments.
    Lro,
}

/// `ETH_FLAG_RXVLAN`.
const FLAG_RX_VLAN: u32 = 1 << 8;
/// `ETH_FLAG_LRO`.
const FLAG_LRO: u32 = 1 << 15;
const GET_DRIVER: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;

impl Offload {
    /// The commands that read and write the offload.
    const fn commands(self) -> (u32, u32) {
        match self {
            Self::TxChecksum => (0x16, 0x17),
            Self::Tso => (0x1e, 0x1f),
            Self::Gso => (0x23, 0x24),
            Self::Gro => (0x2b, 0x2c),
            Self::Lro => (GET_FLAGS, SET_FLAGS),
        }
    }

    /// True if the offload is on for the interface `name`.
    ///
    /// # Errors
    /// `ENODEV` if the interface does not exist, `EOPNOTSUPP` if it does not support this offload.
    pub fn is_on(self, name: &str) -> io::Result<bool> {
        let value = command_value(name, self.commands().0, 0)?;
        Ok(if self == Self::Lro { value & FLAG_LRO != 0 } else { value != 0 })
    }

    /// Switches the offload on or off.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `ENODEV`, `EOPNOTSUPP`.
    pub fn set(self, name: &str, on: bool) -> io::Result<()> {
        let value = match self {
            Self::Lro => {
                let others = command_value(name, GET_FLAGS, 0)? & !FLAG_LRO;
                others | if on { FLAG_LRO } else { 0 }
            }
            _ => u32::from(on),
        };
        command_value(name, self.commands().1, value).map(drop)
    }
}

/// True if the interface `name` removes VLAN tags from received frames before the XDP program runs.
///
/// # Errors
/// `ENODEV` if the interface does not exist, `EOPNOTSUPP` if the driver does not report this setting.
pub fn strips_vlan(name: &str) -> io::Result<bool> {
    Ok(command_value(name, GET_FLAGS, 0)? & FLAG_RX_VLAN != 0)
}

/// The driver of the interface `name`: `veth`, `ixgbe`, `virtio_net`.
///
/// # Errors
/// `ENODEV` if the interface does not exist, `EOPNOTSUPP` if it has no driver name (loopback).
pub fn driver(name: &str) -> io::Result<String> {
    /// `struct ethtool_drvinfo`: command, then the driver's name in 32 bytes, then fields that are not used here.
    #[repr(C)]
    struct Info {
        command: u32,
        driver: [u8; 32],
        rest: [u8; 160],
    }
    let mut info = Info { command: GET_DRIVER, driver: [0; 32], rest: [0; 160] };
    // SAFETY: the structure has the 196 bytes that `ETHTOOL_GDRVINFO` writes.
    unsafe { command(name, (&raw mut info).cast())? };
    let end = info.driver.iter().position(|b| *b == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..end]).into_owned())
}

/// True if the NIC of interface `name` is set (by `hwstamp_ctl`, `ptp4l`) to timestamp every received frame.
///
/// False for a NIC that timestamps only some frames: timestamps of two clocks in one stream are worse than those of one
/// clock.
pub fn stamps_all_received(name: &str) -> bool {
    const FILTER_ALL: i32 = 1;
    const SIOCGHWTSTAMP: Opcode = 0x89b1;
    /// `struct hwtstamp_config`.
    #[repr(C)]
    struct Config {
        flags: i32,
        tx_type: i32,
        rx_filter: i32,
    }
    let mut config = Config { flags: 0, tx_type: 0, rx_filter: 0 };
    // SAFETY: the structure is the one that this request writes.
    let answer = unsafe { request::<SIOCGHWTSTAMP>(name, (&raw mut config).cast()) };
    answer.is_ok() && config.rx_filter == FILTER_ALL
}

fn command_value(name: &str, code: u32, data: u32) -> io::Result<u32> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command: code, data };
    // SAFETY: all commands that are passed to this function read and write a `struct ethtool_value`.
    unsafe { command(name, (&raw mut value).cast())? };
    Ok(value.data)
}

/// One request of `SIOCETHTOOL`; its structure begins with the command.
///
/// # Safety
/// `data` must point to the structure of the command, with all the space that the structure declares.
unsafe fn command(name: &str, data: *mut libc::c_char) -> io::Result<()> {
    // SAFETY: the guarantee of the caller is the requirement of `SIOCETHTOOL`.
    unsafe { request::<{ libc::SIOCETHTOOL as Opcode }>(name, data) }
}

/// One ioctl for the interface `name`.
///
/// # Safety
/// `data` must point to the structure that the request `CODE` reads and writes.
unsafe fn request<const CODE: Opcode>(name: &str, data: *mut libc::c_char) -> io::Result<()> {
    // SAFETY: `ifreq` is plain data for which all zeros is valid.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= ifreq.ifr_name.len() {
        return Err(Errno::NODEV.into());
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = data;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: every request of this module uses an `ifreq`, and the caller guarantees the validity of its data pointer.
    Ok(unsafe { ioctl(socket, Updater::<CODE, _>::new(&mut ifreq)) }?)
}
