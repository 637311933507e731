//! Trains: bursts of packets with planned departures, for measurements of one-way delay, delay variation, loss, order
//! and bandwidth (HPCAP thesis §2.2.1 describes the generator ARGOS, which sends trains from hardware).
//!
//! A train has a number of bursts, and a burst has a number of packets. A [`TrainSpec`] gives the gaps between the
//! departures, [`Departures`] computes the planned departure of each packet, and [`TrainFrames`] makes the frames. Each
//! frame has a [`Payload`] with its numbers, its departure time and the error estimate of the clock, from which the
//! receiver computes all results.
//!
//! ```
//! # use base::{ErrorEstimate, Timestamp};
//! # use netgrain_gen::train::{DeparturePlace, Departures, TrainFrames, TrainSpec};
//! # use std::time::Duration;
//! let spec: TrainSpec = "train,bursts=2,per-burst=3,gap=10us,burst-gap=1ms,size=200".parse()?;
//! let (start, error) = (Timestamp::from_nanos(1 << 60), ErrorEstimate::of(Duration::from_micros(5), true));
//! let frames = TrainFrames::new(&spec);
//! let mut buf = vec![0; frames.max_len()];
//! for planned in Departures::new(&spec) {
//!     let at = start.after(planned.at);
//!     let len = frames.fill(&mut buf, &planned, at, DeparturePlace::Schedule, error);
//!     // … send buf[..len] at this time …
//!     assert_eq!(len, 200);
//! }
//! assert_eq!(Departures::new(&spec).last().map(|last| last.at), Some(Duration::from_micros(1040)));
//! # Ok::<(), netgrain_gen::train::TrainSpecError>(())
//! ```

mod departures;
mod frames;
mod layout;
mod payload;
mod spec;

pub use departures::{Departure, Departures};
pub use frames::TrainFrames;
pub use payload::{DeparturePlace, PAYLOAD_LEN, Payload, PayloadError};
pub use spec::{SIZES_MAX, TrainSpec, TrainSpecError};
