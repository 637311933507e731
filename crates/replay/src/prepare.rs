//! Makes the frames to send from captured packets: selects packets, handles truncated packets, rewrites, and chooses
//! the interface. The frames are collected in blocks.
//!
//! Invariant: each packet is counted once: `read = replayed + filtered + truncated + over_mtu + too_short +
//! other_link`, and a replayed packet makes one frame for each of its copies.

use crate::rewrite::{Position, RewriteCounts, Rewriter};
use crate::stream::CapturedPacket;
use base::Timestamp;
use filter::Filter;
use pcap::Direction;
use wire::{Ethernet, Headers, link};

/// The longest frame that can be sent, in bytes.
pub const MAX_FRAME: usize = 65_535 + Ethernet::LEN;

/// A block with this number of bytes or this number of frames is full.
pub const BLOCK_BYTES: usize = 256 << 10;
const BLOCK_FRAMES: usize = 4096;

/// The treatment of packets of which fewer bytes were captured than were on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncated {
    /// Truncated packets are not sent.
    #[default]
    Skip,
    /// Truncated packets are filled with zeros up to their length on the wire.
    Pad,
    /// The captured bytes of truncated packets are sent.
    Send,
}

/// The rule that chooses between two interfaces.
#[derive(Clone, Debug)]
pub enum SecondInterface {
    /// Packets that the capturing host sent go to the second interface.
    Outbound,
    /// Packets of all inputs except the first (number 0) go to the second interface: the packets of another file, or,
    /// if there is a single pcapng file, of another interface.
    OtherInputs,
    /// Packets that match this filter go to the second interface.
    Matching(Filter),
}

/// The selection and the treatment of packets.
#[derive(Clone, Debug)]
pub struct Preparation {
    /// Only packets that match this filter are sent.
    pub filter: Filter,
    /// The treatment of truncated packets.
    pub truncated: Truncated,
    /// The rule for a second interface; `None` if there is only one.
    pub second: Option<SecondInterface>,
    /// For each interface, the length in bytes of the longest frame without a VLAN tag that it accepts. A frame with a
    /// VLAN tag may be longer by the tag.
    pub longest: [usize; 2],
}

/// Counters of packets that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PacketCounts {
    /// Packets read from the inputs.
    pub read: u64,
    /// Packets of which frames were made.
    pub replayed: u64,
    /// Packets that do not match the filter.
    pub filtered: u64,
    /// Truncated packets that were skipped.
    pub truncated: u64,
    /// Packets that are longer than the MTU of the interface permits.
    pub over_mtu: u64,
    /// Packets shorter than an Ethernet header.
    pub too_short: u64,
    /// Packets of other link types than Ethernet.
    pub other_link: u64,
    /// Truncated packets that were filled with zeros; part of `replayed`.
    pub padded: u64,
    /// Truncated packets whose captured bytes were sent; part of `replayed`.
    pub sent_truncated: u64,
    /// Frames in which a requested change could not be made.
    #[serde(flatten)]
    pub rewrite: RewriteCounts,
}

impl PacketCounts {
    /// Adds the counters of other packets.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.replayed += other.replayed;
        self.filtered += other.filtered;
        self.truncated += other.truncated;
        self.over_mtu += other.over_mtu;
        self.too_short += other.too_short;
        self.other_link += other.other_link;
        self.padded += other.padded;
        self.sent_truncated += other.sent_truncated;
        self.rewrite.add(&other.rewrite);
    }

    /// Packets of which no frame was made, except those that the user excluded by the filter.
    pub fn skipped(&self) -> u64 {
        self.truncated + self.over_mtu + self.too_short + self.other_link
    }

    /// The difference of the two sides of the equation in the module documentation.
    pub fn residue(&self) -> i128 {
        i128::from(self.read) - i128::from(self.replayed + self.filtered + self.skipped())
    }
}

/// One frame of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// Timestamp of the packet of which the frame was made; `None` as in [`CapturedPacket::ts`].
    pub ts: Option<Timestamp>,
    /// Offset of the frame in the bytes of the block.
    pub begin: u32,
    /// Length in bytes.
    pub len: u32,
    /// The interface that sends the frame: 0 or 1.
    pub output: u8,
    /// True if the previous frame of the replay was made of the same packet.
    pub is_copy: bool,
}

/// Frames in the order in which they are sent.
#[derive(Debug)]
pub struct Block {
    /// The bytes of all frames.
    pub bytes: Vec<u8>,
    /// The frames.
    pub frames: Vec<FrameEntry>,
    /// Counters of the packets that were read for this block.
    pub counts: PacketCounts,
    /// True if a pass over the capture ends after this block.
    pub ends_pass: bool,
}

impl Default for Block {
    /// An empty block with the memory of a full block.
    fn default() -> Self {
        Self {
            bytes: Vec::with_capacity(BLOCK_BYTES + MAX_FRAME),
            frames: Vec::with_capacity(BLOCK_FRAMES),
            counts: PacketCounts::default(),
            ends_pass: false,
        }
    }
}

impl Block {
    /// The bytes of a frame.
    pub fn frame(&self, index: usize) -> &[u8] {
        let FrameEntry { begin, len, .. } = self.frames[index];
        &self.bytes[begin as usize..][..len as usize]
    }

    /// True if no more frames should be appended.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= BLOCK_BYTES || self.frames.len() >= BLOCK_FRAMES
    }

    /// Removes all frames and counters. The allocated memory is kept for further frames.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
        (self.counts, self.ends_pass) = (PacketCounts::default(), false);
    }
}

/// Makes frames from packets.
pub struct Preparer {
    preparation: Preparation,
    rewriter: Rewriter,
    is_unchanged: bool,
    /// The bytes of the packet of which several copies are made, or which is filled with zeros.
    packet: Vec<u8>,
    /// Number of frames made.
    number: u64,
    /// The packet whose copies are not all in a block yet, and the number of the next copy.
    pending: Option<Pending>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    ts: Option<Timestamp>,
    output: usize,
    wire_len: u32,
    pass: u64,
    copy: u32,
}

impl Preparer {
    /// A preparer with these settings.
    pub fn new(preparation: Preparation, rewriter: Rewriter) -> Self {
        let is_unchanged = rewriter.rewrite().is_none();
        Self { preparation, rewriter, is_unchanged, packet: Vec::new(), number: 0, pending: None }
    }

    /// Counts a packet and appends its frames to `block` until the block is full. Returns false if copies of the packet
    /// are missing; then the caller calls [`Preparer::more`] with the next block.
    pub fn take(&mut self, packet: &CapturedPacket<'_>, pass: u64, block: &mut Block) -> bool {
        block.counts.read += 1;
        let Some(output) = self.select(packet, block) else { return true };
        let whole = packet.wire_len as usize;
        let is_truncated = packet.bytes.len() < whole;
        match self.preparation.truncated {
            _ if !is_truncated => {}
            Truncated::Skip => {
                block.counts.truncated += 1;
                return true;
            }
            Truncated::Send => block.counts.sent_truncated += 1,
            Truncated::Pad => block.counts.padded += 1,
        }
        block.counts.replayed += 1;
        let is_padded = is_truncated && self.preparation.truncated == Truncated::Pad;
        if is_padded || self.rewriter.rewrite().copies() > 1 {
            // The packet is stored, because some copies may be made after its reader has overwritten its bytes.
            self.packet.clear();
            self.packet.extend_from_slice(packet.bytes);
            if is_padded {
                self.packet.resize(whole, 0);
            }
            self.pending = Some(Pending { ts: packet.ts, output, wire_len: packet.wire_len, pass, copy: 0 });
            return self.more(block);
        }
        let number = self.number;
        self.number += 1;
        if self.is_unchanged {
            push(block, packet.ts, output, false, |out| out.extend_from_slice(packet.bytes));
        } else {
            let (mut counts, position) = (RewriteCounts::default(), Position { output, pass, copy: 0, number });
            push(block, packet.ts, output, false, |out| {
                self.rewriter.append(packet.bytes, packet.wire_len, position, out, &mut counts);
            });
            block.counts.rewrite.add(&counts);
        }
        true
    }

    /// Appends further copies of the packet of the last call of [`Preparer::take`]. Returns false if copies are still
    /// missing.
    pub fn more(&mut self, block: &mut Block) -> bool {
        let Some(mut pending) = self.pending.take() else { return true };
        let Pending { ts, output, wire_len, pass, .. } = pending;
        while pending.copy < self.rewriter.rewrite().copies() {
            if block.is_full() {
                self.pending = Some(pending);
                return false;
            }
            let position = Position { output, pass, copy: pending.copy, number: self.number };
            let mut counts = RewriteCounts::default();
            push(block, ts, output, pending.copy > 0, |out| {
                self.rewriter.append(&self.packet, wire_len, position, out, &mut counts);
            });
            block.counts.rewrite.add(&counts);
            self.number += 1;
            pending.copy += 1;
        }
        true
    }

    /// The interface for a packet; `None`, after counting the reason, if no frame is made of the packet.
    fn select(&mut self, packet: &CapturedPacket<'_>, block: &mut Block) -> Option<usize> {
        let (settings, bytes) = (&self.preparation, packet.bytes);
        let counts = &mut block.counts;
        if packet.link_type != link::ETHERNET {
            counts.other_link += 1;
            return None;
        }
        if bytes.len() < Ethernet::LEN {
            counts.too_short += 1;
            return None;
        }
        let by_filter = matches!(settings.second, Some(SecondInterface::Matching(_)));
        let headers = match !settings.filter.is_empty() || by_filter {
            true => Headers::of(bytes, packet.wire_len, packet.link_type),
            false => Headers::default(),
        };
        let outgoing = packet.direction == Direction::Outbound;
        if !settings.filter.is_empty() && !settings.filter.matches_direction(bytes, packet.wire_len, &headers, outgoing)
        {
            counts.filtered += 1;
            return None;
        }
        let is_second = match &settings.second {
            None => false,
            Some(SecondInterface::Outbound) => outgoing,
            Some(SecondInterface::OtherInputs) => packet.input != 0,
            Some(SecondInterface::Matching(filter)) => {
                filter.matches_direction(bytes, packet.wire_len, &headers, outgoing)
            }
        };
        let output = usize::from(is_second);
        let len = match settings.truncated {
            Truncated::Send => bytes.len(),
            Truncated::Skip | Truncated::Pad => packet.wire_len as usize,
        };
        if self.is_too_long(bytes, len, output) {
            counts.over_mtu += 1;
            return None;
        }
        Some(output)
    }

    /// True if a frame of `len` bytes is longer than the interface accepts after the change of its tags.
    fn is_too_long(&self, bytes: &[u8], len: usize, output: usize) -> bool {
        const TAG: usize = 4;
        const VLAN: [u8; 2] = [0x81, 0];
        let sent = len.saturating_add_signed(self.rewriter.growth(bytes));
        let longest = self.preparation.longest[output].min(MAX_FRAME);
        if sent <= longest {
            return false;
        }
        // Few frames are that long, so the tag is looked for only here, and not in every frame.
        let (mut out, mut counts) = (Vec::new(), RewriteCounts::default());
        self.rewriter.append(
            &bytes[..bytes.len().min(64)],
            len as u32,
            Position { output, ..Position::default() },
            &mut out,
            &mut counts,
        );
        sent > longest + TAG || out.get(12..14) != Some(&VLAN)
    }
}

/// Appends the frame that `write` writes.
fn push(block: &mut Block, ts: Option<Timestamp>, output: usize, is_copy: bool, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = block.bytes.len();
    write(&mut block.bytes);
    let len = (block.bytes.len() - begin) as u32;
    block.frames.push(FrameEntry { ts, begin: begin as u32, len, output: output as u8, is_copy });
}
