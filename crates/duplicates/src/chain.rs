//! Chains of copies: a packet and its copies of the classes switching and routing. The windows are measured from the
//! first packet of the chain, so that packets that follow each other do not extend a window without limit.

use crate::table::{Head, Table};
use base::Timestamp;
use std::time::Duration;

/// The unit of [`Head::since_first`]. In this unit, 32 bits contain the longest window.
pub(crate) const UNIT_NANOS: u64 = 256;

/// The place of a packet in a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// The low bits of the number of the first packet.
    pub number: u32,
    /// The timestamp of the first packet, exact to [`UNIT_NANOS`] for each later packet of the chain.
    pub first: Timestamp,
    /// The number of earlier copies since the TTL last decreased.
    pub copies: u8,
}

impl Chain {
    /// The chain of a record.
    pub fn of(head: &Head) -> Self {
        let nanos = i64::from(head.since_first) * UNIT_NANOS as i64;
        let first = Timestamp::from_nanos(head.ts.nanos().wrapping_add_signed(-nanos));
        Self { number: head.chain, first, copies: head.copies }
    }

    /// The chain that begins with the next packet.
    pub fn begin<H: base::memory::Hints>(table: &Table<H>, ts: Timestamp) -> Self {
        Self { number: table.next() as u32, first: ts, copies: 0 }
    }

    /// Writes this chain into the record of a packet of the chain.
    pub fn enter(&self, head: &mut Head) {
        // Timestamps can be out of order, so a packet can be earlier than the first packet of its chain.
        let since = head.ts.nanos().wrapping_sub(self.first.nanos()) as i64 / UNIT_NANOS as i64;
        head.since_first = i32::try_from(since).unwrap_or(i32::MAX);
        (head.chain, head.copies) = (self.number, self.copies);
    }
}

/// The time between two packets, in either order: merged captures can be out of order.
pub(crate) fn distance(a: Timestamp, b: Timestamp) -> Duration {
    Duration::from_nanos(a.nanos().abs_diff(b.nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_timestamp_of_a_chain_is_exact_to_a_unit() {
        let chain = Chain { number: 7, first: Timestamp::from_nanos(1_000_000_000_000), copies: 2 };
        let longest = crate::settings::WINDOW_MAX.as_nanos() as i64;
        for since in [0, 1, 255, 256, 700, -700, 123_456_789, longest, -longest] {
            let ts = Timestamp::from_nanos(chain.first.nanos().wrapping_add_signed(since));
            let mut head = Head { ts, ..Head::default() };
            chain.enter(&mut head);
            let read = Chain::of(&head);
            assert_eq!((read.number, read.copies), (7, 2));
            assert!(distance(read.first, chain.first) < Duration::from_nanos(UNIT_NANOS), "{since}");
            assert!(since.rem_euclid(UNIT_NANOS as i64) > 0 || read.first == chain.first, "{since}");
        }
    }
}
