//! Capture files as a source: pcap, pcapng and thesis RAW, plain or compressed, flat out or in their own time.
//!
//! Every record of the file is handed over, or counted: those of a link type that differs from the first packet's, and
//! the record in which a damaged file breaks off, are lost with [`Cause::Source`]. Frames carry the file's own time, so
//! that a replay gives the same results at any speed. Where the file is a pipe, a thread reads ahead of the capture, so
//! that `wait` is kept and the source can be stopped while nothing comes.

mod input;
mod ports;
mod replay_schedule;
mod zstd;

use crate::{Counts, Frame, Polled, Source, SourceError, SourceInfo, TimestampSource};
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

/// How to replay a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How fast.
    pub speed: Speed,
    /// The format, where the content does not say; only RAW files ever need it.
    pub format: Option<Format>,
    /// Only the packets of one of its [`ports`], by name, and their link type; without, all are of one port.
    pub port: Option<(String, u16)>,
}

/// Link types beyond the first that are counted one by one; the rest are counted together.
const MAX_FOREIGN: usize = 16;

/// A capture file being replayed.
pub struct File {
    info: SourceInfo,
    reader: Reader<Input>,
    pace: ReplaySchedule,
    started: Option<Instant>,
    /// The reader stands on a packet that was not handed over yet.
    held: bool,
    /// Nothing more is read: stopped, at the end, or damaged.
    closed: bool,
    /// Pacing ends with [`Source::stop`], which still hands over the packet held.
    stopped: bool,
    failed: Option<SourceError>,
    /// Stands in where a packet has no time of its own.
    last: Timestamp,
    foreign: Vec<(u16, u64)>,
    foreign_others: u64,
    broken: u64,
    drops: u64,
    /// Packets handed over without a stamp of their own, and those of which the file says fewer bytes on the wire than it has.
    unstamped: u64,
    wire_raised: u64,
    /// The port of the first packet that was handed over, and how many were of another.
    first: Option<PortMatcher>,
    elsewhere: u64,
    /// The port that is wanted, and how many packets were of others.
    wanted: Option<PortMatcher>,
    unwanted: u64,
}

impl File {
    /// Opens a file, or standard input for `-`. Of a pipe, the first bytes are waited for.
    ///
    /// # Errors
    /// [`SourceError`] when it cannot be opened, is no capture, or the speed is not a positive number.
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

    /// Replays what `source` gives, compressed or not; `name` is for messages.
    ///
    /// # Errors
    /// Those of [`File::open`].
    pub fn from_reader(name: &str, source: impl Read + Send + 'static, options: Options) -> Result<Self, SourceError> {
        let input = Input::here(source).map_err(|error| SourceError::System {
            name: name.to_owned(),
            what: "read",
            advice: sys::advice::to_read(&error).to_owned(),
            error,
        })?;
        Self::start(name.to_owned(), input, options)
    }

    fn start(name: String, input: Input, options: Options) -> Result<Self, SourceError> {
        let Some(pace) = ReplaySchedule::new(options.speed) else {
            let reason = format!("{} is not a speed: give a factor above 0, 1 being the original", options.speed);
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
            elsewhere: 0,
            wanted: options.port.as_ref().map(|port| PortMatcher::port(&port.0)),
            unwanted: 0,
        };
        // The first packet says what the file is about: merged files describe interfaces that have none. A pipe may
        // have no packet for long, so there the first interface has to do.
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

    /// What happened that the counters do not explain, for people: link types not handed over, several interfaces taken for one,
    /// packets of which the file does not tell all, and losses that the capturing program wrote into the file.
    pub fn warnings(&self) -> Vec<String> {
        let Self { info: SourceInfo { name, link_type: first, .. }, .. } = self;
        let link = |link_type: u16| format!("link type {}", pcap::LinkType(link_type));
        let known = self.foreign.iter().map(|(link_type, packets)| (*packets, link(*link_type)));
        let others = Some((self.foreign_others, "yet other link types".to_owned())).filter(|(packets, _)| *packets > 0);
        let left_out = known.chain(others).map(|(packets, types)| {
            format!(
                "{name}: {packets} packets of {types} were left out, because the first is of {}; separate them with \
                 tshark",
                link(*first)
            )
        });
        let others = self.foreign.iter().map(|(_, packets)| packets).sum::<u64>() + self.foreign_others;
        let taken = self.reader.records() - (others + self.unwanted).min(self.reader.records());
        let strange = (taken > 0 && !wire::link::is_understood(*first)).then(|| {
            format!(
                "{name}: {taken} packets are of {}, which is not understood: no filter but `less` and `greater` matches \
                 them, and no index, flow record or address is made of them",
                link(*first)
            )
        });
        let elsewhere = (self.elsewhere > 0).then(|| {
            format!(
                "{name}: {} packets are of another interface than the first, and all are taken for one interface: what passed \
                 two of them counts twice; `netgrain run -r` tells them apart, if it is given a file and no pipe",
                self.elsewhere
            )
        });
        let unstamped = (self.unstamped > 0).then(|| {
            let packets = self.unstamped;
            format!("{name}: {packets} packets have no stamp of their own and got that of the packet before")
        });
        let wire_raised = (self.wire_raised > 0).then(|| format!("{name}: {}", pcap::wire_raised(self.wire_raised)));
        let drops = (self.drops > 0).then(|| format!("{name}: the capturing program had lost {} packets", self.drops));
        left_out.chain(strange).chain(elsewhere).chain(unstamped).chain(wire_raised).chain(drops).collect()
    }

    /// Packets that the capturing program says it had lost (pcapng's `epb_dropcount`); they never were in the file.
    pub fn recorded_drops(&self) -> u64 {
        self.drops
    }

    /// Makes the reader stand on the next packet, if there is one now.
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
            if self.wanted.as_mut().is_none_or(|wanted| wanted.has(&self.reader, packet.interface)) {
                self.drops = self.drops.saturating_add(packet.drops);
            }
            self.pace.schedule(self.last);
        }
        self.held
    }

    /// Leaves the packet held where another port's are wanted.
    #[inline]
    fn pass_over(&mut self) -> bool {
        let Some(wanted) = &mut self.wanted else { return false };
        let passed = self.reader.current().is_some_and(|packet| !wanted.has(&self.reader, packet.interface));
        if passed {
            self.held = false;
            self.unwanted += 1;
        }
        passed
    }

    /// Hands over at most `most` packets without the checks that a packet of another format needs, and returns how
    /// many. The packets of a classic pcap file all have the interface and the link type of the first one. Returns 0
    /// where packets are paced or belong to several ports.
    #[inline]
    fn burst(&mut self, most: usize, take: &mut impl FnMut(&Frame<'_>)) -> usize {
        let as_the_first = self.first.is_some() && self.reader.link_type() == self.info.link_type;
        if self.held || self.closed || self.wanted.is_some() || self.pace.is_paced() || !as_the_first {
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

    /// Sleeps until the packet held is due, but not longer than `wait`, and says whether it is.
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
    fn leave_out(&mut self, link_type: u16) {
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

    fn poll<F: FnMut(&Frame<'_>)>(
        &mut self,
        budget: usize,
        wait: Duration,
        mut take: F,
    ) -> Result<Polled, SourceError> {
        let mut taken = 0;
        self.reader.source_mut().wait_at_most(wait);
        // Records are counted, not frames, so that a pipe full of foreign packets cannot keep the caller.
        let mut left = budget;
        while left > 0 {
            if taken > 0 {
                let lent = self.burst(left, &mut take);
                (taken, left) = (taken + lent, left - lent);
                if left == 0 {
                    break;
                }
            }
            left -= 1;
            if !self.held && (self.closed || !self.advance()) {
                break;
            }
            if self.pass_over() {
                continue;
            }
            let now = if taken > 0 { Duration::ZERO } else { wait };
            if self.pace.is_paced() && !self.is_due(now) {
                break;
            }
            let Some(packet) = self.reader.current() else { break };
            self.held = false;
            if packet.link_type != self.info.link_type {
                let link_type = packet.link_type;
                self.leave_out(link_type);
                continue;
            }
            let interface = packet.interface;
            let first = self.first.get_or_insert_with(|| PortMatcher::that_of(&self.reader, interface));
            self.elsewhere += u64::from(!first.has(&self.reader, interface));
            self.unstamped += u64::from(packet.ts.is_none());
            self.wire_raised += u64::from(packet.wire_raised);
            take(&frame_of(&packet, self.last));
            taken += 1;
            if taken == 1 {
                self.reader.source_mut().wait_at_most(Duration::ZERO);
            }
        }
        if taken > 0 {
            return Ok(Polled::Frames(taken));
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None if self.closed && !self.held => Ok(Polled::End),
            None => Ok(Polled::Idle),
        }
    }

    fn counts(&mut self) -> Result<Counts, SourceError> {
        let mut counts =
            Counts { seen: Some(self.reader.records() - self.unwanted + self.broken), ..Counts::default() };
        let foreign = self.foreign.iter().map(|(_, packets)| packets).sum::<u64>() + self.foreign_others;
        counts.lost[Cause::Source as usize] = foreign + self.broken;
        Ok(counts)
    }

    fn stop(&mut self) {
        self.closed = true;
        self.stopped = true;
    }
}

/// A packet as the contract says it, whose lengths are without the check sequence.
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

/// What the reader found, as the contract says it: the machine's failures apart from the file's.
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
                Some(method) => format!("the {method} stream is damaged after this byte of its content: {error}"),
                None => format!("cannot read on: {error}"),
            };
            SourceError::Corrupt { name, offset, reason }
        }
        other => SourceError::Corrupt { name, offset, reason: other.reason() },
    }
}
