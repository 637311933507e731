//! The packet sockets of other processes, from `/proc/net/packet` (`packet_seq_show` in `net/packet/af_packet.c`). The
//! file lists the packet sockets of one network namespace, one per line after a header.

use std::collections::HashSet;
use std::fs;
use std::io;

/// The sockets of the network namespace of the calling thread. `/proc/net` would be the namespace of the first thread.
const LIST: &str = "/proc/thread-self/net/packet";

/// The descriptors of this process.
const OWN: &str = "/proc/self/fd";

/// Columns of the list, which are separated by spaces.
mod column {
    /// The protocol in hexadecimal digits; zero for a socket that only sends.
    pub const PROTOCOL: usize = 3;
    /// The index of the interface; zero for a socket of all interfaces, -1 after the interface was removed.
    pub const LINK: usize = 4;
    /// The inode number of the socket.
    pub const INODE: usize = 8;
}

/// Returns the number of packet sockets of other processes that receive the frames of the interface with the index
/// `link`. Sockets of all interfaces and sockets that only send are not counted. The interface belongs to the network
/// namespace of the calling thread.
///
/// # Errors
/// The list cannot be read. A kernel without packet sockets has no list, which is no error.
pub fn receiving(link: u32) -> io::Result<usize> {
    let list = match fs::read_to_string(LIST) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        list => list?,
    };
    let mut inodes = inodes_of(&list, link);
    if !inodes.is_empty() {
        own_sockets()?.iter().for_each(|own| {
            inodes.remove(own);
        });
    }
    Ok(inodes.len())
}

/// The inode numbers of the sockets in the list that receive from the interface `link`.
fn inodes_of(list: &str, link: u32) -> HashSet<u64> {
    let inode = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let receives = u16::from_str_radix(columns.get(column::PROTOCOL)?, 16).ok()? != 0;
        let is_bound = columns.get(column::LINK)?.parse() == Ok(link);
        columns.get(column::INODE)?.parse().ok().filter(|_| receives && is_bound)
    };
    list.lines().skip(1).filter_map(inode).collect()
}

/// The inode numbers of the sockets of this process.
fn own_sockets() -> io::Result<Vec<u64>> {
    let inode = |entry: fs::DirEntry| {
        // Another thread may have closed the descriptor since the directory was listed.
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Ok(fs::read_dir(OWN)?.flatten().filter_map(inode).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_receive_from_the_interface_are_counted() {
        let list = "\
sk               RefCnt Type Proto  Iface R Rmem   User   Inode
0000000000000000 3      3    0003   2     1 0      0      101
0000000000000000 3      3    88cc   2     0 0      0      102
0000000000000000 3      3    0000   2     0 0      0      103
0000000000000000 3      3    0003   0     1 0      0      104
0000000000000000 3      3    0003   22    1 0      0      105
0000000000000000 3      3    0003   -1    0 0      0      106
0000000000000000 3      3    0003   2
";
        assert_eq!(inodes_of(list, 2), [101, 102].into());
        assert_eq!(inodes_of(list, 22), [105].into());
        assert_eq!(inodes_of("", 2), [].into());
    }
}
