//! The configuration of a meter.

/// The configuration of an interface's meter.
#[derive(Clone, Debug)]
pub struct MeterPlan {
    /// The interface number in records and series rows.
    pub interface: u16,
    /// The options of flow records; `None` if no flow records are made.
    pub flows: Option<flow::Config>,
    /// Number of shards of the flow table, at least 1. If there are several, each shard has its own thread. The records
    /// do not depend on this number.
    pub shards: usize,
    /// True if series rows are made.
    pub series: bool,
    /// The secret key of the hashes of addresses and of fragmented datagrams. The estimates of distinct addresses
    /// depend on it.
    pub key: u64,
}

impl MeterPlan {
    /// Returns a configuration with flow records, series rows and default options.
    pub fn new(interface: u16) -> Self {
        Self { interface, flows: Some(flow::Config::default()), shards: 1, series: true, key: 0 }
    }
}
