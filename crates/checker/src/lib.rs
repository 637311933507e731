//! Independent check of stored frames: which frames of the generator are on disk, and whether they are intact.
//!
//! The crate shares no code with the engine, not even with `base`. Its only inputs are the files, in two formats, with
//! frames of the layout below. So its results can verify the engine's own counters.
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
//! All fields are big-endian; `n` is at least 60. Both hardware addresses begin 02:6e:67 and `magic` is 0x6e67. A frame
//! with two of these three marks counts as a frame of the generator, so that damage to one mark is detected; any other
//! frame is *foreign* (neighbour discovery and the like) and only counted. `departure` is the low 48 bits of UTC
//! nanoseconds; the record's timestamp restores the upper bits, if both are less than 39 hours apart.
//!
//! Terms: a sequence number is *missing* if no intact frame has it. A *damaged* frame is stored, but its CRC
//! contradicts its bytes; its number is unreliable, so that number counts as missing too. A frame is *duplicated* if
//! an earlier frame has the same number, and *reordered* (RFC 4737) if it is the first with its number but an earlier
//! frame has a greater number. A frame is *truncated* if fewer of its bytes are stored than were on the wire; its
//! number counts as arrived, unverified.
//!
//! Memory: each range of 65 536 sequence numbers needs 8 KiB while some of its numbers are missing, and 64 bytes when
//! none is missing. In total the check uses at most [`MEMORY_LIMIT`]. This suffices for 500 million frames even if
//! every range has missing numbers.
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
