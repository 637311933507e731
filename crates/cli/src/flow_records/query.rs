//! A query for flow records: source, time and filter.

use crate::file_arguments::named_files;
use crate::inventory;
use crate::values::ValueError;
use crate::zone::Zone;
use aggregate::Plan;
use base::Timestamp;
use columns::DataFileKind;
use filter::FlowFilter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A hint for flow queries without result in a store that has flow records.
pub const FLOW_TIME_HINT: &str = "a flow record is written when its flow ends; packets are written at once";

/// The source of flow records.
pub enum RecordSource {
    /// A store.
    Store(PathBuf),
    /// Files of IPFIX messages, Parquet files or captures.
    Files(Vec<PathBuf>),
    /// IPFIX messages that arrive at this address. A multicast group is received by the named interface, or by the
    /// interface that the kernel chooses.
    Network(SocketAddr, Option<String>),
}

/// A checked flow query.
pub struct FlowQuery {
    pub source: RecordSource,
    pub from: Timestamp,
    pub to: Timestamp,
    /// The zone of printed times.
    pub zone: Zone,
    pub of_flows: FlowFilter,
    pub interfaces: Vec<String>,
    pub plan: Option<Plan>,
    pub limit: Option<u64>,
    pub follow: bool,
    /// With `--live`: the maximum time from the last packet of a flow to its record, if the user gave one.
    pub late: Option<Duration>,
    /// If set, only the flow with this ID is selected.
    pub id: Option<u64>,
    /// The names of the record fields that the query reads; `None` for all.
    pub fields: Option<Vec<String>>,
}

impl FlowQuery {
    /// A query for all records of one flow in a store.
    pub fn of_id(id: u64, store: &Path, from: Timestamp, to: Timestamp, interfaces: &[String]) -> Self {
        let of_flows = FlowFilter::default();
        let (source, interfaces) = (RecordSource::Store(store.to_owned()), interfaces.to_vec());
        let (plan, limit, follow, late) = (None, None, false, None);
        let zone = Zone::Utc;
        Self { source, zone, from, to, of_flows, interfaces, plan, limit, follow, late, id: Some(id), fields: None }
    }

    /// The path of the store; `None` if the query reads files or the network.
    pub fn store(&self) -> Option<&Path> {
        match &self.source {
            RecordSource::Store(store) => Some(store),
            _ => None,
        }
    }

    /// Advice for a query without result: the searched interval and the existing data.
    pub fn no_match_advice(&self) -> String {
        let filter = self.of_flows.to_string();
        let which = if filter.is_empty() { "flows".to_owned() } else { format!("flows of `{filter}`") };
        let source = match &self.source {
            RecordSource::Store(store) => match inventory::inventories(store) {
                Ok(found) => {
                    inventory::missing(store, &found, DataFileKind::Flows, &self.interfaces).unwrap_or_else(|| {
                        let has = inventory::print(&found, &self.interfaces, &self.zone);
                        format!("{} has {has}; {FLOW_TIME_HINT}", store.display())
                    })
                }
                Err(_) => format!("{} is empty now", store.display()),
            },
            RecordSource::Files(files) => format!("searched {}", named_files(files)),
            RecordSource::Network(group, _) => format!("listened to {group}"),
        };
        format!("no {which} {}; {source}", self.zone.interval_in_words(self.from, self.to))
    }
}

/// Parses a flow ID: a decimal number of 64 bits, as in flow records.
pub fn id(text: &str) -> Result<u64, ValueError> {
    text.parse().map_err(|_| {
        ValueError::new(format!("{text:?} is not a flow ID: write the number that `netgrain flows` prints"))
    })
}
