//! Finds the headers that a reader needs before it can begin in the middle of a capture. For pcap this is the file
//! header; for pcapng, these are the section header and the interface descriptions before the offset at which the
//! reader begins (draft-ietf-opsawg-pcapng, sections 4.1 and 4.2).
//!
//! The scan of pcapng blocks uses only lengths that [`pcap::Reader`] has checked.

use crate::{Origin, QueryContext};
use pcap::ng::InterfaceDescription;
use pcap::{ETHERNET, Format, MAX_BLOCK, classic};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The largest number of bytes of interface descriptions that are kept for one file.
const MAX: usize = 64 << 20;

/// Number of bytes of one read.
const WINDOW: usize = 128 << 10;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Size of the fixed fields of a section header, which the context stores without the options.
const SECTION_FIELDS: usize = 24;

/// The headers of a capture.
#[derive(Debug, Default)]
pub struct CaptureContext {
    sections: Vec<Section>,
    bytes: usize,
}

#[derive(Debug)]
struct Section {
    /// Offset of the section.
    at: u64,
    /// End of the section header, options included.
    header_end: u64,
    big: bool,
    /// The bytes that a reader needs before the packets: the section header, then all interface descriptions.
    head: Vec<u8>,
    header: usize,
    interfaces: Vec<Interface>,
}

/// One interface of a section.
#[derive(Debug)]
pub struct Interface {
    /// Byte range of the interface description.
    range: Range<u64>,
    /// Length of the part of `head` up to the end of this interface description.
    head: usize,
    name: String,
    filter: String,
    snaplen: u32,
    link_type: u16,
    origin: Option<usize>,
}

impl CaptureContext {
    /// The initial context: for a format without sections, the file header and its single interface; for pcapng, empty.
    ///
    /// # Errors
    /// If the headers of the file cannot be read.
    pub fn begin(format: Format, file: &File) -> io::Result<Self> {
        let mut head = vec![0; if format == Format::Pcap { classic::FILE_HEADER } else { 0 }];
        file.read_exact_at(&mut head, 0)?;
        let (link_type, snaplen) = match head.first_chunk::<{ classic::FILE_HEADER }>() {
            None => (ETHERNET, 0),
            Some(h) => {
                let magic = u32::from_le_bytes([h[0], h[1], h[2], h[3]]);
                // The reader has recognised the file, so the magic number is valid in one of the two byte orders.
                let big = ![0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34].contains(&magic);
                (u32_at(h, 20, big) as u16, u32_at(h, 16, big))
            }
        };
        let mut sections = Vec::new();
        if format != Format::PcapNg {
            let interface = Interface {
                range: 0..head.len() as u64,
                head: head.len(),
                name: String::new(),
                filter: String::new(),
                snaplen,
                link_type,
                origin: None,
            };
            sections.push(Section {
                at: 0,
                header_end: 0,
                big: false,
                header: head.len(),
                head,
                interfaces: vec![interface],
            });
        }
        Ok(Self { sections, bytes: 0 })
    }

    /// Reads the context from the capture file, at the byte ranges that its index contains.
    ///
    /// # Errors
    /// If the file cannot be read, or the ranges contain something other than the expected headers.
    pub fn restore(format: Format, file: &File, ranges: &[Range<u64>]) -> io::Result<Self> {
        let mut context = Self::begin(format, file)?;
        if format == Format::PcapNg {
            let size = file.metadata()?.len();
            for range in ranges {
                if range.end > size {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the index contains an offset after the end of the capture",
                    ));
                }
                // The index has a limited number of ranges with interface descriptions. The last range may therefore
                // also contain packets, up to the last interface description of the file.
                let mut scan = BlockScan::new(file, range.end);
                scan.at = range.start;
                scan.big = context.sections.last().is_some_and(|s| s.big);
                scan.pass(range.end, &mut context)?;
                if scan.at != range.end {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the index contains an offset at which there is no header",
                    ));
                }
            }
        }
        Ok(context)
    }

    /// The byte ranges of the context in the file, in order.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let section = |s: &Section| {
            let header = s.at..s.header_end;
            std::iter::once(header).chain(s.interfaces.iter().map(|i| i.range.clone())).collect::<Vec<_>>()
        };
        self.sections.iter().flat_map(section).filter(|r| !r.is_empty()).collect()
    }

    /// The header bytes that a reader needs before it can begin at this offset.
    pub fn head(&self, at: u64) -> &[u8] {
        let Some(section) = self.section(at) else { return &[] };
        let before = section.interfaces.partition_point(|i| i.range.start < at.max(1));
        let len = before.checked_sub(1).map_or(section.header, |last| section.interfaces[last].head);
        &section.head[..len.min(section.head.len())]
    }

    /// The origin of a packet at this offset with this interface number. `None` if the interface has no description
    /// before this offset, or is not selected by the query. `name` is used for an interface without a name.
    pub fn origin(&mut self, at: u64, number: u32, name: &str, query_context: &mut QueryContext) -> Option<usize> {
        let i = self.sections.partition_point(|s| s.at <= at).checked_sub(1)?;
        let interface = self.sections[i].interfaces.get_mut(number as usize)?;
        if let Some(origin) = interface.origin {
            return (origin != usize::MAX).then_some(origin);
        }
        let shown = if interface.name.is_empty() { name } else { &interface.name };
        let asked = &query_context.query.interfaces;
        let wanted = asked.is_empty() || asked.iter().any(|a| a == shown);
        let origin = wanted.then(|| {
            query_context.origin(Origin {
                interface: shown.to_owned(),
                queue: 0,
                link_type: interface.link_type,
                snaplen: interface.snaplen,
                filter: interface.filter.clone(),
                timestamp_source: String::new(),
            })
        });
        interface.origin = Some(origin.unwrap_or(usize::MAX));
        origin
    }

    /// The link types of all interfaces.
    pub fn link_types(&self) -> BTreeSet<u16> {
        self.sections.iter().flat_map(|section| &section.interfaces).map(|interface| interface.link_type).collect()
    }

    /// The link type and snaplen of the first interface.
    pub fn first(&self) -> (u16, u32) {
        let interface = self.sections.iter().find_map(|s| s.interfaces.first());
        interface.map_or((ETHERNET, 0), |i| (i.link_type, i.snaplen))
    }

    fn section(&self, at: u64) -> Option<&Section> {
        self.sections.get(self.sections.partition_point(|s| s.at <= at).checked_sub(1)?)
    }

    fn add(&mut self, bytes: usize) -> io::Result<()> {
        self.bytes += bytes;
        if self.bytes <= MAX {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the capture has more than {} MiB of interface descriptions", MAX >> 20),
        ))
    }
}

/// A scan of the blocks of a pcapng file.
pub struct BlockScan<'a> {
    file: &'a File,
    end: u64,
    at: u64,
    big: bool,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> BlockScan<'a> {
    /// A scan from the beginning.
    pub fn new(file: &'a File, end: u64) -> Self {
        Self { file, end, at: 0, big: false, window: Vec::new(), window_at: 0 }
    }

    /// Scans the blocks that begin before this offset.
    ///
    /// # Errors
    /// If the file cannot be read, or its interface descriptions exceed the maximum size.
    #[inline]
    pub fn pass(&mut self, until: u64, context: &mut CaptureContext) -> io::Result<()> {
        while self.at < until && self.step(context)? {}
        Ok(())
    }

    /// Scans the next block. Returns false if the file has no further complete block, or if the block length is
    /// invalid.
    fn step(&mut self, context: &mut CaptureContext) -> io::Result<bool> {
        let Some(&head) = self.bytes(12)?.and_then(|b| b.first_chunk::<12>()) else { return Ok(false) };
        let kind = u32_at(&head, 0, false);
        if kind == SECTION {
            self.big = u32_at(&head, 8, false) != BYTE_ORDER_MAGIC;
        }
        let big = self.big;
        let len = u32_at(&head, 4, big);
        if len < 12 {
            return Ok(false);
        }
        if kind == SECTION {
            let Some(fields) = self.bytes(SECTION_FIELDS)? else { return Ok(false) };
            // The options of the block, which may have any length, are omitted, so both length fields of the block are
            // reduced accordingly.
            let short = (SECTION_FIELDS + 4) as u32;
            let mut bytes = [fields, &[0; 4]].concat();
            for at in [4, SECTION_FIELDS] {
                bytes[at..at + 4].copy_from_slice(&if big { short.to_be_bytes() } else { short.to_le_bytes() });
            }
            context.add(bytes.len())?;
            context.sections.push(Section {
                at: self.at,
                header_end: self.at + u64::from(len),
                big,
                header: bytes.len(),
                head: bytes,
                interfaces: Vec::new(),
            });
        } else if u32_at(&kind.to_le_bytes(), 0, big) == INTERFACE {
            self.interface(len, context)?;
        }
        self.at += u64::from(len);
        Ok(true)
    }

    fn interface(&mut self, len: u32, context: &mut CaptureContext) -> io::Result<()> {
        let (at, big) = (self.at, self.big);
        if len > MAX_BLOCK {
            return Ok(());
        }
        let Some(bytes) = self.bytes(len as usize)? else { return Ok(()) };
        let Some(reported) = InterfaceDescription::of(bytes, big) else { return Ok(()) };
        let Some(section) = context.sections.last_mut() else { return Ok(()) };
        section.head.extend_from_slice(bytes);
        section.interfaces.push(Interface {
            range: at..at + u64::from(len),
            head: section.head.len(),
            name: reported.name,
            filter: reported.filter,
            snaplen: reported.snaplen,
            link_type: reported.link_type,
            origin: None,
        });
        context.add(len as usize)
    }

    /// Reads `len` bytes at the current offset; `None` if fewer bytes remain in the file.
    fn bytes(&mut self, len: usize) -> io::Result<Option<&[u8]>> {
        let end = self.at + len as u64;
        if end > self.end {
            return Ok(None);
        }
        if self.at < self.window_at || end > self.window_at + self.window.len() as u64 {
            self.window.resize(WINDOW.max(len), 0);
            self.window_at = self.at;
            let most = (self.end - self.at).min(self.window.len() as u64) as usize;
            self.window.truncate(most);
            let mut got = 0;
            while got < most {
                match self.file.read_at(&mut self.window[got..], self.at + got as u64) {
                    Ok(0) => break,
                    Ok(n) => got += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            self.window.truncate(got);
        }
        let from = (self.at - self.window_at) as usize;
        Ok(self.window.get(from..from + len))
    }
}

fn u32_at(b: &[u8], at: usize, big: bool) -> u32 {
    let b = [b[at], b[at + 1], b[at + 2], b[at + 3]];
    if big { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) }
}
