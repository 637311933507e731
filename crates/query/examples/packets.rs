//! Counts the packets that match an interval and a filter, for each origin (queue or capture interface), and prints the
//! cost of the query. The program does the same as `examples/c/packets.c`, and a test compares the two.
//!
//! ```text
//! cargo run -p netgrain-query --example packets -- STORE|FILE [FILTER [FROM [TO]]]
//! ```

use base::{TimeSpec, Timestamp};
use filter::Filter;
use netgrain_query::{Query, QuerySource, run};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match count(&args) {
        Ok(Counts { lines, packets, is_complete }) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::from(if packets > 0 && is_complete { 0 } else { 1 })
        }
        Err(e) => {
            eprintln!("packets: {e}");
            ExitCode::from(2)
        }
    }
}

/// The result of the program.
pub struct Counts {
    /// The lines to print.
    pub lines: Vec<String>,
    /// Packets that matched.
    pub packets: u64,
    /// True if all data that the query needed could be read.
    pub is_complete: bool,
}

/// Runs the query and counts its results.
pub fn count(args: &[String]) -> Result<Counts, Box<dyn Error>> {
    let [source, rest @ ..] = args else { return Err("usage: packets STORE|FILE [FILTER [FROM [TO]]]".into()) };
    let source = PathBuf::from(source);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let now = Timestamp::ZERO.after(now);
    let timestamp = |text: &String| TimeSpec::parse(text).map(|m| m.at(now, None));
    let query = Query {
        filter: rest.first().map(|text| Filter::parse(text)).transpose()?.unwrap_or_default(),
        from: rest.get(1).map(timestamp).transpose()?.unwrap_or(Timestamp::ZERO),
        to: rest.get(2).map(timestamp).transpose()?.unwrap_or(Timestamp::MAX),
        ..Query::default()
    };
    let source = if source.is_dir() { QuerySource::Store(source) } else { QuerySource::Files(vec![source]) };

    let mut results = run(&source, query)?;
    let (mut packets, mut bytes, mut lost, mut sum) = (Vec::new(), 0, 0, 0);
    while let Some(found) = results.next()? {
        packets.resize(packets.len().max(found.origin + 1), 0u64);
        packets[found.origin] += 1;
        bytes += u64::from(found.wire_len);
        lost += found.lost;
        sum += found.data.iter().map(|b| u64::from(*b)).sum::<u64>();
    }

    let mut lines = Vec::new();
    packets.resize(results.origins().len(), 0);
    for (i, (origin, packets)) in results.origins().iter().zip(&packets).enumerate() {
        let (link_type, queue) = (origin.link_type, origin.queue);
        lines.push(format!("origin {i} link type {link_type} queue {queue} packets {packets}"));
    }
    let packets = packets.iter().sum();
    lines.push(format!("packets {packets} bytes {bytes} lost {lost} sum {sum}"));
    let cost = results.cost();
    eprintln!("{} of {} bytes read, {} packets scanned", cost.bytes_read, cost.bytes, cost.packets);
    results.warnings().iter().for_each(|warning| eprintln!("{warning}"));
    Ok(Counts { lines, packets, is_complete: results.is_complete() })
}
