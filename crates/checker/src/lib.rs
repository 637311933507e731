//! Independent check of stored frames: what of the generator's traffic is on disk, and is it whole?
//!
//! Shares no code with the engine, not even a word of `base`: it knows the drawing below and the two file formats, and
//! reads nothing but the files. What it says can therefore be held against what the engine says of itself.
//!
//! ```text
//! byte  0        6        12     14        24    26        30        34    36    38    40
//!      +--------+--------+------+---------+-----+---------+---------+-----+-----+-----+-----+
//!      | to     | from   | 0800 | IPv4 .. | sum | source  | destin. | src | dst | len |  0  |
//!      +--------+--------+------+---------+-----+---------+---------+-----+-----+-----+-----+
//!       42      44                 50                 56               n-4            n
//!      +-------+------------------+------------------+----- - - ------+--------------+
//!      | magic | sequence, 48 bit | departure, 48 bit|     filling    |    CRC32C    |
//!      +-------+------------------+------------------+----- - - ------+--------------+
//! ```
//!
//! All big-endian; `n` is at least 60. Both hardware addresses begin 02:6e:67 and `magic` is 0x6e67. A frame with two of
//! these three marks is ours, so that damage to one of them is found as damage; any other frame is *foreign* (neighbour
//! discovery and the like) and only counted. `departure` is the low 48 bits of UTC nanoseconds; the stamp of the record
//! restores the rest, provided that both are less than 39 hours apart.
//!
//! The terms: a sequence number is *missing* if no frame with it arrived whole. A *damaged* frame is there, but its CRC
//! contradicts its bytes; since its number cannot be believed, that number counts as missing as well. A frame is
//! *duplicated* if its number came before, and *reordered* (RFC 4737) if it is the first with its number but a greater
//! number came before it. A frame is *cut* if less of it is stored than was on the wire; its number counts as having
//! arrived, unverified.
//!
//! Memory: 8 KiB for each 65 536 sequence numbers of which some are missing so far, 64 bytes where none is, together at
//! most [`MEMORY_LIMIT`] — enough for 500 million frames even if some of every 65 536 are lost.
#![forbid(unsafe_code)]

mod check;
mod crc;
mod files;
mod frame;
mod latency;
mod records;
mod report;
mod sequences;

pub use check::{CheckError, Options, check};
pub use latency::Latency;
pub use report::{Defect, Example, Report};
pub use sequences::MEMORY_LIMIT;
