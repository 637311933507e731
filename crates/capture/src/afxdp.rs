//! Captures with AF_XDP, which delivers the frames of a queue to this process instead of the kernel's network stack.
//!
//! [`open`] attaches the XDP program to the interface ([`XdpDispatcher`]), opens a socket for each queue and returns
//! one [`AfXdp`] per queue, each for use by one thread. The frames of queues without a socket still reach the kernel's
//! network stack. The program is detached when the last source is dropped.
//!
//! # Which counter counts which loss
//!
//! The program counts each frame that it redirects to the socket of a queue; this count is [`Counts::seen`]. After
//! `stop` and drain, `seen == delivered + lost` holds exactly. The table lists the events between program and reader
//! that lose a frame. The events were found in the source net/xdp/xsk.c and confirmed by experiments on kernel 6.18
//! with veth, small rings and a reader that does not read (`tests/it/afxdp.rs` repeats the experiments):
//!
//! | event | the kernel counts | loss cause |
//! |---|---|---|
//! | no chunk in the fill ring | `rx_dropped` once per frame | `fill_empty` |
//! | the frame does not fit one chunk, and frames of several chunks are off | `rx_dropped` | `fill_empty` |
//! | the receive ring is full | `rx_ring_full` once per frame, and *not* `rx_dropped` | `receive_full` |
//! | a frame of several chunks finds too few chunks in the fill ring | `rx_dropped` once per frame | `fill_empty` |
//! | a frame of several chunks finds too few entries in the receive ring | `rx_ring_full` per frame | `receive_full` |
//! | the process holds more chunks than the receive ring has entries | `rx_ring_full` | `receive_full` |
//!
//! The last row holds because the receive ring is full before the fill ring is empty. `rx_fill_ring_empty_descs` is a
//! number of attempts, not of frames.
//!
//! The kernel takes a chunk before it examines the receive ring, and returns the chunk if the ring is full, so the two
//! counters never count the same frame. In native mode the driver counts all of these losses a second time (veth in
//! `rx_dropped`), so the driver's drops are not added. The exception is `rx_missed`, the number of frames that the NIC
//! dropped before any program ran, because it had no buffers. These frames have the separate loss cause `nic`, and are
//! part of `offered`, but not of `seen`. The kernel counts them per interface, so only the first source of the
//! interface reports them.
//!
//! A VLAN tag that the interface removed from the frame is not in the packet when the program runs, and an AF_XDP
//! socket cannot report it. `ethtool -K eth1 rxvlan off` keeps the tag in the frame.

mod advice;
mod assembly;
mod dispatcher;
mod queues;
mod stamp_clock;
mod swap;
mod timestamps;
mod transmit;

pub use assembly::FRAME_MAX;
pub use bpf::{AttachMode, XdpMode};
pub use dispatcher::{DispatcherCounts, DispatcherError, XdpDispatcher};
pub use swap::{PortMap, PreparedProgram};
pub use sys::xsk::{BusyPoll, CopyMode};
pub use timestamps::XdpTimestamps;
pub use transmit::{TransmitConfig, TransmitCounts, Transmitter};

use crate::contract::ethernet;
use crate::{
    AHEAD_MAX, Counts, FoundFrames, Frame, FrameSink, Polled, Source, SourceError, SourceInfo, TimestampSource,
};
use assembly::Assembly;
use base::{Cause, Note};
use bpf::Frames;
use kernel_programs::{COMPACT_BYTES, METADATA_BYTES};
use queues::chosen_queues;
use stamp_clock::StampClock;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::ethtool::Channels;
use sys::netlink::{Link, Netlink};
use sys::xsk::{HEADROOM, Pages, Receiver, ReceiverOptions, Umem};
use timestamps::{STAMP_BYTES, STAMP_MARK_BYTES};

/// How to capture.
#[derive(Clone, Debug)]
pub struct AfXdpConfig {
    /// The interface.
    pub interface: String,
    /// The queues to capture; `None` for all queues.
    pub queues: Option<Vec<u16>>,
    /// The copy mode of the sockets: by default zero copy if the driver supports it, otherwise copy mode.
    pub copy: CopyMode,
    /// The mode of the XDP program: by default native mode if the driver supports it, otherwise generic mode.
    pub xdp: AttachMode,
    /// Whether to receive frames that span several chunks; `None` means that the MTU decides.
    pub multi_buffer: Option<bool>,
    /// Number of entries of each receive ring, a power of two. A prototype with 4096 entries lost 0.3 to 0.8 % of the
    /// packets at 1.6 Mpps.
    pub receive_ring: u32,
    /// Number of chunks of the UMEM for each queue, a power of two. The fill ring has the same number of entries.
    pub chunks: u32,
    /// True to share one UMEM among all queues, instead of one UMEM per queue.
    pub shared_memory: bool,
    /// Busy polling: the lowest latency, for a thread with a dedicated core.
    pub busy_poll: Option<BusyPoll>,
    /// The timestamps that the XDP program writes before each frame. They are not available together with a program of
    /// the packet language, nor on every interface; [`SourceInfo::timestamp_fallback`] then has the reason.
    pub timestamps: XdpTimestamps,
    /// True if a program of the packet language will run on the interface. Then each frame is delivered with the
    /// metadata that the program wrote before it ([`Frame::metadata`]).
    pub programmed: bool,
    /// True to prepare everything, but leave the frames to the kernel until [`AfXdp::begin`] is called.
    pub prepared: bool,
}

impl AfXdpConfig {
    /// Returns the default configuration: all queues of the interface, the best modes that the driver supports, large
    /// rings, no busy polling.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            queues: None,
            copy: CopyMode::Best,
            xdp: AttachMode::Best,
            multi_buffer: None,
            receive_ring: 32_768,
            chunks: 65_536,
            shared_memory: false,
            busy_poll: None,
            timestamps: XdpTimestamps::None,
            programmed: false,
            prepared: false,
        }
    }
}

/// Longest frame that a driver which stores each frame in one page (veth and most other drivers) passes to a program
/// without multi-buffer support. It is the page size less 256 bytes before and 320 bytes after the frame.
const PAGE_FRAME: u32 = 4096 - 256 - 320;

/// Length in bytes of an Ethernet header with two VLAN tags.
const LINK_HEADER: u32 = 14 + 8;

/// Number of polls without a frame after which the source checks that the interface still exists.
const CHECK_EVERY: u32 = 256;

/// Time after `stop` during which a frame may still arrive if the kernel could not confirm that all running programs
/// have finished.
const GRACE: Duration = Duration::from_millis(200);

/// One queue of an interface.
pub struct AfXdp {
    info: SourceInfo,
    // This field is declared before `dispatcher` and therefore dropped first, so that the socket is removed from the
    // program's map before the program is detached.
    receiver: Receiver,
    dispatcher: Arc<XdpDispatcher>,
    queue: u32,
    assembly: Assembly,
    /// The metadata before the first chunk of the frame that is being assembled from several chunks.
    kept_metadata: [u8; METADATA_BYTES],
    /// The number of bytes of `kept_metadata` that are in use.
    kept_bytes: usize,
    delivered: u64,
    /// The length in bytes above which a frame must have been merged from several frames (GRO, LRO).
    wire_max: usize,
    phase: Phase,
    idle: u32,
    /// The counters of the whole interface. Only the first source of the interface has and reports them.
    interface_counts: Option<InterfaceCounts>,
    /// The interface has disappeared.
    gone: bool,
    /// Number of frames that the program had redirected to the socket, but that did not arrive, when the interface
    /// disappeared. No kernel counter contains them.
    vanished: u64,
    /// The lengths of the frames that the last read of the receive ring found.
    lengths: Vec<u32>,
    /// The clock of the timestamps that the XDP program writes before each frame; `None` if it writes none.
    stamp_clock: Option<StampClock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The source was stopped. `drained` is true if it is certain that no running program can still redirect frames to
    /// the socket.
    Draining {
        drained: bool,
        since: Instant,
    },
    Ended,
}

/// Counters of the whole interface rather than of one queue.
struct InterfaceCounts {
    netlink: Netlink,
    ifindex: u32,
    /// Queues without a source.
    others: Vec<u32>,
    missed_before: u64,
    missed: u64,
}

/// Explains why the kernel refused the program for the interface `name`, with advice.
pub fn explain(name: &str, refused: DispatcherError) -> SourceError {
    advice::dispatcher_error(name, refused)
}

/// Opens the interface: one source for each queue, in the order of the configuration.
///
/// # Errors
/// [`SourceError`] with advice: a missing privilege, a busy interface, a queue that does not exist.
pub fn open(config: &AfXdpConfig) -> Result<Vec<AfXdp>, SourceError> {
    let name = &config.interface;
    for (what, size) in [("receive ring", config.receive_ring), ("number of chunks", config.chunks)] {
        if !size.is_power_of_two() {
            let reason = format!("the {what} must be a power of two, not {size}; try {}", size.next_power_of_two());
            return Err(SourceError::Unsupported { name: name.clone(), reason });
        }
    }
    let link = look_up(name)?;
    ethernet(&link)?;
    // A socket cannot be bound to an inactive queue. NICs often have more allocated queues, which netlink reports, than
    // active queues. If the driver does not report the number of active queues, all allocated queues are treated as
    // active.
    let existing = sys::ethtool::channels(name).map_or(0, Channels::receiving).min(link.rx_queues);
    let existing = if existing == 0 { link.rx_queues.max(1) } else { existing };
    let queues = chosen_queues(config, existing)?;
    let multi_buffer = config.multi_buffer.unwrap_or(link.mtu + LINK_HEADER > PAGE_FRAME);
    let requested = if config.programmed { XdpTimestamps::None } else { config.timestamps };
    let [metadata, mark] = match requested {
        _ if config.programmed => [METADATA_BYTES as u32, COMPACT_BYTES as u32],
        XdpTimestamps::None => [0; 2],
        XdpTimestamps::Kernel | XdpTimestamps::Hardware => [STAMP_BYTES as u32, STAMP_MARK_BYTES as u32],
    };
    let chunk = if link.mtu + LINK_HEADER <= 2048 - HEADROOM - mark { 2048 } else { 4096 };
    let frames = if multi_buffer { Frames::Fragmented } else { Frames::Linear };
    let dispatcher = XdpDispatcher::attach(link.index, existing, frames, config.xdp, requested)
        .map_err(|e| advice::dispatcher_error(name, e))?;
    let dispatcher = Arc::new(dispatcher);

    let allocate = |queues: usize| {
        let bytes = config.chunks as usize * queues * chunk as usize;
        Umem::new(bytes).map(Arc::new).map_err(|error| SourceError::System {
            name: name.clone(),
            what: "allocate packet memory",
            error,
            advice: format!(
                "{} of packet memory requested; use fewer chunks or fewer queues",
                base::units::show_bytes(bytes as u64)
            ),
        })
    };
    let shared = if config.shared_memory { Some(allocate(queues.len())?) } else { None };
    let mut sources: Vec<AfXdp> = Vec::with_capacity(queues.len());
    for (nth, &queue) in queues.iter().enumerate() {
        let (memory, first_chunk) = match &shared {
            Some(memory) => (Arc::clone(memory), nth as u32 * config.chunks),
            None => (allocate(1)?, 0),
        };
        let options = ReceiverOptions {
            ifindex: link.index,
            queue,
            chunk,
            chunks: first_chunk..first_chunk + config.chunks,
            receive_ring: config.receive_ring,
            fill_ring: config.chunks,
            mode: config.copy,
            multi_buffer,
            busy_poll: config.busy_poll,
            metadata,
            mark,
        };
        let share = sources.first().filter(|_| shared.is_some()).map(|first| &first.receiver);
        let receiver = Receiver::open(&options, memory, share).map_err(|e| advice::socket_error(name, queue, e))?;
        sources.push(AfXdp::new(config, &options, &link, receiver, Arc::clone(&dispatcher)));
    }
    if let Some(first) = sources.first_mut() {
        let others = (0..existing).filter(|q| !queues.contains(q)).collect();
        first.interface_counts = Some(InterfaceCounts::new(&link, others)?);
    }
    // Frames are redirected to the sockets only after all queues are open. So if opening one queue fails, the frames of
    // the other queues still reach the kernel's network stack, and not sockets without a reader.
    if !config.prepared {
        sources.iter().try_for_each(AfXdp::begin)?;
    }
    Ok(sources)
}

impl AfXdp {
    /// Redirects the frames of the queue to this source. Required once after opening with [`AfXdpConfig::prepared`].
    ///
    /// # Errors
    /// If the kernel refuses to put the socket into the program's map.
    pub fn begin(&self) -> Result<(), SourceError> {
        let given = self.dispatcher.take(self.queue, self.receiver.as_fd());
        given.map_err(|e| self.failed("redirect the queue to the socket", e))
    }

    fn new(
        config: &AfXdpConfig,
        options: &ReceiverOptions,
        link: &Link,
        receiver: Receiver,
        dispatcher: Arc<XdpDispatcher>,
    ) -> Self {
        let mut description = format!(
            "AF_XDP {} queue {}: {} mode, {} XDP, need-wakeup{}{}, rings {} receive / {} fill, chunks of {} B in {} \
             pages{}{}",
            link.name,
            options.queue,
            if receiver.is_zero_copy() { "zero-copy" } else { "copy" },
            dispatcher.mode().name(),
            if config.busy_poll.is_some() { ", busy polling" } else { "" },
            if options.multi_buffer { ", multi-buffer" } else { "" },
            options.receive_ring,
            options.fill_ring,
            options.chunk,
            match receiver.umem().pages() {
                Pages::Huge => "huge",
                Pages::Transparent => "transparent huge",
                Pages::Small => "small",
            },
            if config.shared_memory { " shared by the queues" } else { "" },
            match dispatcher.timestamps() {
                XdpTimestamps::None => "",
                XdpTimestamps::Kernel => ", timestamps of the kernel",
                XdpTimestamps::Hardware => ", timestamps of the NIC",
            },
        );
        // The driver veth reports that it removes VLAN tags, but it leaves them in packets that were sent with a tag.
        let takes_out = || sys::ethtool::driver(&link.name).is_ok_and(|driver| driver != "veth");
        if sys::ethtool::strips_vlan(&link.name).unwrap_or(false) && takes_out() {
            description += &format!(
                "; VLAN tags that the interface removes are lost (ethtool -K {} rxvlan off keeps them)",
                link.name
            );
        }
        let (stamp_clock, timestamp_warning) = StampClock::open(dispatcher.timestamps(), &link.name);
        let info = SourceInfo {
            name: link.name.clone(),
            queue: options.queue as u16,
            description,
            link_type: 1,
            timestamp_source: match dispatcher.timestamps() {
                XdpTimestamps::None => TimestampSource::Engine,
                XdpTimestamps::Kernel => TimestampSource::Kernel,
                XdpTimestamps::Hardware => TimestampSource::Hardware,
            },
            timestamp_fallback: if config.programmed && config.timestamps != XdpTimestamps::None {
                Some("a program of the packet language runs on the interface, and cannot write timestamps".to_owned())
            } else {
                dispatcher.timestamp_fallback().map(str::to_owned)
            },
            timestamp_warning,
            link_mbps: sys::ethtool::speed(&link.name).map(|speed| speed.megabits),
            counted_from: if config.programmed {
                "frames that the XDP program decided on or redirected to the queue's socket, and frames that the NIC \
                 missed"
            } else {
                "frames that the XDP program redirected to the queue's socket, and frames that the NIC missed"
            },
        };
        Self {
            info,
            receiver,
            dispatcher,
            queue: options.queue,
            assembly: Assembly::default(),
            kept_metadata: [0; METADATA_BYTES],
            kept_bytes: 0,
            delivered: 0,
            wire_max: (link.mtu + LINK_HEADER) as usize,
            phase: Phase::Running,
            idle: 0,
            interface_counts: None,
            gone: false,
            vanished: 0,
            lengths: Vec::new(),
            stamp_clock,
        }
    }

    /// The dispatcher of this interface, shared by its sources.
    pub fn open_dispatcher(&self) -> &Arc<XdpDispatcher> {
        &self.dispatcher
    }

    /// Passes the frames in the receive ring to the sink and returns their number. `waited` is true if the source slept
    /// until a frame arrived.
    fn take<S: FrameSink>(&mut self, mut budget: usize, waited: bool, sink: &mut S) -> usize {
        if sink.needs_batches() {
            sink.reads();
            let found = self.receiver.lengths(budget, &mut self.lengths);
            if self.lengths.is_empty() {
                return 0;
            }
            sink.found(&FoundFrames { lengths: &self.lengths, found, waited });
            // Frames that arrive from now on belong to the next batch.
            budget = self.lengths.len();
        }
        let mut frames = 0;
        if sink.needs_ahead() {
            while frames < budget {
                let most = AHEAD_MAX.min(budget - frames);
                self.receiver.look_ahead(most, |bytes| sink.ahead(&Frame::new(bytes)));
                match self.deliver(most, sink) {
                    0 => break,
                    delivered => frames += delivered,
                }
            }
        } else {
            frames = self.deliver(budget, sink);
        }
        self.delivered += frames as u64;
        frames
    }

    /// Passes up to `budget` frames in the receive ring to the sink and returns their number.
    fn deliver<S: FrameSink>(&mut self, budget: usize, sink: &mut S) -> usize {
        let Self { receiver, assembly, kept_metadata, kept_bytes, wire_max, stamp_clock, .. } = self;
        let mut frames = 0;
        receiver.take(budget, |piece| {
            let (begins, ends) = (!assembly.is_open(), !piece.more);
            if begins && !ends {
                *kept_bytes = piece.before.len();
                kept_metadata[..*kept_bytes].copy_from_slice(piece.before);
            }
            let Some(bytes) = assembly.add(piece.bytes, piece.more) else { return };
            frames += 1;
            let metadata = if begins { piece.before } else { &kept_metadata[..*kept_bytes] };
            let frame = Frame { super_frame: bytes.len() > *wire_max, ..Frame::new(bytes) };
            match stamp_clock {
                None => sink.take(&Frame { metadata, ..frame }),
                Some(clock) => sink.take(&Frame { stamp: clock.read(metadata), ..frame }),
            }
        });
        frames
    }

    /// Detects that the interface has disappeared; returns true only the first time.
    fn has_disappeared(&mut self) -> bool {
        if self.gone || self.receiver.check().is_ok() {
            return false;
        }
        self.gone = true;
        // The kernel has unbound the socket, so later frames of this queue reach the kernel's network stack again.
        let _ = self.dispatcher.give_back(self.queue);
        sys::bpf::wait_for_running_programs();
        true
    }

    /// Completes the counters of an interface that has disappeared, after all received frames were delivered.
    fn finish_counts(&mut self) {
        if let Ok((counted, lost)) = self.tally() {
            let accounted = self.delivered + lost.iter().sum::<u64>();
            self.vanished = self.vanished.max(counted.redirected.saturating_sub(accounted));
        }
    }

    /// Frames that the program redirected to the socket, and frames lost between program and reader.
    fn tally(&self) -> io::Result<(DispatcherCounts, [u64; Cause::COUNT])> {
        let counted = self.dispatcher.counts(self.queue)?;
        let kernel = self.receiver.statistics()?;
        let mut lost = [0; Cause::COUNT];
        lost[Cause::FillEmpty as usize] = kernel.rx_dropped;
        lost[Cause::ReceiveFull as usize] = kernel.rx_ring_full;
        lost[Cause::Source as usize] = self.receiver.invalid() + self.assembly.too_long;
        Ok((counted, lost))
    }

    fn gone(&self) -> SourceError {
        SourceError::Gone { name: self.info.name.clone() }
    }

    fn failed(&self, what: &'static str, error: io::Error) -> SourceError {
        if advice::is_gone(&error) {
            return self.gone();
        }
        SourceError::System { name: self.info.name.clone(), what, error, advice: String::new() }
    }

    /// True if every frame that was redirected to the socket was delivered or counted as lost.
    fn is_drained(&self, settled: bool, since: Instant) -> bool {
        // A program that ran while the queue was returned to the kernel may have counted a frame that is not in the
        // ring yet. If the kernel could not confirm that the program has finished, the drain ends when the counters
        // balance or `GRACE` is over.
        settled
            || since.elapsed() > GRACE
            || self.tally().is_ok_and(|(counted, lost)| counted.redirected == self.delivered + lost.iter().sum::<u64>())
    }
}

impl Source for AfXdp {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn poll_into<S: FrameSink>(&mut self, budget: usize, wait: Duration, sink: &mut S) -> Result<Polled, SourceError> {
        if self.phase == Phase::Ended {
            return Ok(Polled::End);
        }
        let frames = self.take(budget, false, sink);
        if frames > 0 {
            self.idle = 0;
            return Ok(Polled::Frames(frames));
        }
        if self.gone {
            self.finish_counts();
        }
        match self.phase {
            Phase::Draining { drained: settled, since } if self.is_drained(settled, since) => {
                self.phase = Phase::Ended;
                return Ok(Polled::End);
            }
            Phase::Running if self.gone => return Err(self.gone()),
            _ => {}
        }
        self.idle += 1;
        if (!wait.is_zero() || self.idle.is_multiple_of(CHECK_EVERY)) && self.has_disappeared() {
            // Frames that were received earlier are delivered first; the next call returns `Gone`.
            return self.poll_into(budget, Duration::ZERO, sink);
        }
        self.receiver.wake();
        if !wait.is_zero() {
            let frames = self.take(budget, false, sink);
            if frames > 0 {
                return Ok(Polled::Frames(frames));
            }
            let wait = if self.phase == Phase::Running { wait } else { wait.min(Duration::from_millis(1)) };
            self.receiver.wait(wait).map_err(|e| self.failed("wait for frames", e))?;
        }
        match self.take(budget, !wait.is_zero(), sink) {
            0 => Ok(Polled::Idle),
            frames => Ok(Polled::Frames(frames)),
        }
    }

    fn counts(&mut self) -> Result<Counts, SourceError> {
        if let Some(clock) = &mut self.stamp_clock {
            clock.renew();
        }
        let running = self.phase == Phase::Running;
        let (counted, mut lost) = self.tally().map_err(|e| self.failed("read the counters", e))?;
        lost[Cause::Source as usize] += self.vanished;
        let mut notes = [0; Note::COUNT];
        notes[Note::Passed as usize] = counted.passed;
        let mut missed = 0;
        if let Some(interface_counts) = &mut self.interface_counts {
            if running {
                interface_counts.refresh();
            }
            missed = interface_counts.missed;
            for &queue in &interface_counts.others {
                notes[Note::Passed as usize] += self.dispatcher.counts(queue).map_or(0, |s| s.passed);
            }
        }
        lost[Cause::Nic as usize] = missed;
        let seen = Some(counted.redirected + counted.disposed.total());
        let nic_clock = self.stamp_clock.as_ref().and_then(StampClock::state);
        Ok(Counts { lost, notes, program_outcomes: counted.disposed, undecided: counted.undecided, seen, nic_clock })
    }

    fn stop(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        if let Some(interface_counts) = &mut self.interface_counts {
            interface_counts.refresh();
        }
        // After the stop, no reader collects the results of a program in the kernel, so the program slot is emptied.
        // Packets that still arrive are undecided and are filtered in user space. Emptying the program slot fails only
        // if the interface has disappeared.
        let _ = self.dispatcher.empty_slot();
        // Returning the queue to the kernel fails only if the queue is not in the map of the XDP dispatcher. Then the
        // interface has disappeared, and the queue was already returned.
        let _ = self.dispatcher.give_back(self.queue);
        self.phase = Phase::Draining { drained: sys::bpf::wait_for_running_programs(), since: Instant::now() };
    }
}

impl InterfaceCounts {
    fn new(link: &Link, others: Vec<u32>) -> Result<Self, SourceError> {
        let netlink = Netlink::route().map_err(|error| SourceError::System {
            name: link.name.clone(),
            what: "query the interface's counters",
            error,
            advice: String::new(),
        })?;
        Ok(Self { netlink, ifindex: link.index, others, missed_before: link.stats.rx_missed, missed: 0 })
    }

    /// Reads the counter `rx_missed` of the NIC. If the interface has disappeared, the last value is not changed.
    fn refresh(&mut self) {
        if let Ok(link) = self.netlink.link_by_index(self.ifindex) {
            self.missed = self.missed.max(link.stats.rx_missed.saturating_sub(self.missed_before));
        }
    }
}

/// Returns the present state of the interface with this name.
fn look_up(name: &str) -> Result<Link, SourceError> {
    Netlink::route().and_then(|mut netlink| netlink.link(name)).map_err(|error| {
        let advice =
            if advice::is_gone(&error) { "see ip link for the names of interfaces".to_owned() } else { String::new() };
        SourceError::System { name: name.to_owned(), what: "find the interface", error, advice }
    })
}
