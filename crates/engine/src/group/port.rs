//! Ports that programs forward to: a thread for each group and port reads its branches and sends what is in them.
//!
//! The dispatcher never waits for a port. What the port is too slow for finds no room in the branch and is counted there as
//! lost. What is not sent has failed: overwritten in the ring before its turn, refused by the port (larger than its MTU), or
//! captured in part only, because that would be another packet.

use group::PortCounts;
use ring::{Branch, Desc, Listener, flag};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use sys::netlink::Netlink;
use sys::packet::PacketSocket;

/// Descriptors taken at a time.
const BATCH: usize = 256;

/// Sleep when there is nothing to send.
const NAP: Duration = Duration::from_micros(300);

/// Begins to send through the port of this name, until the branches end.
///
/// # Errors
/// In words, why it cannot be sent through.
pub fn open(name: &str, branches: &[Branch]) -> Result<(JoinHandle<()>, Arc<PortCounts>), String> {
    let fail = |what: &str, e: std::io::Error| format!("port {name}: {what}: {e}");
    let link = Netlink::route()
        .and_then(|mut n| n.link(name))
        .map_err(|e| format!("there is no port {name} to forward to ({e}); `ip link` shows those there are"))?;
    let socket = PacketSocket::open().map_err(|e| fail("cannot be sent through (root, or CAP_NET_RAW)", e))?;
    socket.bind(link.index, None).map_err(|e| fail("cannot be bound", e))?;
    let listeners: Vec<Listener> = branches.iter().map(Branch::listen).collect();
    let counts = Arc::<PortCounts>::default();
    let books = Arc::clone(&counts);
    let thread = std::thread::Builder::new()
        .name(format!("to-{name}"))
        .spawn(move || send(&socket, listeners, &books))
        .map_err(|e| fail("no thread for it", e))?;
    Ok((thread, counts))
}

fn send(socket: &PacketSocket, mut listeners: Vec<Listener>, counts: &PortCounts) {
    let mut descs: Vec<Desc> = Vec::with_capacity(BATCH);
    let mut buffer = Vec::new();
    loop {
        let mut quiet = true;
        for listener in &mut listeners {
            listener.next(BATCH, &mut descs);
            quiet &= descs.is_empty();
            for desc in descs.iter().filter(|d| d.is_packet()) {
                let whole = desc.flags & flag::TRUNCATED == 0;
                let frame = listener.packet(desc, &mut buffer).filter(|_| whole);
                counts.count(frame.is_some_and(|frame| socket.send_all(&[frame]).is_ok()));
            }
        }
        if quiet {
            if listeners.iter().all(Listener::ended) {
                return;
            }
            listeners.iter().for_each(Listener::report);
            std::thread::sleep(NAP);
        }
    }
}
