//! The demo without privileges: background traffic and scan are written into a pipe on schedule, and the pipeline reads
//! them like a capture on standard input. Such a source waits when the pipeline is slow, so no packet is lost on a busy
//! machine.

use super::incident::{FRAME, Scan};
use super::queries::LiveQuery;
use super::{DemoArgs, DemoResult, begin, watch};
use crate::interval;
use crate::outcome::Failure;
use base::Timestamp;
use base::units::Rate;
use engine::{Sent, SourcePlan};
use r#gen::{Pacer, Spec, Traffic};
use pcap::classic;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// The interface name in the store.
const NAME: &str = "sim";

/// The number of background frames, and of scan frames, that are written between two checks of the clock.
const BATCH: u64 = 256;

/// The time that the traffic thread sleeps while no frame is due.
const IDLE_SLEEP: Duration = Duration::from_millis(1);

/// Runs the capture and the traffic until the end of the traffic or a signal.
pub fn run(
    args: &DemoArgs,
    spec: &Spec,
    scan: Scan,
    store: &Path,
    live_query: &mut LiveQuery,
    stop: &Arc<AtomicBool>,
) -> Result<DemoResult, Failure> {
    let (reader, writer) = io::pipe().map_err(|e| Failure::Said(format!("pipe: {e}")))?;
    let (ready, begun) = sync_channel(1);
    let made = {
        let (spec, stop) = (spec.clone(), Arc::clone(stop));
        std::thread::Builder::new()
            .name("traffic".into())
            .spawn(move || make(&spec, scan, writer, &begun, &stop))
            .map_err(|e| Failure::Said(format!("cannot start the traffic thread: {e}")))?
    };
    let source = SourcePlan::Files {
        paths: vec![format!("/proc/self/fd/{}", reader.as_raw_fd()).into()],
        options: Default::default(),
        name: Some(NAME.into()),
    };
    let mut capture = begin(source, store, &[])?;
    // The capture has opened the read end of the pipe itself. `reader` is closed here, so that the traffic thread gets
    // a write error when the capture ends.
    drop(reader);
    let _ = ready.send(());
    watch(args, &capture, live_query, || Ok(!capture.finished() && !stop.load(Ordering::Relaxed)))?;
    capture.stop();
    capture.wait()?;
    let (background, scanned) = match made.join() {
        Ok(Ok(made)) => made,
        // After a stop request the pipe may be closed; this is not an error.
        Ok(Err(_)) if stop.load(Ordering::Relaxed) => (0, 0),
        Ok(Err(e)) => return Err(Failure::Said(format!("the traffic ended early: {e}"))),
        Err(_) => return Err(Failure::Said("the traffic thread panicked".into())),
    };
    let sent = Sent { made: background, sent: background, ..Sent::default() };
    Ok(DemoResult { report: capture.report(), sent, scanned })
}

/// Writes until the end of the traffic, an error of the pipe, or a stop request; returns the numbers of written frames
/// of the background and of the scan. The capture header is written at once, because the reader waits for it; the
/// traffic begins when the pipeline is ready.
fn make(spec: &Spec, scan: Scan, pipe: impl Write, ready: &Receiver<()>, stop: &AtomicBool) -> io::Result<(u64, u64)> {
    let mut out = BufWriter::with_capacity(64 << 10, pipe);
    let mut traffic = Traffic::new(spec);
    let mut frame = vec![0; traffic.max_len()];
    let duration = spec.duration.unwrap_or_default();
    let mut pacer = Pacer::new(spec.rate, Timestamp::ZERO);
    let (mut made, mut scanned) = (0, 0);
    out.write_all(&classic::FILE_HEADER_NS)?;
    out.flush()?;
    if ready.recv().is_err() {
        return Ok((0, 0));
    }
    let (begun, start) = (Instant::now(), interval::now());
    while !stop.load(Ordering::Relaxed) {
        let elapsed = begun.elapsed().min(duration);
        // Frames that are due exactly at the end of the traffic are excluded.
        let last = elapsed.min(duration.saturating_sub(Duration::from_nanos(1)));
        let now = start.after(elapsed);
        let due = match spec.rate {
            Rate::Flat if elapsed == duration => 0,
            _ => pacer.due(Timestamp::ZERO.after(last), frame.len()).min(BATCH),
        };
        for _ in 0..due {
            let len = traffic.fill(&mut frame, now);
            record(&mut out, now, &frame[..len])?;
            pacer.sent(1, len as u64);
        }
        let due_scan = (scan.due(elapsed) - scanned).min(BATCH);
        for number in scanned..scanned + due_scan {
            let frame: [u8; FRAME] = Scan::frame(number);
            record(&mut out, now, &frame)?;
        }
        (made, scanned) = (made + due, scanned + due_scan);
        if due + due_scan == 0 {
            if elapsed == duration {
                break;
            }
            out.flush()?;
            std::thread::sleep(IDLE_SLEEP);
        }
    }
    out.flush()?;
    Ok((made, scanned))
}

fn record(out: &mut impl Write, at: Timestamp, frame: &[u8]) -> io::Result<()> {
    let len = frame.len() as u32;
    out.write_all(&classic::record_header_ns(at, len, len))?;
    out.write_all(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap::Reader;

    /// A channel that reports at once that the pipeline is ready.
    fn ready() -> Receiver<()> {
        let (ready, begun) = sync_channel(1);
        ready.send(()).expect("the channel has room");
        begun
    }

    #[test]
    fn no_traffic_is_written_before_the_pipeline_is_ready() {
        let (spec, scan) = ("60,rate=1kpps".parse().expect("traffic"), Scan::during(Duration::from_secs(1)));
        let mut bytes = Vec::new();
        let (_, no_signal) = sync_channel(1);
        assert_eq!(make(&spec, scan, &mut bytes, &no_signal, &AtomicBool::new(false)).ok(), Some((0, 0)));
        assert_eq!(bytes, classic::FILE_HEADER_NS);
    }

    #[test]
    fn a_closed_pipe_ends_the_traffic_with_an_error() {
        struct Shut;
        impl Write for Shut {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut spec: Spec = "60,rate=flat".parse().expect("traffic");
        spec.duration = Some(Duration::from_secs(3600));
        let scan = Scan::during(Duration::from_secs(3600));
        let made = make(&spec, scan, Shut, &ready(), &AtomicBool::new(false));
        assert_eq!(made.map_err(|e| e.kind()), Err(io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn all_due_frames_are_written_in_the_order_of_time() {
        let duration = Duration::from_millis(60);
        let mut spec: Spec = "100,flows=3,rate=10kpps,truth".parse().expect("traffic");
        spec.duration = Some(duration);
        let scan = Scan::during(duration);
        let mut bytes = Vec::new();
        let made = make(&spec, scan, &mut bytes, &ready(), &AtomicBool::new(false)).expect("memory takes all");
        assert_eq!(made, (600, scan.total()));
        let mut reader = Reader::open(&bytes[..]).expect("a capture");
        let (mut lengths, mut last) = ([0, 0], Timestamp::ZERO);
        while reader.advance().expect("whole") {
            let packet = reader.current().expect("a current packet");
            let at = packet.ts.expect("stamped");
            assert!(at >= last);
            last = at;
            lengths[usize::from(packet.data.len() == FRAME)] += 1;
        }
        assert_eq!(lengths, [600, scan.total()]);
    }
}
