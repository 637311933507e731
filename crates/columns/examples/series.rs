//! Prints the seconds of an interval, one per line: packets, bits per second, the peak of 1 ms, and the lost packets by
//! cause. `examples/c/series.c` prints the same, and a test compares the two.
//!
//! ```text
//! cargo run -p netgrain-columns --example series -- [--live] STORE [FROM [TO]]
//! ```
//!
//! With `--live` the program continues with the row of each second as it is journaled, until the program is killed or
//! the end TO of the interval has passed.

use base::{TimeSpec, Timestamp};
use netgrain_columns::{Query, SeriesLoop, Step};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args, &mut std::io::stdout()) {
        Ok(rows) => ExitCode::from(if rows > 0 { 0 } else { 1 }),
        Err(e) => {
            eprintln!("series: {e}");
            ExitCode::from(2)
        }
    }
}

fn now() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Runs the query, prints its results to `out`, and returns the number of rows.
pub fn run(args: &[String], out: &mut dyn Write) -> Result<u64, Box<dyn Error>> {
    let (live, args) = match args {
        [first, rest @ ..] if first == "--live" => (true, rest),
        args => (false, args),
    };
    let [store, rest @ ..] = args else { return Err("usage: series [--live] STORE [FROM [TO]]".into()) };
    let timestamp = |text: &String| TimeSpec::parse(text).map(|m| m.at(now(), None));
    let query = Query {
        from: rest.first().map(timestamp).transpose()?.unwrap_or(Timestamp::ZERO),
        to: rest.get(1).map(timestamp).transpose()?.unwrap_or(Timestamp::MAX),
        ..Query::new(store)
    };

    let mut series = SeriesLoop::new(query);
    if live {
        series = series.live();
    }
    let (mut rows, mut packets) = (0, 0);
    loop {
        let row = match series.next(now())? {
            Step::One(row) => row,
            Step::Idle => {
                std::thread::sleep(series.pause());
                continue;
            }
            Step::End => break,
        };
        write!(
            out,
            "{} {} {} packets {} bits {} new flows {} peak bytes in 1 ms {} lost {}",
            row.second,
            series.interfaces()[usize::from(row.interface)],
            row.direction.name(),
            row.total.packets,
            row.total.bytes * 8,
            row.flows_new,
            row.peak_1ms.bytes,
            row.ledger.lost_total(),
        )?;
        for (cause, packets) in row.ledger.losses() {
            write!(out, " {} {packets}", cause.name())?;
        }
        if row.tunnel_missing > 0 {
            write!(out, " missing in tunnels {}", row.tunnel_missing)?;
        }
        writeln!(out)?;
        rows += 1;
        packets += row.total.packets;
    }
    writeln!(out, "rows {rows} packets {packets}")?;
    series.warnings().iter().for_each(|warning| eprintln!("{warning}"));
    Ok(rows)
}
