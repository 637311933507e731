//! The live tail of a store: the growing file, and the ring of the recorder that writes it.
//!
//! If the recorder admits listeners, a query finds a packet as soon as it is published in the ring (`ring_reader`). If
//! the recorder admits none, a query finds a packet when it is on disk, at most one second later ([`growing`],
//! [`file_scan`]). [`tail`] joins file and ring, and [`chain`] determines the order of the files.
//!
//! A query with `follow` continues when the recorder begins a new file, and ends with the recorder. A restarted
//! recorder begins a new recording, for which a new query is needed. With several queues, packets are returned in the
//! order of their timestamps as long as they arrive within the delays that [`tail`] defines; a packet that arrives
//! later is returned when it arrives.

mod bounds;
mod chain;
mod file_scan;
mod followed;
mod growing;
mod ring_reader;
mod tail;

use crate::cursor::Ranked;
use crate::{QueryContext, QueryError};
use base::Timestamp;
use bounds::{TailBegin, TailEnd, TailLimit};
use filter::KeyCondition;
use followed::FollowedRecorder;
use growing::Growing;
use ring_reader::RingReader;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};
use store::catalogue::Entry;
use store::{Claimant, names};
use tail::{Tail, TailSource};

/// The first two constants are the longest times for which a query waits for the next file and for the first file of a
/// recording; the third is the pause between two tests whether the file exists.
const NEW_FILE: Duration = Duration::from_millis(500);
const FIRST_FILE: Duration = Duration::from_millis(2000);
const PAUSE: Duration = Duration::from_millis(5);
/// If the interval of a query that follows begins at most this time before the present, the query returns all packets
/// that arrive from now on, whatever their timestamps.
const NOW: Duration = Duration::from_secs(60);

/// Creates, for each queue of an interface, the cursors over the unsealed files and over the packets after them in the
/// ring of the recorder; with [`Query::follow`](crate::Query::follow) also over all later packets.
///
/// `open` are all files that recorders held when the query began. `is_listed` returns true for files that the same
/// directory listing shows as sealed; other cursors read these files. The cursors of this function read the files that
/// were sealed after the listing, and all files after them. `rank` is the position of the interface in the order of
/// names. The function also returns the files that its cursors read, because other cursors must skip them. If a
/// recorder has started after the listing, these files are more than those of `open`.
///
/// # Errors
/// An error that ends the query.
pub fn cursors(
    directory: &Path,
    rank: u32,
    open: Vec<Entry>,
    is_listed: impl Fn(&Entry) -> bool,
    context: &mut QueryContext,
) -> Result<(Vec<Ranked>, Vec<Entry>), QueryError> {
    let io = |error| QueryError::Io { path: directory.to_owned(), error };
    let need = context.query.filter.need();
    let (holder, seen) =
        ring_reader::with_stable_holder(directory, |holder| snapshot(directory, holder, &open, &need, context));
    let mut seen = seen.map_err(io)?;
    if context.query.follow && holder.is_none() {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        context.warning(format!("{name}: no recorder is running, so there is nothing to follow"));
    }
    if let Some(holder) = &holder {
        await_files(directory, holder, &mut seen, &need, &is_listed, context).map_err(io)?;
    }
    let read_here = |seen: &&UnfinishedFile| !seen.read_by_others;
    let taken = seen.files.values().flatten().filter(read_here).map(|seen| seen.file.entry.clone()).collect();
    let mut out: Vec<Ranked> = Vec::new();
    let queues: BTreeSet<u16> = seen.files.keys().chain(seen.ring_readers.keys()).copied().collect();
    for queue in queues {
        let files = seen.files.remove(&queue).unwrap_or_default();
        let (written, left): (Vec<UnfinishedFile>, Vec<UnfinishedFile>) =
            files.into_iter().partition(|f| f.is_of_a_recorder);
        for UnfinishedFile { file, .. } in left {
            let end = TailEnd { file: file.first_pos(), pos: file.first_pos().saturating_add(file.covered_bytes()) };
            let source = TailSource { directory: directory.to_owned(), queue, need: need.clone(), ring_reader: None };
            let (begin, limit) = (TailBegin::of(context.query.from), TailLimit::Position(end));
            out.push(((rank, queue), Box::new(Tail::of_file(source, begin, limit, (file, false), context))));
        }
        if let Some(holder) = &holder {
            let tail = tail(directory, queue, holder, written, seen.ring_readers.remove(&queue), context);
            out.push(((rank, queue), Box::new(tail)));
        }
    }
    Ok((out, taken))
}

/// If a recorder has packets in its ring but the listing contains no file of it, waits a short time for the file: the
/// recorder has just started, or is between two files. The query needs the file, because the header of its index
/// describes the packets.
fn await_files(
    directory: &Path,
    holder: &Claimant,
    seen: &mut LiveSnapshot,
    need: &KeyCondition,
    is_listed: impl Fn(&Entry) -> bool,
    context: &mut QueryContext,
) -> io::Result<()> {
    let is_recorded = |files: &[UnfinishedFile]| files.iter().any(|f| f.is_of_a_recorder);
    for queue in seen.ring_readers.keys().copied().collect::<Vec<_>>() {
        let files = seen.files.entry(queue).or_default();
        if !is_recorded(files) {
            files.extend(find_renamed(directory, queue, holder, need, &is_listed, context)?);
        }
    }
    // Without traffic, the recorder creates its first file after the first full second; only a query that follows needs
    // that file.
    let timeout = match (seen.ring_readers.is_empty(), context.query.follow) {
        (false, _) => NEW_FILE,
        (true, true) => FIRST_FILE,
        (true, false) => Duration::ZERO,
    };
    let begun = Instant::now();
    loop {
        let files = &seen.files;
        let missing = |queue: &u16| !files.get(queue).is_some_and(|f| is_recorded(f));
        let waits = match seen.ring_readers.is_empty() {
            true => !files.values().any(|f| is_recorded(f)),
            false => {
                seen.ring_readers.iter().any(|(queue, ring_reader)| missing(queue) && ring_reader.published().is_some())
            }
        };
        if !waits || begun.elapsed() > timeout {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
        for entry in chain::unfinished(directory)? {
            let files = seen.files.entry(entry.queue).or_default();
            if !is_recorded(files)
                && let Some(file) = Growing::open(&entry, need, context)?
                && (!file.is_hidden() || file.is_held())
            {
                files.push(UnfinishedFile { file, is_of_a_recorder: true, read_by_others: false });
            }
        }
    }
}

/// An unfinished file.
struct UnfinishedFile {
    file: Growing,
    /// True if the recorder of the file is running, or sealed the file after the listing.
    is_of_a_recorder: bool,
    /// True if the file is sealed and another cursor reads it.
    read_by_others: bool,
}

#[derive(Default)]
struct LiveSnapshot {
    files: BTreeMap<u16, Vec<UnfinishedFile>>,
    ring_readers: BTreeMap<u16, RingReader>,
}

/// Determines the unfinished files and the ring readers of all queues, so that both describe the same moment.
fn snapshot(
    directory: &Path,
    holder: Option<&Claimant>,
    open: &[Entry],
    need: &KeyCondition,
    context: &mut QueryContext,
) -> io::Result<LiveSnapshot> {
    let mut look = LiveSnapshot::default();
    for entry in open {
        let Some(file) = Growing::open(entry, need, context)? else { continue };
        let is_of_a_recorder = holder.is_some() && (!file.is_hidden() || file.is_held());
        look.files.entry(entry.queue).or_default().push(UnfinishedFile {
            file,
            is_of_a_recorder,
            read_by_others: false,
        });
    }
    let Some(holder) = holder.filter(|_| context.query.live) else { return Ok(look) };
    look.ring_readers = ring_reader::attach(directory, holder, context);
    if let Some(other_ring) = look.ring_readers.values().find(|ring_reader| !is_of(ring_reader.name(), directory)) {
        context.warning(format!(
            "{}: the engine at the socket of this recorder captures {}, so its ring is not read",
            directory.display(),
            other_ring.name()
        ));
        look.ring_readers.clear();
    }
    Ok(look)
}

/// True if the recorder whose ring has the interface name `name` writes into this directory. A ring stores only the
/// beginning of a long interface name.
fn is_of(name: &str, directory: &Path) -> bool {
    let directory = directory.file_name().unwrap_or_default().as_encoded_bytes();
    let expected = names::interface_directory(Path::new(""), name).into_os_string().into_encoded_bytes();
    directory == expected
        || (name.len() + 4 > ring::NAME_BYTES && directory.starts_with(name.trim_end_matches('\u{fffd}').as_bytes()))
}

/// Finds the latest file of a queue for which the listing contains no file, because the listing may have missed it
/// during a rename.
fn find_renamed(
    directory: &Path,
    queue: u16,
    holder: &Claimant,
    need: &KeyCondition,
    is_listed: impl Fn(&Entry) -> bool,
    context: &mut QueryContext,
) -> io::Result<Option<UnfinishedFile>> {
    let Some(entry) = chain::latest(directory, queue)? else { return Ok(None) };
    let written = sys::nofollow::stat(&entry.path).and_then(|m| m.modified()).ok();
    let written = written.and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let Some(file) = Growing::open(&entry, need, context)? else { return Ok(None) };
    let hidden = file.is_hidden();
    let is_of_this = if hidden { file.is_held() } else { Timestamp::ZERO.after(written) >= holder.since };
    let read_by_others = !hidden && is_listed(&entry);
    Ok(is_of_this.then_some(UnfinishedFile { file, is_of_a_recorder: true, read_by_others }))
}

/// Creates the live tail of a queue whose recorder is running.
fn tail(
    directory: &Path,
    queue: u16,
    holder: &Claimant,
    mut written: Vec<UnfinishedFile>,
    mut ring_reader: Option<RingReader>,
    context: &mut QueryContext,
) -> Tail {
    written.sort_by_key(|seen| seen.file.first_pos());
    if written.iter().any(|seen| seen.file.is_raw()) && ring_reader.take().is_some() {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        context.warning(format!(
            "{name}: RAW files have no stream positions, so the ring is not read; packets are found when they are on \
             disk, at most one second after their arrival"
        ));
    }
    let end = |seen: &UnfinishedFile| seen.file.first_pos().saturating_add(seen.file.covered_bytes());
    let until = match ring_reader.as_ref().and_then(RingReader::published) {
        Some(pos) => TailEnd { file: 0, pos },
        None => written
            .last()
            .map_or(TailEnd { file: 0, pos: 0 }, |seen| TailEnd { file: seen.file.first_pos(), pos: end(seen) }),
    };
    let (begin, limit) = match context.query.follow {
        true => {
            (begin_of_follow(context.query.from, until), TailLimit::Recorder(FollowedRecorder::new(holder.clone())))
        }
        false => (TailBegin::of(context.query.from), TailLimit::Position(until)),
    };
    let source = TailSource { directory: directory.to_owned(), queue, need: context.query.filter.need(), ring_reader };
    match written.into_iter().next() {
        Some(first) => Tail::of_file(source, begin, limit, (first.file, first.read_by_others), context),
        None => Tail::of_ring(source, begin, limit, context),
    }
}

/// The lower time limits of a query that follows and whose interval begins at `from`. If `from` is the present time,
/// the query selects all packets that arrive, whatever their timestamps; otherwise it selects packets by their
/// timestamps. `published` is the end of the packets published before the query.
fn begin_of_follow(from: Timestamp, published: TailEnd) -> TailBegin {
    let now = sys::clock::realtime();
    let is_now = (now.before(NOW)..=now).contains(&from);
    let arriving = if is_now { Timestamp::ZERO } else { from };
    TailBegin { from, arriving, behind: Some(published), begun: false }
}
