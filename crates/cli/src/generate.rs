//! `netgrain gen`: sends frames or writes them to a file: frames that `netgrain check` can verify, trains for
//! measurements of delay, and synthetic traffic.

mod synthetic;
mod trains;

use crate::outcome::{Failure, Outcome, json, versioned};
use crate::overwrite::{self, OverwriteArgs};
use crate::privileges;
use crate::signals;
use crate::style::plural;
use crate::values::count;
use base::units::{self, show_count, show_si};
use clap::{Args, ValueEnum};
use engine::{Generator, Method, Sent};
use r#gen::train::TrainSpec;
use r#gen::{Spec, Traffic};
use pcap::classic::{Resolution, Writer};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Examples:
  netgrain gen -i veth0 60                     as fast as possible
  netgrain gen -i veth0 imix,flows=10k --rate 500kpps --duration 10s
  netgrain gen -w frames.pcap 1000 --packets 1M
  netgrain gen -i eth1 train,bursts=10,per-burst=50,gap=10us,burst-gap=5ms,size=200:1514,to=10.0.0.2:5000
  netgrain gen -w train.pcap train,trains=3,train-gap=1s
  netgrain gen -w tcp.pcap tcp,clients=50,total=10k,loss=1% --truth tcp.json
  netgrain gen -w mix.pcap mix,size=normal:700:300,gap=exp:100us,flows=10k,choice=zipf:1.1 --packets 100k
  netgrain gen -w bursts.pcap onoff,sources=200,on=pareto:1.4:100ms:1000s --duration 60s

A SPEC that begins with train describes trains: bursts of packets with planned departures, which `netgrain owd` \
    evaluates. Its keys: session, trains, train-gap, bursts, burst-gap, per-burst, gap, size, from, to, from-mac, \
    to-mac, packets, duration.")]
pub struct GenArgs {
    /// Traffic to send: a frame size in bytes (60), several sizes, imix or backbone, with options:
    /// 1000,flows=100k,seed=7; or trains: train,bursts=10,gap=10us; with -w also tcp (conversations with loss), mix
    /// (distributions of size, flow and gap) and onoff (self-similar sources)
    #[arg(value_name = "SPEC", default_value = "60")]
    pub spec: String,
    /// Interface to send from
    #[arg(short = 'i', long, value_name = "IFACE", required_unless_present = "write")]
    pub interface: Option<String>,
    /// Write a capture to a file instead of sending, or to standard output with -
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "interface")]
    pub write: Option<PathBuf>,
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Rate: flat (as fast as possible), 1.6Mpps, 10Gbit [default: the rate in SPEC, otherwise flat]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub rate: Option<units::Rate>,
    /// Stop after this many frames
    #[arg(long, value_name = "N", value_parser = count)]
    pub packets: Option<u64>,
    /// Stop after this time
    #[arg(long, value_name = "SPAN", value_parser = units::parse_span)]
    pub duration: Option<Duration>,
    /// With tcp: write what an observer saw of each conversation, as one JSON object per line
    #[arg(long, value_name = "FILE", requires = "write")]
    pub truth: Option<PathBuf>,
    /// Method of sending
    #[arg(long, value_enum, default_value_t = SendMethod::Auto, conflicts_with = "write")]
    pub method: SendMethod,
    /// Timing of the departures of trains
    #[arg(long, value_enum, default_value_t = trains::Timing::Auto, conflicts_with = "write")]
    pub launch: trains::Timing,
    /// Queue to send on (AF_XDP)
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = base::units::whole::<u16>(0..=65535),
          conflicts_with = "write")]
    pub queue: u16,
    /// Processor to send from
    #[arg(long, value_name = "N", value_parser = base::units::whole::<usize>(0..=4096))]
    pub cpu: Option<usize>,
    /// Print the counts as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SendMethod {
    /// live-frames, if all frames have one size, the rate is flat and the interface is a veth whose peer accepts frames
    /// from the kernel; otherwise af-xdp
    Auto,
    /// Frames generated inside the kernel: the fastest method on a veth interface
    LiveFrames,
    /// AF_XDP transmit: any traffic, rate and interface
    AfXdp,
}

/// The message for `--truth` with other traffic than conversations.
const TRUTH_OF_TCP: &str = "--truth is possible only with tcp, as in netgrain gen -w x.pcap tcp --truth x.json";

/// Runs the verb; returns `No` if the driver dropped frames.
pub fn run(args: &GenArgs) -> Result<Outcome, Failure> {
    if let Some(cpu) = args.cpu {
        sys::cpu::pin(cpu).map_err(|e| Failure::Said(format!("--cpu {cpu}: {e}; name a processor of this machine")))?;
    }
    if TrainSpec::is_train(&args.spec) {
        return trains::run(args);
    }
    if args.launch != trains::Timing::Auto {
        return Err(Failure::Said("--launch is for trains; give a SPEC that begins with train".into()));
    }
    if r#gen::SyntheticSpec::is_synthetic(&args.spec) {
        return synthetic::run(args);
    }
    if args.truth.is_some() {
        return Err(Failure::Said(TRUTH_OF_TCP.into()));
    }
    let mut spec: Spec = args.spec.parse().map_err(Failure::say)?;
    spec.signature = true;
    spec.rate = args.rate.unwrap_or(spec.rate);
    spec.packets = args.packets.or(spec.packets);
    spec.duration = args.duration.or(spec.duration);
    let stop = signals::stop_flag();
    let sent = match (&args.interface, &args.write) {
        (Some(interface), _) => {
            let generator = Generator::open(&spec, interface, args.queue, method(args.method)).map_err(Failure::say)?;
            sys::say!("netgrain: {}", generator.description());
            privileges::keep_calls_of_capture()?;
            let progress = |s| {
                if !args.json {
                    sys::say!("{}", line(&s));
                }
            };
            generator.run(&stop, progress).map_err(Failure::say)?
        }
        (None, Some(path)) => {
            privileges::keep_calls_of_queries()?;
            write(&spec, path, args.overwrite.force, &stop)?
        }
        (None, None) => return Err(Failure::Said("name an interface with -i, or a file with -w".into())),
    };
    print(args, &sent)?;
    Ok(Outcome::of(sent.dropped == 0))
}

/// Prints the counters to standard output, or to standard error if the frames are written to standard output.
fn print(args: &GenArgs, sent: &Sent) -> Result<(), Failure> {
    if args.write.as_deref().is_some_and(overwrite::is_stdout) {
        let text = match args.json {
            true => versioned(serde_json::to_value(sent).map_err(Failure::say)?).to_string(),
            false => line(sent),
        };
        sys::say!("{text}");
    } else if args.json {
        json(&serde_json::to_value(sent).map_err(Failure::say)?)?;
    } else {
        writeln!(std::io::stdout(), "{}", line(sent))?;
    }
    Ok(())
}

fn method(method: SendMethod) -> Method {
    match method {
        SendMethod::Auto => Method::Auto,
        SendMethod::LiveFrames => Method::LiveFrames,
        SendMethod::AfXdp => Method::AfXdp,
    }
}

fn line(s: &Sent) -> String {
    let seconds = (s.nanos as f64 / 1e9).max(1e-9);
    format!(
        "sent {} in {seconds:.2} s: {}, {}; {} dropped by the driver",
        plural(s.sent, "frame", "frames"),
        show_si(s.sent as f64 / seconds, "pps"),
        show_si(s.bytes as f64 * 8.0 / seconds, "b/s"),
        show_count(s.dropped),
    )
}

/// Writes frames into a nanosecond pcap file, timestamped with their departure time.
fn write(spec: &Spec, path: &Path, force: bool, stop: &AtomicBool) -> Result<Sent, Failure> {
    if spec.packets.is_none() && spec.duration.is_none() {
        return Err(Failure::Said("a file needs a limit: add --packets or --duration".into()));
    }
    let (mut out, fail) = open_capture(path, force)?;
    let mut traffic = Traffic::new(spec);
    let (first, mut sent) = (sys::clock::realtime(), Sent::default());
    let mut pacer = r#gen::Pacer::new(spec.rate, first);
    let mut frame = vec![0; traffic.max_len()];
    let end = spec.duration.map_or(base::Timestamp::MAX, |d| first.after(d));
    while !stop.load(Ordering::Relaxed) && sent.made < spec.packets.unwrap_or(u64::MAX) {
        let now = if spec.rate == base::units::Rate::Flat { sys::clock::realtime() } else { pacer.departure() };
        if now >= end {
            break;
        }
        let len = traffic.fill(&mut frame, now);
        out.write(now, len as u32, &frame[..len]).map_err(&fail)?;
        pacer.sent(1, len as u64);
        (sent.made, sent.sent, sent.bytes) = (sent.made + 1, sent.sent + 1, sent.bytes + len as u64);
        sent.nanos = now.since(first).as_nanos() as u64;
    }
    out.finish().map_err(&fail)?;
    Ok(sent)
}

/// A file that is being written.
type OutputFile = std::io::BufWriter<Box<dyn Write>>;

/// Creates a nanosecond pcap file. Also returns a function that converts an error of a write into the failure of the
/// verb.
fn open_capture(
    path: &Path,
    force: bool,
) -> Result<(Writer<OutputFile>, impl Fn(std::io::Error) -> Failure + use<>), Failure> {
    check_extension(path)?;
    let name = path.to_owned();
    let fail = move |e: std::io::Error| failed(&name, &e);
    let out = Writer::new(create(path, force)?, Resolution::Nanos, wire::link::ETHERNET).map_err(&fail)?;
    Ok((out, fail))
}

/// Rejects a file name whose extension is that of another format than pcap.
fn check_extension(path: &Path) -> Result<(), Failure> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    if convert::Format::of_extension(&extension).is_some_and(|format| format != convert::Format::Pcap) {
        return Err(Failure::Said(format!(
            "{}: frames are written as pcap: name the file .pcap; netgrain convert converts it to other formats",
            path.display()
        )));
    }
    Ok(())
}

/// Creates an output file, or opens standard output.
fn create(path: &Path, force: bool) -> Result<OutputFile, Failure> {
    overwrite::check(path, force).map_err(Failure::say)?;
    let file: Box<dyn Write> = match overwrite::is_stdout(path) {
        true => Box::new(std::io::stdout()),
        false => Box::new(std::fs::File::create(path).map_err(|e| Failure::uncreatable(path, &e))?),
    };
    Ok(std::io::BufWriter::with_capacity(1 << 20, file))
}

/// Converts an error of a write into the failure of the verb.
fn failed(path: &Path, e: &std::io::Error) -> Failure {
    match e.kind() {
        ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::Said(format!("{}: {e}", path.display())),
    }
}
