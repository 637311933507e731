//! Properties of an interface that AF_XDP needs and netlink does not report (`SIOCETHTOOL`,
//! include/uapi/linux/ethtool.h).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Number of active receive queues of the interface. Netlink reports the number of allocated queues, which on NICs is
/// often larger; a socket cannot be bound to an inactive queue.
///
/// # Errors
/// `EOPNOTSUPP` if the driver does not report it (then all are active), `ENODEV` if the interface does not exist.
pub fn active_queues(name: &str) -> io::Result<u32> {
    const GET_CHANNELS: u32 = 0x3c;
    // struct ethtool_channels: cmd, max_rx, max_tx, max_other, max_combined, rx, tx, other, combined.
    let mut words = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    ethtool(name, &mut words)?;
    Ok(words[5] + words[8])
}

/// True if the interface removes VLAN tags from received frames before the XDP program runs.
///
/// # Errors
/// `EOPNOTSUPP` if the driver does not report it, `ENODEV` if the interface does not exist.
pub fn strips_vlan(name: &str) -> io::Result<bool> {
    const GET_FLAGS: u32 = 0x25;
    const RX_VLAN: u32 = 1 << 8;
    // struct ethtool_value: cmd, data.
    let mut words = [GET_FLAGS, 0];
    ethtool(name, &mut words)?;
    Ok(words[1] & RX_VLAN != 0)
}

/// One request; `words` is its structure, which begins with the command; all structures used here consist of `u32`.
fn ethtool(name: &str, words: &mut [u32]) -> io::Result<()> {
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened the descriptor, so it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: request and words are live for the call, and the command in the first word has a structure of their size.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
