//! Features and statistics by name: their numbers differ between kernel releases and drivers, and the kernel lists the
//! names (`ETHTOOL_GSTRINGS`, `ETHTOOL_GFEATURES`, `ETHTOOL_GSTATS`).

use super::command;
use std::io;

const GET_STRINGS: u32 = 0x1b;
const GET_STATS: u32 = 0x1d;
const GET_SET_SIZE: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
/// `ETH_SS_STATS`, `ETH_SS_FEATURES`.
const STATS: u32 = 1;
const FEATURES: u32 = 4;
/// `ETH_GSTRING_LEN`.
const NAME_BYTES: usize = 32;
/// Largest accepted number of names in a string set of the kernel; drivers of 100 Gb/s NICs have some thousands of
/// statistics.
const MAX: u32 = 1 << 16;

/// One feature of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name: `rx-gro`, `rx-vlan-hw-parse`.
    pub name: String,
    /// True if the feature is active.
    pub on: bool,
    /// True if the feature can be changed.
    pub can_change: bool,
}

/// The features of interface `name`.
///
/// # Errors
/// `ENODEV`.
pub fn features(name: &str) -> io::Result<Vec<Feature>> {
    let names = strings(name, FEATURES)?;
    let blocks = names.len().div_ceil(32);
    // `struct ethtool_gfeatures`: command, blocks; then for each 32 features: available, requested, active, never
    // changed.
    let mut w = vec![0u32; 2 + 4 * blocks];
    (w[0], w[1]) = (GET_FEATURES, blocks as u32);
    // SAFETY: the words form the structure, with the number of blocks that the structure contains.
    unsafe { command(name, w.as_mut_ptr().cast()) }?;
    let feature = |(i, name): (usize, String)| {
        let (block, bit) = (2 + 4 * (i / 32), 1 << (i % 32));
        let (available, active, fixed) = (w[block] & bit, w[block + 2] & bit, w[block + 3] & bit);
        Feature { name, on: active != 0, can_change: available != 0 && fixed == 0 }
    };
    Ok(names.into_iter().enumerate().map(feature).filter(|f| !f.name.is_empty()).collect())
}

/// Switches a feature of interface `name`.
///
/// # Errors
/// `ENOENT` if the kernel has no such feature, `EOPNOTSUPP` if the interface cannot change it, `EPERM`, `ENODEV`.
pub fn set_feature(name: &str, feature: &str, on: bool) -> io::Result<()> {
    let names = strings(name, FEATURES)?;
    let at = names.iter().position(|n| n == feature).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    let blocks = names.len().div_ceil(32);
    // `struct ethtool_sfeatures`: command, blocks; then for each 32 features: the mask of the features to change, and
    // their values.
    let mut w = vec![0u32; 2 + 2 * blocks];
    (w[0], w[1]) = (SET_FEATURES, blocks as u32);
    w[2 + 2 * (at / 32)] = 1 << (at % 32);
    w[3 + 2 * (at / 32)] = u32::from(on) << (at % 32);
    // SAFETY: the words form the structure, with the number of blocks that the structure contains.
    unsafe { command(name, w.as_mut_ptr().cast()) }?;
    // The kernel reports a refusal in flags that some drivers do not set, so the features are read again.
    let now = features(name)?.into_iter().find(|f| f.name == feature).map(|f| f.on);
    if now == Some(on) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) }
}

/// The statistics of the driver of interface `name`, under the driver's names.
///
/// # Errors
/// `EOPNOTSUPP` if the driver has no statistics, `ENODEV`.
pub fn statistics(name: &str) -> io::Result<Vec<(String, u64)>> {
    let names = strings(name, STATS)?;
    // `struct ethtool_stats`: command, count; then the numbers. The buffer consists of 64-bit words for alignment. It
    // is twice as long as necessary, because the kernel writes as many numbers as the interface has at the time of the
    // call.
    let mut w = vec![0u64; 1 + names.len() * 2];
    w[0] = pair(GET_STATS, names.len() as u32);
    // SAFETY: the words form the structure, with space for twice the number of statistics of the interface.
    unsafe { command(name, w.as_mut_ptr().cast()) }?;
    Ok(names.into_iter().zip(w.into_iter().skip(1)).collect())
}

/// The names of a set.
fn strings(name: &str, set: u32) -> io::Result<Vec<String>> {
    // `struct ethtool_sset_info`: command, reserved, a mask of sets; then one size for each set that the interface has.
    let mut sizes = [pair(GET_SET_SIZE, 0), 1 << set, 0];
    // SAFETY: the words form the structure, with space for two sizes, and one size is requested.
    unsafe { command(name, sizes.as_mut_ptr().cast()) }?;
    let count = sizes[2].to_ne_bytes();
    let count = u32::from_ne_bytes([count[0], count[1], count[2], count[3]]);
    if sizes[1] == 0 || count == 0 || count > MAX {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    // `struct ethtool_gstrings`: command, set, count; then the names. The string set may grow between the two calls,
    // and the kernel writes as many names as the interface has at that time, so the buffer has space for twice the
    // count.
    let room = count as usize * 2;
    let mut bytes = vec![0u32; 3 + room * NAME_BYTES / 4];
    (bytes[0], bytes[1], bytes[2]) = (GET_STRINGS, set, count);
    // SAFETY: the words form the structure, with space for twice the number of names of the interface.
    unsafe { command(name, bytes.as_mut_ptr().cast()) }?;
    let count = (bytes[2] as usize).min(room);
    let bytes: Vec<u8> = bytes[3..].iter().flat_map(|w| w.to_ne_bytes()).collect();
    let text = |name: &[u8]| {
        let end = name.iter().position(|b| *b == 0).unwrap_or(NAME_BYTES);
        String::from_utf8_lossy(&name[..end]).into_owned()
    };
    Ok(bytes.chunks_exact(NAME_BYTES).take(count).map(text).collect())
}

/// Two 32-bit words in memory order.
fn pair(first: u32, second: u32) -> u64 {
    let (a, b) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
}
