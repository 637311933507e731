//! The receiving process of a row: it receives with one method until no frame has arrived for two seconds.

use crate::baseline::wait_until_capturing;
use crate::cpu_placement::CpuPlacement;
use crate::output::Stop;
use crate::process::Helper;
use capture::afxdp::AfXdpConfig;
use capture::auto::SourceKind;
use capture::tpacket::TpacketConfig;
use capture::{Polled, Source, afxdp, tpacket};
use clap::{Args, ValueEnum};
use engine::{Capture, InterfacePlan, Plan, SourcePlan};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};
use sys::netlink::Netlink;
use sys::packet::{Fanout, PacketSocket, ReceiveBatch};

/// The longest time between two frames of a run; after this time without a frame the run has ended.
const SILENCE: Duration = Duration::from_secs(2);

/// The longest wait for the first frame.
const FIRST_FRAME: Duration = Duration::from_secs(60);

/// The longest wait of one poll.
const WAIT: Duration = Duration::from_millis(20);

/// Receive memory of each socket, equal for all methods that have a choice: that of the TPACKET ring of netgrain.
const SOCKET_BYTES: u32 = 64 << 20;

/// Frames of one recvmmsg call, and the bytes that are copied of each.
const CALL_FRAMES: usize = 64;
const FRAME_BYTES: usize = 2048;

/// `ETH_P_ALL` of `linux/if_ether.h`: frames of all protocols.
const ALL_PROTOCOLS: u16 = 3;

/// Memory of the ring of netgrain.
const RING_BYTES: u64 = 256 << 20;

/// A way to receive packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReceiveMethod {
    /// An AF_PACKET socket, 64 frames per system call
    Recvmmsg,
    /// An AF_PACKET socket with a TPACKET_V3 ring
    Tpacket,
    /// Libpcap: tcpdump -w /dev/null
    Libpcap,
    /// An AF_XDP socket in copy mode
    #[value(name = "af_xdp")]
    AfXdp,
    /// The engine of netgrain with TPACKET_V3: packets in the shared ring, with timestamp and flow hash
    NetgrainTpacket,
    /// The engine of netgrain with AF_XDP
    #[value(name = "netgrain-af_xdp")]
    NetgrainAfXdp,
}

impl ReceiveMethod {
    pub const ALL: [Self; 6] =
        [Self::Recvmmsg, Self::Tpacket, Self::Libpcap, Self::AfXdp, Self::NetgrainTpacket, Self::NetgrainAfXdp];

    pub fn name(self) -> &'static str {
        match self {
            Self::Recvmmsg => "recvmmsg",
            Self::Tpacket => "tpacket",
            Self::Libpcap => "libpcap",
            Self::AfXdp => "af_xdp",
            Self::NetgrainTpacket => "netgrain tpacket",
            Self::NetgrainAfXdp => "netgrain af_xdp",
        }
    }

    /// True if several threads can receive the frames of an interface with one queue.
    pub fn has_threads(self) -> bool {
        matches!(self, Self::Recvmmsg | Self::Tpacket | Self::NetgrainTpacket)
    }
}

/// Flags of the receiving process, which `netgrain-bench engines` starts.
#[derive(Args, Clone, Debug)]
pub struct ReaderArgs {
    /// How to receive
    #[arg(value_enum)]
    method: ReceiveMethod,
    /// Interface
    interface: String,
    /// Number of threads
    #[arg(long, default_value_t = 1)]
    threads: u16,
}

/// The counters of a receiving process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    pub received: u64,
    /// Number of frames that the method reported as lost.
    pub lost: u64,
    /// Processor time of the whole process during the load.
    pub cpu_seconds: f64,
    /// Physical memory of the process at the end of the load.
    pub memory_bytes: u64,
}

impl Received {
    /// Adds the counters of another thread.
    fn add(&mut self, other: Self) {
        self.received += other.received;
        self.lost += other.lost;
    }
}

/// A receiving process that is ready.
pub struct Receiving {
    helper: Helper,
    /// For tcpdump, the processor seconds before the load.
    tcpdump_before: Option<f64>,
}

/// Starts a receiving process in the namespace of this thread, and waits until it is ready.
pub fn start(method: ReceiveMethod, interface: &str, threads: u16) -> Result<Receiving, Stop> {
    if method == ReceiveMethod::Libpcap {
        // The shell redirects the counters, which tcpdump prints on standard error at its end.
        let mut command = Command::new("sh");
        let buffer = (SOCKET_BYTES >> 10).to_string();
        let script = "exec tcpdump -n -Z root -B \"$1\" -i \"$2\" -w /dev/null 2>&1";
        command.args(["-c", script, "sh", &buffer, interface]);
        let mut helper = start_pinned(command)?;
        let before = wait_until_capturing(&mut helper, "tcpdump")?;
        return Ok(Receiving { helper, tcpdump_before: Some(before) });
    }
    let method = method.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut helper = Helper::start_self(["engines-reader", &method, interface, "--threads", &threads.to_string()])?;
    helper.line()?;
    Ok(Receiving { helper, tcpdump_before: None })
}

/// Starts a program on the processor of the engine, in the namespace of this thread.
fn start_pinned(command: Command) -> Result<Helper, Stop> {
    let allowed = sys::cpu::allowed();
    // If pinning fails, the program runs on any processor.
    let _ = sys::cpu::pin(CpuPlacement::find().engine());
    let started = Helper::start(command, "tcpdump");
    let _ = sys::cpu::pin_to(&allowed);
    started
}

impl Receiving {
    /// Waits for the end of the process and returns its counters.
    pub fn finish(self, timeout: Duration) -> Result<Received, Stop> {
        let Some(before) = self.tcpdump_before else {
            let text = self.helper.finish(timeout)?;
            let last = text.lines().last().unwrap_or_default();
            return serde_json::from_str(last)
                .map_err(|e| Stop::error(format_args!("the receiving process printed {last:?}: {e}")));
        };
        std::thread::sleep(SILENCE);
        let (cpu_seconds, pid) = (self.helper.cpu_seconds() - before, self.helper.id());
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        self.helper.interrupt()?;
        let counters = tcpdump_counters(&self.helper.finish(timeout)?)?;
        Ok(Received { cpu_seconds, memory_bytes: sys::cpu::resident_of(&rollup), ..counters })
    }
}

/// Reads the counters that tcpdump prints at its end: captured, and dropped by the kernel.
fn tcpdump_counters(text: &str) -> Result<Received, Stop> {
    let number = |end: &str| {
        let line = text.lines().find(|line| line.trim_end().ends_with(end))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    match (number("captured"), number("dropped by kernel")) {
        (Some(received), Some(lost)) => Ok(Received { received, lost, ..Received::default() }),
        _ => Err(Stop::error(format_args!("tcpdump did not print its counters: {text:?}"))),
    }
}

/// The receiving process: prints a line when it is ready, and the counters as JSON at its end.
pub fn read(args: &ReaderArgs, out: &mut dyn Write) -> Result<(), Stop> {
    let interface = args.interface.as_str();
    match args.method {
        ReceiveMethod::Recvmmsg => {
            let sockets = packet_sockets(interface, args.threads).map_err(|e| failed(interface, &e))?;
            in_threads(sockets, out, |socket| receive_from_socket(&socket).map_err(|e| failed(interface, &e)))
        }
        ReceiveMethod::Tpacket => {
            let config = TpacketConfig { threads: args.threads, ..TpacketConfig::new(interface) };
            in_threads(tpacket::open(&config).map_err(Stop::error)?, out, receive_from_source)
        }
        ReceiveMethod::AfXdp => {
            in_threads(afxdp::open(&AfXdpConfig::new(interface)).map_err(Stop::error)?, out, receive_from_source)
        }
        ReceiveMethod::NetgrainTpacket => receive_by_engine(interface, SourceKind::Tpacket, args.threads, out),
        ReceiveMethod::NetgrainAfXdp => receive_by_engine(interface, SourceKind::AfXdp, args.threads, out),
        ReceiveMethod::Libpcap => Err(Stop::error("tcpdump is a process of its own")),
    }
}

fn failed(interface: &str, error: &dyn std::fmt::Display) -> Stop {
    Stop::error(format_args!("{interface}: {error}"))
}

/// Opens the sockets of a fanout group.
fn packet_sockets(interface: &str, threads: u16) -> std::io::Result<Vec<PacketSocket>> {
    let link = Netlink::route()?.link(interface)?.index;
    let mut group = None;
    (0..threads)
        .map(|_| {
            let socket = PacketSocket::open()?;
            socket.receive_buffer(SOCKET_BYTES)?;
            socket.bind(link, Some(ALL_PROTOCOLS))?;
            if threads > 1 {
                group = Some(socket.join_fanout(group, Fanout::Hash, false)?);
            }
            Ok(socket)
        })
        .collect()
}

/// Runs a function for each receiver in a thread of its own, and prints the sum of the counters.
fn in_threads<R: Send>(
    receivers: Vec<R>,
    out: &mut dyn Write,
    receive: impl Fn(R) -> Result<Received, Stop> + Sync,
) -> Result<(), Stop> {
    let places = CpuPlacement::find();
    announce(out)?;
    let before = sys::cpu::process_time();
    let mut total = Received::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(i, receiver)| {
                let (places, receive) = (&places, &receive);
                scope.spawn(move || {
                    // If pinning fails, the thread runs on any processor.
                    let _ = sys::cpu::pin(if i == 0 { places.engine() } else { places.other(i - 1) });
                    receive(receiver)
                })
            })
            .collect();
        for thread in threads {
            total.add(thread.join().map_err(|_| Stop::error("a receiving thread panicked"))??);
        }
        Ok::<_, Stop>(())
    })?;
    report(out, total, before)
}

fn announce(out: &mut dyn Write) -> Result<(), Stop> {
    writeln!(out, "ready")?;
    Ok(out.flush()?)
}

fn report(out: &mut dyn Write, counters: Received, before: Duration) -> Result<(), Stop> {
    let cpu_seconds = (sys::cpu::process_time() - before).as_secs_f64();
    let counters = Received { cpu_seconds, memory_bytes: sys::cpu::resident_bytes(), ..counters };
    Ok(writeln!(out, "{}", serde_json::to_string(&counters).map_err(Stop::error)?)?)
}

/// The end of a run: no frame for [`SILENCE`], or none at all for [`FIRST_FRAME`].
struct End {
    last: Instant,
    began: bool,
}

impl End {
    fn new() -> Self {
        Self { last: Instant::now(), began: false }
    }

    /// Registers the number of frames of a poll; true if the run has ended.
    fn is_reached(&mut self, frames: u64) -> bool {
        if frames > 0 {
            (self.last, self.began) = (Instant::now(), true);
        }
        self.last.elapsed() > if self.began { SILENCE } else { FIRST_FRAME }
    }
}

fn receive_from_socket(socket: &PacketSocket) -> std::io::Result<Received> {
    let mut batch = ReceiveBatch::new(CALL_FRAMES, FRAME_BYTES);
    let (mut counters, mut end) = (Received::default(), End::new());
    loop {
        let frames = socket.receive_many(&mut batch)? as u64;
        batch.frames().for_each(|(bytes, _)| {
            black_box(bytes.first());
        });
        counters.received += frames;
        if frames == 0 {
            if end.is_reached(0) {
                break;
            }
            socket.wait_readable(WAIT)?;
        } else {
            end.is_reached(frames);
        }
    }
    counters.lost = socket.take_statistics()?.drops.into();
    Ok(counters)
}

fn receive_from_source(mut source: impl Source) -> Result<Received, Stop> {
    let (mut received, mut end) = (0, End::new());
    loop {
        let before = received;
        let polled = source.poll(engine::BATCH, WAIT, |frame| {
            black_box(frame.bytes.first());
            received += 1;
        });
        if polled.map_err(Stop::error)? == Polled::End || end.is_reached(received - before) {
            break;
        }
    }
    let lost = source.counts().map_err(Stop::error)?.lost.iter().sum();
    Ok(Received { received, lost, ..Received::default() })
}

fn receive_by_engine(interface: &str, kind: SourceKind, threads: u16, out: &mut dyn Write) -> Result<(), Stop> {
    let queues = (threads > 1).then_some(threads);
    let mut plan = Plan::new(SourcePlan::Interface(InterfacePlan { queues, ..InterfacePlan::new(interface, kind) }));
    let places = CpuPlacement::find();
    plan.ring = Some(RING_BYTES);
    plan.cpus = (0..threads).map(|i| if i == 0 { places.engine() } else { places.other(i.into()) }).collect();
    let mut capture = Capture::claimed(&plan, &None, |_: &str| Ok(Vec::new())).map_err(Stop::error)?;
    announce(out)?;
    let (before, mut end, mut stored) = (sys::cpu::process_time(), End::new(), 0);
    loop {
        let now = capture.report().counts.stored;
        if end.is_reached(now - stored) {
            break;
        }
        stored = now;
        std::thread::sleep(WAIT);
    }
    let memory_bytes = sys::cpu::resident_bytes();
    capture.stop();
    capture.wait().map_err(Stop::error)?;
    let counts = capture.report().counts;
    if counts.residue != 0 {
        return Err(Stop::error(format_args!("the residue of the ledger is {}; please report this", counts.residue)));
    }
    let counters =
        Received { received: counts.stored, lost: counts.lost.values().sum(), memory_bytes, cpu_seconds: 0.0 };
    report(out, counters, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_tcpdump_are_read() {
        let text = "tcpdump: listening on eth1\n12 packets captured\n14 packets received by filter\n\
                    2 packets dropped by kernel\n";
        let counters = tcpdump_counters(text).unwrap();
        assert_eq!((counters.received, counters.lost), (12, 2));
        assert!(tcpdump_counters("tcpdump: eth1: No such device\n").is_err());
    }

    #[test]
    fn a_run_ends_after_a_silence_only() {
        let mut end = End::new();
        assert!(!end.is_reached(0) && !end.is_reached(5));
        end.last -= SILENCE * 2;
        assert!(end.is_reached(0));
        assert!(!end.is_reached(1));
    }
}
