//! Merges several inputs into one stream in order of time.
//!
//! A heap holds the next packet of each input. The packet with the earliest timestamp is returned first; if timestamps
//! are equal, the packet of the input that was named first. So the merge is stable, and the packets of one input keep
//! their order, even if their timestamps are out of order. The merge needs the memory of one reader for each input.

use crate::DamagedInput;
use crate::interface_tap::{InterfaceDescription, InterfaceTap};
use base::Timestamp;
use pcap::{Error, Packet, Reader};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::rc::Rc;

/// A capture to be converted.
pub struct Input<R> {
    name: String,
    reader: Reader<InterfaceTap<R>>,
}

impl<R: Read> Input<R> {
    /// Opens a capture file and detects its format; `name` is used in messages.
    ///
    /// # Errors
    /// If the source is no capture file.
    pub fn open(name: &str, source: R) -> Result<Self, Error> {
        Ok(Self { name: name.to_owned(), reader: Reader::open(InterfaceTap::new(source))? })
    }

    /// [`Input::open`] for a known format, because RAW files cannot always be detected.
    ///
    /// # Errors
    /// If the source is no capture file of this format.
    pub fn open_as(name: &str, source: R, format: pcap::Format) -> Result<Self, Error> {
        Ok(Self { name: name.to_owned(), reader: Reader::open_as(InterfaceTap::new(source), format)? })
    }

    /// The name of the input.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The link type of the first interface, as far as the headers contain it.
    pub fn link_type(&self) -> u16 {
        self.reader.link_type()
    }
}

/// Merges the inputs.
pub struct Merge<R> {
    inputs: Vec<Input<R>>,
    /// Timestamp of the last packet that was read from each input.
    last: Vec<Timestamp>,
    /// The interface description of the next packet of each input.
    described: Vec<Option<Rc<InterfaceDescription>>>,
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    current: Option<usize>,
    /// Number of packets whose timestamp is earlier than the timestamp of the preceding packet of the same input.
    pub disordered: u64,
    /// Number of packets without a timestamp.
    pub unstamped: u64,
    /// Number of packets whose wire length is less than their captured length.
    pub wire_raised: u64,
    /// The inputs that are damaged, so that only the packets before the damage were read.
    pub damaged: Vec<DamagedInput>,
}

/// A packet, with the input that it came from.
pub struct Merged<'a> {
    /// Index of the packet's input.
    pub input: usize,
    /// The packet's timestamp; if the packet has none, the timestamp of the preceding packet of the input.
    pub ts: Timestamp,
    /// The description of the packet's interface.
    pub described: &'a Option<Rc<InterfaceDescription>>,
    /// The packet itself.
    pub packet: Packet<'a>,
}

impl<R: Read> Merge<R> {
    pub fn new(inputs: Vec<Input<R>>) -> Self {
        let mut merge = Self {
            last: vec![Timestamp::ZERO; inputs.len()],
            described: vec![None; inputs.len()],
            heads: BinaryHeap::with_capacity(inputs.len()),
            current: None,
            disordered: 0,
            unstamped: 0,
            wire_raised: 0,
            damaged: Vec::new(),
            inputs,
        };
        for i in 0..merge.inputs.len() {
            merge.read_next(i);
        }
        merge
    }

    pub fn inputs(&self) -> &[Input<R>] {
        &self.inputs
    }

    /// The next packet; `None` when all inputs have ended.
    pub fn next(&mut self) -> Option<Merged<'_>> {
        if let Some(i) = self.current.take() {
            self.read_next(i);
        }
        let Reverse((ts, input)) = self.heads.pop()?;
        self.current = Some(input);
        let packet = self.inputs[input].reader.current()?;
        Some(Merged { input, ts, described: &self.described[input], packet })
    }

    /// Reads the next packet of an input into the heap.
    fn read_next(&mut self, i: usize) {
        let input = &mut self.inputs[i];
        match input.reader.advance() {
            Ok(true) => {
                let head = input.reader.current().map(|p| (p.ts, p.offset, p.interface, p.wire_raised));
                let (timestamp, offset, interface, wire_raised) = head.unwrap_or_default();
                self.described[i] = input.reader.source_mut().described(offset, interface);
                let ts = timestamp.unwrap_or(self.last[i]);
                self.unstamped += u64::from(timestamp.is_none());
                self.wire_raised += u64::from(wire_raised);
                self.disordered += u64::from(ts < self.last[i]);
                self.last[i] = ts;
                self.heads.push(Reverse((ts, i)));
            }
            Ok(false) => {}
            Err(e) => {
                self.damaged.push(DamagedInput { input: input.name.clone(), offset: e.offset(), reason: e.reason() });
            }
        }
    }
}
