//! The recorder: from the shared ring to files that anyone can read, every packet accounted for.
//!
//! The ring's bytes are already a stream of nanosecond-pcap records cut into segments, so a packet file is a stretch of
//! that stream, written from where it lies. Two machines do the work, each on its own thread: the [`cutter`] walks the
//! descriptors, cuts blocks, and builds their index; the [`writer`] moves blocks and index to a [`store::Device`] and
//! publishes whole files by renaming them. [`Recorder`] joins the two; [`Feed`] is what they need of the ring.

mod chain;
pub mod cutter;
pub mod feed;
mod future_files;
mod ring_feed;
mod run;
pub mod writer;

pub use feed::{Feed, Wait};
pub use future_files::WallClock;
pub use ring_feed::RingFeed;
pub use run::{Handle, Recorder, Summary, ThreadWaits};
pub use writer::{Config, Event, Format, Writer};
