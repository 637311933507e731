//! A message under construction: a header that is filled in last, then sets (RFC 7011, section 3.3; FlowSets in NetFlow
//! v9, RFC 3954, section 5) of records of one kind. Sets of NetFlow v9 are padded to four octets (RFC 3954, section
//! 5.3). Those of IPFIX have no padding: it is optional, and some collectors interpret it as a record.
//!
//! Invariant: a message is never longer than its limit, and its records keep the order of insertion.

/// Length in bytes of a set header: id and length of the set.
const SET_HEADER: usize = 4;

#[derive(Debug)]
pub(crate) struct MessageBuilder {
    bytes: Vec<u8>,
    header: usize,
    limit: usize,
    /// Sets are padded to a multiple of this many octets.
    align: usize,
    /// Id of the set to which records are being added, and the offset at which this set begins.
    set: Option<(u16, usize)>,
    /// Number of records in the message, including templates.
    pub records: u32,
    /// Data records in the message.
    pub data: u32,
    /// Submitted flow records and series rows that are completely in the message.
    pub items: u32,
}

impl MessageBuilder {
    /// An empty message of at most `limit` bytes with a header of `header` bytes. Sets are padded to multiples of
    /// `align` octets.
    pub fn new(header: usize, limit: usize, align: usize) -> Self {
        Self { bytes: vec![0; header], header, limit, align, set: None, records: 0, data: 0, items: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.header
    }

    /// True if a record of `len` bytes can be added to set `id` of this message.
    pub fn fits(&self, id: u16, len: usize) -> bool {
        let open = self.set.is_some_and(|(set, _)| set == id);
        let at = if open { self.bytes.len() } else { self.padded(self.bytes.len()) + SET_HEADER };
        self.padded(at + len) <= self.limit
    }

    /// True if a record of `len` bytes fits into an empty message.
    pub fn can_ever_fit(&self, len: usize) -> bool {
        self.padded(self.header + SET_HEADER + len) <= self.limit
    }

    /// Adds a record to set `id` of the message. The record must fit into the message ([`Self::fits`]).
    pub fn put(&mut self, id: u16, record: &[u8]) {
        if self.set.is_none_or(|(set, _)| set != id) {
            self.close();
            self.set = Some((id, self.bytes.len()));
            self.bytes.extend_from_slice(&id.to_be_bytes());
            self.bytes.extend_from_slice(&[0; 2]);
        }
        self.bytes.extend_from_slice(record);
        self.records += 1;
    }

    /// Closes the last set and returns the complete message, whose header the caller fills in.
    pub fn finish(&mut self) -> &mut [u8] {
        self.close();
        &mut self.bytes
    }

    /// Empties the message.
    pub fn clear(&mut self) {
        self.bytes.truncate(self.header);
        (self.set, self.records, self.data, self.items) = (None, 0, 0, 0);
    }

    /// Returns the length rounded up to a multiple of `align`. Lengths of message headers are multiples of four.
    fn padded(&self, len: usize) -> usize {
        len.next_multiple_of(self.align)
    }

    /// Closes the open set, so that the next record begins a new set.
    pub fn close(&mut self) {
        let Some((_, at)) = self.set.take() else { return };
        let end = self.padded(self.bytes.len());
        self.bytes.resize(end, 0);
        let len = (self.bytes.len() - at) as u16;
        self.bytes[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_longer_than_its_limit() {
        let seed = testkit::seed("no_message_is_longer_than_its_limit");
        let mut prng = base::Prng::new(seed);
        for _ in 0..2000 {
            let limit = 100 + prng.below(200) as usize;
            let align = [1, 4][prng.below(2) as usize];
            let mut message = MessageBuilder::new(16, limit, align);
            loop {
                let (id, record) = (256 + prng.below(2) as u16, vec![7; 1 + prng.below(40) as usize]);
                if !message.fits(id, record.len()) {
                    break;
                }
                message.put(id, &record);
            }
            let whole = message.finish();
            assert!(whole.len() <= limit && whole.len().is_multiple_of(align), "{} of {limit}", whole.len());
            // With the lengths of its sets, the message can be traversed from the header exactly to its end.
            let mut at = 16;
            while at < whole.len() {
                at += usize::from(u16::from_be_bytes([whole[at + 2], whole[at + 3]]));
            }
            assert_eq!(at, whole.len());
        }
    }
}
