//! `netgrain gen`: frames that carry their own truth, onto a port or into a file.

use crate::args::{GenArgs, SendMethod};
use crate::outcome::{Failure, Outcome};
use crate::record::json;
use crate::signals;
use base::units::{show_count, show_si};
use engine::{Generator, Method, Sent};
use r#gen::{Spec, Traffic};
use pcap::classic::{Resolution, Writer};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the verb. No if the driver dropped frames.
pub fn run(args: &GenArgs) -> Result<Outcome, Failure> {
    let mut spec: Spec = args.spec.parse().map_err(Failure::say)?;
    spec.truth = true;
    spec.rate = args.rate.unwrap_or(spec.rate);
    spec.packets = args.packets.or(spec.packets);
    spec.duration = args.duration.or(spec.duration);
    if let Some(cpu) = args.cpu {
        sys::cpu::pin(cpu).map_err(|e| Failure::Said(format!("--cpu {cpu}: {e}; name a processor of this machine")))?;
    }
    let stop = signals::stop_flag();
    let sent = match (&args.interface, &args.write) {
        (Some(interface), _) => {
            let generator = Generator::open(&spec, interface, args.queue, method(args.method)).map_err(Failure::say)?;
            eprintln!("netgrain: {}", generator.description());
            let progress = |s| {
                if !args.json {
                    eprintln!("{}", line(&s));
                }
            };
            generator.run(&stop, progress).map_err(Failure::say)?
        }
        (None, Some(path)) => write(&spec, path, &stop)?,
        (None, None) => return Err(Failure::Said("name a port with -i, or a file with -w".into())),
    };
    if args.json {
        json(&serde_json::to_value(sent).map_err(Failure::say)?)?;
    } else {
        writeln!(std::io::stdout(), "{}", line(&sent))?;
    }
    Ok(Outcome::of(sent.dropped == 0))
}

fn method(wish: SendMethod) -> Method {
    match wish {
        SendMethod::Auto => Method::Auto,
        SendMethod::LiveFrames => Method::LiveFrames,
        SendMethod::AfXdp => Method::AfXdp,
    }
}

fn line(s: &Sent) -> String {
    let seconds = (s.nanos as f64 / 1e9).max(1e-9);
    format!(
        "sent {} frames in {seconds:.2} s: {}, {}; {} dropped by the driver",
        show_count(s.sent),
        show_si(s.sent as f64 / seconds, "pps"),
        show_si(s.bytes as f64 * 8.0 / seconds, "b/s"),
        show_count(s.dropped),
    )
}

/// Frames into a nanosecond pcap file, stamped with their departure.
fn write(spec: &Spec, path: &Path, stop: &AtomicBool) -> Result<Sent, Failure> {
    if spec.packets.is_none() && spec.duration.is_none() {
        return Err(Failure::Said("a file needs an end: say --packets or --duration".into()));
    }
    if matches!(convert::Format::of_extension(&path.extension().unwrap_or_default().to_string_lossy()), Some(format) if format != convert::Format::Pcap)
    {
        return Err(Failure::Said(format!(
            "{}: frames are written as pcap: name it .pcap, and netgrain convert makes anything else of it",
            path.display()
        )));
    }
    let fail = |e: std::io::Error| Failure::Said(format!("{}: {e}", path.display()));
    let file = std::fs::File::create(path).map_err(fail)?;
    let mut out = Writer::new(std::io::BufWriter::with_capacity(1 << 20, file), Resolution::Nanos, 1).map_err(fail)?;
    let mut traffic = Traffic::new(spec);
    let mut pacer = r#gen::Pacer::new(spec.rate, sys::clock::realtime());
    let (first, mut sent) = (sys::clock::realtime(), Sent::default());
    let mut frame = vec![0; traffic.max_len()];
    let end = spec.duration.map_or(base::Timestamp::MAX, |d| first.after(d));
    while !stop.load(Ordering::Relaxed) && sent.made < spec.packets.unwrap_or(u64::MAX) {
        let now = if spec.rate == base::units::Rate::Flat { sys::clock::realtime() } else { pacer.departure() };
        if now >= end {
            break;
        }
        let len = traffic.fill(&mut frame, now);
        out.write(now, len as u32, &frame[..len]).map_err(fail)?;
        pacer.sent(1, len as u64);
        (sent.made, sent.sent, sent.bytes) = (sent.made + 1, sent.sent + 1, sent.bytes + len as u64);
        sent.nanos = now.since(first).as_nanos() as u64;
    }
    out.finish().map_err(fail)?;
    Ok(sent)
}
