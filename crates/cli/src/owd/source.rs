//! Reads the packets to analyse: live from an interface, or by a query of a store or of captures.

use super::OwdArgs;
use super::clock_watch::ClockWatch;
use super::packet_rows::PacketRows;
use super::sessions::Sessions;
use crate::file_arguments::{file_hint, missing_file_or};
use crate::inventory;
use crate::outcome::Failure;
use crate::privileges;
use crate::signals;
use base::Timestamp;
use capture::tpacket::{self, TpacketConfig};
use capture::{Frame, Polled, Source};
use delay::ReceiverClock;
use filter::Filter;
use query::{Query, QuerySource};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::Headers;

/// The longest wait for a frame. It limits the time until a request to stop takes effect.
const WAIT: Duration = Duration::from_millis(100);

/// Number of frames between two checks of the limits.
const BATCH: usize = 256;

/// The longest time for reading the frames that arrived before the end of the measurement and are still in the socket.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Adds all packets to `sessions`, and the packets of trains to `rows`. Returns false if a part of the packets could
/// not be read or was lost at the interface.
pub fn read(args: &OwdArgs, sessions: &mut Sessions, rows: &mut Option<PacketRows>) -> Result<bool, Failure> {
    let stop = signals::stop_flag();
    if args.store.is_some() || !args.read.is_empty() {
        return query(args, sessions, rows, stop);
    }
    match &args.interface[..] {
        [interface] => live(args, interface, sessions, rows, &stop),
        [] => Err(Failure::Said("name an interface with -i, a store with --store, or captures with -r".into())),
        _ => Err(Failure::Said("live packets are read from one interface: give one -i".into())),
    }
}

fn query(
    args: &OwdArgs,
    sessions: &mut Sessions,
    rows: &mut Option<PacketRows>,
    stop: Arc<AtomicBool>,
) -> Result<bool, Failure> {
    let (files, words) = files_and_words(args);
    let filter = Filter::parse(&words.join(" ")).map_err(|e| match args.store {
        Some(_) => Failure::filter(&e).with(file_hint(&words).as_deref()),
        None => missing_file_or(&e, &words),
    })?;
    let (from, to) = args.when.interval(crate::interval::now(), false)?;
    let source = match &args.store {
        Some(store) => {
            inventory::check(store, &inventory::inventories(store)?, &args.interface)?;
            QuerySource::Store(store.clone())
        }
        None => QuerySource::Files(files),
    };
    if let QuerySource::Store(_) = source
        && let Some(remark) = query::lower_priority(&source, query::Background::Batch)
    {
        sys::say!("netgrain: {remark}");
    }
    let clock = args.clock.of_stored();
    // The interfaces of files are selected below, because only the files say which names they have.
    let interfaces = if args.store.is_some() { args.interface.clone() } else { Vec::new() };
    let is_selected =
        |name: &str| args.store.is_some() || args.interface.is_empty() || args.interface.iter().any(|i| i == name);
    let query = Query { from, to, filter, interfaces, stop: Some(Arc::clone(&stop)), ..Query::default() };
    let mut results = query::run(&source, query).map_err(Failure::say)?;
    let mut names: Vec<String> = results.origins().iter().map(|origin| origin.interface.clone()).collect();
    while let Some(found) = results.next().map_err(Failure::say)? {
        let Some(name) = names.get(found.origin) else {
            // This packet is from an origin that is not in `names` yet. The list of origins can be read only while no
            // packet borrows from `results`, so the packet is copied.
            let (data, found) = (found.data.to_vec(), query::FoundPacket { data: &[], ..found });
            names = results.origins().iter().map(|origin| origin.interface.clone()).collect();
            let name = names.get(found.origin).map_or("", String::as_str);
            if !is_selected(name) {
                continue;
            }
            add(sessions, rows, (name, clock), found.ts, (&data, found.wire_len, found.link_type))?;
            continue;
        };
        if !is_selected(name) {
            continue;
        }
        add(sessions, rows, (name, clock), found.ts, (found.data, found.wire_len, found.link_type))?;
    }
    results.warnings().iter().for_each(|warning| sys::say!("netgrain: {warning}"));
    if args.store.is_none() {
        check_interfaces(&args.interface, &names)?;
    }
    Ok(results.is_complete())
}

/// Checks that the captures have packets of the requested interfaces. `names` are the interfaces of all packets.
fn check_interfaces(requested: &[String], names: &[String]) -> Result<(), Failure> {
    let Some(missing) = requested.iter().find(|name| !names.contains(name)) else { return Ok(()) };
    let known: BTreeSet<&str> = names.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let advice = match known.is_empty() {
        true => "the captures contain no interface names: leave -i out".to_owned(),
        false => format!("the captures have packets of {}", Vec::from_iter(known).join(", ")),
    };
    Err(Failure::Said(format!("-i {missing}: no packet of this interface; {advice}")))
}

fn live(
    args: &OwdArgs,
    interface: &str,
    sessions: &mut Sessions,
    rows: &mut Option<PacketRows>,
    stop: &AtomicBool,
) -> Result<bool, Failure> {
    let words: Vec<&str> = args.words.iter().chain(&args.filter).map(String::as_str).collect();
    let filter = Filter::parse(&words.join(" ")).map_err(|e| Failure::filter(&e))?;
    let sources = tpacket::open(&TpacketConfig::new(interface)).map_err(Failure::say)?;
    let mut source = sources.into_iter().next().ok_or(Failure::Said(format!("{interface}: no packet socket")))?;
    sys::say!("netgrain: {}", source.info().description);
    privileges::keep_calls_of_capture()?;
    let mut watch = ClockWatch::start();
    let clock = (interface, watch.receiver(args.clock));
    let link_type = source.info().link_type;
    let begun = Instant::now();
    let (mut failure, mut broken, mut stopped): (_, _, Option<Instant>) = (None, None, None);
    loop {
        let is_over = stop.load(Ordering::Relaxed)
            || failure.is_some()
            || args.duration.is_some_and(|duration| begun.elapsed() >= duration)
            || has_all(args, sessions);
        if is_over && stopped.is_none() {
            source.stop();
            stopped = Some(Instant::now());
        }
        watch.check();
        let polled = source.poll(BATCH, WAIT, |frame| {
            if !frame.outgoing && failure.is_none() && !has_all(args, sessions) && is_wanted(&filter, frame, link_type)
            {
                failure = take(sessions, rows, clock, frame, link_type).err();
            }
        });
        match polled {
            Ok(Polled::End) => break,
            Ok(_) if stopped.is_some_and(|stopped| stopped.elapsed() > DRAIN_MAX) => break,
            Ok(_) => (),
            Err(e) => {
                broken = Some(e);
                break;
            }
        }
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    watch.end();
    sessions.end_live(watch.receiver(args.clock), watch.steps());
    if let Some(note) = watch.note() {
        sys::say!("netgrain: {note}");
    }
    if let Some(e) = broken {
        sys::say!("netgrain: {e}; the report has the packets that arrived before");
        return Ok(false);
    }
    let lost: u64 = source.counts().map_err(Failure::say)?.lost.iter().sum();
    if lost > 0 {
        sys::say!(
            "netgrain: {} lost at this interface count as lost by the network; send fewer packets per second",
            crate::style::plural(lost, "packet", "packets")
        );
    }
    Ok(lost == 0)
}

/// True if the requested number of packets has arrived.
fn has_all(args: &OwdArgs, sessions: &Sessions) -> bool {
    args.packets.is_some_and(|packets| sessions.of_trains() >= packets)
}

fn is_wanted(filter: &Filter, frame: &Frame<'_>, link_type: u16) -> bool {
    let headers = || Headers::of(frame.bytes, frame.wire_len, link_type);
    filter.is_empty() || filter.matches(frame.bytes, frame.wire_len, &headers())
}

fn take(
    sessions: &mut Sessions,
    rows: &mut Option<PacketRows>,
    clock: (&str, ReceiverClock),
    frame: &Frame<'_>,
    link_type: u16,
) -> Result<(), Failure> {
    let time = frame.stamp.unwrap_or_else(sys::clock::realtime);
    add(sessions, rows, clock, time, (frame.bytes, frame.wire_len, link_type))
}

fn add(
    sessions: &mut Sessions,
    rows: &mut Option<PacketRows>,
    clock: (&str, ReceiverClock),
    time: Timestamp,
    bytes: (&[u8], u32, u16),
) -> Result<(), Failure> {
    let found = sessions.add(clock, time, bytes);
    if let (Some((key, packet, result)), Some(rows)) = (found, rows) {
        rows.write(&key, &packet, &result, time)?;
    }
    Ok(())
}

/// Divides the arguments into files and the words of the filter. With -r, the arguments before the first argument that
/// is not the name of an existing file are files.
fn files_and_words(args: &OwdArgs) -> (Vec<PathBuf>, Vec<&str>) {
    let mut files = args.read.clone();
    let more = match files.is_empty() {
        true => 0,
        false => args.words.iter().take_while(|word| std::path::Path::new(word).is_file()).count(),
    };
    files.extend(args.words[..more].iter().map(PathBuf::from));
    (files, args.words[more..].iter().chain(&args.filter).map(String::as_str).collect())
}
