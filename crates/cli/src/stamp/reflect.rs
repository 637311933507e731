//! `netgrain stamp reflect`: answers test packets.

use crate::outcome::{Failure, Outcome, json};
use crate::owd::clock_watch::own_error;
use crate::privileges;
use crate::signals;
use crate::style::plural;
use ::stamp::{PORT, Reflector};
use base::ErrorEstimate;
use base::units::{parse_span, show_count};
use clap::Args;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::seccomp::Sockets;

/// The longest wait for a packet. It limits the time until a request to stop takes effect.
const WAIT: Duration = Duration::from_millis(100);

/// Time between two readings of the error estimate of the system clock.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// Length of the buffers in bytes, which is enough for the longest UDP payload.
const PACKET_MAX: usize = 1 << 16;

#[derive(Args)]
pub struct ReflectArgs {
    /// Address and port to receive on
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
        value_parser = address
    )]
    listen: SocketAddr,
    /// Number the replies to each sender, so that senders can tell in which direction packets were lost
    #[arg(long)]
    stateful: bool,
    /// Authenticated mode: answer only test packets that are authenticated with the key in this file (16 to 1024 bytes)
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Stop after this time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    duration: Option<Duration>,
    /// Stop after this many replies
    #[arg(long, value_name = "N", value_parser = crate::values::positive_count)]
    packets: Option<u64>,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<SocketAddr, crate::values::ValueError> {
    text.parse().map_err(|_| {
        crate::values::ValueError::new(format!("{text:?} should be an address and a port: 0.0.0.0:862, [::]:862"))
    })
}

/// Runs the verb; returns `No` if a reply could not be sent.
pub fn run(args: &ReflectArgs) -> Result<Outcome, Failure> {
    let failed = |what: &str, e: std::io::Error| {
        Failure::Said(format!("{}: cannot {what}: {e}; name another address or port with --listen", args.listen))
    };
    let key = args.key_file.as_deref().map(super::key).transpose()?;
    let socket = UdpSocket::bind(args.listen).map_err(|e| failed("receive", e))?;
    sys::udp::request_arrival_details(&socket).map_err(|e| failed("request times of arrival", e))?;
    let local = socket.local_addr().map_err(|e| failed("receive", e))?;
    let stop = signals::stop_flag();
    sys::say!("netgrain: STAMP reflector at {local}");
    privileges::for_queries(&[], &[], Sockets::Internet)?;
    let mut reflector = Reflector::new(local.port(), args.stateful, key);
    let (mut buf, mut reply, mut unsent) = (vec![0; PACKET_MAX], vec![0; PACKET_MAX], 0u64);
    let begun = Instant::now();
    let mut error: (ErrorEstimate, Instant) = (own_error(), begun);
    while !stop.load(Ordering::Relaxed)
        && args.duration.is_none_or(|duration| begun.elapsed() < duration)
        && args.packets.is_none_or(|packets| reflector.replied() < packets)
    {
        if error.1.elapsed() >= CLOCK_PERIOD {
            error = (own_error(), Instant::now());
        }
        let found = match sys::udp::receive(&socket, &mut buf, WAIT) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            // An ICMP error about an earlier reply.
            Err(e) if sys::udp::PathError::of(&e).is_some() => continue,
            Err(e) => return Err(failed("receive", e)),
        };
        let time = found.time.unwrap_or_else(sys::clock::realtime);
        let arrival = (found.from, time, found.ttl.unwrap_or(0));
        let now = (sys::clock::realtime(), error.0);
        if let Ok(len) = reflector.reply(&buf[..found.len], arrival, now, &mut reply) {
            let sent = sys::udp::send_from(&socket, &reply[..len], found.from, found.local);
            unsent += u64::from(sent.is_err());
        }
    }
    let unanswered = reflector.invalid() + reflector.unauthenticated() + reflector.from_reflectors();
    if args.json {
        json(&serde_json::json!({
            "received": reflector.replied() + unanswered,
            "replied": reflector.replied() - unsent,
            "unsent": unsent,
            "invalid": reflector.invalid(),
            "unauthenticated": reflector.unauthenticated(),
            "from_reflectors": reflector.from_reflectors(),
            "sessions": reflector.sessions(),
        }))?;
    } else {
        let (replies, invalid) = (plural(reflector.replied() - unsent, "reply", "replies"), reflector.invalid());
        writeln!(std::io::stdout(), "{replies}, {} invalid, {} not sent", show_count(invalid), show_count(unsent))?;
    }
    if reflector.unauthenticated() > 0 {
        sys::say!(
            "netgrain: {} without the right HMAC got no reply; the sender needs the key of this reflector (--key-file)",
            plural(reflector.unauthenticated(), "packet", "packets")
        );
    }
    if reflector.from_reflectors() > 0 {
        sys::say!(
            "netgrain: {} from port 862 or {} got no reply, because reflectors would answer each other without end; a \
             sender needs another source port",
            plural(reflector.from_reflectors(), "test packet", "test packets"),
            local.port()
        );
    }
    Ok(Outcome::of(unsent == 0))
}
