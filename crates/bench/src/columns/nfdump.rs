//! Stores the flows of the benchmark in files of nfcapd, and runs the query of the benchmark with nfdump. The benchmark
//! sends the flows as IPFIX uniflows over the loopback interface, since nfdump's sums of both directions depend on its
//! version.

use super::ranking::{TOP, row};
use super::sample::{ExpectedTotals, Set};
use crate::output::{Output, Stop};
use crate::process::{Helper, find};
use crate::query::cold;
use base::Timestamp;
use base::units::show_bytes;
use export::encode::Message;
use export::{Config, Encode, Fields, ipfix};
use flow::sample::START;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for nfcapd to bind its port, and to end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of bytes in nfcapd's receive queue; the sender waits for nfcapd, so that no message is lost.
const WAITING: u64 = 60_000;

/// Sends `records` flows of this set to nfcapd, queries the top senders, and compares them with the true sums of IP
/// bytes by sender, which NetFlow counts.
pub fn compare(
    directory: &Path,
    set: &Set,
    records: u64,
    expected_totals: &ExpectedTotals,
    sheet: &mut Output<'_>,
) -> Result<(), Stop> {
    for name in ["nfcapd", "nfdump"] {
        if find(name).is_none() {
            return sheet.note(format_args!("{name} is not installed: its row is omitted"));
        }
    }
    std::fs::create_dir_all(directory).map_err(|e| Stop::error(format_args!("{}: {e}", directory.display())))?;
    let lost = collect(directory, set, records)?;
    let listed = std::fs::read_dir(directory).map_err(Stop::error)?.flatten();
    let bytes: u64 = listed.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum();
    sheet.note(format_args!(
        "nfcapd stores {}, {:.0} B per record; {lost} messages lost",
        show_bytes(bytes),
        bytes as f64 / records as f64
    ))?;
    for cache in ["cold", "warm"] {
        if cache == "cold" && cold().is_err() {
            // If the page cache cannot be dropped, the result of nfdump with a cold cache is omitted. The reason is not
            // printed here, because it was printed when the result of netgrain with a cold cache was omitted.
            continue;
        }
        let begun = Instant::now();
        let mut command = Command::new("nfdump");
        command.arg("-R").arg(directory).args(["-s", "srcip/bytes", "-n", &TOP.to_string(), "-N", "-o", "csv"]);
        let result = command.output().map_err(|e| Stop::error(format_args!("nfdump: {e}")))?;
        row("nfdump", cache, 1, begun.elapsed(), records, sheet)?;
        let (correct, lines) = compared(&String::from_utf8_lossy(&result.stdout), expected_totals);
        if (correct, lines) != (TOP, TOP) {
            sheet.note(format_args!(
                "{correct} of the {lines} senders in the output of nfdump have the bytes that were sent"
            ))?;
        }
    }
    Ok(())
}

/// Sends the flows and returns the number of lost messages.
fn collect(directory: &Path, set: &Set, records: u64) -> Result<u64, Stop> {
    let failed = |e: std::io::Error| Stop::error(format_args!("sending to nfcapd: {e}"));
    // The system chooses a free UDP port; the socket is closed again, so that nfcapd can bind the port.
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| Ok(socket.local_addr()?.port())).map_err(failed)?;
    let mut command = Command::new("nfcapd");
    command.arg("-w").arg(directory).args(["-b", "127.0.0.1", "-p", &port.to_string(), "-B", "8000000", "-T", "all"]);
    command.stderr(Stdio::null());
    let mut nfcapd = Helper::start(command, "nfcapd")?;
    let until = Instant::now() + TIMEOUT;
    while waiting(port).is_none() {
        if !nfcapd.is_running() || Instant::now() > until {
            return Err(Stop::error("nfcapd did not open its port within a minute"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let mut encoder = ipfix::Encoder::new(Config { fields: Fields::Standard, ..Config::default() });
    let now = Timestamp::from_secs_nanos(START + 3600, 0);
    let (mut sent, mut error) = (0u64, None);
    let mut send = |message: Message<'_>| {
        error = error.take().or(socket.send_to(message.bytes, ("127.0.0.1", port)).err());
        sent += 1;
        while sent.is_multiple_of(64) && waiting(port).is_some_and(|(bytes, _)| bytes > WAITING) {
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    let mut too_large = None;
    set.for_each_batch(records, |batch| {
        for record in batch {
            let mut record = record.clone();
            record.directions[1] = flow::DirectionStats::default();
            too_large = too_large.take().or(encoder.record(&record, now, &mut send).err());
        }
    });
    encoder.flush(now, &mut send);
    if let Some(too_large) = too_large {
        return Err(Stop::error(too_large));
    }
    if let Some(error) = error {
        return Err(failed(error));
    }
    while waiting(port).is_some_and(|(bytes, _)| bytes > 0) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let lost = waiting(port).map_or(0, |(_, lost)| lost);
    nfcapd.interrupt()?;
    nfcapd.finish_with(TIMEOUT, &[0])?;
    Ok(lost)
}

/// Parses nfdump's output. Returns the number of senders whose bytes are correct, and the number of all senders.
fn compared(text: &str, expected_totals: &ExpectedTotals) -> (usize, usize) {
    let (mut correct, mut lines) = (0, 0);
    for line in text.lines() {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let address = cells.iter().enumerate().find_map(|(i, cell)| Some((i, cell.parse::<IpAddr>().ok()?)));
        let Some((place, address)) = address else { continue };
        let wanted = expected_totals.get(&address).map_or(0, |(_, bytes)| *bytes).to_string();
        lines += 1;
        correct += usize::from(cells[place..].contains(&wanted.as_str()));
    }
    (correct, lines)
}

/// Returns the number of bytes in the receive queue of this UDP port, and the number of messages that were lost because
/// the queue was full; `None` while no process listens at the port (proc_net(5)).
fn waiting(port: u16) -> Option<(u64, u64)> {
    let table = std::fs::read_to_string("/proc/net/udp").ok()?;
    let line = table.lines().find(|line| line.contains(&format!(":{port:04X} 00000000:0000")))?;
    let cells: Vec<&str> = line.split_whitespace().collect();
    Some((u64::from_str_radix(cells.get(4)?.split(':').nth(1)?, 16).ok()?, cells.last()?.parse().ok()?))
}
