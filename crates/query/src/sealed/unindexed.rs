//! Queries of a packet file of the store whose index is missing or invalid: the query reads the whole file.

use crate::cursor::{Cursor, CursorState};
use crate::{FoundPacket, Origin, QueryContext, QueryError};
use base::{Tally, Timestamp};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use store::Hold;

/// A cursor over a file without a usable index.
pub struct UnindexedFile {
    reader: pcap::Reader<CountingReader>,
    name: String,
    origin: usize,
    link_type: u16,
    ts: Timestamp,
    _hold: Arc<Hold>,
}

/// A file that counts the bytes that are read from it.
struct CountingReader(File, u64);

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buffer)?;
        self.1 += n as u64;
        Ok(n)
    }
}

impl UnindexedFile {
    /// Opens the file. If it is not a capture file, adds a warning and returns `None`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(
        path: &Path,
        interface: &str,
        queue: u16,
        hold: &Arc<Hold>,
        context: &mut QueryContext,
    ) -> Result<Option<Self>, QueryError> {
        let file = sys::nofollow::open(path).map_err(|error| QueryError::Io { path: path.to_owned(), error })?;
        let name = path.display().to_string();
        let is_raw = path.extension().is_some_and(|e| e == "raw");
        let format = if is_raw { pcap::Format::Raw } else { pcap::Format::Pcap };
        let reader = match pcap::Reader::open_as(CountingReader(file, 0), format) {
            Ok(reader) => reader,
            Err(e) => {
                context.damage(format!("{name}: {e}"));
                return Ok(None);
            }
        };
        let link_type = reader.link_type();
        let origin = context.origin(Origin {
            interface: interface.to_owned(),
            queue,
            link_type,
            snaplen: ring::CAPLEN_MAX as u32,
            filter: String::new(),
            timestamp_source: String::new(),
        });
        Ok(Some(Self { reader, name, origin, link_type, ts: Timestamp::ZERO, _hold: Arc::clone(hold) }))
    }
}

impl Cursor for UnindexedFile {
    fn advance(&mut self, context: &mut QueryContext) -> Result<CursorState, QueryError> {
        loop {
            let more = self.reader.advance();
            context.cost.bytes_read += std::mem::take(&mut self.reader.source_mut().1);
            match more {
                Ok(true) => {}
                Ok(false) => return Ok(CursorState::End),
                Err(e) => {
                    context.damage(format!("{}: {e}", self.name));
                    return Ok(CursorState::End);
                }
            }
            let Some(packet) = self.reader.current() else { return Ok(CursorState::End) };
            context.cost.packets += 1;
            let ts = packet.ts.unwrap_or_default();
            if context.is_inside(ts) {
                let stored_bytes = u64::from(packet.wire_len);
                context.count(self.origin, &Tally { offered: 1, stored: 1, stored_bytes, ..Tally::default() });
            }
            if context.wants(ts, packet.wire_len, packet.data, self.link_type) {
                self.ts = ts;
                return Ok(CursorState::Packet(ts));
            }
            if context.cost.packets.is_multiple_of(4096) && context.is_stopped() {
                return Ok(CursorState::End);
            }
        }
    }

    fn packet(&self) -> FoundPacket<'_> {
        let (data, wire_len) = self.reader.current().map_or((&[][..], 0), |p| (p.data, p.wire_len));
        let (ts, link_type, origin) = (self.ts, self.link_type, self.origin);
        FoundPacket { ts, wire_len, data, link_type, origin, lost: 0, position: None }
    }
}
