//! Receives the messages of exporters by multicast or on this host, for `--live` and for programs that use the API.

use crate::channel::ifindex;
use crate::ipfix::{Decoder, Item, StreamCounts};
use crate::target::{ExportKind, group};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// The greatest number of exporters whose templates are retained. If a further exporter sends a message, the state of
/// the exporter that has sent nothing for the longest time is removed.
pub const EXPORTERS_MAX: usize = 64;

/// Receives flow records and series rows from any number of exporters, each with its own templates and sequence
/// numbers.
#[derive(Debug)]
pub struct Subscriber {
    socket: UdpSocket,
    pen: u32,
    exporters: HashMap<SocketAddr, (Decoder, u64)>,
    items: VecDeque<(SocketAddr, Item)>,
    buffer: Vec<u8>,
    received: u64,
    refused: u64,
    evicted: StreamCounts,
}

impl Subscriber {
    /// Joins the multicast group of a data type and an interface, at a UDP port and on the local interface `by` (empty:
    /// chosen by the kernel). `pen` is the enterprise number of our own elements.
    ///
    /// # Errors
    /// Errors of the kernel about the multicast group, the port or the local interface.
    pub fn multicast(kind: ExportKind, interface: u16, port: u16, by: &str, pen: u32) -> io::Result<Self> {
        let index = if by.is_empty() { 0 } else { ifindex(by)? };
        Ok(Self::on(sys::multicast::listen(group(kind, interface), port, index)?, pen))
    }

    /// Receives from a bound socket.
    pub fn on(socket: UdpSocket, pen: u32) -> Self {
        Self {
            socket,
            pen,
            exporters: HashMap::new(),
            items: VecDeque::new(),
            buffer: vec![0; 1 << 16],
            received: 0,
            refused: 0,
            evicted: StreamCounts::default(),
        }
    }

    /// The next [`Item`] of a received message, and the address of its exporter; `None` if nothing arrives within
    /// `timeout`, which must not be zero.
    ///
    /// # Errors
    /// Errors of recv(2). Invalid messages are no errors; they are counted.
    pub fn next_item(&mut self, timeout: Duration) -> io::Result<Option<(SocketAddr, Item)>> {
        self.socket.set_read_timeout(Some(timeout))?;
        while self.items.is_empty() {
            let (len, from) = match self.socket.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.received += 1;
            if !self.exporters.contains_key(&from) && self.exporters.len() >= EXPORTERS_MAX {
                self.evict_one();
            }
            let (pen, items) = (self.pen, &mut self.items);
            let (decoder, last) = self.exporters.entry(from).or_insert_with(|| (Decoder::new(pen), 0));
            *last = self.received;
            if decoder.message(&self.buffer[..len], &mut |item| items.push_back((from, item))).is_err() {
                self.refused += 1;
            }
        }
        Ok(self.items.pop_front())
    }

    /// Counters of all exporters together, and the number of invalid messages.
    pub fn arrived(&self) -> (StreamCounts, u64) {
        let all = self.exporters.values().map(|(d, _)| d.arrived()).fold(self.evicted, add);
        (all, self.refused)
    }

    fn evict_one(&mut self) {
        let oldest = self.exporters.iter().min_by_key(|(_, (_, last))| *last).map(|(from, _)| *from);
        if let Some((decoder, _)) = oldest.and_then(|from| self.exporters.remove(&from)) {
            self.evicted = add(self.evicted, decoder.arrived());
        }
    }
}

fn add(a: StreamCounts, b: StreamCounts) -> StreamCounts {
    StreamCounts {
        messages: a.messages + b.messages,
        records: a.records + b.records,
        missed: a.missed + b.missed,
        without_template: a.without_template + b.without_template,
        foreign: a.foreign + b.foreign,
    }
}
