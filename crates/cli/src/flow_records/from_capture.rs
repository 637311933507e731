//! Flow records and series rows made from capture files, for `flows -r` and `series -r`: the records and rows equal
//! those that `run -r` would store.

use super::names::Names;
use crate::outcome::Failure;
use crate::run::sources;
use crate::signals;
use capture::SourceError;
use engine::SourcePlan;
use filter::Filter;
use meter::{MeterOutput, MeterPlan, OfflineMeter};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::MeterKey;
use store::meter_key::MeterKeyError;

/// The data type to make from the packets.
#[derive(Clone, Debug)]
pub enum MeteredKind {
    /// Flow records.
    Flows,
    /// Series rows of the packets that match the filter. Flows are counted only if the filter matches all packets.
    Rows(Filter),
}

/// Captures that are metered as one stream. Their interfaces are metered separately, one after the other.
pub struct Captures {
    /// The sources of the interfaces that have not been opened yet, in order.
    ports: std::vec::IntoIter<SourcePlan>,
    wanted: MeteredKind,
    open: Option<OfflineMeter>,
    /// The number of interfaces of the captures that were opened so far.
    number: u16,
    labels: Vec<String>,
    /// The error because of which packets of an interface could not be read.
    broken: Option<CaptureError>,
    stop: Arc<AtomicBool>,
}

/// The reason why no more flow records or rows can be made from the captures.
#[derive(Debug)]
pub enum CaptureError {
    /// The first capture is in a store, and the address key of this store cannot be read.
    Key(MeterKeyError),
    /// A capture cannot be opened.
    Open(SourceError),
    /// A capture ended early: the name of the file and the cause.
    Truncated(String),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(e) => e.fmt(f),
            Self::Open(e) => e.fmt(f),
            Self::Truncated(text) => f.write_str(text),
        }
    }
}

/// True if the file is a capture that can be metered. Standard input is assumed to be such a capture.
pub fn is_capture(path: &Path) -> bool {
    path == Path::new("-") || capture::file::File::open(path, capture::file::Options::default()).is_ok()
}

impl Captures {
    /// Opens the files in the given order.
    ///
    /// # Errors
    /// The first file cannot be opened.
    pub fn open(paths: &[PathBuf], wanted: MeteredKind) -> Result<Self, Failure> {
        let (open, stop) = (None, signals::stop_flag());
        let ports = sources::captures(paths, &capture::file::Options::default(), None, &stop)?;
        let labels = ports.iter().map(SourcePlan::label).collect();
        let mut this = Self { ports: ports.into_iter(), wanted, open, number: 0, labels, broken: None, stop };
        this.open_next().map_err(Failure::say)?;
        Ok(this)
    }

    /// Opens the next interface of the captures, if any.
    fn open_next(&mut self) -> Result<(), CaptureError> {
        let Some(source) = self.ports.next() else { return Ok(()) };
        let MeterKey(key) = engine::key_of_files(&source).map_err(CaptureError::Key)?;
        let filter = match &self.wanted {
            MeteredKind::Flows => Filter::default(),
            MeteredKind::Rows(filter) => filter.clone(),
        };
        let config =
            || flow::Config { seed: key, capacity: engine::default_flows(1) as usize, ..flow::Config::default() };
        let plan = MeterPlan {
            key,
            flows: filter.is_empty().then(config),
            series: matches!(self.wanted, MeteredKind::Rows(_)),
            ..MeterPlan::new(self.number)
        };
        let (files, options) = source.files();
        self.open = Some(OfflineMeter::open(&files, options, &plan, filter).map_err(CaptureError::Open)?);
        self.number += 1;
        Ok(())
    }

    /// Adds to `names` the name and number of each interface that was opened so far.
    pub fn name(&self, names: &mut Names) {
        self.labels.iter().enumerate().for_each(|(number, label)| names.set(number as u16, label));
    }

    /// The next flow record or row; `None` at the end or after the stop flag is set.
    ///
    /// # Errors
    /// The error because of which packets of an interface could not be read. It is returned after all flow records and
    /// rows of the readable packets.
    pub fn next(&mut self) -> Result<Option<MeterOutput>, CaptureError> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                self.open = None;
                return Ok(None);
            }
            let Some(open) = &mut self.open else { return self.broken.take().map_or(Ok(None), Err) };
            let made = open.next();
            // The meter makes both flow records and rows; the caller needs one data type.
            match (&made, &self.wanted) {
                (Some(MeterOutput::Record(_)), MeteredKind::Rows(_)) => continue,
                (Some(_), _) => return Ok(made),
                (None, _) => {}
            }
            open.result().warnings.iter().for_each(|warning| sys::say!("netgrain: {warning}"));
            self.broken = self.broken.take().or_else(|| open.result().broken.clone().map(CaptureError::Truncated));
            self.open = None;
            self.open_next()?;
        }
    }
}
