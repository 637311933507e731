//! The configuration of a meter.

/// The configuration of an interface's meter.
#[derive(Clone, Debug)]
pub struct MeterPlan {
    /// The interface number in records and rows.
    pub interface: u16,
    /// Make flow records.
    pub flows: Option<flow::Config>,
    /// Shards of the flow table, at least 1; each of several has a thread of its own. The records do not depend on the
    /// number.
    pub shards: usize,
    /// Make series rows.
    pub series: bool,
    /// The secret key of address and datagram hashes; the estimates of distinct addresses depend on it.
    pub key: u64,
}

impl MeterPlan {
    /// Makes a configuration with flow records and rows, and default options.
    pub fn new(interface: u16) -> Self {
        Self { interface, flows: Some(flow::Config::default()), shards: 1, series: true, key: 0 }
    }
}
