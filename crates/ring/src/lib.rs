//! The shared packet ring: one producer and many readers, in this process or in others.
//!
//! The packet memory is mapped twice, at adjacent addresses, and contains the nanosecond-pcap stream exactly as the
//! recorder writes it to disk. A second ring contains 32-byte descriptors ([`Desc`]). One [`Producer`] writes both
//! rings, publishes once per batch and never blocks. If a [`LosslessReader`] does not release its packets in time, the
//! producer drops packets and counts the loss for that reader. The producer overtakes a lossy [`Listener`] that is too
//! slow, and this listener counts the packets that it missed. Listeners in other processes attach through a Unix socket
//! ([`Server`], [`attach()`]) and get sealed, read-only mappings. So a faulty listener can corrupt neither the capture
//! nor another listener. A reader that gets only a selection of the packets has a [`Branch`]: a separate descriptor
//! ring over the same packet bytes.
//!
//! The method follows HPCAP's buffer with listeners (Moreno, PhD thesis 2015, section 4.1), except that the slowest
//! listener does not stop the others.

#[cfg(target_endian = "big")]
compile_error!("the ring's descriptors and pcap records are laid out for little-endian machines");

mod annotation;
mod atomic;
mod attach;
mod back_pressure;
mod branch;
mod config;
mod desc;
mod idle_backoff;
mod layout;
mod listener;
mod listener_registry;
mod lossless_reader;
mod memory;
mod packet;
mod pending_discards;
mod pending_timestamps;
mod producer;
pub mod protocol;
mod search;

pub use annotation::{AnnotatedPosition, Annotations, STREAM_POSITION_MAX};
pub use attach::{AttachError, AttachPolicy, OfferedRing, Server, attach};
pub use branch::{BRANCH_DESCS_MAX, BRANCH_DESCS_MIN, Branch, BranchWriter};
pub use config::{CAPLEN_MAX, Config, Prefault, file_header};
pub use desc::{BLOCK, Control, DESC_BYTES, Desc, DescPosition, FILE_HEADER, RECORD_HEADER, TIMESTAMP_MAX, flag};
pub use idle_backoff::IdleBackoff;
pub use layout::{ControlPage, CursorPage, NAME as NAME_BYTES, RingParameters};
pub use listener::{Listener, ListenerCounts};
pub use listener_registry::{JOIN_TIMEOUT, JoinError, ListenerRegistry, ListenerState, Mode, SLOTS};
pub use lossless_reader::LosslessReader;
pub use memory::RingMemory;
pub use packet::{Packet, RingFull};
pub use producer::Producer;
