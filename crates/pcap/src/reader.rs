//! One reader for all formats: recognises the format by the first bytes, then lends packets.

use crate::classic::Classic;
use crate::ng::Ng;
use crate::packet::PacketBounds;
use crate::raw::Raw;
use crate::window::Window;
use crate::{ETHERNET, Error, Packet};
use std::fmt;
use std::io::Read;

/// The format of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap.
    Pcap,
    /// pcapng.
    PcapNg,
    /// RAW of the HPCAP thesis.
    Raw,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcap => "pcap",
            Self::PcapNg => "pcapng",
            Self::Raw => "RAW",
        })
    }
}

/// Reads a capture from any source; the source needs no buffering.
///
/// After an error the reader is at its end, except if [`Error::is_pause`] is true: then a retry may succeed.
pub struct Reader<R> {
    window: Window<R>,
    layout: Layout,
    current: Option<PacketBounds>,
    records: u64,
    ended: bool,
}

enum Layout {
    Classic(Classic),
    Ng(Ng),
    Raw(Raw),
}

impl Layout {
    /// Returns the parser for `format` if the file begins with the magic number of `format`.
    fn recognise<R: Read>(
        window: &mut Window<R>,
        head: [u8; 4],
        have: usize,
        format: Format,
    ) -> Result<Option<Self>, Error> {
        if have < head.len() {
            return Ok(None);
        }
        Ok(match format {
            Format::Pcap => match Classic::recognise(head) {
                Some(order) => Some(Self::Classic(Classic::open(window, order)?)),
                None => None,
            },
            Format::PcapNg if Ng::recognise(head) => Some(Self::Ng(Ng::open(window)?)),
            Format::PcapNg | Format::Raw => None,
        })
    }
}

/// The first four bytes of the source, and how many of these four bytes the source has.
fn head<R: Read>(window: &mut Window<R>) -> Result<([u8; 4], usize), Error> {
    let have = window.need(4)?.min(4);
    let mut head = [0; 4];
    head[..have].copy_from_slice(&window.bytes()[..have]);
    Ok((head, have))
}

impl<R: Read> Reader<R> {
    /// Recognises the format by its content and reads the headers, in pcapng up to the first interface. Opening cannot
    /// be resumed: a source without ready data must block instead of returning `WouldBlock` until this function
    /// returns.
    ///
    /// # Errors
    /// [`Error::NotACapture`] if the format is unknown, or an error in the headers.
    pub fn open(source: R) -> Result<Self, Error> {
        let mut window = Window::new(source);
        let (head, have) = head(&mut window)?;
        for format in [Format::Pcap, Format::PcapNg] {
            if let Some(layout) = Layout::recognise(&mut window, head, have, format)? {
                return Ok(Self::with(window, layout));
            }
        }
        if Raw::recognise(&mut window)? {
            return Ok(Self::with(window, Layout::Raw(Raw)));
        }
        Err(Error::NotACapture { head, have })
    }

    /// Like [`Reader::open`], for a file of known format. RAW files without recognisable content can be read only in
    /// this way.
    ///
    /// # Errors
    /// [`Error::NotACapture`] if the file has another format, or an error in the headers.
    pub fn open_as(source: R, format: Format) -> Result<Self, Error> {
        let mut window = Window::new(source);
        if format == Format::Raw {
            return Ok(Self::with(window, Layout::Raw(Raw)));
        }
        let (head, have) = head(&mut window)?;
        match Layout::recognise(&mut window, head, have, format)? {
            Some(layout) => Ok(Self::with(window, layout)),
            None => Err(Error::NotACapture { head, have }),
        }
    }

    fn with(window: Window<R>, layout: Layout) -> Self {
        Self { window, layout, current: None, records: 0, ended: false }
    }

    /// The next packet; `None` at the end of the file.
    ///
    /// # Errors
    /// A defect of the file, or an error of the source. Packets that were lent before the error are valid.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "an Iterator cannot lend its items")]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, Error> {
        self.advance()?;
        Ok(self.current())
    }

    /// Moves to the next packet; returns false if there is none. [`Reader::current`] lends the packet.
    ///
    /// # Errors
    /// The errors of [`Reader::next`].
    #[inline]
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.current = None;
        if self.ended {
            return Ok(false);
        }
        let found = match &mut self.layout {
            Layout::Classic(classic) => classic.advance(&mut self.window),
            Layout::Ng(ng) => ng.advance(&mut self.window),
            Layout::Raw(raw) => raw.advance(&mut self.window),
        };
        match found {
            Ok(found) => {
                self.ended = found.is_none();
                self.records += u64::from(found.is_some());
                self.current = found;
                Ok(!self.ended)
            }
            Err(e) => {
                self.ended = !e.is_pause();
                Err(e)
            }
        }
    }

    /// Lends at most `most` packets of classic pcap whose records are in memory already, and returns their number. The
    /// caller uses [`Reader::next`] for the packet after them, for damaged records and for other formats.
    #[inline]
    pub fn burst(&mut self, most: usize, each: impl FnMut(&Packet<'_>)) -> usize {
        let Layout::Classic(classic) = &self.layout else { return 0 };
        if self.ended {
            return 0;
        }
        self.current = None;
        let lent = classic.burst(&mut self.window, most, each);
        self.records += lent as u64;
        lent
    }

    /// The packet to which the reader moved last; may be called repeatedly.
    #[inline]
    pub fn current(&self) -> Option<Packet<'_>> {
        Some(self.current.as_ref()?.lend(self.window.buffer()))
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        match self.layout {
            Layout::Classic(_) => Format::Pcap,
            Layout::Ng(_) => Format::PcapNg,
            Layout::Raw(_) => Format::Raw,
        }
    }

    /// Returns the link type of the file. In pcapng it is that of the first interface described so far. RAW files
    /// contain Ethernet packets.
    pub fn link_type(&self) -> u16 {
        match &self.layout {
            Layout::Classic(classic) => classic.link_type(),
            Layout::Ng(ng) => ng.link_type(),
            Layout::Raw(_) => ETHERNET,
        }
    }

    /// The names of the interfaces that the current section has described so far, by interface number, at most 256 of
    /// them. A name is empty if the file has none; the list is empty in formats without interfaces.
    pub fn interfaces(&self) -> &[Box<str>] {
        match &self.layout {
            Layout::Ng(ng) => ng.names(),
            Layout::Classic(_) | Layout::Raw(_) => &[],
        }
    }

    /// The source of the bytes, so that the caller can use the functions of the source's type. Bytes that the caller
    /// reads from the source are missing in the reader.
    pub fn source_mut(&mut self) -> &mut R {
        self.window.source_mut()
    }

    /// Number of packets found so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of memory held, independent of the file's content: at most three times [`MAX_BLOCK`](crate::MAX_BLOCK).
    pub fn memory(&self) -> usize {
        let interfaces = match &self.layout {
            Layout::Ng(ng) => ng.memory(),
            Layout::Classic(_) | Layout::Raw(_) => 0,
        };
        self.window.capacity() + interfaces
    }
}
