//! A running query: the packets that it selects, in order of time.

use crate::merge::Merge;
use crate::{Batch, Cost, FoundPacket, Origin, Query, QueryContext, QueryError, QuerySource, foreign, sealed};
use base::{Tally, TimestampQuality};

/// A running query: returns the selected packets and reports cost, warnings and ledgers.
pub struct Results {
    context: QueryContext,
    merge: Merge,
    /// Buffer for the record of a packet that is not stored as a pcap record.
    record: Vec<u8>,
}

/// Starts a query. This function reads only file names and the claims of running recorders.
///
/// # Errors
/// If the source cannot be listed, or the interval ends before it begins.
pub fn run(source: &QuerySource, query: Query) -> Result<Results, QueryError> {
    if query.from > query.to {
        return Err(QueryError::Backwards { from: query.from, to: query.to });
    }
    let mut context = QueryContext::new(query);
    let mut merge = Merge::default();
    match source {
        QuerySource::Store(store) => sealed::begin(&sys::nofollow::resolve(store), &mut merge, &mut context)?,
        QuerySource::Files(files) => merge.add_source(foreign::cursor_source(files, &mut context)?),
    }
    Ok(Results { context, merge, record: Vec::new() })
}

impl Results {
    /// The next packet in order of time; `None` at the end, or when [`Query::stop`] was set.
    ///
    /// # Errors
    /// If a file cannot be read.
    #[allow(clippy::should_implement_trait, reason = "an Iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<FoundPacket<'_>>, QueryError> {
        if !self.advance()? {
            return Ok(None);
        }
        self.context.cost.matched += 1;
        Ok(self.merge.packet())
    }

    /// The next packets in order of time, as many as are contiguous in memory; this is the fastest way to export
    /// packets. Like [`Results::next`], returns `None` at the end, or when [`Query::stop`] was set. Calls of both
    /// functions may alternate.
    ///
    /// # Errors
    /// If a file cannot be read.
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

    /// The origins of the packets so far. New origins are appended during the query.
    pub fn origins(&self) -> &[Origin] {
        self.context.origins()
    }

    /// The cost of the query so far.
    pub fn cost(&self) -> Cost {
        self.context.cost
    }

    /// The warnings so far: files that were damaged, removed or had no index, and recorders whose ring could not be
    /// read.
    pub fn warnings(&self) -> Vec<String> {
        self.context.warnings()
    }

    /// Number of packets of foreign captures whose wire length was less than their caplen; the names of the files are
    /// in a warning.
    pub fn wire_raised(&self) -> u64 {
        self.context.all_wire_raised()
    }

    /// True if the result is complete; false if packets may be missing because a file is damaged or truncated. A
    /// warning names the file.
    pub fn is_complete(&self) -> bool {
        self.context.is_complete()
    }

    /// The ledger (stored, filtered and lost packets) of an origin for the seconds of the interval, as far as it was
    /// read. The counts come from the indexes of the files that the query has read to the end of the file or of the
    /// interval.
    pub fn tally(&self, origin: usize) -> Tally {
        self.context.tally(origin)
    }

    /// The quality of the timestamps of the blocks of an origin that the query has selected so far, from the indexes of
    /// the store, if the query requests it ([`Query::with_timestamp_quality`](crate::Query::with_timestamp_quality)). A
    /// file that is being recorded counts with all its blocks.
    pub fn timestamps(&self, origin: usize) -> TimestampQuality {
        self.context.timestamps(origin)
    }
}
