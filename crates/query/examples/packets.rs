//! Counts the packets of an interval and filter, by where they come from, and says what the answer cost: the same as
//! `examples/c/packets.c`, and a test compares the two.
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
        Ok(Counts { lines, packets, whole }) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::from(if packets > 0 && whole { 0 } else { 1 })
        }
        Err(e) => {
            eprintln!("packets: {e}");
            ExitCode::from(2)
        }
    }
}

/// What was found.
pub struct Counts {
    /// For people.
    pub lines: Vec<String>,
    /// Packets that matched.
    pub packets: u64,
    /// Everything could be read that should have been.
    pub whole: bool,
}

/// Asks, and loops over the answer.
pub fn count(args: &[String]) -> Result<Counts, Box<dyn Error>> {
    let [place, rest @ ..] = args else { return Err("usage: packets STORE|FILE [FILTER [FROM [TO]]]".into()) };
    let place = PathBuf::from(place);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let now = Timestamp::ZERO.after(now);
    let moment = |text: &String| TimeSpec::parse(text).map(|m| m.at(now, None));
    let question = Query {
        filter: rest.first().map(|text| Filter::parse(text)).transpose()?.unwrap_or_default(),
        from: rest.get(1).map(moment).transpose()?.unwrap_or(Timestamp::ZERO),
        to: rest.get(2).map(moment).transpose()?.unwrap_or(Timestamp::MAX),
        ..Query::default()
    };
    let place = if place.is_dir() { QuerySource::Store(place) } else { QuerySource::Files(vec![place]) };

    let mut answer = run(&place, question)?;
    let (mut packets, mut bytes, mut lost, mut sum) = (Vec::new(), 0, 0, 0);
    while let Some(found) = answer.next()? {
        packets.resize(packets.len().max(found.origin + 1), 0u64);
        packets[found.origin] += 1;
        bytes += u64::from(found.wire_len);
        lost += found.lost;
        sum += found.data.iter().map(|b| u64::from(*b)).sum::<u64>();
    }

    let mut lines = Vec::new();
    packets.resize(answer.origins().len(), 0);
    for (i, (origin, packets)) in answer.origins().iter().zip(&packets).enumerate() {
        let (link_type, queue) = (origin.link_type, origin.queue);
        lines.push(format!("origin {i} link type {link_type} queue {queue} packets {packets}"));
    }
    let packets = packets.iter().sum();
    lines.push(format!("packets {packets} bytes {bytes} lost {lost} sum {sum}"));
    let cost = answer.cost();
    eprintln!("{} of {} bytes read, {} packets scanned", cost.bytes_read, cost.bytes, cost.packets);
    answer.warnings().iter().for_each(|remark| eprintln!("{remark}"));
    Ok(Counts { lines, packets, whole: answer.is_complete() })
}
