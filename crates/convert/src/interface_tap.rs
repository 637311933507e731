//! Records the interface descriptions of a pcapng file while the reader reads it.
//!
//! The packet reader skips everything that it does not need to decode packets. The conversion also needs the names and
//! comments of interfaces, to write them into the output. The block layout is in draft-ietf-opsawg-pcapng §3.1: type
//! and length, body, length again. Only section headers and interface descriptions are parsed, and only up to a limit;
//! invalid blocks are ignored, because the reader reports them.
//!
//! Invariant: the bytes are passed to the reader unchanged. The memory of this module is limited to one block and to
//! the interface descriptions of the sections that the reader has not yet read to their end.

pub use pcap::ng::InterfaceDescription;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;

/// A reader that passes bytes on and records the interface descriptions in them.
pub struct InterfaceTap<R> {
    source: R,
    passed: u64,
    /// True if no further interface description is recorded, because the input is no pcapng file or an invalid block
    /// was found.
    is_disabled: bool,
    little: bool,
    block: Vec<u8>,
    /// Number of bytes of the current block that still have to be skipped.
    skip: u64,
    sections: VecDeque<Section>,
}

struct Section {
    offset: u64,
    interfaces: Vec<Rc<InterfaceDescription>>,
}

mod kind {
    pub const SECTION: u32 = 0x0a0d_0d0a;
    pub const INTERFACE: u32 = 1;
}

/// Length of a block header.
const HEAD: usize = 8;
/// Length of the beginning of a section header, up to the byte-order magic.
const SECTION_HEAD: usize = 12;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Limits on the length of an interface description and on the number of interfaces of a section; descriptions and
/// interfaces beyond them are ignored.
const MAX_BLOCK: u64 = 256 << 10;
const MAX_INTERFACES: usize = 4096;

impl<R: Read> InterfaceTap<R> {
    pub fn new(source: R) -> Self {
        let sections = VecDeque::new();
        Self { source, passed: 0, is_disabled: false, little: true, block: Vec::new(), skip: 0, sections }
    }

    /// The description of interface `number` for the packet whose block begins at `offset`. Calls must be in the order
    /// of the packets in the file, because each call removes the descriptions of the sections before the packet's
    /// section.
    pub fn described(&mut self, offset: u64, number: u32) -> Option<Rc<InterfaceDescription>> {
        while self.sections.get(1).is_some_and(|next| next.offset <= offset) {
            self.sections.pop_front();
        }
        self.sections.front()?.interfaces.get(number as usize).cloned()
    }

    /// Parses the bytes that the reader received.
    fn parse(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_disabled {
            if self.skip > 0 {
                let len = self.skip.min(bytes.len() as u64);
                bytes = &bytes[len as usize..];
                self.skip -= len;
                self.passed += len;
                continue;
            }
            let needed_len = self.needed();
            let len = (needed_len - self.block.len()).min(bytes.len());
            self.block.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            self.passed += len as u64;
            if self.block.len() == needed_len {
                self.parse_block();
            }
        }
    }

    /// Number of bytes of the block that are needed before it can be parsed further.
    fn needed(&self) -> usize {
        match self.block.len() {
            0..HEAD => HEAD,
            HEAD..SECTION_HEAD if self.u32(0) == kind::SECTION => SECTION_HEAD,
            _ => self.u32(4) as usize,
        }
    }

    /// Parses the part of the block that is in `self.block`. Returns early if more bytes are needed; otherwise sets the
    /// number of bytes that remain to be skipped.
    fn parse_block(&mut self) {
        let (kind, have) = (self.u32(0), self.block.len());
        let offset = self.passed - have as u64;
        if offset == 0 && have == HEAD && kind != kind::SECTION {
            self.is_disabled = true;
            return;
        }
        if kind == kind::SECTION {
            if have == HEAD {
                return;
            }
            self.little =
                u32::from_le_bytes([self.block[8], self.block[9], self.block[10], self.block[11]]) == BYTE_ORDER;
            self.sections.push_back(Section { offset, interfaces: Vec::new() });
        }
        let len = u64::from(self.u32(4));
        if len < SECTION_HEAD as u64 || !len.is_multiple_of(4) {
            self.is_disabled = true;
            return;
        }
        let is_parsed = kind == kind::INTERFACE && len <= MAX_BLOCK;
        if is_parsed && have == HEAD {
            return;
        }
        if kind == kind::INTERFACE {
            let description = InterfaceDescription::of(&self.block, !self.little).filter(|_| is_parsed);
            self.add_interface(description.unwrap_or_default());
        }
        self.skip = len - have as u64;
        self.block.clear();
    }

    fn add_interface(&mut self, described: InterfaceDescription) {
        let Some(section) = self.sections.back_mut() else { return };
        if section.interfaces.len() < MAX_INTERFACES {
            section.interfaces.push(Rc::new(described));
        }
    }

    fn u32(&self, at: usize) -> u32 {
        let bytes = [self.block[at], self.block[at + 1], self.block[at + 2], self.block[at + 3]];
        if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}

impl<R: Read> Read for InterfaceTap<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.source.read(into)?;
        if !self.is_disabled {
            self.parse(&into[..len]);
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Prng, Timestamp};
    use pcap::ng::{InterfaceOptions, PacketOptions, Writer};

    /// A section with interfaces of these names, and one packet of each interface.
    fn section(names: &[&str]) -> Vec<u8> {
        let mut file = Writer::new(Vec::new(), "a test", "").unwrap();
        for name in names {
            let description = InterfaceOptions {
                name,
                filter: "tcp",
                comment: "of a test",
                snaplen: 99,
                ..InterfaceOptions::default()
            };
            let number = file.describe(&description).unwrap();
            file.packet(number, Timestamp::from_nanos(1), 5, b"bytes", PacketOptions::default()).unwrap();
        }
        file.finish().unwrap()
    }

    #[test]
    fn interfaces_are_recorded_by_section_for_reads_of_any_length() {
        let seed = testkit::seed("interfaces_are_recorded_by_section_for_reads_of_any_length");
        let mut prng = Prng::new(seed);
        let (first, second) = (section(&["eth0", "eth1"]), section(&["wlan0"]));
        let file = [&first[..], &second].concat();
        for round in 0..200 {
            let mut tap = InterfaceTap::new(&file[..]);
            let mut out = Vec::new();
            loop {
                let mut piece = vec![0; 1 + prng.below(90) as usize];
                let len = tap.read(&mut piece).unwrap();
                if len == 0 {
                    break;
                }
                out.extend_from_slice(&piece[..len]);
            }
            assert_eq!(out, file, "seed {seed}, round {round}");
            let mut name = |offset, number| tap.described(offset, number).map(|d| d.name.clone());
            assert_eq!(name(0, 0).as_deref(), Some("eth0"), "seed {seed}, round {round}");
            assert_eq!(name(first.len() as u64 - 1, 1).as_deref(), Some("eth1"));
            assert_eq!(name(first.len() as u64 + 60, 0).as_deref(), Some("wlan0"));
            assert_eq!(name(first.len() as u64 + 60, 1), None);
            let description = tap.described(first.len() as u64, 0).unwrap();
            assert_eq!(
                (description.filter.as_str(), description.comment.as_str(), description.snaplen),
                ("tcp", "of a test", 99)
            );
        }
    }

    #[test]
    fn both_byte_orders_are_parsed() {
        // A big-endian section (28 bytes) and an interface (link type 1, snaplen 9, name "be").
        let head = [0x0a0d_0d0au32, 28, BYTE_ORDER, 1 << 16, u32::MAX, u32::MAX, 28];
        let interface = [1u32, 28, 1 << 16, 9, 2 << 16 | 2, 0x6265_0000, 28];
        let file: Vec<u8> = head.iter().chain(&interface).flat_map(|word| word.to_be_bytes()).collect();
        let mut tap = InterfaceTap::new(&file[..]);
        io::copy(&mut tap, &mut io::sink()).unwrap();
        let description = tap.described(60, 0).expect("a description");
        assert_eq!((description.name.as_str(), description.snaplen), ("be", 9));
    }

    #[test]
    fn damaged_bytes_pass_unchanged_without_panic_within_the_memory_limit() {
        let seed = testkit::seed("damaged_bytes_pass_unchanged_without_panic_within_the_memory_limit");
        let mut prng = Prng::new(seed);
        let file = section(&["eth0", "a longer name than that"]);
        for round in 0..3000 {
            let mut damaged = file.clone();
            for _ in 0..1 + prng.below(4) {
                let at = prng.below(damaged.len() as u64) as usize;
                damaged[at] = prng.next_u64() as u8;
            }
            damaged.truncate(prng.below(damaged.len() as u64 + 1) as usize);
            let (mut tap, mut out) = (InterfaceTap::new(&damaged[..]), Vec::new());
            io::copy(&mut tap, &mut out).unwrap();
            assert_eq!(out, damaged, "seed {seed}, round {round}");
            tap.described(prng.next_u64(), prng.below(4) as u32);
            assert!(tap.block.capacity() <= MAX_BLOCK as usize * 2);
        }
    }
}
