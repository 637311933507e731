//! The last seconds of a store: the file that is still being written, and the ring of the recorder that writes it.
//!
//! A packet is found from the moment on at which its recorder has published it, if that recorder lets us listen
//! ([`ears`]); else from the moment on at which it is on disk, which is a second later at most ([`growing`], [`file_scan`]).
//! [`tail`] joins the two, and [`chain`] knows which file follows which.
//!
//! Following goes on over rotations and ends with the recorder: what a restarted one records is a new recording, for a new
//! question. With several queues, packets are in the order of their stamps as far as they come within [`tail`]'s delays:
//! one that comes later than that is given out when it comes.

mod chain;
mod file_scan;
mod growing;
mod ring_reader;
mod tail;

use crate::cursor::Ranked;
use crate::{QueryContext, QueryError};
use base::Timestamp;
use filter::KeyCondition;
use growing::Growing;
use ring_reader::RingReader;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};
use store::catalogue::Entry;
use store::{Claimant, names};
use tail::{Tail, TailBegin, TailEnd};

/// How long a file is waited for that must be about to be made, and the first one of a recording; how often it is looked for.
const NEW_FILE: Duration = Duration::from_millis(500);
const FIRST_FILE: Duration = Duration::from_millis(2000);
const PAUSE: Duration = Duration::from_millis(5);
/// A question that begins no longer ago than this asks from now on.
const NOW: Duration = Duration::from_secs(60);

/// Cursors over the files of an interface that are not sealed, for each queue, and over what its recorder has in its ring
/// behind them; with [`Query::follow`](crate::Query::follow) also over all that comes after.
///
/// `open` are the files that recorders held when the question was asked, all of them; `is_listed` says which files the same
/// look has met. Those that are sealed are read by others, so a file that was sealed after the look belongs here, and so does
/// whatever follows it. `rank` is the interface's. Given back are also the files that are read here, for others to pass over:
/// a recorder may have begun since the look.
///
/// # Errors
/// What ends the whole answer.
pub fn cursors(
    folder: &Path,
    rank: u32,
    open: Vec<Entry>,
    is_listed: impl Fn(&Entry) -> bool,
    book: &mut QueryContext,
) -> Result<(Vec<Ranked>, Vec<Entry>), QueryError> {
    let io = |error| QueryError::Io { path: folder.to_owned(), error };
    let need = book.query.filter.need();
    let (holder, seen) = ring_reader::steady(folder, |holder| snapshot(folder, holder, &open, &need, book));
    let mut seen = seen.map_err(io)?;
    if book.query.follow && holder.is_none() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        book.warning(format!("{name}: nobody records here now, so there is nothing to follow"));
    }
    if let Some(holder) = &holder {
        await_files(folder, holder, &mut seen, &need, &is_listed, book).map_err(io)?;
    }
    let read_here = |seen: &&UnfinishedFile| !seen.read_by_others;
    let taken = seen.files.values().flatten().filter(read_here).map(|seen| seen.file.entry.clone()).collect();
    let mut out: Vec<Ranked> = Vec::new();
    let queues: BTreeSet<u16> = seen.files.keys().chain(seen.ears.keys()).copied().collect();
    for queue in queues {
        let files = seen.files.remove(&queue).unwrap_or_default();
        let (written, left): (Vec<UnfinishedFile>, Vec<UnfinishedFile>) =
            files.into_iter().partition(|f| f.is_of_a_recorder);
        for UnfinishedFile { file, .. } in left {
            let until = TailEnd { file: file.first_pos(), pos: file.first_pos().saturating_add(file.vouched()) };
            let mut tail = Tail::new(folder, queue, need.clone(), None, TailBegin::of(book.query.from));
            tail.until(Some(until));
            tail.begin(file, false, book);
            out.push(((rank, queue), Box::new(tail)));
        }
        if let Some(holder) = &holder {
            let tail = tail(folder, queue, holder, written, seen.ears.remove(&queue), book);
            out.push(((rank, queue), Box::new(tail)));
        }
    }
    Ok((out, taken))
}

/// A recorder that has just begun, or is between two files, has packets in its ring and no file that was found: it is
/// waited for, a moment, because its file tells what its packets are.
fn await_files(
    folder: &Path,
    holder: &Claimant,
    seen: &mut LiveSnapshot,
    need: &KeyCondition,
    is_listed: impl Fn(&Entry) -> bool,
    book: &mut QueryContext,
) -> io::Result<()> {
    let is_recorded = |files: &[UnfinishedFile]| files.iter().any(|f| f.is_of_a_recorder);
    for queue in seen.ears.keys().copied().collect::<Vec<_>>() {
        let files = seen.files.entry(queue).or_default();
        if !is_recorded(files) {
            files.extend(overlooked(folder, queue, holder, need, &is_listed, book)?);
        }
    }
    // In silence the first file comes with the first full second; whoever only asks needs none then.
    let patience = match (seen.ears.is_empty(), book.query.follow) {
        (false, _) => NEW_FILE,
        (true, true) => FIRST_FILE,
        (true, false) => Duration::ZERO,
    };
    let begun = Instant::now();
    loop {
        let files = &seen.files;
        let missing = |queue: &u16| !files.get(queue).is_some_and(|f| is_recorded(f));
        let waits = match seen.ears.is_empty() {
            true => !files.values().any(|f| is_recorded(f)),
            false => seen.ears.iter().any(|(queue, ears)| missing(queue) && ears.published().is_some()),
        };
        if !waits || begun.elapsed() > patience {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
        for entry in chain::unfinished(folder)? {
            let files = seen.files.entry(entry.queue).or_default();
            if !is_recorded(files)
                && let Some(file) = Growing::open(&entry, need, book)?
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
    /// Its recorder lives, or has sealed it since.
    is_of_a_recorder: bool,
    /// It was sealed already, and others read it.
    read_by_others: bool,
}

#[derive(Default)]
struct LiveSnapshot {
    files: BTreeMap<u16, Vec<UnfinishedFile>>,
    ears: BTreeMap<u16, RingReader>,
}

/// What is there at one moment, by queue.
fn snapshot(
    folder: &Path,
    holder: Option<&Claimant>,
    open: &[Entry],
    need: &KeyCondition,
    book: &mut QueryContext,
) -> io::Result<LiveSnapshot> {
    let mut look = LiveSnapshot::default();
    for entry in open {
        let Some(file) = Growing::open(entry, need, book)? else { continue };
        let is_of_a_recorder = holder.is_some() && (!file.is_hidden() || file.is_held());
        look.files.entry(entry.queue).or_default().push(UnfinishedFile {
            file,
            is_of_a_recorder,
            read_by_others: false,
        });
    }
    let Some(holder) = holder.filter(|_| book.query.live) else { return Ok(look) };
    look.ears = ring_reader::attach(folder, holder, book);
    if let Some(stranger) = look.ears.values().find(|ears| !is_of(ears.name(), folder)) {
        book.warning(format!(
            "{}: the engine that answers at its recorder's socket captures {}; it is not listened to",
            folder.display(),
            stranger.name()
        ));
        look.ears.clear();
    }
    Ok(look)
}

/// Whether a ring of this name is recorded into this folder. A ring knows the beginning of a long name only.
fn is_of(name: &str, folder: &Path) -> bool {
    let folder = folder.file_name().unwrap_or_default().as_encoded_bytes();
    let expected = names::interface_folder(Path::new(""), name).into_os_string().into_encoded_bytes();
    folder == expected
        || (name.len() + 4 > ring::NAME_BYTES && folder.starts_with(name.trim_end_matches('\u{fffd}').as_bytes()))
}

/// The latest file of a queue for which none was found: it may have been renamed just then.
fn overlooked(
    folder: &Path,
    queue: u16,
    holder: &Claimant,
    need: &KeyCondition,
    is_listed: impl Fn(&Entry) -> bool,
    book: &mut QueryContext,
) -> io::Result<Option<UnfinishedFile>> {
    let Some(entry) = chain::latest(folder, queue)? else { return Ok(None) };
    let written = sys::nofollow::stat(&entry.path).and_then(|m| m.modified()).ok();
    let written = written.and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let Some(file) = Growing::open(&entry, need, book)? else { return Ok(None) };
    let hidden = file.is_hidden();
    let is_of_this = if hidden { file.is_held() } else { Timestamp::ZERO.after(written) >= holder.since };
    let read_by_others = !hidden && is_listed(&entry);
    Ok(is_of_this.then_some(UnfinishedFile { file, is_of_a_recorder: true, read_by_others }))
}

/// The tail of a queue that is being recorded.
fn tail(
    folder: &Path,
    queue: u16,
    holder: &Claimant,
    mut written: Vec<UnfinishedFile>,
    mut ears: Option<RingReader>,
    book: &mut QueryContext,
) -> Tail {
    written.sort_by_key(|seen| seen.file.first_pos());
    if written.iter().any(|seen| seen.file.is_raw()) && ears.take().is_some() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        book.warning(format!(
            "{name}: RAW files do not say where in the ring their packets were; packets are found when they are on disk, a \
             second after they came at the latest"
        ));
    }
    let end = |seen: &UnfinishedFile| seen.file.first_pos().saturating_add(seen.file.vouched());
    let until = match ears.as_ref().and_then(RingReader::published) {
        Some(pos) => TailEnd { file: 0, pos },
        None => written
            .last()
            .map_or(TailEnd { file: 0, pos: 0 }, |seen| TailEnd { file: seen.file.first_pos(), pos: end(seen) }),
    };
    let (from, follow) = (book.query.from, book.query.follow);
    // Who asks from now on wants what arrives, whatever its stamp; who names a time wants that time.
    let now = sys::clock::realtime();
    let is_now = (now.before(NOW)..=now).contains(&from);
    let begin = match follow {
        true => {
            let arriving = if is_now { Timestamp::ZERO } else { from };
            TailBegin { from, arriving, behind: Some(until), begun: false }
        }
        false => TailBegin::of(from),
    };
    let mut tail = Tail::new(folder, queue, book.query.filter.need(), ears, begin);
    match follow {
        true => tail.follow(Some(holder.clone())),
        false => tail.until(Some(until)),
    }
    match written.into_iter().next() {
        Some(first) => tail.begin(first.file, first.read_by_others, book),
        None => tail.listen(book),
    }
    tail
}
