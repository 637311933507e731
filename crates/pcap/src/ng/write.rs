//! Writing of pcapng, with the options that report losses.

use super::{BYTE_ORDER_MAGIC, NANOSECONDS, block, option};
use crate::classic::within_limit;
use crate::{Direction, MAX_PACKET};
use base::Timestamp;
use std::io::{self, Write};

/// The options of a section; empty texts are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionOptions<'a> {
    /// The hardware.
    pub hardware: &'a str,
    /// The operating system.
    pub os: &'a str,
    /// The name of the program that writes the file.
    pub application: &'a str,
    /// A comment.
    pub comment: &'a str,
}

/// The description of an interface; empty texts are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceOptions<'a> {
    /// The name of the interface in its operating system.
    pub name: &'a str,
    /// A description in one line.
    pub description: &'a str,
    /// The capture filter, in the syntax of libpcap.
    pub filter: &'a str,
    /// The hardware of the interface.
    pub hardware: &'a str,
    /// The operating system of the interface's host.
    pub os: &'a str,
    /// A comment.
    pub comment: &'a str,
    /// The link type in the numbering of pcap.
    pub link_type: u16,
    /// Largest number of bytes that the capture stores of each packet; 0 if there is no limit.
    pub snaplen: u32,
}

/// The options of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions {
    /// The direction.
    pub direction: Direction,
    /// Number of packets lost between this packet and the previous packet of the same interface; `None` if the number
    /// is unknown.
    pub drops: Option<u64>,
    /// Number of the hardware queue of the packet.
    pub queue: Option<u32>,
}

/// The statistics of an interface at the end of a section. Counts are in packets; unknown counts are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics<'a> {
    /// Begin of the capture.
    pub start: Option<Timestamp>,
    /// End of the capture.
    pub end: Option<Timestamp>,
    /// Number of packets that the interface received.
    pub received: Option<u64>,
    /// Number of packets that the interface lost because of missing resources.
    pub dropped: Option<u64>,
    /// Number of packets that the capture filter accepted.
    pub accepted: Option<u64>,
    /// Number of packets that the operating system or the capturing program lost.
    pub os_dropped: Option<u64>,
    /// Number of packets that were delivered to the user, which are the packets of this section.
    pub delivered: Option<u64>,
    /// A comment; an empty comment is omitted.
    pub comment: &'a str,
}

/// Writes one section. Wrap the sink in a `BufWriter` if it is not a buffer itself.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    block: Vec<u8>,
    has_options: bool,
    interfaces: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a section written by `application` on `os`; empty texts are omitted.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn new(sink: W, application: &str, os: &str) -> io::Result<Self> {
        Self::with(sink, &SectionOptions { application, os, ..SectionOptions::default() })
    }

    /// Begins a section with further options.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn with(sink: W, section: &SectionOptions<'_>) -> io::Result<Self> {
        let mut writer = Self { sink, block: Vec::new(), has_options: false, interfaces: 0 };
        writer.begin(block::SECTION);
        writer.u32(BYTE_ORDER_MAGIC);
        writer.u32(1); // version 1.0
        writer.u64(u64::MAX); // the length of the section is not specified
        writer.text(option::SHB_HARDWARE, section.hardware);
        writer.text(option::SHB_OS, section.os);
        writer.text(option::SHB_USERAPPL, section.application);
        writer.text(option::COMMENT, section.comment);
        writer.end()?;
        Ok(writer)
    }

    /// Describes an interface, with timestamps in nanoseconds, and returns its number.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn interface(&mut self, name: &str, link_type: u16) -> io::Result<u32> {
        self.describe(&InterfaceOptions { name, link_type, snaplen: MAX_PACKET, ..InterfaceOptions::default() })
    }

    /// Describes an interface with further options, with timestamps in nanoseconds, and returns its number.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn describe(&mut self, interface: &InterfaceOptions<'_>) -> io::Result<u32> {
        self.begin(block::INTERFACE);
        self.u32(u32::from(interface.link_type));
        self.u32(interface.snaplen);
        self.text(option::IF_NAME, interface.name);
        self.text(option::IF_DESCRIPTION, interface.description);
        self.option(option::IF_TSRESOL, &[NANOSECONDS]);
        if !interface.filter.is_empty() {
            // The first byte of the option gives the language of the filter: 0 is a libpcap expression.
            self.option(option::IF_FILTER, &[&[0], interface.filter.as_bytes()].concat());
        }
        self.text(option::IF_OS, interface.os);
        self.text(option::IF_HARDWARE, interface.hardware);
        self.text(option::COMMENT, interface.comment);
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Appends a packet with the captured bytes `data`.
    ///
    /// # Errors
    /// Any error that the sink returns. `InvalidInput`, with nothing written, for more than [`MAX_PACKET`] bytes or for
    /// an interface that was not described.
    pub fn packet(
        &mut self,
        interface: u32,
        ts: Timestamp,
        wire_len: u32,
        data: &[u8],
        options: PacketOptions,
    ) -> io::Result<()> {
        let caplen = within_limit(data)?;
        self.known(interface)?;
        self.begin(block::ENHANCED_PACKET);
        let stamp = ts.nanos().rotate_right(32).to_le_bytes();
        let lengths = (u64::from(wire_len.max(caplen)) << 32 | u64::from(caplen)).to_le_bytes();
        let mut fields = [0; 20];
        fields[..4].copy_from_slice(&interface.to_le_bytes());
        fields[4..12].copy_from_slice(&stamp);
        fields[12..].copy_from_slice(&lengths);
        self.block.extend_from_slice(&fields);
        self.block.extend_from_slice(data);
        self.pad();
        match options.direction {
            Direction::Unknown => {}
            Direction::Inbound => self.option(option::EPB_FLAGS, &1u32.to_le_bytes()),
            Direction::Outbound => self.option(option::EPB_FLAGS, &2u32.to_le_bytes()),
        }
        self.count(option::EPB_DROPCOUNT, options.drops);
        if let Some(queue) = options.queue {
            self.option(option::EPB_QUEUE, &queue.to_le_bytes());
        }
        self.end()
    }

    /// Writes the statistics of an interface as of `ts`.
    ///
    /// # Errors
    /// Any error that the sink returns; `InvalidInput` for an interface that was not described.
    pub fn statistics(&mut self, interface: u32, ts: Timestamp, reported: &Statistics<'_>) -> io::Result<()> {
        self.known(interface)?;
        self.begin(block::STATISTICS);
        self.u32(interface);
        self.timestamp(ts);
        for (code, moment) in [(option::ISB_STARTTIME, reported.start), (option::ISB_ENDTIME, reported.end)] {
            if let Some(moment) = moment {
                // Timestamps are two words, the upper word first; counts are 64-bit numbers in the byte order of the
                // section.
                self.option(code, &moment.nanos().rotate_right(32).to_le_bytes());
            }
        }
        self.count(option::ISB_IFRECV, reported.received);
        self.count(option::ISB_IFDROP, reported.dropped);
        self.count(option::ISB_FILTERACCEPT, reported.accepted);
        self.count(option::ISB_OSDROP, reported.os_dropped);
        self.count(option::ISB_USRDELIV, reported.delivered);
        self.text(option::COMMENT, reported.comment);
        self.end()
    }

    /// Flushes the sink, so that the reader of a pipe gets all packets written so far.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// The sink.
    pub fn sink(&self) -> &W {
        &self.sink
    }

    /// Flushes the sink and returns it.
    ///
    /// # Errors
    /// Any error that the sink returns.
    pub fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn known(&self, interface: u32) -> io::Result<()> {
        if interface < self.interfaces {
            return Ok(());
        }
        let text = format!("interface {interface} is not described; the file has {} interfaces", self.interfaces);
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.has_options = false;
        self.u32(kind);
        self.u32(0); // the length, set at the end of the block
    }

    fn end(&mut self) -> io::Result<()> {
        if self.has_options {
            self.u32(u32::from(option::END));
        }
        // Every block has at most one packet and texts of at most 64 KiB, so its length fits 32 bits.
        let len = self.block.len() as u32 + 4;
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.u32(len);
        self.sink.write_all(&self.block)
    }

    fn u32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn timestamp(&mut self, ts: Timestamp) {
        self.u64(ts.nanos().rotate_right(32));
    }

    fn count(&mut self, code: u16, count: Option<u64>) {
        if let Some(count) = count {
            self.option(code, &count.to_le_bytes());
        }
    }

    /// Writes a text option, truncated to 64 KiB; an empty text is omitted.
    fn text(&mut self, code: u16, text: &str) {
        let mut len = text.len().min(usize::from(u16::MAX) - 1);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        if len > 0 {
            self.option(code, &text.as_bytes()[..len]);
        }
    }

    /// Writes an option, truncated to 64 KiB.
    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.has_options = true;
        self.u32(u32::from(code) | (value.len() as u32) << 16);
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }
}
