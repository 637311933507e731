//! Layer 1: detectors of changes in time series with one value per second.
//!
//! A detector gets one [`Sample`] per second in order of time, and returns an [`Event`] when an alarm begins, reaches a
//! new peak, or ends. Each event has the observed value, the expected value and the band of normal values.
//!
//! * [`Threshold`]: fixed limits with a clear level, a minimum duration and a minimum time of return;
//! * [`Adaptive`], the default detector: an expected level by time of week and by recent values, and CUSUM on the
//!   standardised residuals with a designed rate of false alarms;
//! * [`SynFlood`]: CUSUM of the difference of SYN and FIN (Wang, Zhang and Shin, INFOCOM 2002);
//! * [`long_term`]: stationary and significant changes of the daily load (Mata, García-Dorado and Aracil, Computer
//!   Networks 56(2), 2012).
//!
//! A second without a value, or with a value that is not trusted, trains no baseline and gets no verdict; the alarm
//! counts such seconds.
//!
//! The crate reads no clock and makes no system call. The time is the second of the samples (packet time), so a replay
//! raises the alarms of the live run. Equal samples give equal events, also if the state was stored and restored
//! between two samples ([`state`]).
#![forbid(unsafe_code)]

pub mod adaptive;
pub mod cusum;
mod episode;
mod event;
mod levels;
pub mod long_term;
mod profile;
mod residuals;
mod sample;
mod slow;
pub mod state;
pub mod syn_flood;
pub mod threshold;

pub use adaptive::Adaptive;
pub use event::{Alarm, Change, EndReason, Event, Reading, Verdict};
pub use sample::{Sample, SampleCounts};
pub use syn_flood::SynFlood;
pub use threshold::Threshold;
