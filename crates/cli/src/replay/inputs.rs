//! The inputs of a replay: capture files or a query of a store.

use super::args::ReplayArgs;
use crate::convert::open;
use crate::inventory;
use crate::outcome::Failure;
use filter::Filter;
use pcap::Direction;
use query::{Query, QuerySource, Results};
use replay::stream::{CaptureBytes, CaptureFiles, CapturedPacket, DamagedInput, OpenStream, StreamFindings};
use replay::{PacketStream, StreamError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns the function that opens the inputs for each pass. Regular files are also opened here, so that a wrong file
/// name is reported before the interfaces are opened.
pub fn open(args: &ReplayArgs, filter: &Filter, stop: &Arc<AtomicBool>) -> Result<OpenStream, Failure> {
    let Some(store) = &args.store else { return files(args) };
    let inventories = inventory::inventories(store)?;
    inventory::check(store, &inventories, &args.recorded_on)?;
    let names = match args.recorded_on.is_empty() {
        true => inventories.iter().map(|inventory| inventory.interface.clone()).collect(),
        false => args.recorded_on.clone(),
    };
    let (from, to) = args.when.interval(sys::clock::realtime(), false)?;
    let query = Query {
        from,
        to,
        filter: filter.clone(),
        interfaces: args.recorded_on.clone(),
        stop: Some(Arc::clone(stop)),
        ..Query::default()
    };
    let (store, source) = (store.display().to_string(), QuerySource::Store(store.clone()));
    Ok(Box::new(move || {
        let results = query::run(&source, query.clone()).map_err(|e| StreamError::Query(e.to_string()))?;
        let (inputs, packet) = Default::default();
        Ok(Box::new(StorePackets { store: store.clone(), results, names: names.clone(), inputs, packet }))
    }))
}

fn files(args: &ReplayArgs) -> Result<OpenStream, Failure> {
    if args.when.from.is_some() || args.when.to.is_some() || args.when.around.is_some() {
        return Err(Failure::Said(
            "--from, --to and --around select packets of a store: add --store, or cut the file with netgrain convert \
             --from … --to … first"
                .to_owned(),
        ));
    }
    let piped = |path: &Path| !path.metadata().is_ok_and(|about| about.is_file());
    if let Some(path) = args.files.iter().find(|path| args.passes != 1 && piped(path)) {
        return Err(Failure::Said(format!(
            "{}: --loop reads the capture again for each pass, which is possible only with files: write the packets \
             into a file first",
            path.display()
        )));
    }
    let paths = args.files.clone();
    if !paths.iter().any(|path| piped(path)) {
        capture_files(&paths).map_err(Failure::say)?;
    }
    Ok(Box::new(move || Ok(Box::new(capture_files(&paths)?))))
}

fn capture_files(paths: &[PathBuf]) -> Result<CaptureFiles, StreamError> {
    let open = |path: &PathBuf| {
        let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
        match open::open(path) {
            Ok(bytes) => Ok((name, bytes as CaptureBytes)),
            Err(error) => Err(StreamError::Io { input: name, error }),
        }
    };
    CaptureFiles::open(paths.iter().map(open).collect::<Result<_, _>>()?)
}

/// The packets that a query of a store selects.
struct StorePackets {
    store: String,
    results: Results,
    /// The interfaces in the order of `--recorded-on`, or in the order of their names. The position of an interface is
    /// the number of the input.
    names: Vec<String>,
    /// For each origin of the results, the number of its input. An interface has several origins if it has several
    /// queues.
    inputs: Vec<u32>,
    /// The bytes of the present packet. They are copied, because the packet borrows the results, and so does the list
    /// of origins.
    packet: Vec<u8>,
}

impl StorePackets {
    fn input_of(&mut self, origin: usize) -> u32 {
        for origin in &self.results.origins()[self.inputs.len()..] {
            let position = self.names.iter().position(|name| *name == origin.interface);
            self.inputs.push(position.unwrap_or(self.names.len()) as u32);
        }
        self.inputs.get(origin).copied().unwrap_or_default()
    }
}

impl PacketStream for StorePackets {
    fn next(&mut self) -> Result<Option<CapturedPacket<'_>>, StreamError> {
        let found = self.results.next().map_err(|e| StreamError::Query(e.to_string()))?;
        let Some(found) = found else { return Ok(None) };
        self.packet.clear();
        self.packet.extend_from_slice(found.data);
        let (ts, wire_len, link_type, origin) = (found.ts, found.wire_len, found.link_type, found.origin);
        let input = self.input_of(origin);
        Ok(Some(CapturedPacket {
            ts: Some(ts),
            wire_len: wire_len.max(self.packet.len() as u32),
            bytes: &self.packet,
            link_type,
            direction: Direction::Unknown,
            input,
        }))
    }

    fn findings(&self) -> StreamFindings {
        let reason = self.results.warnings().join("; ");
        let damaged = DamagedInput { input: self.store.clone(), offset: None, reason };
        StreamFindings {
            damaged: if self.results.is_complete() { Vec::new() } else { vec![damaged] },
            ..StreamFindings::default()
        }
    }
}
