//! Capture files over any `Read` and `Write`: classic pcap, pcapng, and the RAW format of the HPCAP thesis.
//!
//! [`Reader`] recognises the format and lends one packet after the other from a buffer that never becomes larger than
//! [`MAX_BLOCK`]. Files are untrusted input: the readers compare every length with a limit before they use it, every
//! error has the byte offset of its cause, and reading always ends. [`classic`], [`ng`] and [`raw`] describe the layout
//! of each format and have its writer. The functions that make headers are `const fn`.
//!
//! ```
//! use netgrain_pcap::{Reader, classic};
//! # use base::Timestamp;
//! let mut file = classic::Writer::new(Vec::new(), classic::Resolution::Nanos, 1)?;
//! file.write(Timestamp::from_secs_nanos(1, 5), 1500, b"the first bytes")?;
//! let bytes = file.finish()?;
//!
//! let mut reader = Reader::open(&bytes[..]).unwrap();
//! let packet = reader.next().unwrap().unwrap();
//! assert_eq!((packet.data, packet.wire_len), (&b"the first bytes"[..], 1500));
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod classic;
mod error;
mod link;
pub mod ng;
mod packet;
pub mod raw;
mod reader;
mod window;

pub use classic::{FILE_HEADER_NS, record_header_ns};
pub use error::{Compression, Error};
pub use link::LinkType;
pub use packet::{Direction, Packet, wire_raised};
pub use reader::{Format, Reader};

/// The largest accepted packet: 256 KiB, the `MAXIMUM_SNAPLEN` of libpcap.
pub const MAX_PACKET: u32 = 262_144;

/// The largest pcapng block that is parsed (larger blocks are skipped): 1 MiB.
pub const MAX_BLOCK: u32 = 1 << 20;

/// `LINKTYPE_ETHERNET`.
pub const ETHERNET: u16 = 1;
