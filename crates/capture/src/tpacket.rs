//! TPACKET_V3.

use crate::{Counts, Frame, Polled, Source, SourceError, SourceInfo};
use std::time::Duration;

/// TPACKET_V3.
pub struct Tpacket(SourceInfo);

impl Source for Tpacket {
    fn info(&self) -> &SourceInfo {
        &self.0
    }
    fn poll<F: FnMut(&Frame<'_>)>(&mut self, _budget: usize, _wait: Duration, _take: F) -> Result<Polled, SourceError> {
        Ok(Polled::End)
    }
    fn counts(&mut self) -> Result<Counts, SourceError> {
        Ok(Counts::default())
    }
    fn stop(&mut self) {}
}
