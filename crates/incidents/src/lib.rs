//! Layer 1: simulated time series of two weeks with labelled incidents, to measure detectors.
//!
//! [`simulate`] makes a [`Series`] of a [`SeriesKind`] from a seed: a level with daily and weekly seasons, a holiday
//! and a drift; noise with correlation, heavy tails and slow components; gaps and short bursts, which are no incidents;
//! and [`Incident`]s of ten kinds at strengths from 2 to 20 standard deviations.
//!
//! The unit of strength is the standard deviation of the noise about its level in the hour of the incident, before
//! bursts and incidents are added. It includes the slow components of the noise and its tails.
//!
//! [`score`] compares the alarms of a detector with the incidents.
#![forbid(unsafe_code)]

mod incident;
mod noise;
mod score;
mod season;
mod series;

pub use incident::{Incident, IncidentKind};
pub use score::{Found, Score, score};
pub use series::{BEGIN, SECONDS, Series, SeriesKind, simulate};
