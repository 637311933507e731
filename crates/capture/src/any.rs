//! One type for all sources. The match on the variant runs once per batch, and the inner loop is that of the source.

use crate::{Counts, FrameSink, Polled, Source, SourceError, SourceInfo, afxdp, file, sim, tpacket};
use std::time::Duration;

/// Any of the sources.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one value per engine thread; a box would add a memory access to every poll"
)]
pub enum AnySource {
    /// AF_XDP.
    AfXdp(afxdp::AfXdp),
    /// TPACKET_V3.
    Tpacket(tpacket::Tpacket),
    /// A capture file.
    File(file::File),
    /// The simulation.
    Sim(sim::Sim),
}

macro_rules! each {
    ($self:expr, $source:ident => $body:expr) => {
        match $self {
            AnySource::AfXdp($source) => $body,
            AnySource::Tpacket($source) => $body,
            AnySource::File($source) => $body,
            AnySource::Sim($source) => $body,
        }
    };
}

impl AnySource {
    /// Starts the delivery of frames, if the source was opened in the prepared state.
    ///
    /// # Errors
    /// Returns the kernel's error if the system call fails.
    pub fn begin(&self) -> Result<(), SourceError> {
        match self {
            Self::AfXdp(source) => source.begin(),
            Self::Tpacket(source) => source.begin(),
            Self::File(_) | Self::Sim(_) => Ok(()),
        }
    }

    /// Warnings: texts for people about conditions that the counters do not show.
    pub fn warnings(&self) -> Vec<String> {
        match self {
            Self::File(file) => file.warnings(),
            Self::AfXdp(_) | Self::Tpacket(_) | Self::Sim(_) => Vec::new(),
        }
    }
}

impl Source for AnySource {
    fn info(&self) -> &SourceInfo {
        each!(self, s => s.info())
    }

    fn poll_into<S: FrameSink>(&mut self, budget: usize, wait: Duration, sink: &mut S) -> Result<Polled, SourceError> {
        each!(self, s => s.poll_into(budget, wait, sink))
    }

    fn counts(&mut self) -> Result<Counts, SourceError> {
        each!(self, s => s.counts())
    }

    fn stop(&mut self) {
        each!(self, s => s.stop());
    }
}
