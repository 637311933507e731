//! Converts capture files: changes their format, truncates packets, splits and merges files, anonymises addresses.
//!
//! [`convert`] takes any number of [`Input`]s and a [`Plan`], and writes into the files that a [`Files`] creates. It
//! reads from `Read` and writes to `Write`; the caller opens, names and publishes the files.
//!
//! Invariant: every packet and all information about packets is either written or counted. `read = written + outside +
//! filtered + duplicate` in every [`Report`], and information that the target format cannot hold (the direction of a
//! packet in pcap, its nanoseconds in microsecond pcap) is counted there by name.
//!
//! ```
//! use netgrain_convert::{Input, Memory, Plan, convert};
//! # use base::Timestamp;
//! # use pcap::classic::{Resolution, Writer};
//! let mut file = Writer::new(Vec::new(), Resolution::Nanos, 1)?;
//! file.write(Timestamp::from_secs_nanos(1_000_000_000, 7), 60, &[0; 60])?;
//! let bytes = file.finish()?;
//!
//! let input = Input::open("in.pcap", &bytes[..]).unwrap();
//! let mut memory = Memory::default();
//! let report = convert(vec![input], &Plan { snaplen: 14, ..Plan::default() }, &mut memory).unwrap();
//! assert_eq!((report.read, report.written, memory.files[0].len()), (1, 1, 24 + 16 + 14));
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod anonymise;
mod cut;
mod error;
mod files;
mod interface_tap;
mod merge;
mod output;
mod plan;
mod report;
mod run;
mod sort;

pub use anonymise::Anonymiser;
pub use error::Error;
pub use files::{Discard, Files, Memory};
pub use merge::Input;
pub use plan::{Format, Plan, Slice, Split, packer_of};
pub use report::{DamagedInput, DuplicateReport, FormatLosses, Report};
pub use run::{convert, convert_with_hints};
