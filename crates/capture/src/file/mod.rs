//! Capture files as a source: pcap, pcapng and HPCAP RAW, uncompressed or compressed, at full speed or at a scaled
//! original speed.
//!
//! Every record of the file is delivered or counted. Records whose link type differs from the first packet's, and the
//! record at which a damaged file ends, are lost with [`Cause::Source`]. Frames carry the timestamps of the file, so
//! that a replay gives the same results at any speed. If the file is a pipe, a thread reads ahead, so that a poll
//! returns after `wait` and the source can be stopped while the pipe delivers no bytes.

mod input;
mod ports;
mod replay_schedule;
mod zstd;

use crate::{Counts, Frame, FrameSink, Polled, Source, SourceError, SourceInfo, TimestampSource};
use base::{Cause, Timestamp};
use input::Input;
pub use input::plain_bytes;
use pcap::{Direction, Format, Reader};
use ports::PortMatcher;
pub use ports::{Port, ports};
use replay_schedule::ReplaySchedule;
pub use replay_schedule::Speed;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// Options of a replay.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The speed.
    pub speed: Speed,
    /// The format, if the content does not identify it; only RAW files need this.
    pub format: Option<Format>,
    /// Replay only the packets of one of the file's [`ports`], given by name and link type; `None` replays all packets
    /// as one interface.
    pub port: Option<(String, u16)>,
}

/// Number of link types, in addition to that of the first packet, whose packets are counted separately; the packets of
/// all other link types share one counter.
const MAX_FOREIGN: usize = 16;

/// A capture file being replayed.
pub struct File {
    info: SourceInfo,
    reader: Reader<Input>,
    pace: ReplaySchedule,
    started: Option<Instant>,
    /// True if the current packet of the reader was not delivered yet.
    held: bool,
    /// True if no more records are read, because the source was stopped, has ended or is damaged.
    closed: bool,
    /// True after [`Source::stop`]. Then packets are no longer paced; the packet that was already read from the file is
    /// still delivered.
    stopped: bool,
    failed: Option<SourceError>,
    /// The timestamp of the previous packet, which is used for a packet that has no timestamp.
    last: Timestamp,
    foreign: Vec<(u16, u64)>,
    foreign_others: u64,
    broken: u64,
    drops: u64,
    /// This field is the number of delivered packets that had no timestamp. The next field is the number of packets
    /// whose stated wire length was below the captured length.
    unstamped: u64,
    wire_raised: u64,
    /// This field is the interface of the first delivered packet. The next field is the number of delivered packets of
    /// other interfaces.
    first: Option<PortMatcher>,
    other_interface: u64,
    /// The selected interface; then the number of packets of other interfaces, which are skipped.
    selected: Option<PortMatcher>,
    unselected: u64,
}

impl File {
    /// Opens a file, or standard input for `-`. Blocks until a pipe has delivered its first bytes.
    ///
    /// # Errors
    /// [`SourceError`] if the file cannot be opened or is not a capture, or if the speed is not a positive number.
    pub fn open(path: &Path, options: Options) -> Result<Self, SourceError> {
        let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
        let input = Input::open(path).map_err(|error| SourceError::System {
            name: name.clone(),
            what: "open",
            advice: sys::advice::to_read(&error).to_owned(),
            error,
        })?;
        Self::start(name, input, options)
    }

    /// Replays the capture in `source`, compressed or not; messages use `name`.
    ///
    /// # Errors
    /// The errors of [`File::open`].
    pub fn from_reader(name: &str, source: impl Read + Send + 'static, options: Options) -> Result<Self, SourceError> {
        let input = Input::in_calling_thread(source).map_err(|error| SourceError::System {
            name: name.to_owned(),
            what: "read",
            advice: sys::advice::to_read(&error).to_owned(),
            error,
        })?;
        Self::start(name.to_owned(), input, options)
    }

    fn start(name: String, input: Input, options: Options) -> Result<Self, SourceError> {
        let Some(pace) = ReplaySchedule::new(options.speed) else {
            let reason =
                format!("{} is not a valid speed; write a factor above 0 (1 is the original speed)", options.speed);
            return Err(SourceError::Unsupported { name, reason });
        };
        let (compression, piped) = (input.compression(), input.is_piped());
        let reader = match options.format {
            Some(format) => Reader::open_as(input, format),
            None => Reader::open(input),
        };
        let reader = reader.map_err(|e| error_of(&name, compression, e))?;
        let packed = compression.map(|c| format!(", {c}")).unwrap_or_default();
        let port = options.port.as_ref().map(|port| format!(", {}", port.0)).unwrap_or_default();
        let mut file = Self {
            info: SourceInfo {
                description: format!("{} {name}{packed}{port}: {}", reader.format(), options.speed),
                queue: 0,
                link_type: reader.link_type(),
                timestamp_source: TimestampSource::File,
                timestamp_fallback: None,
                timestamp_warning: None,
                link_mbps: None,
                counted_from: "records of the file",
                name,
            },
            reader,
            pace,
            started: None,
            held: false,
            closed: false,
            stopped: false,
            failed: None,
            last: Timestamp::ZERO,
            foreign: Vec::new(),
            foreign_others: 0,
            broken: 0,
            drops: 0,
            unstamped: 0,
            wire_raised: 0,
            first: None,
            other_interface: 0,
            selected: options.port.as_ref().map(|port| PortMatcher::port(&port.0)),
            unselected: 0,
        };
        // The link type of the source is that of the first packet and not that of the first interface, because merged
        // files describe interfaces without packets. For a pipe it is that of the first interface, because the first
        // packet may arrive late.
        if let Some((_, link_type)) = options.port {
            file.info.link_type = link_type;
        } else if !piped
            && file.advance()
            && let Some(packet) = file.reader.current()
        {
            file.info.link_type = packet.link_type;
        }
        Ok(file)
    }

    /// Returns warnings about conditions that the counters do not show: packets of link types that were not delivered,
    /// several interfaces treated as one, packets with incomplete metadata, and losses that the capturing program
    /// recorded in the file.
    pub fn warnings(&self) -> Vec<String> {
        let Self { info: SourceInfo { name, link_type: first, .. }, .. } = self;
        let link = |link_type: u16| format!("link type {}", pcap::LinkType(link_type));
        let known = self.foreign.iter().map(|(link_type, packets)| (*packets, link(*link_type)));
        let others = Some((self.foreign_others, "further link types".to_owned())).filter(|(packets, _)| *packets > 0);
        let left_out = known.chain(others).map(|(packets, types)| {
            format!(
                "{name}: {packets} packets of {types} were not read, because the first packet has {}; split the file \
                 by link type with tshark",
                link(*first)
            )
        });
        let others = self.foreign.iter().map(|(_, packets)| packets).sum::<u64>() + self.foreign_others;
        let handed_over = self.reader.records() - (others + self.unselected).min(self.reader.records());
        let not_decoded = (handed_over > 0 && !wire::link::is_understood(*first)).then(|| {
            format!(
                "{name}: {handed_over} packets have {}, which is not supported: only the filters `len`, `less`, \
                 `greater` and `link[…]` match them, and they have no index keys, flow records or addresses",
                link(*first)
            )
        });
        let other_interface = (self.other_interface > 0).then(|| {
            format!(
                "{name}: {} packets are of another interface than the first, and all count as one interface: a frame \
                 captured on two interfaces counts twice; `run -r` and `record -r` separate the \
                 interfaces of a file that describes them first, but not of a pipe",
                self.other_interface
            )
        });
        let unstamped = (self.unstamped > 0).then(|| {
            let packets = self.unstamped;
            format!("{name}: {packets} packets have no timestamp and got the timestamp of the previous packet")
        });
        let wire_raised = (self.wire_raised > 0).then(|| format!("{name}: {}", pcap::wire_raised(self.wire_raised)));
        let drops = (self.drops > 0)
            .then(|| format!("{name}: the program that captured the file had lost {} packets", self.drops));
        left_out.chain(not_decoded).chain(other_interface).chain(unstamped).chain(wire_raised).chain(drops).collect()
    }

    /// Packets that the capturing program reported as lost (pcapng's `epb_dropcount`); the file does not contain them.
    pub fn recorded_drops(&self) -> u64 {
        self.drops
    }

    /// Advances the reader to the next packet, if one is available now.
    #[inline]
    fn advance(&mut self) -> bool {
        match self.reader.advance() {
            Ok(found) => {
                self.held = found;
                self.closed = !found;
            }
            Err(e) if e.is_pause() => {}
            Err(e) => self.fail(e),
        }
        if self.held
            && let Some(packet) = self.reader.current()
        {
            self.last = packet.ts.unwrap_or(self.last);
            if self.selected.as_mut().is_none_or(|selected| selected.matches(&self.reader, packet.interface)) {
                self.drops = self.drops.saturating_add(packet.drops);
            }
            self.pace.schedule(self.last);
        }
        self.held
    }

    /// Skips the current packet if another interface is selected.
    #[inline]
    fn skip_unselected(&mut self) -> bool {
        let Some(selected) = &mut self.selected else { return false };
        let passed = self.reader.current().is_some_and(|packet| !selected.matches(&self.reader, packet.interface));
        if passed {
            self.held = false;
            self.unselected += 1;
        }
        passed
    }

    /// Delivers at most `most` packets of a classic pcap file, and returns their number. All packets of such a file
    /// have the interface and the link type of the first packet, so the function omits the checks that packets of other
    /// formats need. Returns 0 if packets are paced or an interface is selected.
    #[inline]
    fn burst(&mut self, most: usize, take: &mut impl FnMut(&Frame<'_>)) -> usize {
        let as_the_first = self.first.is_some() && self.reader.link_type() == self.info.link_type;
        if self.held || self.closed || self.selected.is_some() || self.pace.is_paced() || !as_the_first {
            return 0;
        }
        let (last, wire_raised) = (&mut self.last, &mut self.wire_raised);
        self.reader.burst(most, |packet| {
            *wire_raised += u64::from(packet.wire_raised);
            *last = packet.ts.unwrap_or(*last);
            take(&frame_of(packet, *last));
        })
    }

    #[cold]
    fn fail(&mut self, e: pcap::Error) {
        let error = error_of(&self.info.name, self.reader.source_mut().compression(), e);
        self.broken = u64::from(matches!(error, SourceError::Corrupt { .. }));
        self.failed = Some(error);
        self.closed = true;
    }

    /// Sleeps until the current packet is due, but at most for `wait`. Returns true if the packet is due.
    fn is_due(&mut self, wait: Duration) -> bool {
        if self.stopped {
            return true;
        }
        let started = *self.started.get_or_insert_with(Instant::now);
        let left = self.pace.due().saturating_sub(started.elapsed());
        if !left.is_zero() && !wait.is_zero() {
            std::thread::sleep(left.min(wait));
        }
        left <= wait
    }

    #[cold]
    fn count_foreign(&mut self, link_type: u16) {
        let known = self.foreign.iter().position(|(other, _)| *other == link_type);
        match known {
            Some(i) => self.foreign[i].1 += 1,
            None if self.foreign.len() < MAX_FOREIGN => self.foreign.push((link_type, 1)),
            None => self.foreign_others += 1,
        }
    }
}

impl Source for File {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn poll_into<S: FrameSink>(&mut self, budget: usize, wait: Duration, sink: &mut S) -> Result<Polled, SourceError> {
        let mut handed_over = 0;
        self.reader.source_mut().wait_at_most(wait);
        // The budget limits the number of records, including records that are not delivered. Otherwise a pipe that
        // delivers only packets of other link types would block the caller.
        let mut left = budget;
        while left > 0 {
            if handed_over > 0 {
                let lent = self.burst(left, &mut |frame: &Frame<'_>| sink.take(frame));
                (handed_over, left) = (handed_over + lent, left - lent);
                if left == 0 {
                    break;
                }
            }
            left -= 1;
            if !self.held && (self.closed || !self.advance()) {
                break;
            }
            if self.skip_unselected() {
                continue;
            }
            let now = if handed_over > 0 { Duration::ZERO } else { wait };
            if self.pace.is_paced() && !self.is_due(now) {
                break;
            }
            let Some(packet) = self.reader.current() else { break };
            self.held = false;
            if packet.link_type != self.info.link_type {
                let link_type = packet.link_type;
                self.count_foreign(link_type);
                continue;
            }
            let interface = packet.interface;
            let first = self.first.get_or_insert_with(|| PortMatcher::of_packet(&self.reader, interface));
            self.other_interface += u64::from(!first.matches(&self.reader, interface));
            self.unstamped += u64::from(packet.ts.is_none());
            self.wire_raised += u64::from(packet.wire_raised);
            sink.take(&frame_of(&packet, self.last));
            handed_over += 1;
            if handed_over == 1 {
                self.reader.source_mut().wait_at_most(Duration::ZERO);
            }
        }
        if handed_over > 0 {
            return Ok(Polled::Frames(handed_over));
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None if self.closed && !self.held => Ok(Polled::End),
            None => Ok(Polled::Idle),
        }
    }

    fn counts(&mut self) -> Result<Counts, SourceError> {
        let mut counts =
            Counts { seen: Some(self.reader.records() - self.unselected + self.broken), ..Counts::default() };
        let foreign = self.foreign.iter().map(|(_, packets)| packets).sum::<u64>() + self.foreign_others;
        counts.lost[Cause::Source as usize] = foreign + self.broken;
        Ok(counts)
    }

    fn stop(&mut self) {
        self.closed = true;
        self.stopped = true;
    }
}

/// Converts a packet to a [`Frame`], whose lengths exclude the frame check sequence.
#[inline]
fn frame_of<'a>(packet: &pcap::Packet<'a>, stamp: Timestamp) -> Frame<'a> {
    let wire_len = packet.wire_len.saturating_sub(u32::from(packet.fcs));
    let caplen = packet.data.len().min(wire_len as usize);
    Frame {
        wire_len,
        stamp: Some(stamp),
        outgoing: packet.direction == Direction::Outbound,
        wire_raised: packet.wire_raised,
        ..Frame::new(&packet.data[..caplen])
    }
}

/// Advice for the error of a capture with a broken record: the command that saves the records after this record. The
/// advice begins with a semicolon. It is empty for sources that `netgrain repair` does not read: standard input, pipes,
/// and compressed captures.
pub fn repair_advice(error: &SourceError) -> String {
    let SourceError::Corrupt { name, .. } = error else { return String::new() };
    let is_compressed = [".gz", ".zst"].iter().any(|ending| name.ends_with(ending));
    match Path::new(name).is_file() && !is_compressed {
        true => format!("; netgrain repair {name} saves the complete records after this byte, if there are any"),
        false => String::new(),
    }
}

/// Converts an error of the reader; distinguishes I/O errors from invalid content.
fn error_of(name: &str, compression: Option<&'static str>, error: pcap::Error) -> SourceError {
    let name = name.to_owned();
    let offset = error.offset();
    match error {
        pcap::Error::Io { error, .. } if error.raw_os_error().is_some() => {
            let advice = sys::advice::to_read(&error).to_owned();
            SourceError::System { name, what: "read", error, advice }
        }
        pcap::Error::Io { error, .. } => {
            let reason = match compression {
                Some(method) => {
                    format!("the {method} stream is damaged after this byte of the decompressed content: {error}")
                }
                None => format!("the file cannot be read further: {error}"),
            };
            SourceError::Corrupt { name, offset, reason }
        }
        other => SourceError::Corrupt { name, offset, reason: other.reason() },
    }
}
