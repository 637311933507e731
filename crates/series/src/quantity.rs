//! The only table of the quantities of a [`Row`]. It has their names, units and descriptions, and gives access to each
//! number. Addition of rows, roll-ups, formats and documentation use this table, so that none of them can omit a
//! quantity.

use crate::{Row, SIZE_BOUNDS, SIZES, TrafficClass};
use base::{Cause, Note, TimestampMethod};
use std::borrow::Cow;
use std::sync::LazyLock;

/// The rule that merges a quantity when rows are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeRule {
    /// The sum; exact.
    Sum,
    /// The merged value is the maximum of the values of both rows. A row contains neither the addresses nor the volumes
    /// of single milliseconds, so the exact value for both rows together is unknown: it is at least the maximum and at
    /// most the sum.
    Max,
}

/// One quantity of a row.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The name of the quantity in CSV, JSON, Parquet and on the command line.
    pub name: Cow<'static, str>,
    /// The unit of the quantity.
    pub unit: &'static str,
    /// A description of the quantity, without a verb.
    pub description: Cow<'static, str>,
    /// The rule by which the values of two rows are merged when the rows are added.
    pub merge: MergeRule,
    read: fn(&Row, usize) -> u64,
    field_mut: fn(&mut Row, usize) -> &mut u64,
    index: usize,
}

impl Quantity {
    /// The value of this quantity in a row.
    #[inline]
    pub fn of(&self, row: &Row) -> u64 {
        (self.read)(row, self.index)
    }

    /// Mutable access to the value of this quantity in a row.
    #[inline]
    pub fn of_mut<'a>(&self, row: &'a mut Row) -> &'a mut u64 {
        (self.field_mut)(row, self.index)
    }
}

/// All quantities, in the order of display.
pub fn quantities() -> &'static [Quantity] {
    static ALL: LazyLock<Vec<Quantity>> = LazyLock::new(all);
    &ALL
}

macro_rules! quantity {
    ($name:expr, $unit:expr, $description:expr, $merge:ident, [$i:ident = $index:expr] $($path:tt)+) => {
        Quantity {
            name: $name.into(),
            unit: $unit,
            description: $description.into(),
            merge: MergeRule::$merge,
            read: |row, $i| row.$($path)+,
            field_mut: |row, $i| &mut row.$($path)+,
            index: $index,
        }
    };
    ($name:literal, $unit:literal, $description:literal, $merge:ident, $($path:tt)+) => {
        quantity!($name, $unit, $description, $merge, [_i = 0] $($path)+)
    };
}

fn all() -> Vec<Quantity> {
    let mut all = vec![
        quantity!("packets", "packets", "all packets except marked duplicates", Sum, total.packets),
        quantity!("bytes", "bytes", "bytes of frames on the wire without FCS", Sum, total.bytes),
    ];
    for kind in TrafficClass::ALL {
        let (name, what) = (kind.name(), kind.description());
        all.push(quantity!(format!("{name}_packets"), "packets", what, Sum, [i = kind as usize] classes[i].packets));
        let what = format!("bytes of {name}_packets");
        all.push(quantity!(format!("{name}_bytes"), "bytes", what, Sum, [i = kind as usize] classes[i].bytes));
    }
    all.push(quantity!("ipv6_packets", "packets", "IPv6 packets, with any upper-layer protocol", Sum, ipv6.packets));
    all.push(quantity!("ipv6_bytes", "bytes", "bytes of ipv6_packets", Sum, ipv6.bytes));
    for class in 0..SIZES {
        let from = if class == 0 { 0 } else { SIZE_BOUNDS[class - 1] + 1 };
        let (name, what) = match SIZE_BOUNDS.get(class) {
            Some(to) => (format!("size_to_{to}"), format!("frames of {from} to {to} bytes, without FCS")),
            None => (format!("size_over_{}", from - 1), format!("frames of {from} bytes or more, without FCS")),
        };
        all.push(quantity!(name, "packets", what, Sum, [i = class] sizes[i]));
    }
    all.extend([
        quantity!("tcp_syn", "packets", "TCP packets with SYN and without ACK, which request connections", Sum, syn),
        quantity!("tcp_syn_ack", "packets", "TCP packets with SYN and ACK, which accept connections", Sum, syn_ack),
        quantity!("tcp_fin", "packets", "TCP packets with FIN", Sum, fin),
        quantity!("tcp_rst", "packets", "TCP packets with RST", Sum, rst),
        quantity!(
            "flows_active",
            "flows",
            "flows in the flow table at the end of the second (only in rows of direction `in`)",
            Sum,
            flows_active
        ),
        quantity!(
            "flows_new",
            "flows",
            "flows that began in the second (only in rows of direction `in`)",
            Sum,
            flows_new
        ),
        quantity!(
            "flows_ended",
            "flows",
            "flows that ended in the second (only in rows of direction `in`)",
            Sum,
            flows_ended
        ),
        quantity!("sources", "addresses", "estimated number of distinct source addresses (±1.6 %)", Max, sources),
        quantity!(
            "destinations",
            "addresses",
            "estimated number of distinct destination addresses (±1.6 %)",
            Max,
            destinations
        ),
        quantity!(
            "peak_1ms_bytes",
            "bytes",
            "largest number of bytes within a millisecond of the second",
            Max,
            peak_1ms.bytes
        ),
        quantity!(
            "peak_1ms_packets",
            "packets",
            "largest number of packets within a millisecond of the second",
            Max,
            peak_1ms.packets
        ),
        quantity!(
            "peak_10ms_bytes",
            "bytes",
            "largest number of bytes within 10 ms of the second",
            Max,
            peak_10ms.bytes
        ),
        quantity!(
            "peak_10ms_packets",
            "packets",
            "largest number of packets within 10 ms of the second",
            Max,
            peak_10ms.packets
        ),
        quantity!(
            "tunnel_numbered",
            "packets",
            "packets with a tunnel sequence number (only in rows of direction `in`)",
            Sum,
            tunnel_numbered
        ),
        quantity!(
            "tunnel_missing",
            "packets",
            "packets that are missing according to the tunnel sequence numbers (only in rows of direction `in`)",
            Sum,
            tunnel_missing
        ),
        quantity!(
            "tunnel_late",
            "packets",
            "packets that were counted as missing and arrived later (only in rows of direction `in`)",
            Sum,
            tunnel_late
        ),
        quantity!(
            "duplicate_packets",
            "packets",
            "stored packets that are marked as copies of earlier packets; no other count of packets except `stored` \
             contains them",
            Sum,
            duplicate.packets
        ),
        quantity!("duplicate_bytes", "bytes", "bytes of duplicate_packets", Sum, duplicate.bytes),
        quantity!(
            "offered",
            "packets",
            "packets that reached the point at which the source counts (ledger, only in rows of direction `in`)",
            Sum,
            ledger.offered
        ),
        quantity!("stored", "packets", "packets that were stored", Sum, ledger.stored),
        quantity!("stored_bytes", "bytes", "bytes on the wire of the stored packets", Sum, ledger.stored_bytes),
        quantity!(
            "filtered",
            "packets",
            "packets that the capture filter or the program of the interface excluded from the ring",
            Sum,
            ledger.filtered
        ),
        quantity!("duplicate", "packets", "packets removed as copies of a stored packet", Sum, ledger.duplicate),
    ]);
    for cause in Cause::ALL {
        let (name, what) = (format!("lost_{}", cause.name()), format!("lost packets: {}", cause.description()));
        all.push(quantity!(name, cause.unit(), what, Sum, [i = cause as usize] ledger.lost[i]));
    }
    for note in Note::ALL {
        let name = format!("note_{}", note.name());
        all.push(quantity!(name, note.unit(), note.description(), Sum, [i = note as usize] ledger.notes[i]));
    }
    all.extend(of_timestamps());
    all
}

/// The quality of the timestamps. All these numbers are only in rows of direction `in`.
fn of_timestamps() -> Vec<Quantity> {
    let mut all = Vec::new();
    for method in TimestampMethod::ALL {
        let name = format!("timestamp_{}", method.name());
        let what = format!("stored packets with timestamps of the method {}", method.name());
        all.push(quantity!(name, "packets", what, Sum, [i = method as usize] timestamps.methods[i]));
    }
    all.extend([
        quantity!(
            "timestamp_deviation_ns",
            "nanoseconds",
            "estimated standard deviation of the timestamps; 0 if it is not known",
            Max,
            timestamps.deviation_nanos
        ),
        quantity!(
            "clock_synchronised",
            "seconds",
            "1 if a time daemon synchronised the system clock; 0 if not, or if the state is not known",
            Max,
            timestamps.synchronised
        ),
        quantity!(
            "clock_unsynchronised",
            "seconds",
            "1 if no time daemon synchronised the system clock; 0 if it did, or if the state is not known",
            Max,
            timestamps.unsynchronised
        ),
        quantity!(
            "clock_maximum_error_us",
            "microseconds",
            "maximum error of the system clock, as the kernel states it",
            Max,
            timestamps.maximum_error_micros
        ),
        quantity!(
            "clock_rate",
            "billionths",
            "rate of the system clock in relation to its oscillator: 1000000000 plus the correction in parts per \
             billion; 0 if it is not known",
            Max,
            timestamps.clock_rate
        ),
        quantity!(
            "clock_step_forward_ns",
            "nanoseconds",
            "largest step of the system clock forward; note_clock_step counts the steps",
            Max,
            timestamps.step_forward_nanos
        ),
        quantity!(
            "clock_step_back_ns",
            "nanoseconds",
            "largest step of the system clock back; note_clock_step counts the steps",
            Max,
            timestamps.step_back_nanos
        ),
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A row consists of the second, interface and direction (together one word), and the quantities. So the size of
    /// the type gives the number of quantities, and a quantity that is missing in the table is detected.
    #[test]
    fn every_quantity_of_a_row_is_in_the_table_once() {
        assert_eq!(size_of::<Row>(), 8 * (quantities().len() + 2));
        let mut row = Row::default();
        for (n, quantity) in quantities().iter().enumerate() {
            *quantity.of_mut(&mut row) = n as u64 + 1;
        }
        for (n, quantity) in quantities().iter().enumerate() {
            assert_eq!(quantity.of(&row), n as u64 + 1, "{} has the same field as another quantity", quantity.name);
        }
    }

    #[test]
    fn names_are_distinct_lower_case_words() {
        let names: BTreeSet<&str> = quantities().iter().map(|q| &*q.name).collect();
        assert_eq!(names.len(), quantities().len());
        for name in names {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        }
    }
}
