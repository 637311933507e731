//! Prints the flow records of an interval that match a filter, one per line, and their totals. `examples/c/flows.c`
//! prints the same, and a test compares the two.
//!
//! ```text
//! cargo run -p netgrain-columns --example flows -- [--live] STORE [FILTER [FROM [TO]]]
//! ```
//!
//! With `--live` the program continues with new records as the meter writes them, until the program is killed or the
//! end TO of the interval has passed.

use base::{TimeSpec, Timestamp};
use filter::FlowFilter;
use netgrain_columns::{FLOW_LATE, FlowLoop, Query, Step};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args, &mut std::io::stdout()) {
        Ok(records) => ExitCode::from(if records > 0 { 0 } else { 1 }),
        Err(e) => {
            eprintln!("flows: {e}");
            ExitCode::from(2)
        }
    }
}

fn now() -> Timestamp {
    Timestamp::ZERO.after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Runs the query, prints its results to `out`, and returns the number of records.
pub fn run(args: &[String], out: &mut dyn Write) -> Result<u64, Box<dyn Error>> {
    let (live, args) = match args {
        [first, rest @ ..] if first == "--live" => (true, rest),
        args => (false, args),
    };
    let [store, rest @ ..] = args else { return Err("usage: flows [--live] STORE [FILTER [FROM [TO]]]".into()) };
    let filter = rest.first().map(|text| FlowFilter::parse(text)).transpose()?.unwrap_or_default();
    let timestamp = |text: &String| TimeSpec::parse(text).map(|m| m.at(now(), None));
    let query = Query {
        from: rest.get(1).map(timestamp).transpose()?.unwrap_or(Timestamp::ZERO),
        to: rest.get(2).map(timestamp).transpose()?.unwrap_or(Timestamp::MAX),
        need: filter.need(),
        ..Query::new(store)
    };

    let mut flows = FlowLoop::new(query);
    if live {
        flows = flows.live(FLOW_LATE);
    }
    // `Query::need` excludes only whole row groups, so the filter is applied to each returned record.
    let (mut records, mut packets, mut bytes) = (0, 0, 0);
    loop {
        let record = match flows.next(now())? {
            Step::One(record) => record,
            Step::Idle => {
                std::thread::sleep(flows.pause());
                continue;
            }
            Step::End => break,
        };
        if !filter.matches(&aggregate::terms(&record)) {
            continue;
        }
        let (key, [forward, reverse]) = (&record.key, &record.directions);
        write!(
            out,
            "{} {} {} {} {} protocol {} {} {} {} {} packets {} {} bytes {} {} end {}",
            record.id,
            record.record_index,
            flows.interfaces()[usize::from(record.interface)],
            record.first().nanos(),
            record.last().nanos(),
            key.protocol.0,
            key.src,
            key.src_port,
            key.dst,
            key.dst_port,
            forward.packets,
            reverse.packets,
            forward.bytes,
            reverse.bytes,
            record.end_reason as u8,
        )?;
        for (direction, label) in record.directions.iter().zip(["forward", "reverse"]) {
            if let Some((first, last)) = direction.tunnel_sequence {
                write!(out, " tunnel {label} {first} to {last}")?;
            }
        }
        writeln!(out)?;
        records += 1;
        packets += record.packets();
        bytes += record.bytes();
    }
    writeln!(out, "records {records} packets {packets} bytes {bytes}")?;
    flows.warnings().iter().for_each(|warning| eprintln!("{warning}"));
    Ok(records)
}
