//! The sink that exports the flow records and series rows of one interface to one collector, by IPFIX or NetFlow v9.
//! The exporter sends from its own thread, so a slow collector does not delay the meter, except in a replay, which
//! waits for the collector.

use crate::error::{DestinationError, MeterError};
use crate::report::SinkReport;
use crate::sink::Sink;
use base::Timestamp;
use export::{Clock, Counts, Exporter, Fields, Handle, Protocol, Settings, Target};
use flow::Record;
use series::Row;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The prefix of a target that gets NetFlow v9 instead of IPFIX.
const NETFLOW: &str = "netflow9+";

/// The longest time that a replay waits for a collector that accepts no data.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An export target: transport, address and protocol, and the data types and fields to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Transport and address.
    pub target: Target,
    /// The protocol.
    pub protocol: Protocol,
    /// True if flow records are exported.
    pub flows: bool,
    /// True if series rows are exported.
    pub series: bool,
    /// The exported fields.
    pub fields: Fields,
}

impl Destination {
    /// Parses `udp:HOST[:PORT]`, `netflow9+udp:HOST[:PORT]`, `tcp:…`, `multicast:…` or `file:PATH`. An optional suffix
    /// `,kinds=flows`, `series` or `both` selects the data types, and `,fields=standard`, `biflow` or `full` the fields
    /// of the records ([`Fields`]).
    ///
    /// # Errors
    /// The text is invalid. The error names the invalid part and suggests a correction.
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        let (mut rest, mut kinds, mut fields) = (text, None, None);
        // `kinds` and `fields` follow the options of the target (`,ttl=3`), so they are removed from the end of the
        // text.
        while let Some((before, option)) = rest.rsplit_once(',') {
            match option.split_once('=') {
                Some(("kinds", of)) if kinds.is_none() => kinds = Some(of),
                Some(("fields", of)) if fields.is_none() => fields = Some(of),
                _ => break,
            }
            rest = before;
        }
        let (protocol, rest) = match rest.strip_prefix(NETFLOW) {
            Some(rest) => (Protocol::NetflowV9, rest),
            None => (Protocol::Ipfix, rest),
        };
        let target: Target = rest.parse().map_err(DestinationError::Target)?;
        if protocol == Protocol::NetflowV9 && target.is_reliable() {
            return Err(DestinationError::Netflow(text.to_owned()));
        }
        let defaults = Settings::new(target.clone());
        let (flows, series) = match kinds {
            None => (defaults.flows, defaults.series),
            Some("flows") => (true, false),
            Some("series") => (false, true),
            Some("both") => (true, true),
            Some(other) => return Err(DestinationError::Kinds(text.to_owned(), other.to_owned())),
        };
        let fields = match (protocol, fields) {
            // NetFlow v9 can encode only the standard fields.
            (Protocol::NetflowV9, None) | (_, Some("standard")) => Fields::Standard,
            (Protocol::NetflowV9, Some(other @ ("biflow" | "full"))) => {
                return Err(DestinationError::NetflowFields(text.to_owned(), other.to_owned()));
            }
            (Protocol::Ipfix, None) => defaults.encode.fields,
            (Protocol::Ipfix, Some("biflow")) => Fields::Biflow,
            (Protocol::Ipfix, Some("full")) => Fields::Full,
            (_, Some(other)) => return Err(DestinationError::Fields(text.to_owned(), other.to_owned())),
        };
        Ok(Self { target, protocol, flows, series, fields })
    }
}

/// How fast the packets come from which the flow records and series rows are made, and whether their source can wait.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Packets arrive in real time.
    Live,
    /// Simulated packets with simulated time; the source does not wait.
    Simulated,
    /// Packets are read from files. Reading waits for a slow collector until the replay is stopped.
    Replay {
        /// True if the replay is to be stopped.
        stop: Arc<AtomicBool>,
    },
}

/// Exports the records and series rows of one interface.
pub struct CollectorSink {
    name: String,
    handle: Handle,
    exporter: Option<Exporter>,
    counts: Counts,
    records: u64,
    rows: u64,
    reported: Option<String>,
    flows: bool,
    series: bool,
}

impl CollectorSink {
    /// Starts an exporter. The exporter connects later, so an unreachable collector causes no error here.
    ///
    /// # Errors
    /// The target is invalid, or the system cannot create a thread.
    pub fn new(target: &str, interface: (u16, String), pace: Pace) -> Result<Self, MeterError> {
        let to = Destination::parse(target)?;
        let mut settings =
            Settings { protocol: to.protocol, flows: to.flows, series: to.series, ..Settings::new(to.target) };
        // Collectors distinguish exporters by address and observation domain, not by port. Each interface has its own
        // observation domain, so that a collector does not mix the sequence numbers of two interfaces. For a multicast
        // target the exporter adds the interface number to the domain.
        if !matches!(settings.target, Target::Multicast { .. }) {
            settings.encode.domain = settings.encode.domain.wrapping_add(interface.0.into());
        }
        settings.interfaces = vec![interface];
        settings.encode.fields = to.fields;
        if !matches!(pace, Pace::Live) {
            settings.clock = Clock::Data;
        }
        if let Pace::Replay { stop } = pace {
            (settings.offer_timeout, settings.stop_waiting) = (TIMEOUT, stop);
        }
        let exporter = Exporter::start(settings).map_err(MeterError::Exporter)?;
        Ok(Self {
            name: target.to_owned(),
            handle: exporter.handle(),
            exporter: Some(exporter),
            counts: Counts::default(),
            records: 0,
            rows: 0,
            reported: None,
            flows: to.flows,
            series: to.series,
        })
    }
}

impl Drop for CollectorSink {
    fn drop(&mut self) {
        // If a reload fails after it has created this sink, the sink is dropped without use, and its exporter thread
        // must end.
        if let Some(exporter) = &self.exporter {
            exporter.leave();
        }
    }
}

impl Sink for CollectorSink {
    fn kind(&self) -> &'static str {
        "export"
    }

    fn record(&mut self, record: &Record) {
        self.records += u64::from(self.flows);
        // If the exporter discards the record, the exporter counts it with the cause, so the result is ignored.
        let _ = self.handle.flow(record);
    }

    fn row(&mut self, row: &Row) {
        self.rows += u64::from(self.series);
        let _ = self.handle.row(row);
    }

    fn tick(&mut self, _: Timestamp) {
        self.counts = self.handle.counts();
    }

    fn leave(&mut self) {
        if let Some(exporter) = &self.exporter {
            exporter.leave();
        }
    }

    fn has_left(&mut self) -> bool {
        self.counts = self.handle.counts();
        self.exporter.as_ref().is_none_or(Exporter::has_left)
    }

    fn finish(&mut self) {
        if let Some(exporter) = self.exporter.take() {
            self.counts = exporter.finish();
        }
    }

    fn report(&self) -> SinkReport {
        SinkReport {
            name: self.name.clone(),
            records: self.records,
            rows: self.rows,
            lost: self.counts.unsent.iter().sum(),
            error: self.counts.error.clone(),
        }
    }

    fn warnings(&mut self) -> Vec<String> {
        let new = self.counts.error.clone().filter(|error| self.reported.as_ref() != Some(error));
        self.reported.clone_from(&self.counts.error);
        new.map(|error| format!("{}: {error}", self.name)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_target_is_rejected_with_a_correction() {
        for (text, correction) in [
            ("", "udp:HOST"),
            ("udp", "udp:HOST"),
            ("netflow9+tcp:192.0.2.1", "udp:HOST"),
            ("netflow9+file:x", "udp:HOST"),
            ("sctp:192.0.2.1", "udp:HOST"),
            ("udp:192.0.2.1,kinds=rows", "kinds=series"),
            ("udp:,kinds=both", "host is missing"),
            ("udp:192.0.2.1,fields=all", "fields=biflow or fields=full"),
            ("netflow9+udp:192.0.2.1,fields=full", "udp:HOST[:PORT],fields=full"),
            ("netflow9+udp:192.0.2.1,fields=biflow", "udp:HOST[:PORT],fields=biflow"),
            ("udp:192.0.2.1,kinds=flows,kinds=both", "each once"),
        ] {
            let error = Destination::parse(text).expect_err(text).to_string();
            assert!(error.contains(correction), "{text}: {error}");
        }
    }

    #[test]
    fn flows_are_the_default_for_collectors_and_both_kinds_for_multicast_and_files() {
        let kinds = |text: &str| {
            let to = Destination::parse(text).unwrap_or_else(|e| panic!("{e}"));
            (to.protocol == Protocol::NetflowV9, to.flows, to.series)
        };
        assert_eq!(kinds("netflow9+udp:192.0.2.1"), (true, true, false));
        assert_eq!(kinds("tcp:192.0.2.1"), (false, true, false));
        assert_eq!(kinds("multicast:eth1,ttl=3"), (false, true, true));
        assert_eq!(kinds("file:x"), (false, true, true));
        assert_eq!(kinds("tcp:192.0.2.1:4740,kinds=both"), (false, true, true));
        assert_eq!(kinds("netflow9+udp:192.0.2.1,kinds=series"), (true, false, true));
        assert_eq!(kinds("multicast:eth1,ttl=3,kinds=flows"), (false, true, false));
    }

    #[test]
    fn the_options_fields_and_kinds_are_accepted_in_any_order() {
        let fields = |text: &str| Destination::parse(text).unwrap_or_else(|e| panic!("{e}")).fields;
        for target in ["udp:192.0.2.1", "tcp:192.0.2.1", "netflow9+udp:192.0.2.1"] {
            assert_eq!(
                fields(target),
                Fields::Standard,
                "the default fields are those that every collector counts correctly"
            );
        }
        assert_eq!((fields("file:x"), fields("multicast:eth1")), (Fields::Full, Fields::Full));
        assert_eq!(fields("udp:192.0.2.1,fields=biflow"), Fields::Biflow);
        assert_eq!(fields("tcp:192.0.2.1,fields=full"), Fields::Full);
        for text in ["file:x,fields=standard,kinds=flows", "file:x,kinds=flows,fields=standard"] {
            let to = Destination::parse(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((to.fields, to.series), (Fields::Standard, false), "{text}");
            assert_eq!(to.target, Target::File("x".into()), "{text}");
        }
    }
}
