//! The packets that were asked for, one after the other.

use crate::merge::Merge;
use crate::{Cost, Query, QueryContext, QueryError, QuerySource, foreign, sealed};
use base::{Tally, Timestamp};

/// Where packets come from: one queue of an interface of the store, or one interface of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The interface; of a foreign file its name, as far as it says.
    pub interface: String,
    /// The hardware queue.
    pub queue: u16,
    /// As pcap numbers it.
    pub link_type: u16,
    /// Bytes kept of each packet.
    pub snaplen: u32,
    /// The filter that the recorder had; empty for none.
    pub filter: String,
    /// Who stamped the packets.
    pub timestamp_source: String,
}

/// One packet, borrowed until the next is asked for.
#[derive(Clone, Copy, Debug)]
pub struct FoundPacket<'a> {
    /// When it arrived.
    pub ts: Timestamp,
    /// Bytes it had on the wire.
    pub wire_len: u32,
    /// The bytes kept.
    pub data: &'a [u8],
    /// How to read its first bytes, as pcap numbers link types.
    pub link_type: u16,
    /// Index into [`Results::origins`].
    pub origin: usize,
    /// Packets that were lost on this origin since its packet before in this answer, as exactly as the index knows: by
    /// block.
    pub lost: u64,
    /// Where its record begins in the stream of its queue, as [`SeekHint`](crate::SeekHint) has it; `None` where that is not known.
    pub position: Option<u64>,
}

/// Packets that follow each other, as the bytes of a file: borrowed until the next are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Whole records of little-endian nanosecond pcap, headers included.
    pub records: &'a [u8],
    /// How many packets they are; at least one.
    pub packets: u64,
    /// When the first of them arrived.
    pub first: Timestamp,
    /// How to read their first bytes.
    pub link_type: u16,
    /// Index into [`Results::origins`].
    pub origin: usize,
    /// As [`FoundPacket::lost`], of the first of them; between the others nothing is known to be lost.
    pub lost: u64,
}

/// See the module.
pub struct Results {
    context: QueryContext,
    merge: Merge,
    /// One record, where a packet does not lie as one.
    record: Vec<u8>,
}

/// Begins an answer; nothing is read yet but names, and who records at this moment.
///
/// # Errors
/// When the place cannot be looked at, or the question contradicts itself.
pub fn run(place: &QuerySource, question: Query) -> Result<Results, QueryError> {
    if question.from > question.to {
        return Err(QueryError::Backwards { from: question.from, to: question.to });
    }
    let mut book = QueryContext::new(question);
    let mut merge = Merge::default();
    match place {
        QuerySource::Store(store) => sealed::begin(&sys::nofollow::resolve(store), &mut merge, &mut book)?,
        QuerySource::Files(files) => merge.supply(foreign::supply(files, &mut book)?),
    }
    Ok(Results { context: book, merge, record: Vec::new() })
}

impl Results {
    /// The next packet in time order; `None` at the end, or when [`Query::stop`] was set.
    ///
    /// # Errors
    /// What cannot be read.
    #[allow(clippy::should_implement_trait, reason = "an Iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<FoundPacket<'_>>, QueryError> {
        if !self.advance()? {
            return Ok(None);
        }
        self.context.cost.matched += 1;
        Ok(self.merge.packet())
    }

    /// The next packets in time order, as many as lie together: the fast way to write them all out. `None` as in
    /// [`Results::next`]; the two may be mixed.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, QueryError> {
        if !self.advance()? {
            return Ok(None);
        }
        let Some(FoundPacket { ts: first, link_type, origin, lost, .. }) = self.merge.packet() else { return Ok(None) };
        let (records, packets) = match self.merge.extend(&mut self.context)? {
            Some(extent) => (self.merge.records(), extent.packets),
            None => {
                let Some(found) = self.merge.packet() else { return Ok(None) };
                self.record.clear();
                let caplen = u32::try_from(found.data.len()).unwrap_or(u32::MAX);
                self.record.extend(pcap::record_header_ns(found.ts, caplen, found.wire_len));
                self.record.extend(found.data);
                (&self.record[..], 1)
            }
        };
        self.context.cost.matched += packets;
        Ok(Some(Batch { records, packets, first, link_type, origin, lost }))
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, QueryError> {
        Ok(!self.context.is_stopped() && self.merge.advance(&mut self.context)?)
    }

    /// Where the packets come from, as far as is known by now; it only grows.
    pub fn origins(&self) -> &[Origin] {
        self.context.origins()
    }

    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        self.context.cost
    }

    /// What people should know about the answer, so far: files that were damaged, vanished or had to be read without an
    /// index, a recorder that could not be listened to.
    pub fn warnings(&self) -> Vec<String> {
        self.context.warnings()
    }

    /// Packets of the captures asked that say fewer bytes on the wire than were captured; a remark names the files.
    pub fn wire_raised(&self) -> u64 {
        self.context.all_wire_raised()
    }

    /// Whether everything could be read that should have been: false when packets may be missing because a file is damaged
    /// or was cut off, which a remark then names.
    pub fn is_complete(&self) -> bool {
        self.context.is_complete()
    }

    /// What happened on an origin in the seconds of the interval, so far: of files that were walked to their end or
    /// beyond the interval's, as their indexes tell it.
    pub fn tally(&self, origin: usize) -> Tally {
        self.context.tally(origin)
    }
}
