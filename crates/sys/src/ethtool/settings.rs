//! The settings and limits of a NIC: rings, channels, pause frames, speed, timestamps, receive-side scaling
//! (`include/uapi/linux/ethtool.h`; each structure is named where it is laid out).

use super::command;
use std::io;

const GET_SETTINGS: u32 = 0x01;
const GET_RINGS: u32 = 0x10;
const SET_RINGS: u32 = 0x11;
const GET_PAUSE: u32 = 0x12;
const SET_PAUSE: u32 = 0x13;
const GET_RX_FLOW_HASH: u32 = 0x29;
const GET_CHANNELS: u32 = 0x3c;
const SET_CHANNELS: u32 = 0x3d;
const GET_STAMPING: u32 = 0x41;
const GET_RSS: u32 = 0x46;

/// Numbers of descriptors in the receive and transmit rings of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Descriptors in each receive ring.
    pub rx: u32,
    /// The maximum of `rx`.
    pub rx_max: u32,
    /// Descriptors in each transmit ring.
    pub tx: u32,
    /// The maximum of `tx`.
    pub tx_max: u32,
}

/// The rings of interface `name`.
///
/// # Errors
/// `ENODEV`; `EOPNOTSUPP` for an interface without rings.
pub fn rings(name: &str) -> io::Result<Rings> {
    // `struct ethtool_ringparam`: command, four maxima, four values (rx, mini, jumbo, tx).
    let w: [u32; 9] = words(name, GET_RINGS, [0; 8])?;
    Ok(Rings { rx_max: w[1], tx_max: w[4], rx: w[5], tx: w[8] })
}

/// Sets the number of descriptors in each receive ring of interface `name`; most drivers restart the interface.
///
/// # Errors
/// `EINVAL` above the maximum, `EPERM` without `CAP_NET_ADMIN`, `ENODEV`, `EOPNOTSUPP`.
pub fn set_rx_ring(name: &str, descriptors: u32) -> io::Result<()> {
    let mut w: [u32; 9] = words(name, GET_RINGS, [0; 8])?;
    w[5] = descriptors;
    words(name, SET_RINGS, [w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]]).map(|_: [u32; 9]| ())
}

/// Numbers of active queues of an interface, and their maxima. A driver counts either pairs (`combined`) or receive and
/// transmit queues separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive queues.
    pub rx: u32,
    /// The maximum of `rx`.
    pub rx_max: u32,
    /// Pairs of a receive and a transmit queue.
    pub combined: u32,
    /// The maximum of `combined`.
    pub combined_max: u32,
}

impl Channels {
    /// Active receive queues.
    pub const fn receiving(self) -> u32 {
        self.rx + self.combined
    }

    /// The maximum of [`Channels::receiving`].
    pub const fn receiving_max(self) -> u32 {
        if self.combined_max > self.rx_max { self.combined_max } else { self.rx_max }
    }
}

/// The channels of interface `name`.
///
/// # Errors
/// `ENODEV`; `EOPNOTSUPP` if the driver does not report its channels.
pub fn channels(name: &str) -> io::Result<Channels> {
    // `struct ethtool_channels`: command, four maxima, four values (rx, tx, other, combined).
    let w: [u32; 9] = words(name, GET_CHANNELS, [0; 8])?;
    Ok(Channels { rx_max: w[1], combined_max: w[4], rx: w[5], combined: w[8] })
}

/// Sets the number of receive queues of interface `name`, in the driver's way of counting.
///
/// # Errors
/// `EINVAL` above the maximum, `EBUSY` while an AF_XDP socket uses a queue to be removed, `EPERM`, `ENODEV`,
/// `EOPNOTSUPP`.
pub fn set_channels(name: &str, receiving: u32) -> io::Result<()> {
    let mut w: [u32; 9] = words(name, GET_CHANNELS, [0; 8])?;
    if w[8] > 0 {
        w[8] = receiving.saturating_sub(w[5]);
    } else {
        w[5] = receiving;
    }
    words(name, SET_CHANNELS, [w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]]).map(|_: [u32; 9]| ())
}

/// The use of pause frames by an interface (IEEE 802.3 annex 31B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// True if the link partners negotiate the use of pause frames.
    pub autoneg: bool,
    /// True if the interface stops sending when it receives a pause frame.
    pub rx: bool,
    /// True if the interface sends pause frames when its buffers fill.
    pub tx: bool,
}

/// The pause settings of interface `name`.
///
/// # Errors
/// `ENODEV`; `EOPNOTSUPP` for an interface without pause frames.
pub fn pause(name: &str) -> io::Result<Pause> {
    let w: [u32; 4] = words(name, GET_PAUSE, [0; 3])?;
    Ok(Pause { autoneg: w[1] != 0, rx: w[2] != 0, tx: w[3] != 0 })
}

/// Changes the pause settings of interface `name`.
///
/// # Errors
/// `EINVAL` if the driver does not support the combination, `EPERM`, `ENODEV`, `EOPNOTSUPP`.
pub fn set_pause(name: &str, pause: Pause) -> io::Result<()> {
    let data = [u32::from(pause.autoneg), u32::from(pause.rx), u32::from(pause.tx)];
    words(name, SET_PAUSE, data).map(|_: [u32; 4]| ())
}

/// Negotiated speed and duplex mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Speed in Mbit/s.
    pub megabits: u32,
    /// True in full-duplex mode.
    pub full_duplex: bool,
}

/// The speed of interface `name`; `None` without a carrier and for interfaces without a speed.
pub fn speed(name: &str) -> Option<Speed> {
    const UNKNOWN_DUPLEX: u32 = 0xff;
    // `struct ethtool_cmd`: 44 bytes; the speed consists of two halves (bytes 12 and 28), duplex is byte 14.
    let w: [u32; 11] = words(name, GET_SETTINGS, [0; 10]).ok()?;
    let bytes: Vec<u8> = w.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let half = |at: usize| u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
    let megabits = half(28) << 16 | half(12);
    let known = megabits != 0 && megabits != u32::MAX && u32::from(bytes[14]) != UNKNOWN_DUPLEX;
    known.then_some(Speed { megabits, full_duplex: bytes[14] == 1 })
}

/// The timestamping capabilities of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamping {
    /// The NIC can timestamp received frames.
    pub hardware: bool,
    /// The NIC can timestamp all frames, not only those of PTP.
    pub every_frame: bool,
    /// Number of the NIC's clock (`/dev/ptpN`).
    pub clock: Option<u32>,
}

/// The timestamping capabilities of interface `name`.
///
/// # Errors
/// `ENODEV`, `EOPNOTSUPP`.
pub fn stamping(name: &str) -> io::Result<Stamping> {
    /// `SOF_TIMESTAMPING_RX_HARDWARE`.
    const RX_HARDWARE: u32 = 1 << 2;
    /// `HWTSTAMP_FILTER_ALL`, as a bit.
    const FILTER_ALL: u32 = 1 << 1;
    // `struct ethtool_ts_info`: command, capabilities, clock, transmit types, 3 reserved, receive filters, 3 reserved.
    let w: [u32; 11] = words(name, GET_STAMPING, [0; 10])?;
    let clock = u32::try_from(w[2] as i32).ok();
    Ok(Stamping { hardware: w[1] & RX_HARDWARE != 0, every_frame: w[7] & FILTER_ALL != 0, clock })
}

/// Receive-side scaling: the assignment of frames to queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// Queue of each hash value.
    pub table: Vec<u32>,
    /// Key of the Toeplitz hash; empty if the driver does not report it.
    pub key: Vec<u8>,
    /// The NIC makes the hash input symmetric in source and destination (`RXH_XFRM_SYM_XOR`, `…_OR_XOR`).
    pub symmetric: bool,
}

impl Rss {
    /// True if both directions of a connection get the same hash: the NIC makes the input symmetric, or the key repeats
    /// after 16 bits (Woo and Park, "Scalable TCP session monitoring with symmetric receive-side scaling", 2012).
    pub fn is_symmetric(&self) -> bool {
        self.symmetric || (self.key.len() > 2 && self.key.iter().zip(&self.key[2..]).all(|(a, b)| a == b))
    }
}

/// The receive-side scaling of interface `name`.
///
/// # Errors
/// `EOPNOTSUPP` if the driver has no receive-side scaling, `ENODEV`.
pub fn rss(name: &str) -> io::Result<Rss> {
    /// Larger than any real table; bounds the sizes that the kernel reports in the first of two calls.
    const MAX: usize = 1 << 16;
    /// `RXH_XFRM_SYM_XOR | RXH_XFRM_SYM_OR_XOR`.
    const SYMMETRIC: u8 = 1 << 0 | 1 << 1;
    /// `RXH_XFRM_NO_CHANGE`.
    const NO_TRANSFORM: u8 = 0xff;
    // `struct ethtool_rxfh`: command, context, table size, key size, hash function and input transformation (one byte
    // each, two of padding), reserved; then the table and the key.
    let sizes: [u32; 6] = words(name, GET_RSS, [0; 5])?;
    let (table, key) = (sizes[2] as usize, sizes[3] as usize);
    if table > MAX || key > MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the NIC reports an impossible size of its RSS table or key",
        ));
    }
    let mut w = vec![0; 6 + table + key.div_ceil(4)];
    (w[0], w[2], w[3]) = (GET_RSS, sizes[2], sizes[3]);
    // SAFETY: the words form the structure, with space for a table and a key of the sizes in the structure.
    unsafe { command(name, w.as_mut_ptr().cast()) }?;
    let tail = w[6 + table..].iter().flat_map(|w| w.to_ne_bytes()).take(key).collect();
    let transform = w[4].to_ne_bytes()[1];
    let symmetric = transform != NO_TRANSFORM && transform & SYMMETRIC != 0;
    Ok(Rss { table: w[6..6 + table].to_vec(), key: tail, symmetric })
}

/// Packet types whose hash fields can be chosen: `TCP_V4_FLOW` and so on, by their names in `ethtool -n`.
pub const FLOW_KINDS: [(&str, u32); 4] = [("tcp4", 1), ("udp4", 2), ("tcp6", 5), ("udp6", 6)];

/// True if TCP or UDP ports are part of the hash of this packet type on interface `name`.
///
/// # Errors
/// `EOPNOTSUPP` if the driver does not report the fields of the hash, `ENODEV`.
pub fn hashes_ports(name: &str, kind: u32) -> io::Result<bool> {
    /// `RXH_L4_B_0_1 | RXH_L4_B_2_3`.
    const PORTS: u64 = 1 << 6 | 1 << 7;
    // `struct ethtool_rxnfc`: command, packet type, 64 bits of fields, then a rule of 176 bytes that this request does
    // not use.
    let w: [u32; 48] = words(name, GET_RX_FLOW_HASH, {
        let mut data = [0; 47];
        data[0] = kind;
        data
    })?;
    let fields = [w[2].to_ne_bytes(), w[3].to_ne_bytes()].concat();
    let fields = fields.try_into().map_or(0, u64::from_ne_bytes);
    Ok(fields & PORTS == PORTS)
}

/// A request whose structure is an array of 32-bit words that begins with the command.
fn words<const DATA: usize, const ALL: usize>(name: &str, code: u32, data: [u32; DATA]) -> io::Result<[u32; ALL]> {
    const { assert!(ALL == DATA + 1) };
    // The kernel copies whole structures, some of which need the alignment of a u64.
    #[repr(align(8))]
    struct Row<const N: usize>([u32; N]);
    let mut row = Row([0; ALL]);
    row.0[0] = code;
    row.0[1..].copy_from_slice(&data);
    // SAFETY: every caller passes as many words as the structure of its command has.
    unsafe { command(name, row.0.as_mut_ptr().cast()) }?;
    Ok(row.0)
}
