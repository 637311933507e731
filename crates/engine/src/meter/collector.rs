//! A collector as an outlet: IPFIX or NetFlow v9 by an exporter of its own, which never holds the meter up.

use super::outlet::Outlet;
use super::report::OutletReport;
use crate::error::EngineError;
use base::Timestamp;
use export::{Clock, Counts, Exporter, Handle, Protocol, Settings, Target};
use flow::Record;
use series::Row;
use std::time::Duration;

/// In front of a target that is to be told in NetFlow v9 instead of IPFIX.
const NETFLOW: &str = "netflow9+";

/// How long a replay waits for a collector that is slower than its files.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where to, and in which protocol: `udp:HOST[:PORT]`, `netflow9+udp:HOST[:PORT]`, `tcp:…`, `multicast:…`, `file:PATH`.
///
/// # Errors
/// What is wrong with the text, and what would be right.
pub fn parse_target(text: &str) -> Result<(Protocol, Target), String> {
    let (protocol, rest) = match text.strip_prefix(NETFLOW) {
        Some(rest) => (Protocol::NetflowV9, rest),
        None => (Protocol::Ipfix, text),
    };
    let target: Target = rest.parse().map_err(|e: export::ParseTargetError| e.to_string())?;
    if protocol == Protocol::NetflowV9 && target.is_reliable() {
        return Err(format!("{text:?}: NetFlow v9 goes by UDP only; write netflow9+udp:HOST[:PORT]"));
    }
    Ok((protocol, target))
}

/// Exports the records and rows of one interface.
pub struct CollectorOutlet {
    name: String,
    handle: Handle,
    exporter: Option<Exporter>,
    counts: Counts,
    records: u64,
    rows: u64,
    told: Option<String>,
    series: bool,
}

impl CollectorOutlet {
    /// Begins; whether the collector is there shows later. A `patient` one is for packets that can wait, and takes the time
    /// from them.
    ///
    /// # Errors
    /// When the target is not understood, or the system refuses a thread.
    pub fn new(target: &str, interface: (u16, String), flows: bool, patient: bool) -> Result<Self, EngineError> {
        let (protocol, to) = parse_target(target).map_err(EngineError::Store)?;
        let mut settings = Settings { protocol, flows, interfaces: vec![interface], ..Settings::new(to) };
        if patient {
            (settings.patience, settings.clock) = (PATIENCE, Clock::Data);
        }
        let series = settings.series;
        let exporter = Exporter::start(settings).map_err(|e| EngineError::Store(e.to_string()))?;
        Ok(Self {
            name: target.to_owned(),
            handle: exporter.handle(),
            exporter: Some(exporter),
            counts: Counts::default(),
            records: 0,
            rows: 0,
            told: None,
            series,
        })
    }
}

impl Outlet for CollectorOutlet {
    fn kind(&self) -> &'static str {
        "export"
    }

    fn record(&mut self, record: &Record) {
        self.records += 1;
        // Why it was not taken is in the counts.
        let _ = self.handle.flow(record);
    }

    fn row(&mut self, row: &Row) {
        self.rows += u64::from(self.series);
        let _ = self.handle.row(row);
    }

    fn tick(&mut self, _: Timestamp) {
        self.counts = self.handle.counts();
    }

    fn finish(&mut self) {
        if let Some(exporter) = self.exporter.take() {
            self.counts = exporter.finish();
        }
    }

    fn report(&self) -> OutletReport {
        OutletReport {
            name: self.name.clone(),
            records: self.records,
            rows: self.rows,
            lost: self.counts.unsent.iter().sum(),
            trouble: self.counts.trouble.clone(),
        }
    }

    fn remarks(&mut self) -> Vec<String> {
        let fresh = self.counts.trouble.clone().filter(|trouble| self.told.as_ref() != Some(trouble));
        self.told.clone_from(&self.counts.trouble);
        fresh.map(|trouble| format!("{}: {trouble}", self.name)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_none_is_refused_with_what_would_be_right() {
        for text in ["", "udp", "netflow9+tcp:192.0.2.1", "netflow9+file:x", "sctp:192.0.2.1"] {
            let said = parse_target(text).expect_err(text);
            assert!(said.contains("udp:HOST"), "{text}: {said}");
        }
        assert!(matches!(parse_target("netflow9+udp:192.0.2.1"), Ok((Protocol::NetflowV9, _))));
        assert!(matches!(parse_target("multicast:eth1,ttl=3"), Ok((Protocol::Ipfix, _))));
    }
}
