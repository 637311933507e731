//! Flow records and series rows received by multicast or unicast. Exporters number their interfaces independently, so
//! the numbers are mapped to numbers of this process.

use super::names::Names;
use crate::outcome::Failure;
use base::units::show_count;
use export::ipfix::Item;
use export::{Subscriber, element};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;
use sys::netlink::Netlink;

/// The longest wait for a message before the stop flag is checked.
const TIMEOUT: Duration = Duration::from_millis(100);

/// The maximum number of exporter interfaces that have a number of this process. For the next interface, all numbers
/// are removed, and numbers are assigned from 0 again.
const INTERFACES_MAX: usize = 4096;

/// The error that the kernel returns if no interface has a route to a multicast group that is joined (errno-base.h).
const ENODEV: i32 = 19;

/// A receiver of flow records and rows that exporters send.
pub struct NetworkRecords {
    subscriber: Subscriber,
    group: SocketAddr,
    /// Maps the exporter's address and interface number to the interface number in this process.
    numbers: HashMap<(IpAddr, u16), u16>,
}

impl NetworkRecords {
    /// Begins to receive at a local port or from a multicast group. The group is joined on the interface `via`; if
    /// `via` is `None`, the kernel chooses the interface.
    pub fn on(group: SocketAddr, via: Option<&str>) -> Result<Self, Failure> {
        let index = via.map(ifindex).transpose()?.unwrap_or(0);
        let socket = match group.ip() {
            IpAddr::V4(ip) if ip.is_multicast() => sys::multicast::listen(ip, group.port(), index),
            IpAddr::V6(ip) if ip.is_multicast() => UdpSocket::bind(group).and_then(|socket| {
                socket.join_multicast_v6(&ip, index)?;
                Ok(socket)
            }),
            _ if via.is_some() => {
                return Err(Failure::Said(format!(
                    "--multicast-interface: {group} is not a multicast group; leave --multicast-interface out"
                )));
            }
            _ => UdpSocket::bind(group),
        };
        let socket = socket.map_err(|e| refused(group, via, &e))?;
        Ok(Self { subscriber: Subscriber::on(socket, element::PEN), group, numbers: HashMap::new() })
    }

    /// The next record or row. Its interface number is replaced by the number that this process uses for the interface.
    /// `None` if nothing has arrived within [`TIMEOUT`]. Adds interface names to `names`.
    pub fn next(&mut self, names: &mut Names) -> Result<Option<Item>, Failure> {
        loop {
            let received = self.subscriber.next_item(TIMEOUT);
            let received = received.map_err(|e| Failure::Said(format!("--from-multicast {}: {e}", self.group)))?;
            let Some((from, mut item)) = received else { return Ok(None) };
            match &mut item {
                Item::Flow(record) => record.interface = self.number(from, record.interface, names),
                Item::Row(row) => row.interface = self.number(from, row.interface, names),
                Item::Interface { number, name } => {
                    let number = self.number(from, *number, names);
                    names.set(number, name);
                    continue;
                }
                _ => continue,
            }
            return Ok(Some(item));
        }
    }

    /// The number by which this process identifies an exporter's interface. Exporters are distinguished by address and
    /// not by port, because an exporter has one socket for each data type.
    fn number(&mut self, from: SocketAddr, exporter_number: u16, names: &mut Names) -> u16 {
        if self.numbers.len() >= INTERFACES_MAX {
            self.numbers.clear();
            names.clear();
        }
        let next = self.numbers.len() as u16;
        *self.numbers.entry((from.ip(), exporter_number)).or_insert(next)
    }

    /// True if the sequence numbers show no lost message. Messages before the first templates do not count as lost,
    /// because a receiver that joins late cannot decode them.
    pub fn is_complete(&self) -> bool {
        self.subscriber.arrived().0.missed == 0
    }

    /// Warnings about lost and unreadable messages.
    pub fn warnings(&self) -> Vec<String> {
        let (arrived, unread) = self.subscriber.arrived();
        let counts = [
            (arrived.missed, "records were sent and did not arrive: the network or this machine lost them"),
            (arrived.without_template, "IPFIX sets arrived before their template and could not be decoded"),
            (unread, "messages were not IPFIX"),
        ];
        let some = counts.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, what)| format!("{}: {} {what}", self.group, show_count(count))).collect()
    }
}

fn ifindex(name: &str) -> Result<u32, Failure> {
    let link = Netlink::route().and_then(|mut route| route.link(name));
    link.map(|link| link.index).map_err(|e| {
        Failure::Said(format!(
            "--multicast-interface {name}: {e}; name an interface of this machine, as `ip link` lists them"
        ))
    })
}

fn refused(group: SocketAddr, via: Option<&str>, e: &io::Error) -> Failure {
    let advice = match (e.raw_os_error(), e.kind(), via) {
        (Some(ENODEV), _, None) => {
            "no interface has a route to this group: name one with --multicast-interface eth1, or add a route: ip \
             route add 224.0.0.0/4 dev eth1"
        }
        (_, io::ErrorKind::AddrInUse, _) => {
            "another program uses this port and does not share it: stop that program, or choose another port"
        }
        (_, io::ErrorKind::AddrNotAvailable, _) => "neither a multicast group nor an address of this machine",
        (_, io::ErrorKind::PermissionDenied, _) => "ports below 1024 need CAP_NET_BIND_SERVICE; the usual port is 4739",
        _ => "netgrain cannot receive at this address",
    };
    Failure::Said(format!("--from-multicast {group}: {e}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_received_is_an_error_with_advice() {
        let group: SocketAddr = "239.128.0.0:0".parse().expect("a group");
        let message = |group: SocketAddr, via: Option<&str>| match NetworkRecords::on(group, via) {
            Err(Failure::Said(text)) => text,
            _ => panic!("the group {group} was joined on interface {via:?}"),
        };
        assert!(message(group, Some("none0")).contains("`ip link`"));
        assert!(
            message("127.0.0.1:0".parse().expect("an address"), Some("lo")).contains("leave --multicast-interface out")
        );
        assert!(message("192.0.2.1:0".parse().expect("an address"), None).contains("nor an address of this machine"));
    }

    #[test]
    fn interfaces_of_different_exporters_have_different_numbers() {
        let mut network =
            NetworkRecords::on("127.0.0.1:0".parse().expect("an address"), None).unwrap_or_else(|e| panic!("{e:?}"));
        let mut names = Names::default();
        let from = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (a, b) = (from("192.0.2.1:1000"), from("192.0.2.2:1000"));
        assert_eq!((network.number(a, 0, &mut names), network.number(b, 0, &mut names)), (0, 1));
        assert_eq!(network.number(from("192.0.2.1:2000"), 0, &mut names), 0, "same exporter, other socket");
        for exporter_number in 0..INTERFACES_MAX as u16 * 2 {
            assert!(usize::from(network.number(a, exporter_number, &mut names)) < INTERFACES_MAX);
        }
    }
}
