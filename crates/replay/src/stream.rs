//! Captured packets as a stream, and the merge of several capture files into one stream in order of time.
//!
//! A heap contains the next packet of each file. If packets have equal timestamps, the packet of the file that was
//! named first is returned first. The packets of one file keep their order, even if their timestamps are out of order.
//! Packets before the first timestamp of a file are returned first.

use base::Timestamp;
use pcap::{Direction, Reader};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::{fmt, io};

/// One captured packet. It borrows the buffer of its reader, so it is valid until the next packet is read.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket<'a> {
    /// Time of capture; for a packet without a timestamp, that of the packet before it. `None` for the packets before
    /// the first timestamp of a file.
    pub ts: Option<Timestamp>,
    /// Length on the wire in bytes, without frame check sequence; at least the length of `bytes`.
    pub wire_len: u32,
    /// The captured bytes, without frame check sequence.
    pub bytes: &'a [u8],
    /// Link type, with the number that pcap uses.
    pub link_type: u16,
    /// Direction seen from the capturing host.
    pub direction: Direction,
    /// Number of the file, of the interface in a single file, or of the interface of the store, from 0.
    pub input: u32,
}

/// A stream of captured packets.
pub trait PacketStream {
    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// If no further packet can be read.
    fn next(&mut self) -> Result<Option<CapturedPacket<'_>>, StreamError>;

    /// The damage and the unusual packets that were found in the inputs. The result is complete when the stream has
    /// ended.
    fn findings(&self) -> StreamFindings;
}

/// Opens the stream of each pass over the capture.
pub type OpenStream = Box<dyn FnMut() -> Result<Box<dyn PacketStream>, StreamError> + Send>;

/// The reason why a stream cannot be opened or read. The error text names the input and what the user can do.
#[derive(Debug)]
pub enum StreamError {
    /// The input cannot be opened or read.
    Io {
        /// The input.
        input: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The input is no capture.
    Format {
        /// The input.
        input: String,
        /// The reason.
        reason: String,
    },
    /// The query of a store failed; the text contains the store.
    Query(String),
    /// The thread that reads the capture has panicked.
    ReaderDied,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { input, error } => write!(f, "{input}: {}", sys::advice::unreadable(error)),
            Self::Format { input, reason } => write!(f, "{input}: {reason}"),
            Self::Query(text) => f.write_str(text),
            Self::ReaderDied => f.write_str("the thread that reads the capture has panicked; please report this"),
        }
    }
}

impl std::error::Error for StreamError {}

/// The damage and the unusual packets that were found in the inputs during one pass over the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFindings {
    /// Packets without a timestamp, which get that of the packet before them.
    pub unstamped: u64,
    /// Packets whose stated wire length was below the captured length.
    pub wire_raised: u64,
    /// The inputs that are damaged, so that only the packets before the damage were read.
    pub damaged: Vec<DamagedInput>,
}

/// An input that ends inside a record or is damaged.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DamagedInput {
    /// The input.
    pub input: String,
    /// Offset of the damage in bytes of the uncompressed content; `None` where the position is not known.
    pub offset: Option<u64>,
    /// The description of the damage.
    pub reason: String,
}

/// The bytes of a capture file.
pub type CaptureBytes = Box<dyn Read>;

/// The packets of capture files, merged in order of time.
pub struct CaptureFiles {
    files: Vec<CaptureFile>,
    heads: BinaryHeap<Reverse<(Option<Timestamp>, usize)>>,
    current: Option<usize>,
    findings: StreamFindings,
}

struct CaptureFile {
    name: String,
    reader: Reader<CaptureBytes>,
    last: Option<Timestamp>,
}

impl CaptureFiles {
    /// Opens captures, each given by its name in messages and its bytes; the formats are detected.
    ///
    /// # Errors
    /// If an input is no capture.
    pub fn open(inputs: Vec<(String, CaptureBytes)>) -> Result<Self, StreamError> {
        let mut files = Vec::new();
        for (name, bytes) in inputs {
            match Reader::open(bytes) {
                Ok(reader) => files.push(CaptureFile { name, reader, last: None }),
                Err(pcap::Error::Io { error, .. }) => return Err(StreamError::Io { input: name, error }),
                Err(e) => return Err(StreamError::Format { input: name, reason: e.to_string() }),
            }
        }
        let (heads, findings) = (BinaryHeap::with_capacity(files.len()), StreamFindings::default());
        let mut all = Self { files, heads, current: None, findings };
        for index in 0..all.files.len() {
            if let Some(ts) = all.advance(index) {
                all.heads.push(Reverse((ts, index)));
            }
        }
        Ok(all)
    }

    /// Moves a file to its next packet and returns the timestamp of this packet, which is `None` before the first
    /// timestamp of the file. Returns `None` at the end of the file.
    fn advance(&mut self, index: usize) -> Option<Option<Timestamp>> {
        let file = &mut self.files[index];
        match file.reader.advance() {
            Ok(true) => {
                let packet = file.reader.current()?;
                self.findings.unstamped += u64::from(packet.ts.is_none());
                self.findings.wire_raised += u64::from(packet.wire_raised);
                file.last = packet.ts.or(file.last);
                Some(file.last)
            }
            Ok(false) => None,
            Err(e) => {
                let (input, offset) = (file.name.clone(), Some(e.offset()));
                self.findings.damaged.push(DamagedInput { input, offset, reason: e.reason() });
                None
            }
        }
    }
}

impl PacketStream for CaptureFiles {
    fn next(&mut self) -> Result<Option<CapturedPacket<'_>>, StreamError> {
        let next = match self.current.take().and_then(|index| Some((self.advance(index)?, index))) {
            // If no other file has packets left, the heap is empty and is not used.
            Some((_, index)) if self.heads.is_empty() => Some(index),
            moved => {
                self.heads.extend(moved.map(Reverse));
                self.heads.pop().map(|Reverse((_, index))| index)
            }
        };
        let Some(index) = next else { return Ok(None) };
        self.current = Some(index);
        let input = if self.files.len() > 1 { Some(index as u32) } else { None };
        let file = &self.files[index];
        Ok(file.reader.current().map(|packet| {
            let wire_len = packet.wire_len.saturating_sub(u32::from(packet.fcs));
            CapturedPacket {
                ts: file.last,
                wire_len,
                bytes: &packet.data[..packet.data.len().min(wire_len as usize)],
                link_type: packet.link_type,
                direction: packet.direction,
                input: input.unwrap_or(packet.interface),
            }
        }))
    }

    fn findings(&self) -> StreamFindings {
        self.findings.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;
    use pcap::classic::{Resolution, Writer};

    fn capture(packets: &[(u64, u8)]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), Resolution::Nanos, 1).unwrap();
        for (ts, byte) in packets {
            writer.write(Timestamp::from_nanos(*ts), 20, &[*byte; 20]).unwrap();
        }
        writer.finish().unwrap()
    }

    fn files(all: Vec<Vec<u8>>) -> CaptureFiles {
        let named =
            all.into_iter().enumerate().map(|(n, bytes)| (format!("f{n}"), Box::new(io::Cursor::new(bytes)) as _));
        CaptureFiles::open(named.collect()).unwrap()
    }

    fn read(mut stream: CaptureFiles) -> (Vec<(u64, u8, u32)>, StreamFindings) {
        let mut all = Vec::new();
        while let Some(packet) = stream.next().unwrap() {
            all.push((packet.ts.map_or(0, Timestamp::nanos), packet.bytes[0], packet.input));
        }
        (all, stream.findings())
    }

    #[test]
    fn an_input_that_is_no_capture_is_an_error_with_its_name() {
        let text: CaptureBytes = Box::new(&b"not a capture at all"[..]);
        let error = CaptureFiles::open(vec![("letter.txt".to_owned(), text)]).map(drop).unwrap_err();
        assert!(error.to_string().starts_with("letter.txt: "), "{error}");
    }

    #[test]
    fn a_file_that_ends_in_a_record_is_read_up_to_it_and_reported() {
        let mut bytes = capture(&[(1, 1), (2, 2), (3, 3)]);
        bytes.truncate(bytes.len() - 5);
        let (all, findings) = read(files(vec![bytes]));
        assert_eq!(all.iter().map(|p| p.1).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((findings.damaged.len(), findings.damaged[0].input.as_str()), (1, "f0"));
    }

    #[test]
    fn the_merge_equals_a_stable_sort_of_ordered_files() {
        let seed = testkit::seed("the_merge_equals_a_stable_sort_of_ordered_files");
        let mut prng = Prng::new(seed);
        for round in 0..200 {
            let mut inputs = Vec::new();
            let mut expected = Vec::new();
            for input in 0..prng.below(5) {
                let mut ts = 0;
                let packets: Vec<(u64, u8)> = (0..prng.below(20))
                    .map(|n| {
                        ts += prng.below(3);
                        (ts, n as u8)
                    })
                    .collect();
                expected.extend(packets.iter().map(|(ts, byte)| (*ts, *byte, input as u32)));
                inputs.push(capture(&packets));
            }
            if inputs.len() == 1 {
                expected.iter_mut().for_each(|packet| packet.2 = 0);
            }
            expected.sort_by_key(|packet| (packet.0, packet.2));
            assert_eq!(read(files(inputs)).0, expected, "seed {seed}, round {round}");
        }
    }

    /// A pcapng block (draft-ietf-opsawg-pcapng).
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, body, &len].concat()
    }

    #[test]
    fn packets_before_the_first_timestamp_of_a_file_have_none() {
        let section = block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
        let interface = block(1, &[1, 0, 0, 0, 0, 0, 1, 0]);
        let simple = block(3, &[&20u32.to_le_bytes()[..], &[7; 20]].concat());
        let time = 1_795_257_720_000_000u64;
        let words = [0, (time >> 32) as u32, time as u32, 20, 20].map(u32::to_le_bytes).concat();
        let enhanced = block(6, &[&words[..], &[8; 20]].concat());
        let mut stream = files(vec![[section, interface, simple.clone(), enhanced, simple].concat()]);
        let mut times = Vec::new();
        while let Some(packet) = stream.next().unwrap() {
            times.push((packet.ts.map(Timestamp::nanos), packet.bytes[0]));
        }
        assert_eq!(times, [(None, 7), (Some(time * 1000), 8), (Some(time * 1000), 7)]);
        assert_eq!(stream.findings().unstamped, 2);
    }

    #[test]
    fn packets_out_of_order_keep_their_place() {
        let (all, _) = read(files(vec![capture(&[(5, 1), (3, 2), (9, 3)])]));
        assert_eq!(all, [(5, 1, 0), (3, 2, 0), (9, 3, 0)]);
    }
}
