//! The sample records of the benchmark, and their true sums.

use flow::Record;
use flow::sample::TrafficModel;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Number of different records: so large that no row group contains the random values of a record twice, because a
/// repetition would be compressible.
pub const SET: usize = 200_000;

/// Number of records that are prepared together: few enough to stay in the processor's cache.
pub const LENT: usize = 256;

/// For each source address: bytes on the wire, and bytes of IP packets from the source.
pub type ExpectedTotals = HashMap<IpAddr, (u64, u64)>;

/// The sample records and their averages.
pub struct Set {
    records: Vec<Record>,
    pub packets: f64,
    pub initial_packets: f64,
}

impl Set {
    pub fn new() -> Self {
        let mut traffic = TrafficModel::new(1, 20_000.0);
        let mut records: Vec<Record> = (0..SET).map(|_| traffic.record()).collect();
        // A meter exports records in order of their last packet.
        records.sort_by_key(Record::last);
        let mean = |sum: u64| sum as f64 / SET as f64;
        let packets = mean(records.iter().map(Record::packets).sum());
        let initial_packets = mean(records.iter().map(|record| record.initial_packets.len() as u64).sum());
        Self { records, packets, initial_packets }
    }

    /// Calls `each` with `records` records, a few at a time. A repeated record gets a later time and another flow id,
    /// since an exact repetition would compress.
    pub fn for_each_batch(&self, records: u64, mut each: impl FnMut(&[Record])) {
        let mut batch: Vec<Record> = Vec::with_capacity(LENT);
        let mut done = 0;
        while done < records {
            batch.clear();
            for n in done..records.min(done + LENT as u64) {
                let mut record = self.records[n as usize % SET].clone();
                later(&mut record, n / SET as u64);
                record.id = base::hash::mix64(n);
                batch.push(record);
            }
            done += batch.len() as u64;
            each(&batch);
        }
    }

    pub fn expected_totals(&self, records: u64) -> ExpectedTotals {
        let mut expected_totals = ExpectedTotals::new();
        for (i, record) in self.records.iter().enumerate() {
            let times = records / SET as u64 + u64::from((i as u64) < records % SET as u64);
            let sum = expected_totals.entry(record.key.src).or_default();
            *sum = (sum.0 + record.bytes() * times, sum.1 + record.directions[0].ip_bytes * times);
        }
        expected_totals
    }
}

/// Adds 10 s to the times of a record for each of `rounds` repetitions of the sample records.
fn later(record: &mut Record, rounds: u64) {
    let shift = Duration::from_nanos(10_000_000_007 * rounds);
    for direction in record.directions.iter_mut().filter(|direction| direction.packets > 0) {
        (direction.first, direction.last) = (direction.first.after(shift), direction.last.after(shift));
    }
    record.flow_start = record.flow_start.after(shift);
}
