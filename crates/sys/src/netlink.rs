//! Routing netlink: links, addresses of ports, statistics.
