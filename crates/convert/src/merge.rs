//! Several inputs as one stream, in order of time.
//!
//! The head of each input waits in a heap; the least stamp goes first, and of equal stamps the earlier input's: the merge
//! is stable and keeps the order within each input, whatever its stamps are. Memory: one reader for each input.

use crate::DamagedInput;
use crate::interface_tap::{InterfaceDescription, InterfaceTap};
use base::Timestamp;
use pcap::{Error, Packet, Reader};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::rc::Rc;

/// A capture that is to be converted.
pub struct Input<R> {
    name: String,
    reader: Reader<InterfaceTap<R>>,
}

impl<R: Read> Input<R> {
    /// Recognises the format; `name` is for messages.
    ///
    /// # Errors
    /// When it is no capture.
    pub fn open(name: &str, source: R) -> Result<Self, Error> {
        Ok(Self { name: name.to_owned(), reader: Reader::open(InterfaceTap::new(source))? })
    }

    /// [`Input::open`] for a format that is known: RAW files may look like nothing.
    ///
    /// # Errors
    /// When it is no capture.
    pub fn open_as(name: &str, source: R, format: pcap::Format) -> Result<Self, Error> {
        Ok(Self { name: name.to_owned(), reader: Reader::open_as(InterfaceTap::new(source), format)? })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// That of its first interface, as far as the headers tell.
    pub fn link_type(&self) -> u16 {
        self.reader.link_type()
    }
}

/// The inputs as one.
pub struct Merge<R> {
    inputs: Vec<Input<R>>,
    /// Stamp of the last packet of each input.
    last: Vec<Timestamp>,
    /// What is said of the interface of the packet at the head of each input.
    described: Vec<Option<Rc<InterfaceDescription>>>,
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    current: Option<usize>,
    /// Packets older than the one before in their own input.
    pub disordered: u64,
    /// Packets without a stamp of their own.
    pub unstamped: u64,
    /// Packets that say fewer bytes on the wire than were captured.
    pub wire_raised: u64,
    /// Inputs that broke off.
    pub broken: Vec<DamagedInput>,
}

/// A packet and where it is from.
pub struct Merged<'a> {
    /// Number of its input.
    pub input: usize,
    /// Its stamp, or that of the packet before in its input.
    pub ts: Timestamp,
    /// What is said of its interface.
    pub described: &'a Option<Rc<InterfaceDescription>>,
    /// The rest.
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
            broken: Vec::new(),
            inputs,
        };
        for i in 0..merge.inputs.len() {
            merge.pull(i);
        }
        merge
    }

    pub fn inputs(&self) -> &[Input<R>] {
        &self.inputs
    }

    /// The next packet; `None` when all inputs have ended.
    pub fn next(&mut self) -> Option<Merged<'_>> {
        if let Some(i) = self.current.take() {
            self.pull(i);
        }
        let Reverse((ts, input)) = self.heads.pop()?;
        self.current = Some(input);
        let packet = self.inputs[input].reader.current()?;
        Some(Merged { input, ts, described: &self.described[input], packet })
    }

    /// Brings the next packet of an input into the heap.
    fn pull(&mut self, i: usize) {
        let input = &mut self.inputs[i];
        match input.reader.advance() {
            Ok(true) => {
                let head = input.reader.current().map(|p| (p.ts, p.offset, p.interface, p.wire_raised));
                let (stamp, offset, interface, wire_raised) = head.unwrap_or_default();
                self.described[i] = input.reader.source_mut().described(offset, interface);
                let ts = stamp.unwrap_or(self.last[i]);
                self.unstamped += u64::from(stamp.is_none());
                self.wire_raised += u64::from(wire_raised);
                self.disordered += u64::from(ts < self.last[i]);
                self.last[i] = ts;
                self.heads.push(Reverse((ts, i)));
            }
            Ok(false) => {}
            Err(e) => {
                self.broken.push(DamagedInput { input: input.name.clone(), offset: e.offset(), reason: e.reason() });
            }
        }
    }
}
