//! `netgrain stamp send`: sends test packets to a reflector and evaluates the replies.

use crate::distribution::{plot, show_nanos, to_json};
use crate::outcome::{Failure, Outcome, json};
use crate::owd::clock::ClockArg;
use crate::owd::clock_watch::ClockWatch;
use crate::owd::summary::{clocks, figures};
use crate::privileges;
use crate::signals;
use crate::style::plural;
use ::stamp::{AUTHENTICATED_LEN, BASE_LEN, Key, Measurement, MeasurementReport, PORT, Reply, TestPacket};
use base::units::{parse_span, show_count};
use clap::Args;
use delay::Report;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::seccomp::Sockets;
use sys::udp::PathError;

/// The longest wait for a reply. It limits the time until a request to stop takes effect.
const WAIT: Duration = Duration::from_millis(100);

/// The longest UDP payload over IPv4.
const SIZE_MAX: u64 = 65_507;

#[derive(Args)]
pub struct SendArgs {
    /// Reflector: a host name or an address, with a port if it is not 862
    #[arg(value_name = "HOST[:PORT]")]
    to: String,
    /// Number of test packets
    #[arg(long, value_name = "N", default_value = "10", value_parser = crate::values::positive_count)]
    count: u64,
    /// Time between two test packets
    #[arg(long, value_name = "SPAN", default_value = "100ms", value_parser = parse_span)]
    interval: Duration,
    /// Bytes of a test packet after the UDP header; at least 112 with --key-file
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = BASE_LEN as u16,
        value_parser = base::units::whole::<u16>(BASE_LEN as u64..=SIZE_MAX)
    )]
    size: u16,
    /// Authenticated mode: authenticate test packets with the key in this file (16 to 1024 bytes), and accept only
    /// replies that are authenticated with it
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Wait this long for the last replies
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = parse_span)]
    wait: Duration,
    /// Clock of this host: auto (as the kernel reports), same (also that of the reflector), unknown, or its largest
    /// error, such as 20us
    #[arg(long, value_name = "CLOCK", default_value = "auto", value_parser = ClockArg::parse)]
    clock: ClockArg,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Counts of errors of the socket and of invalid packets, which [`Measurement`] does not count.
#[derive(Default)]
struct SocketCounts {
    /// The errors that the kernel reports for test packets, by their cause.
    errors: BTreeMap<PathError, u64>,
    /// Received packets that are not valid replies.
    invalid: u64,
    /// Received packets without the HMAC of the key.
    unauthenticated: u64,
    /// Number of times that the system clock was set.
    clock_steps: u64,
}

impl SocketCounts {
    /// Number of errors of all causes.
    fn refused(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Counts an error of the socket.
    ///
    /// # Errors
    /// The error, if it is not about the path to the reflector.
    fn count(&mut self, e: io::Error) -> io::Result<()> {
        let cause = PathError::of(&e).ok_or(e)?;
        *self.errors.entry(cause).or_default() += 1;
        Ok(())
    }
}

/// Runs the verb; returns `No` if a test packet got no reply.
pub fn run(args: &SendArgs) -> Result<Outcome, Failure> {
    let to = resolve(&args.to)?;
    let key = args.key_file.as_deref().map(super::key).transpose()?;
    let size = match (&key, usize::from(args.size)) {
        (Some(_), BASE_LEN) => AUTHENTICATED_LEN,
        (Some(_), size) if size < AUTHENTICATED_LEN => {
            return Err(Failure::Said(format!(
                "--size {size}: a test packet with --key-file has at least {AUTHENTICATED_LEN} bytes"
            )));
        }
        (_, size) => size,
    };
    let failed = |what: &str, e: io::Error| Failure::Said(format!("{to}: cannot {what}: {e}"));
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).map_err(|e| failed("open a socket", e))?;
    socket.connect(to).map_err(|e| failed("send", e))?;
    sys::udp::request_arrival_details(&socket).map_err(|e| failed("request times of arrival", e))?;
    let stop = signals::stop_flag();
    privileges::for_queries(&[], &[], Sockets::Internet)?;
    let (mut watch, mut counts) = (ClockWatch::start(), SocketCounts::default());
    let mut measurement = Measurement::new(watch.receiver(args.clock), watch.error());
    let mut channel = Channel { socket: &socket, key: key.as_ref(), packet: vec![0; size] };
    let outcome = measure(args, &mut channel, &mut measurement, &mut counts, &mut watch, &stop);
    watch.end();
    measurement.set_clock(watch.receiver(args.clock), watch.error());
    counts.clock_steps = watch.steps();
    let report = measurement.report();
    for (cause, count) in &counts.errors {
        sys::say!("netgrain: {to}: {}: {}", plural(*count, "error", "errors"), advice(*cause));
    }
    if counts.unauthenticated > 0 {
        sys::say!(
            "netgrain: {to}: {} without the right HMAC; does the reflector have the key of --key-file?",
            plural(counts.unauthenticated, "packet", "packets")
        );
    }
    if let Some(note) = watch.note() {
        sys::say!("netgrain: {note}");
    }
    if args.json {
        json(&document(&report, &counts))?;
    } else {
        write!(io::stdout(), "{}", text(to, &report, &counts))?;
    }
    outcome.map_err(|e| failed("measure", e))?;
    Ok(Outcome::of(report.lost == 0))
}

/// The cause of an error in words, and what the user can do.
fn advice(cause: PathError) -> &'static str {
    match cause {
        PathError::NoReceiver => "no program receives on this port; is a STAMP reflector running there?",
        PathError::HostUnreachable => "the host is unreachable; check its address and that it is up",
        PathError::NetworkUnreachable => "the network is unreachable; check the address and the routes",
        PathError::TooLong => "the test packets are longer than the path permits; choose a smaller --size",
        PathError::NotSupported => "the host or a router does not support the packets; does the host accept UDP?",
        PathError::Forbidden => "a packet filter forbids the packets; permit UDP to this port",
        PathError::QueueFull => "the queue of the interface is full; choose a longer --interval",
    }
}

fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let found = match bare.parse() {
        Ok(address) => Ok(Some(SocketAddr::new(address, PORT))),
        Err(_) if text.contains(':') => text.to_socket_addrs().map(|mut all| all.next()),
        Err(_) => (text, PORT).to_socket_addrs().map(|mut all| all.next()),
    };
    let advice = "name a reflector as 10.0.0.2, [2001:db8::2]:862 or host.example:862";
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::Said(format!("{text}: the name has no address; {advice}"))),
        Err(e) => Err(Failure::Said(format!("{text}: {e}; {advice}"))),
    }
}

/// The socket, the key of authenticated mode, and the memory of a test packet.
struct Channel<'s> {
    socket: &'s UdpSocket,
    key: Option<&'s Key>,
    packet: Vec<u8>,
}

impl Channel<'_> {
    /// Writes a test packet into the memory.
    fn write(&mut self, test: &TestPacket) {
        match self.key {
            Some(key) => {
                let mut plain = [0; BASE_LEN];
                test.write(&mut plain);
                key.seal_test(&plain, &mut self.packet);
            }
            None => test.write(&mut self.packet),
        }
    }
}

/// Sends the test packets and receives the replies. After an error, `measurement` and `counts` have the results so far.
fn measure(
    args: &SendArgs,
    channel: &mut Channel<'_>,
    measurement: &mut Measurement,
    counts: &mut SocketCounts,
    watch: &mut ClockWatch,
    stop: &AtomicBool,
) -> io::Result<()> {
    let begun = Instant::now();
    let mut sent = 0;
    while sent < args.count && !stop.load(Ordering::Relaxed) {
        let due = begun + args.interval.saturating_mul(u32::try_from(sent).unwrap_or(u32::MAX));
        let ahead = due.saturating_duration_since(Instant::now());
        if watch.check() {
            measurement.set_clock(watch.receiver(args.clock), watch.error());
        }
        if !ahead.is_zero() {
            receive(channel, measurement, counts, ahead.min(WAIT))?;
            continue;
        }
        let now = sys::clock::realtime();
        let sequence = measurement.send(now);
        channel.write(&TestPacket { sequence, sent: now, error: watch.error() });
        // If an ICMP message about an earlier test packet has arrived, the kernel reports its error at the next call
        // and does not send the packet. So the packet is passed once more.
        if let Err(e) = channel.socket.send(&channel.packet) {
            counts.count(e)?;
            if let Err(e) = channel.socket.send(&channel.packet) {
                counts.count(e)?;
            }
        }
        sent += 1;
        // Replies are read between two test packets even if the next test packet is already due. If replies were read
        // only while no test packet is due, the buffer of the socket could overflow.
        receive(channel, measurement, counts, Duration::ZERO)?;
    }
    let ended = Instant::now();
    while measurement.lost() > 0 && ended.elapsed() < args.wait && !stop.load(Ordering::Relaxed) {
        receive(channel, measurement, counts, (args.wait - ended.elapsed().min(args.wait)).min(WAIT))?;
    }
    Ok(())
}

/// Waits for a reply, and reads all replies that have arrived.
fn receive(
    channel: &Channel<'_>,
    measurement: &mut Measurement,
    counts: &mut SocketCounts,
    mut wait: Duration,
) -> io::Result<()> {
    let mut buf = [0; 1 << 16];
    loop {
        match sys::udp::receive(channel.socket, &mut buf, wait) {
            Ok(None) => return Ok(()),
            Ok(Some(found)) => {
                let time = found.time.unwrap_or_else(sys::clock::realtime);
                let opened = channel.key.map(|key| key.open_reply(&buf[..found.len]));
                let bytes = match &opened {
                    Some(Some(reply)) => &reply[..],
                    Some(None) => {
                        counts.unauthenticated += 1;
                        wait = Duration::ZERO;
                        continue;
                    }
                    None => &buf[..found.len],
                };
                match Reply::parse(bytes) {
                    Ok(reply) => drop(measurement.receive(&reply, time)),
                    Err(_) => counts.invalid += 1,
                }
            }
            Err(e) => counts.count(e)?,
        }
        wait = Duration::ZERO;
    }
}

fn document(report: &MeasurementReport, counts: &SocketCounts) -> Value {
    let direction = |report: &Option<Report>| {
        let report = report.as_ref()?;
        Some(serde_json::json!({
            "clocks": report.clocks.name(),
            "delay_error_ns": report.delay_error().map(|error| error.as_nanos() as u64),
            "delay_ns": to_json(&report.delay),
            "variation_error_ns": report.variation_error().as_nanos() as u64,
            "variation_ns": to_json(&report.variation),
            "reordered": report.reordering.reordered,
            "skew_ppm": report.drift_free.as_ref().map(|free| free.skew.ppm()),
        }))
    };
    let error = |(cause, count): (&PathError, &u64)| serde_json::json!({"cause": cause.name(), "count": count});
    serde_json::json!({
        "sent": report.sent,
        "replied": report.first,
        "lost": report.lost,
        "lost_forward": report.lost_forward,
        "lost_backward": report.lost_backward,
        "duplicates": report.duplicates,
        "unknown": report.unknown,
        "invalid": counts.invalid,
        "unauthenticated": counts.unauthenticated,
        "refused": counts.refused(),
        "errors": counts.errors.iter().map(error).collect::<Vec<_>>(),
        "clock_steps": counts.clock_steps,
        "ttl_min": report.ttl.map(|ttl| ttl.0),
        "ttl_max": report.ttl.map(|ttl| ttl.1),
        "round_trip_ns": to_json(&report.round_trip),
        "reflection_ns": to_json(&report.reflection),
        "forward": direction(&report.forward),
        "backward": direction(&report.backward),
    })
}

fn text(to: SocketAddr, report: &MeasurementReport, counts: &SocketCounts) -> String {
    let mut out = format!(
        "{to}: {} sent, {} lost ({:.3} %), {} duplicate",
        show_count(report.sent),
        show_count(report.lost),
        100.0 * report.lost as f64 / report.sent.max(1) as f64,
        show_count(report.duplicates)
    );
    if let (Some(forward), Some(backward)) = (report.lost_forward, report.lost_backward) {
        let _ =
            write!(out, "; {} lost on the way there, {} on the way back", show_count(forward), show_count(backward));
    }
    if report.unknown + counts.invalid > 0 {
        let _ = write!(out, "; {} packets were no replies", show_count(report.unknown + counts.invalid));
    }
    out.push('\n');
    if report.first == 0 {
        return out;
    }
    let _ = writeln!(out, "  round trip {}", figures(&report.round_trip, None));
    if let Some((low, high)) = report.ttl {
        let _ = writeln!(out, "  TTL        {low} to {high} at the reflector");
    }
    for (name, direction) in [("there", &report.forward), ("back", &report.backward)] {
        let Some(direction) = direction else { continue };
        match direction.delay_error() {
            Some(error) => {
                let _ = writeln!(out, "  way {name:<6} {}", figures(&direction.delay, Some(error)));
            }
            None => {
                let _ = writeln!(out, "  way {name:<6} {}; synchronise both clocks", clocks(&direction.clocks));
            }
        }
        let variation = figures(&direction.variation, Some(direction.variation_error()));
        let _ = writeln!(out, "             variation {variation}");
    }
    for row in plot(report.round_trip.histogram(), show_nanos) {
        let _ = writeln!(out, "  {row}");
    }
    out
}
