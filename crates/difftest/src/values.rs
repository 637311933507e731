//! Values that are used both in random programs and in random packets. There are only few hosts, ports, tags and
//! numbers, so that each predicate is sometimes true and sometimes false.

use base::Prng;

/// IPv4 addresses.
pub const HOSTS: [[u8; 4]; 9] = [
    [10, 0, 0, 1],
    [10, 0, 0, 2],
    [10, 1, 2, 3],
    [10, 200, 0, 1],
    [192, 0, 2, 1],
    [192, 168, 1, 7],
    [224, 0, 0, 5],
    [255, 255, 255, 255],
    [8, 8, 8, 8],
];
/// IPv6 addresses, given by their first 16 bits and their last 16 bits.
pub const HOSTS_6: [(u16, u16); 5] = [(0x2001, 1), (0x2001, 2), (0xfe80, 1), (0xff02, 5), (0xfd00, 9)];
/// Networks and hosts, IPv4 and IPv6.
pub const NETS: [&str; 16] = [
    "10.0.0.0/8",
    "10.0.0.0/9",
    "10.0.0.2",
    "10.0.0.0/30",
    "192.168.0.0/16",
    "0.0.0.0/0",
    "255.255.255.255",
    "224.0.0.0/4",
    "8.8.8.8/31",
    "2001:db8::/32",
    "2001:db8::1",
    "fe80::/10",
    "ff00::/8",
    "::/0",
    "::ffff:0:0/96",
    "fd00::/8",
];
/// Ports, including those of VoIP and of tunnels.
pub const PORTS: [u16; 20] =
    [0, 2, 53, 80, 443, 1023, 1024, 5060, 5061, 6000, 6001, 6002, 6003, 2123, 2152, 3544, 4754, 4789, 6081, 65_535];
/// VLAN IDs.
pub const VLANS: [u16; 4] = [0, 5, 7, 4095];
/// Protocols above IP.
pub const PROTOCOLS: [u8; 13] = [0, 1, 4, 6, 17, 33, 41, 47, 50, 58, 59, 132, 136];
/// Ethertypes.
pub const ETHERTYPES: [u16; 9] = [0, 0x0800, 0x0806, 0x86dd, 0x8100, 0x8847, 0x8864, 0x88cc, 0x9000];
/// MAC addresses: of hosts, of a gateway, of a multicast group, and the broadcast address.
pub const MACS: [[u8; 6]; 5] =
    [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 0xfe], [1, 0, 0x5e, 0, 0, 5], [0xff; 6]];
/// Numbers that occur in headers, and the greatest numbers of 16, 32 and 63 bits.
pub const NUMBERS: [u64; 20] =
    [0, 1, 2, 3, 4, 5, 8, 16, 17, 20, 40, 60, 64, 255, 1500, 0x2000, 0x4000, 65_535, 0xffff_ffff, i64::MAX as u64];
/// Interfaces to which programs forward packets.
pub const INTERFACES: [&str; 3] = ["eth1", "eth2", "wan.7"];
/// Filters in the syntax of tcpdump.
pub const FILTERS: [&str; 18] = [
    "tcp port 80 or udp port 53",
    "ip6",
    "vlan 5 and udp",
    "vlan and vlan",
    "ip[6:2] & 0x1fff = 0 and tcp[13] & 2 != 0",
    "less 90",
    "greater 61 and not arp",
    "net 10.0.0.0/8 and not host 10.0.0.2",
    "ip proto 17",
    "ip6 proto 6",
    "udp[8] & 0xc0 = 0x80",
    "portrange 1024-6002",
    "len - 14 > ip[2:2]",
    "mpls",
    "geneve and udp",
    "icmp or icmp6",
    "src host 2001:db8::1 or dst net 224.0.0.0/4",
    "outbound or tcp",
];

/// A random element.
pub fn pick<T: Copy>(prng: &mut Prng, of: &[T]) -> T {
    of[prng.below(of.len() as u64) as usize]
}
