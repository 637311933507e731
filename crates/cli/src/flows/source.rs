//! Where flow records come from: a store (sealed files and growing journals, interface by interface), files of IPFIX
//! messages, or the network. What does not answer the question is left out here.

use super::asked::{Asked, Place};
use super::names::Names;
use super::{scan, too_much};
use crate::outcome::Failure;
use crate::when;
use base::Timestamp;
use columns::Query;
use flow::Record;
use report::{Groups, Plan, Report, terms};
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::catalogue;

/// How long after its last packet a flow may be told and still be seen by --live in a store: an idle timeout and more.
const LOOK_BACK: Duration = Duration::from_secs(90);

/// How often --live looks at a store.
const POLL: Duration = Duration::from_millis(500);

/// How long --live waits before it lets what was found be seen.
const PATIENCE: Duration = Duration::from_millis(100);

/// Bytes of an IPFIX message's header, and where its length stands in it.
const HEADER: usize = 16;
const LENGTH: std::ops::Range<usize> = 2..4;

/// What a message begins with: the version.
const IPFIX: [u8; 2] = 10u16.to_be_bytes();

/// What came.
#[allow(clippy::large_enum_variant, reason = "nearly all are records, and each is looked at and dropped")]
pub enum Step {
    /// A record that answers the question.
    Record(Record),
    /// Nothing at the moment; there may be more.
    Idle,
    /// Nothing will come.
    End,
}

/// See the module.
pub struct Records<'a> {
    asked: &'a Asked,
    feed: Feed,
    names: Names,
    looked: u64,
    remarks: Vec<String>,
    stop: Arc<AtomicBool>,
}

enum Feed {
    Store(Vec<Shelf>, Option<Follow>),
    Files(std::vec::IntoIter<PathBuf>, Option<Opened>),
    Network(UdpSocket, Box<Messages>),
    Ended,
}

/// A file that is being read.
enum Opened {
    Messages(Box<Messages>),
    Parquet(Box<columns::Loose>),
}

/// The records of one interface, and the next of them.
struct Shelf {
    number: u16,
    answer: columns::Answer<Record>,
    next: Option<Record>,
}

/// What --live has to remember of a store.
struct Follow {
    /// Records that were told, by flow and part, with their last moment.
    told: HashSet<(u64, u32, Timestamp)>,
    pause: Duration,
}

/// Messages of one stream, and what they said.
struct Messages {
    decoder: export::ipfix::Decoder,
    items: VecDeque<export::ipfix::Item>,
    /// Where they are read from, if not from the network.
    file: Option<(PathBuf, BufReader<File>)>,
    bytes: Vec<u8>,
}

impl<'a> Records<'a> {
    /// Begins; nothing is read yet but names.
    pub fn open(asked: &'a Asked, stop: Arc<AtomicBool>) -> Result<Self, Failure> {
        let mut names = Names::default();
        let feed = match &asked.place {
            Place::Store(_) => {
                let follow = asked.follow.then(|| Follow { told: HashSet::new(), pause: POLL });
                Feed::Store(shelves(asked, asked.from, &mut names)?, follow)
            }
            Place::Files(files) => Feed::Files(files.clone().into_iter(), None),
            Place::Network(group) => Feed::Network(listen(*group)?, Box::new(Messages::new(None))),
        };
        Ok(Self { asked, feed, names, looked: 0, remarks: Vec::new(), stop })
    }

    /// The next record that answers the question. Those of a store come in the order in which they begin, those of files as
    /// they stand there.
    pub fn next(&mut self) -> Result<Step, Failure> {
        while !self.is_stopped() {
            let record = match self.step()? {
                Step::Record(record) => record,
                other => return Ok(other),
            };
            self.looked += 1;
            let in_time = record.first() <= self.asked.to && record.last() >= self.asked.from;
            if in_time && self.asked.id.is_none_or(|id| id == record.id) && self.asked.of_flows.matches(&terms(&record))
            {
                return Ok(Step::Record(record));
            }
        }
        Ok(Step::End)
    }

    /// All of them, added up: columns alone where they say enough.
    pub fn grouped(&mut self, plan: &Plan) -> Result<Report, Failure> {
        let mut groups = Groups::new(plan.clone());
        if let Feed::Store(shelves, None) = &mut self.feed
            && let Some(wanted) = scan::Wanted::of(plan, &self.asked.of_flows)
        {
            for shelf in std::mem::take(shelves) {
                let name = self.names.interface(shelf.number);
                let done =
                    wanted.add(&query(self.asked, self.asked.from, &name), shelf.number, self.asked, plan, &mut groups);
                let (looked, remarks) = done?;
                self.looked += looked;
                self.remarks.extend(remarks);
            }
            return groups.finish().map_err(too_much);
        }
        loop {
            match self.next()? {
                Step::Record(record) => groups.add(&record).map_err(too_much)?,
                Step::Idle => {}
                Step::End => return groups.finish().map_err(too_much),
            }
        }
    }

    /// What the interfaces are called, as far as is known by now.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// How many records were looked at.
    pub fn looked_at(&self) -> u64 {
        self.looked
    }

    /// What people should know about the answer.
    pub fn remarks(&self) -> Vec<String> {
        let mut all = self.remarks.clone();
        if let Feed::Store(shelves, _) = &self.feed {
            all.extend(shelves.iter().flat_map(|s| s.answer.remarks()));
        }
        all
    }

    /// Whether everything could be read: what could not has a remark.
    pub fn is_whole(&self) -> bool {
        self.remarks().is_empty()
    }

    /// Whether somebody wants no more.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn step(&mut self) -> Result<Step, Failure> {
        match &mut self.feed {
            Feed::Ended => Ok(Step::End),
            Feed::Store(shelves, follow) => {
                let first = |(i, s): (usize, &Shelf)| Some((s.next.as_ref()?.first(), i));
                while let Some((_, i)) = shelves.iter().enumerate().filter_map(first).min() {
                    let Some(mut record) = shelves[i].advance() else { continue };
                    record.interface = shelves[i].number;
                    let fresh = |f: &mut Follow| f.told.insert((record.id, record.part, record.last()));
                    if follow.as_mut().is_none_or(fresh) {
                        return Ok(Step::Record(record));
                    }
                }
                self.look_again()
            }
            Feed::Files(files, opened) => loop {
                match opened.as_mut().map(|open| open.next(&mut self.names)) {
                    Some(Ok(Some(record))) => return Ok(Step::Record(record)),
                    Some(Ok(None)) | None => {}
                    Some(Err(what)) => self.remarks.push(what),
                }
                let Some(path) = files.next() else {
                    self.feed = Feed::Ended;
                    return Ok(Step::End);
                };
                *opened = Some(Opened::open(path)?);
            },
            Feed::Network(socket, messages) => {
                if let Some(record) = messages.told(&mut self.names) {
                    return Ok(Step::Record(record));
                }
                if when::now() > self.asked.to.after(LOOK_BACK) {
                    return Ok(Step::End);
                }
                messages.bytes.resize(usize::from(u16::MAX), 0);
                match socket.recv(&mut messages.bytes) {
                    Ok(n) => {
                        // What is no message of ours came from somebody else; the sender is told of nothing.
                        let Messages { decoder, items, bytes, .. } = &mut **messages;
                        let _ = decoder.message(&bytes[..n], &mut |item| items.push_back(item));
                        Ok(Step::Idle)
                    }
                    Err(e)
                        if matches!(
                            e.kind(),
                            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                        ) =>
                    {
                        Ok(Step::Idle)
                    }
                    Err(e) => Err(Failure::Said(format!(
                        "{}: {e}",
                        socket.local_addr().map_or_else(|_| "socket".into(), |a| a.to_string())
                    ))),
                }
            }
        }
    }

    /// A store has told all it had: with --live, it is looked at again after a pause.
    fn look_again(&mut self) -> Result<Step, Failure> {
        let Feed::Store(old, follow) = &mut self.feed else { return Ok(Step::End) };
        let Some(mut follow) = follow.take() else { return Ok(Step::End) };
        for remark in old.iter().flat_map(|s| s.answer.remarks()) {
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
        }
        let now = when::now();
        if now > self.asked.to.after(LOOK_BACK) {
            self.feed = Feed::Ended;
            return Ok(Step::End);
        }
        let pause = Instant::now() + follow.pause;
        while Instant::now() < pause && !self.is_stopped() {
            std::thread::sleep(PATIENCE.min(pause.saturating_duration_since(Instant::now())));
        }
        let from = self.asked.from.max(now.before(LOOK_BACK));
        follow.told.retain(|(.., last)| *last >= from);
        let begun = Instant::now();
        let shelves = shelves(self.asked, from, &mut self.names)?;
        // Looking takes a fifth of the time at most, however much there is.
        follow.pause = POLL.max(begun.elapsed() * 4);
        self.feed = Feed::Store(shelves, Some(follow));
        Ok(Step::Idle)
    }
}

impl Shelf {
    fn advance(&mut self) -> Option<Record> {
        std::mem::replace(&mut self.next, self.answer.next())
    }
}

impl Opened {
    /// By its first bytes.
    fn open(path: PathBuf) -> Result<Self, Failure> {
        let say = |e: io::Error| Failure::Said(format!("{}: {e}", path.display()));
        let mut file = BufReader::new(File::open(&path).map_err(say)?);
        let begin = file.fill_buf().map_err(say)?;
        if begin.starts_with(b"PAR1") {
            return Ok(Self::Parquet(Box::new(columns::read_flows(&path).map_err(Failure::say)?)));
        }
        if !begin.is_empty() && !begin.starts_with(&IPFIX) {
            let text = "neither IPFIX messages nor Parquet; packets are asked with `netgrain packets -r`";
            return Err(Failure::Said(format!("{}: {text}", path.display())));
        }
        Ok(Self::Messages(Box::new(Messages::new(Some((path, file))))))
    }

    /// The next record; what ends a file too early is said.
    fn next(&mut self, names: &mut Names) -> Result<Option<Record>, String> {
        match self {
            Self::Parquet(records) => records.next().transpose().map_err(|e| e.to_string()),
            Self::Messages(messages) => loop {
                if let Some(record) = messages.told(names) {
                    return Ok(Some(record));
                }
                if !messages.read()? {
                    return Ok(None);
                }
            },
        }
    }
}

impl Messages {
    fn new(file: Option<(PathBuf, BufReader<File>)>) -> Self {
        let decoder = export::ipfix::Decoder::new(export::element::PEN);
        Self { decoder, items: VecDeque::new(), file, bytes: Vec::new() }
    }

    /// The next record that was said already; names of interfaces go to the names.
    fn told(&mut self, names: &mut Names) -> Option<Record> {
        while let Some(item) = self.items.pop_front() {
            match item {
                export::ipfix::Item::Flow(record) => return Some(record),
                export::ipfix::Item::Interface { number, name } => names.set(number, &name),
                _ => {}
            }
        }
        None
    }

    /// Reads the next message; whether there was one. What ends a file too early is said.
    fn read(&mut self) -> Result<bool, String> {
        let Some((path, file)) = &mut self.file else { return Ok(false) };
        let say = |what: String| format!("{}: {what}; what comes before is given", path.display());
        self.bytes.resize(HEADER, 0);
        match read_up_to(file, &mut self.bytes) {
            Ok(0) => return Ok(false),
            Ok(HEADER) => {}
            Ok(n) => return Err(say(format!("ends {n} bytes into the header of a message"))),
            Err(e) => return Err(say(e.to_string())),
        }
        let length = usize::from(u16::from_be_bytes([self.bytes[LENGTH.start], self.bytes[LENGTH.start + 1]]));
        if length < HEADER {
            return Err(say(format!("a message of {length} bytes is no message of IPFIX")));
        }
        self.bytes.resize(length, 0);
        match read_up_to(file, &mut self.bytes[HEADER..]) {
            Ok(n) if n + HEADER == length => {}
            Ok(n) => return Err(say(format!("ends {} bytes into a message of {length}", n + HEADER))),
            Err(e) => return Err(say(e.to_string())),
        }
        let items = &mut self.items;
        self.decoder.message(&self.bytes, &mut |item| items.push_back(item)).map_err(|e| say(e.to_string()))?;
        Ok(true)
    }
}

/// As many bytes as there are, at most as fit.
fn read_up_to(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read(&mut bytes[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// The question to one interface of the store.
pub fn query(asked: &Asked, from: Timestamp, interface: &str) -> Query {
    let store = asked.store().map(PathBuf::from).unwrap_or_default();
    Query {
        interfaces: vec![interface.to_owned()],
        from,
        to: asked.to,
        need: asked.filter.need(),
        id: asked.id,
        ..Query::new(store)
    }
}

/// Each interface of a store that is asked, under a number of its own: what records say are those of their meters, of which
/// there may have been several.
fn shelves(asked: &Asked, from: Timestamp, names: &mut Names) -> Result<Vec<Shelf>, Failure> {
    let Some(store) = asked.store() else { return Ok(Vec::new()) };
    let known = catalogue::interfaces(store).map_err(|e| Failure::Said(format!("{}: {e}", store.display())))?;
    let folder = |name: &String| store::names::interface_folder(store, name);
    let wanted =
        |name: &&String| asked.interfaces.is_empty() || asked.interfaces.iter().any(|i| folder(i) == folder(name));
    let mut shelves = Vec::new();
    for name in known.iter().filter(wanted) {
        let number = names.number(name);
        let mut answer = columns::flows(&query(asked, from, name)).map_err(Failure::say)?;
        let next = answer.next();
        shelves.push(Shelf { number, answer, next });
    }
    Ok(shelves)
}

/// A socket for what is sent to a group, or to a port of ours.
fn listen(group: SocketAddr) -> Result<UdpSocket, Failure> {
    let say =
        |what: &'static str| move |e: io::Error| Failure::Said(format!("--from-multicast {group}: cannot {what}: {e}"));
    let socket = UdpSocket::bind(group).map_err(say("listen there"))?;
    match group.ip() {
        IpAddr::V4(ip) if ip.is_multicast() => socket.join_multicast_v4(&ip, &Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(ip) if ip.is_multicast() => {
            socket.join_multicast_v6(&ip, Ipv6Addr::UNSPECIFIED.segments()[0].into())
        }
        _ => Ok(()),
    }
    .map_err(say("join the group"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(say("wait there"))?;
    Ok(socket)
}
