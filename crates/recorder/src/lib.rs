//! The recorder writes the packets of the shared ring to pcap files and counts each packet as stored or lost.
//!
//! The ring holds a stream of nanosecond-pcap records divided into segments. A packet file is a contiguous range of
//! that stream, so it is written to the device without a copy in memory. Two state machines do the work, each on its
//! own thread. The [`cutter`] reads the descriptors, divides the stream into blocks, and builds their index. The
//! [`writer`] writes blocks and index to a [`store::Device`] and publishes complete files by renaming them.
//! [`Recorder`] runs both state machines; [`Feed`] is the interface through which they read the ring.

mod chain;
pub mod cutter;
pub mod feed;
mod future_files;
mod ring_feed;
mod run;
mod wall_clock;
pub mod writer;

pub use feed::{Feed, Wait};
pub use ring_feed::RingFeed;
pub use run::{Handle, Recorder, Summary, ThreadWaits};
pub use wall_clock::WallClock;
pub use writer::{Config, Event, Format, Writer};
