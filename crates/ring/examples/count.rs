//! Counts the packets that an engine publishes and the packets that this program missed: an example of a listener in
//! another process.
//!
//! ```text
//! cargo run --release -p netgrain-ring --example count -- SOCKET [lossy|lossless]
//! ```
//! Prints one line per second on stdout and a last line at the end of the stream; ends with the engine.
//! `examples/c/count.c` is the same program in C.

use netgrain_ring::{AttachError, Listener, Mode, attach};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const BATCH: usize = 256;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: count SOCKET [lossy|lossless]");
        return ExitCode::from(2);
    };
    let mode = if args.next().as_deref() == Some("lossless") { Mode::Lossless } else { Mode::Lossy };
    match count(Path::new(&path), mode) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{path}: {e}");
            ExitCode::from(2)
        }
    }
}

/// Counts packets until every ring of the engine has ended.
pub fn count(path: &Path, mode: Mode) -> Result<(), AttachError> {
    let mut rings = attach(path, mode, "count")?;
    let (mut descs, mut buffer) = (Vec::new(), Vec::new());
    let (mut packets, mut octets, mut overwritten, mut sum) = (0u64, 0u64, 0u64, 0u64);
    let mut last = Instant::now();
    loop {
        let (mut open, mut got) = (false, 0);
        for ring in &mut rings {
            ring.next(BATCH, &mut descs);
            for d in descs.iter().filter(|d| d.is_packet()) {
                match ring.packet(d, &mut buffer) {
                    Some(bytes) => sum += bytes.iter().map(|b| u64::from(*b)).sum::<u64>(),
                    None => overwritten += 1,
                }
                packets += 1;
                octets += u64::from(d.wire_len);
            }
            got += descs.len();
            // A dead engine publishes nothing more, but its last published packets are still readable.
            open |= !ring.ended() && (!descs.is_empty() || ring.connected() || ring.lag() > 0);
        }
        if !open || last.elapsed() >= Duration::from_secs(1) {
            let missed: u64 = rings.iter().map(|r| r.counts().missed).sum();
            println!("packets {packets} bytes {octets} missed {missed} overwritten {overwritten} sum {sum}");
            rings.iter().for_each(Listener::report);
            last = Instant::now();
        }
        if !open {
            return Ok(());
        }
        if got == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
