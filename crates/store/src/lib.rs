//! The recorder: from the shared ring to files that anyone can read, every packet accounted for.
//!
//! The ring's bytes are already a stream of nanosecond-pcap records cut into segments, so a packet file is a stretch of
//! that stream, written from where it lies. Two machines do the work, each on its own thread: the [`cutter`] walks the
//! descriptors, cuts blocks, and builds their index; the [`writer`] moves blocks and index to a [`Device`] and publishes
//! whole files by renaming them. [`Recorder`] joins the two; [`Feed`] is what they need of the ring.

pub mod bytes;
pub mod cutter;
pub mod device;
pub mod feed;
mod gate;
pub mod index;
pub mod names;
pub mod recorder;
pub mod writer;

pub use bytes::{Bytes, Slice};
pub use device::{Device, DiskDevice, MemoryDevice};
pub use feed::{Feed, Wait};
pub use gate::GateFeed;
pub use recorder::{Handle, Recorder, Summary};
pub use writer::{Config, Event, Format, Writer};
