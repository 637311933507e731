//! `netgrain listen`: attaches a reader to an engine that runs in another process, and prints counts or lines, or
//! writes a capture.

mod capture_output;

use crate::outcome::{Failure, Outcome, json, versioned};
use crate::output::capture_format::CaptureFormat;
use crate::overwrite::{self, OverwriteArgs};
use crate::privileges;
use crate::signals;
use crate::style::plural;
use base::units::{self, show_count, show_si};
use capture_output::{CaptureOutput, RingPacket};
use clap::Args;
use filter::Filter;
use ring::{Desc, Listener, Mode, attach};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::{FlowKey, Headers};

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain listen -i eth1                      counts once a second
  netgrain listen -i eth1 --print              one line per packet
  netgrain listen -i eth1 -w - | tcpdump -r -  any tool that reads pcap")]
pub struct ListenArgs {
    /// Interface of the engine to attach to
    #[arg(short = 'i', long, value_name = "IFACE", required_unless_present = "socket")]
    pub interface: Option<String>,
    /// Ring socket of the engine [default: /run/netgrain/IFACE.sock; in network namespaces other than the initial one
    /// IFACE.netns-NUMBER.sock, with the number that `lsns -t net` prints]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Write a capture to a file, or to standard output with -
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "print")]
    pub write: Option<PathBuf>,
    /// Format of the capture [default: by the extension of FILE: .pcap, .pcapng; otherwise pcapng]
    #[arg(long, value_enum, requires = "write")]
    pub format: Option<CaptureFormat>,
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Print one line per packet
    #[arg(long)]
    pub print: bool,
    /// Only packets that match this capture filter
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// Attach as a lossless reader: the engine waits for this listener, and packets are lost if the listener is too
    /// slow
    #[arg(long)]
    pub lossless: bool,
    /// Stop after this many packets
    #[arg(short = 'c', long, value_name = "N", value_parser = crate::values::count)]
    pub packets: Option<u64>,
    /// Stop after this time
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub duration: Option<Duration>,
    /// Name of this listener in the reports and metrics of the engine
    #[arg(long, value_name = "NAME", default_value = "netgrain listen")]
    pub name: String,
    /// Print counts as JSON, one object per second and one at the end
    #[arg(long)]
    pub json: bool,
}

/// The maximum number of packet descriptors that the listener reads from a ring at a time.
const BATCH: usize = 1024;

/// The time between two outputs of the counts, and between two checks that the engine runs.
const PERIOD: Duration = Duration::from_secs(1);

/// The longest wait for the end of the delivery after the member has left.
const GRACE: Duration = Duration::from_secs(2);

/// The maximum number of bytes buffered for a file or pipe.
const BUFFER: usize = 256 << 10;

/// Runs the verb. The outcome is `No` (exit status 1) if packets were missed.
pub fn run(args: &ListenArgs) -> Result<Outcome, Failure> {
    if let Some(text) = &args.filter {
        // The filter is checked before attaching, so that no listener registers with an invalid filter.
        Filter::parse(text).map_err(|e| Failure::filter(&e))?;
    }
    let socket = match (&args.socket, &args.interface) {
        (Some(path), _) => path.clone(),
        (None, Some(interface)) => engine::default_socket(interface),
        (None, None) => return Err(Failure::Said("name an interface with -i, or a socket with --socket".into())),
    };
    // The output is opened before attaching, so that no listener registers if the file cannot be written.
    let target = Target::open(args, &socket)?;
    let mode = if args.lossless { Mode::Lossless } else { Mode::Lossy };
    let stop = signals::stop_or_hangup_flag();
    let listeners = attach(&socket, mode, &args.name).map_err(|e| {
        Failure::Said(format!("{}: {e}; is `netgrain record` running on that interface?", socket.display()))
    })?;
    listen_to(args, listeners, target, &stop, ListenTarget::Port, &|| false)
}

/// The rings that the listeners read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenTarget {
    /// The rings of an interface.
    Port,
    /// The branches of a group member. The queue byte of their descriptors contains class and generation.
    Group,
}

/// Reads from attached listeners until a limit of the flags is reached or a signal arrives, and then calls `leave`. If
/// `leave` returns true, the engine stops the delivery, and the packets that were delivered before are read too.
pub fn listen_to(
    args: &ListenArgs,
    listeners: Vec<Listener>,
    target: Target,
    stop: &AtomicBool,
    of: ListenTarget,
    leave: &dyn Fn() -> bool,
) -> Result<Outcome, Failure> {
    let filter = args.filter.as_deref().map(Filter::parse).transpose().map_err(|e| Failure::filter(&e))?;
    let format = target.format;
    let Some(first) = listeners.first() else { return Err(Failure::Said("the engine has no ring".into())) };
    let link_type = first.shape().link_type as u16;
    let out = BufWriter::with_capacity(BUFFER, target.begin()?);
    let mut session = ListenSession {
        form: match (format, args.print) {
            (Some(format), _) => Form::Capture(CaptureOutput::begin(format, out, &listeners)?),
            (None, true) => Form::Lines(out),
            (None, false) => Form::Counts(out),
        },
        of,
        filter,
        link_type,
        limit: args.packets.unwrap_or(u64::MAX),
        packets: 0,
        bytes: 0,
        torn: vec![0; listeners.len()],
        orphaned: false,
        buffer: Vec::new(),
    };
    let listeners = session.listen(listeners, args, stop, leave)?;
    session.form.flush()?;
    finish(args, session, &listeners)
}

/// The output of a listener. It is opened before the listener attaches, and truncated only after the listener has
/// attached. So a listener whose file cannot be written is not registered, and a listener that the engine refuses does
/// not destroy an existing capture.
pub struct Target {
    format: Option<CaptureFormat>,
    /// `None` is standard output.
    file: Option<File>,
    /// The path of the output if the file did not exist before. If attaching fails, this file is removed.
    made: Option<PathBuf>,
}

impl Target {
    /// Opens the output that the flags name. Drops all privileges that neither the output nor the ring socket needs.
    ///
    /// # Errors
    /// The output exists, or cannot be written.
    pub fn open(args: &ListenArgs, socket: &Path) -> Result<Self, Failure> {
        let format = args.write.as_deref().map(|path| CaptureFormat::of(args.format, path)).transpose()?;
        let written: Vec<&Path> = args.write.iter().map(PathBuf::as_path).collect();
        privileges::for_reading(&written, &[socket.to_owned()])?;
        let Some(path) = args.write.as_ref().filter(|path| !overwrite::is_stdout(path)) else {
            return Ok(Self { format, file: None, made: None });
        };
        overwrite::check(path, args.overwrite.force).map_err(Failure::say)?;
        // Only a file that this process creates may be removed later: `create_new` fails if another process creates it
        // first.
        let (file, made) = match File::options().write(true).create_new(true).open(path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => (File::options().write(true).open(path), None),
            file => (file, Some(path.clone())),
        };
        let file = file.map_err(|e| Failure::uncreatable(path, &e))?;
        Ok(Self { format, file: Some(file), made })
    }

    fn begin(mut self) -> Result<Box<dyn Write>, Failure> {
        self.made = None;
        let Some(file) = self.file.take() else { return Ok(Box::new(std::io::stdout())) };
        // Pipes and devices have no length.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(Box::new(file))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // If the removal fails, an empty file remains, which is harmless.
            let _ = std::fs::remove_file(path);
        }
    }
}

type Out = BufWriter<Box<dyn Write>>;

enum Form {
    Counts(Out),
    Lines(Out),
    Capture(CaptureOutput<Out>),
}

impl Form {
    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Counts(out) | Self::Lines(out) => out.flush(),
            Self::Capture(file) => file.flush(),
        }
    }
}

struct ListenSession {
    form: Form,
    of: ListenTarget,
    filter: Option<Filter>,
    link_type: u16,
    limit: u64,
    packets: u64,
    bytes: u64,
    /// For each ring, the number of packets that the listener received but that were overwritten before it had copied
    /// their bytes.
    torn: Vec<u64>,
    /// The engine exited without an end descriptor: packets may be missing.
    orphaned: bool,
    buffer: Vec<u8>,
}

impl ListenSession {
    fn listen(
        &mut self,
        mut rings: Vec<Listener>,
        args: &ListenArgs,
        stop: &AtomicBool,
        leave: &dyn Fn() -> bool,
    ) -> Result<Vec<Listener>, Failure> {
        let started = Instant::now();
        let mut left: Option<Instant> = None;
        let mut shown = started;
        let (mut packets, mut bytes) = (0, 0);
        let mut batches: Vec<Vec<Desc>> = rings.iter().map(|_| Vec::new()).collect();
        let (mut backoff, mut received) = (group::MemberBackoff::default(), 0);
        while self.packets < self.limit {
            let over = stop.load(Ordering::Relaxed) || args.duration.is_some_and(|d| started.elapsed() >= d);
            match left {
                None if over => {
                    rings.iter().for_each(Listener::report);
                    if !leave() {
                        break;
                    }
                    left = Some(Instant::now());
                }
                Some(since) if since.elapsed() >= GRACE => break,
                _ => (),
            }
            for (ring, batch) in rings.iter_mut().zip(&mut batches) {
                ring.next(BATCH, batch);
            }
            let found: usize = batches.iter().map(Vec::len).sum();
            let quiet = found == 0;
            received += found as u64;
            self.take(&rings, &batches)?;
            if quiet {
                // The output is flushed while no packets arrive, so that a reader of the pipe does not wait for a full
                // buffer.
                self.form.flush()?;
                if rings.iter().all(Listener::ended) {
                    match left {
                        Some(_) => {}
                        None if rings.iter().all(Listener::ring_ended) => {
                            sys::say!("netgrain: the engine has ended")
                        }
                        None => sys::say!("netgrain: the group was deleted; the engine continues"),
                    }
                    break;
                }
                std::thread::sleep(backoff.after(received));
                received = 0;
            }
            if shown.elapsed() >= PERIOD {
                let span = shown.elapsed().as_secs_f64();
                shown = Instant::now();
                rings.iter().for_each(Listener::report);
                if quiet && left.is_none() && !rings.iter().all(Listener::connected) {
                    sys::say!(
                        "netgrain: the engine ended without an end descriptor, for example because it was killed"
                    );
                    self.orphaned = true;
                    break;
                }
                if matches!(self.form, Form::Counts(_)) {
                    self.show(
                        args,
                        (self.packets - packets) as f64 / span,
                        (self.bytes - bytes) as f64 * 8.0 / span,
                        &rings,
                    )?;
                }
                (packets, bytes) = (self.packets, self.bytes);
            }
        }
        rings.iter().for_each(Listener::report);
        Ok(rings)
    }

    /// Processes one batch of packets of each ring. The packets of these batches are processed in the order of their
    /// timestamps.
    fn take(&mut self, rings: &[Listener], batches: &[Vec<Desc>]) -> Result<(), Failure> {
        let mut next = vec![0; batches.len()];
        while self.packets < self.limit {
            let ready = |i: &usize| batches[*i].get(next[*i]).map(|d| d.ts);
            let Some(i) = (0..batches.len()).filter(|i| ready(i).is_some()).min_by_key(|i| ready(i)) else { break };
            let d = batches[i][next[i]];
            next[i] += 1;
            if d.is_packet() {
                self.packet(i, &rings[i], &d)?;
            }
        }
        Ok(())
    }

    fn packet(&mut self, number: usize, ring: &Listener, d: &Desc) -> Result<(), Failure> {
        if matches!(self.form, Form::Counts(_)) && self.filter.is_none() {
            self.packets += 1;
            self.bytes += u64::from(d.wire_len);
            return Ok(());
        }
        let Some(record) = ring.record(d, &mut self.buffer) else {
            self.torn[number] += 1;
            return Ok(());
        };
        let (head, frame) = record.split_at(ring::RECORD_HEADER);
        let wire_len = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        if let Some(filter) = &self.filter
            && !filter.matches(frame, wire_len, &Headers::of(frame, wire_len, self.link_type))
        {
            return Ok(());
        }
        self.packets += 1;
        self.bytes += u64::from(wire_len);
        match &mut self.form {
            Form::Counts(_) => {}
            Form::Capture(file) => {
                let missed = ring.counts().missed + self.torn[number];
                file.packet(number, ring, &RingPacket { ts: d.timestamp(), wire_len, frame, record }, missed)?;
            }
            Form::Lines(out) => {
                let about = match self.of {
                    ListenTarget::Port => PacketMeta { queue: d.queue.into(), class: None, mark: d.mark },
                    ListenTarget::Group => {
                        PacketMeta { queue: ring.shape().queue, class: Some(d.class()), mark: d.mark }
                    }
                };
                writeln!(out, "{}", line(d, frame, wire_len, self.link_type, &about))?;
            }
        }
        Ok(())
    }

    fn show(&mut self, args: &ListenArgs, pps: f64, bps: f64, rings: &[Listener]) -> Result<(), Failure> {
        let missed: u64 = rings.iter().map(|r| r.counts().missed + r.lost()).sum();
        if args.json {
            return Ok(json(&serde_json::json!({ "live": {
                "packets": self.packets, "bytes": self.bytes, "packets_per_second": pps, "missed": missed } }))?);
        }
        let Form::Counts(out) = &mut self.form else { return Ok(()) };
        writeln!(
            out,
            "{:>14} packets  {:>10}  {:>10}  {} missed",
            show_count(self.packets),
            show_si(pps, "pps"),
            show_si(bps, "b/s"),
            show_count(missed)
        )?;
        Ok(out.flush()?)
    }
}

/// The metadata of a packet.
struct PacketMeta {
    queue: u16,
    /// The class for which a group delivered the packet; `None` without a group.
    class: Option<u8>,
    /// The mark that a packet program gave the packet, or 0 if no program gave a mark. Packets that a group delivers
    /// always have a mark.
    mark: u32,
}

/// One packet as a line of text.
fn line(d: &Desc, frame: &[u8], wire_len: u32, link_type: u16, about: &PacketMeta) -> String {
    let headers = Headers::of(frame, wire_len, link_type);
    let mut line = format!("{} q{} {wire_len} B  ", d.timestamp(), about.queue);
    line += &match FlowKey::of(frame, &headers) {
        Some(key) => format!("{key}  flow {:08x}", d.hash),
        None => headers.ethertype().to_string(),
    };
    match about.class {
        Some(class) => line += &format!("  class {} mark {}", group::class::name(class), about.mark),
        None if about.mark > 0 => line += &format!("  mark {}", about.mark),
        None => {}
    }
    line
}

fn finish(args: &ListenArgs, session: ListenSession, rings: &[Listener]) -> Result<Outcome, Failure> {
    let missed: u64 = rings.iter().map(|r| r.counts().missed + r.lost()).chain(session.torn).sum();
    let counts = matches!(session.form, Form::Counts(_));
    if let Form::Capture(file) = session.form {
        file.finish(rings)?;
    }
    if rings.iter().any(Listener::expired) {
        sys::say!("netgrain: the engine no longer waits for this lossless reader, because it was too slow");
    }
    if args.json {
        let value =
            serde_json::json!({ "report": { "packets": session.packets, "bytes": session.bytes, "missed": missed } });
        if counts { json(&value)? } else { sys::say!("{}", versioned(value)) }
    } else {
        sys::say!(
            "netgrain: {}, {} bytes, {} missed",
            plural(session.packets, "packet", "packets"),
            show_count(session.bytes),
            show_count(missed)
        );
    }
    Ok(Outcome::of(missed == 0 && !session.orphaned))
}
