//! Prints the flow records of an interval and filter, one a line, and what they add up to: the same as
//! `examples/c/flows.c`, and a test compares the two.
//!
//! ```text
//! cargo run -p netgrain-columns --example flows -- [--live] STORE [FILTER [FROM [TO]]]
//! ```
//!
//! With `--live` it goes on with records as the meter tells them, until it is killed or TO has passed.

use base::{TimeSpec, Timestamp};
use filter::FlowFilter;
use netgrain_columns::{FLOW_LATE, FlowLoop, Query, Step};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match tell(&args, &mut std::io::stdout()) {
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

/// Asks, loops over the answer, and gives how many records there were.
pub fn tell(args: &[String], out: &mut dyn Write) -> Result<u64, Box<dyn Error>> {
    let (live, args) = match args {
        [first, rest @ ..] if first == "--live" => (true, rest),
        args => (false, args),
    };
    let [store, rest @ ..] = args else { return Err("usage: flows [--live] STORE [FILTER [FROM [TO]]]".into()) };
    let filter = rest.first().map(|text| FlowFilter::parse(text)).transpose()?.unwrap_or_default();
    let moment = |text: &String| TimeSpec::parse(text).map(|m| m.at(now(), None));
    let query = Query {
        from: rest.get(1).map(moment).transpose()?.unwrap_or(Timestamp::ZERO),
        to: rest.get(2).map(moment).transpose()?.unwrap_or(Timestamp::MAX),
        need: filter.need(),
        ..Query::new(store)
    };

    let mut flows = FlowLoop::new(query);
    if live {
        flows = flows.live(FLOW_LATE);
    }
    // The need above leaves out whole groups of records; this leaves out single ones.
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
        let (key, [there, back]) = (&record.key, &record.directions);
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
            there.packets,
            back.packets,
            there.bytes,
            back.bytes,
            record.end_reason as u8,
        )?;
        for (side, way) in record.directions.iter().zip(["there", "back"]) {
            if let Some((first, last)) = side.tunnel_sequence {
                write!(out, " tunnel {way} {first} to {last}")?;
            }
        }
        writeln!(out)?;
        records += 1;
        packets += record.packets();
        bytes += record.bytes();
    }
    writeln!(out, "records {records} packets {packets} bytes {bytes}")?;
    flows.warnings().iter().for_each(|remark| eprintln!("{remark}"));
    Ok(records)
}
