//! The order in time of the packets of a file, and the out-of-order marker, with which queries find a file that has
//! packets before the time in its name.

use super::name::FileName;
use crate::cutter::Part;
use base::Timestamp;
use std::io;
use std::path::Path;
use store::device::Device;
use store::out_of_order::{self, Span};

/// The timestamps of the packets of a file, their order, and the marker.
pub struct TimeOrder {
    /// The latest timestamp in the file, including the packets whose write is in progress; the start time of the file
    /// while it has no packets.
    pub latest: Timestamp,
    /// Earliest and latest timestamp of the written packets.
    written: Option<(Timestamp, Timestamp)>,
    packets: PacketOrder,
    /// The file name for which an out-of-order marker was written; `None` without a marker.
    pub marker: Option<String>,
}

/// Whether a packet is earlier than a preceding packet in the file, or than the start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketOrder {
    /// No such packet.
    InOrder,
    /// The write of such a packet is in progress.
    WriteInProgress,
    /// Such a packet is written.
    OutOfOrder,
}

impl TimeOrder {
    /// The state of a file without packets; `marker` is its name if a marker was written for it.
    pub fn new(start: Timestamp, marker: Option<String>) -> Self {
        Self { latest: start, written: None, packets: PacketOrder::InOrder, marker }
    }

    /// Registers a part of a block whose write has begun.
    pub fn expect(&mut self, part: &Part, start: Timestamp) {
        if self.packets == PacketOrder::InOrder && part.is_out_of_order(start) {
            self.packets = PacketOrder::WriteInProgress;
        }
        if part.entry.first_record.is_some() {
            self.latest = self.latest.max(part.entry.last);
        }
    }

    /// Registers a part of a block after its write is complete.
    pub fn accept(&mut self, part: &Part) {
        if part.entry.first_record.is_some() {
            let (first, last) = (part.entry.first, part.entry.last);
            self.written = Some(self.written.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
        }
    }

    /// True if the file has no out-of-order marker and needs none for the packets whose write has begun.
    pub fn is_in_order(&self) -> bool {
        self.marker.is_none() && self.packets == PacketOrder::InOrder
    }

    /// Registers that the packets of the file are not in order of time.
    pub fn set_out_of_order(&mut self) {
        self.packets = PacketOrder::OutOfOrder;
    }

    /// Writes a marker for the growing file, if there is none.
    pub fn write_marker<D: Device>(&mut self, device: &mut D, root: &Path, name: &FileName) -> io::Result<()> {
        if self.marker.is_none() {
            let stem = name.stem();
            out_of_order::write_marker(device, root, &stem, None)?;
            self.marker = Some(stem);
        }
        Ok(())
    }

    /// Writes the marker with the time range of an out-of-order file, under the name to which the file is renamed next.
    pub fn write_final_marker<D: Device>(
        &mut self,
        device: &mut D,
        root: &Path,
        name: &FileName,
        end: Timestamp,
    ) -> io::Result<()> {
        let Some(before) = &self.marker else { return Ok(()) };
        let stem = name.stem();
        out_of_order::write_marker(device, root, &stem, self.span(name.start, end))?;
        if *before != stem {
            out_of_order::remove_marker(device, root, before, None)?;
        }
        self.marker = Some(stem);
        Ok(())
    }

    /// Undoes [`Self::write_final_marker`], because another file already has the name.
    pub fn remove_final_marker<D: Device>(
        &mut self,
        device: &mut D,
        root: &Path,
        name: &FileName,
        end: Timestamp,
    ) -> io::Result<()> {
        match &self.marker {
            Some(stem) => out_of_order::remove_marker(device, root, stem, self.span(name.start, end)),
            None => Ok(()),
        }
    }

    /// The time range of the packets and ledger rows of a file from `start` to `end`.
    fn span(&self, start: Timestamp, end: Timestamp) -> Option<Span> {
        let (first, last) = self.written.unwrap_or((start, end));
        let is_out_of_order = self.packets == PacketOrder::OutOfOrder;
        Some(Span { first: first.min(start), last: last.max(end), is_out_of_order })
    }
}
