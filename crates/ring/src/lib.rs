//! The shared packet ring: one writer, many listeners, in this process or others.
//!
//! Packet bytes lie in a memory that is mapped twice back to back, as the very nanosecond-pcap stream that goes to disk;
//! beside them runs a ring of 32-byte descriptors ([`Desc`]). One [`Producer`] writes both, publishes per batch and never
//! waits: a [`LosslessReader`] that does not release in time makes it drop (with that gate's name on the loss), a lossy
//! [`Listener`] that is too slow is lapped and knows what it missed. Listeners in other processes come in through a Unix
//! socket ([`Server`], [`attach()`]) and get sealed, read-only mappings, so that none can hurt capture or each other.
//! Readers that are to get only some of the packets have a [`Branch`]: descriptors of their own over the same bytes.
//!
//! After HPCAP's buffer with listeners (Moreno, PhD thesis 2015, section 4.1), without its rule that the slowest listener
//! holds up everyone.

#[cfg(target_endian = "big")]
compile_error!("the ring's descriptors and pcap records are laid out for little-endian machines");

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
mod producer;
pub mod protocol;
mod search;

pub use attach::{AttachError, AttachPolicy, OfferedRing, Server, attach};
pub use branch::{BRANCH_DESCS_MAX, BRANCH_DESCS_MIN, Branch, BranchWriter};
pub use config::{CAPLEN_MAX, Config, Prefault, file_header};
pub use desc::{BLOCK, Control, DESC_BYTES, Desc, DescPosition, FILE_HEADER, RECORD_HEADER, flag};
pub use idle_backoff::IdleBackoff;
pub use layout::{ControlPage, CursorPage, NAME as NAME_BYTES, RingParameters};
pub use listener::{Listener, ListenerCounts};
pub use listener_registry::{JOIN_TIMEOUT, JoinError, ListenerRegistry, ListenerState, Mode, SLOTS};
pub use lossless_reader::LosslessReader;
pub use memory::RingMemory;
pub use packet::{Packet, RingFull};
pub use producer::Producer;
