//! The interfaces of a capture file: A pcapng file may contain packets of several interfaces. A frame that was captured
//! on two interfaces is in the file twice, as two packets.

use super::input::Input;
use pcap::Reader;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum number of interfaces; if the files have more interfaces, all of them are treated as one interface.
const MAX: usize = 64;

/// One interface of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The link type of the first packet of this interface.
    pub link_type: u16,
    /// The files with packets of this interface.
    pub paths: Vec<PathBuf>,
}

/// The interfaces of these files, in the order in which they first occur. Empty if there are fewer than two or more
/// than 64, if a file is not a capture or is a pipe (which can be read only once), and once `stop` is set. If any file
/// describes several interfaces before its first packet, all files are read to their ends. An error after the first
/// packet of a file is not reported here but at the replay.
pub fn ports(paths: &[impl AsRef<Path>], stop: &AtomicBool) -> Vec<Port> {
    let mut several = false;
    for path in paths {
        let Some(mut reader) = open(path.as_ref()) else { return Vec::new() };
        several |= matches!(reader.advance(), Ok(true)) && reader.interfaces().len() > 1;
    }
    let mut found = Vec::new();
    for path in paths.iter().filter(|_| several) {
        examine(path.as_ref(), stop, &mut found);
        if found.len() > MAX || stop.load(Relaxed) {
            return Vec::new();
        }
    }
    if found.len() > 1 { found } else { Vec::new() }
}

/// Opens a capture file. Returns `None` if the path is not a regular file or the file is not a capture. Other inputs
/// can be read only once, so they are not opened: a read would remove their first bytes.
fn open(path: &Path) -> Option<Reader<Input>> {
    let regular = path != Path::new("-") && path.metadata().is_ok_and(|m| m.is_file());
    let input = regular.then(|| Input::open(path))?;
    Reader::open(input.ok()?).ok()
}

/// Adds the interfaces of a file to `found`.
fn examine(path: &Path, stop: &AtomicBool, found: &mut Vec<Port>) {
    let Some(mut reader) = open(path) else { return };
    let mut last: Option<PortMatcher> = None;
    while found.len() <= MAX && !stop.load(Relaxed) && matches!(reader.advance(), Ok(true)) {
        let Some(packet) = reader.current() else { break };
        let (interface, link_type) = (packet.interface, packet.link_type);
        if last.as_mut().is_some_and(|port| port.matches(&reader, interface)) {
            continue;
        }
        let name = port_of(&reader, interface);
        last = Some(PortMatcher::port(&name));
        match found.iter_mut().find(|port| port.name == name) {
            Some(port) if port.paths.last().is_some_and(|known| known == path) => {}
            Some(port) => port.paths.push(path.to_owned()),
            None => found.push(Port { name, link_type, paths: vec![path.to_owned()] }),
        }
    }
}

/// The name of a packet's interface. Characters that are not possible in a directory name are replaced. If the
/// interface has no name, the result is its number.
fn port_of<R: Read>(reader: &Reader<R>, interface: u32) -> String {
    let name = reader.interfaces().get(interface as usize).map_or("", |name| name);
    let can_stand = |c: char| !(c.is_control() || c.is_whitespace() || c == '/');
    let clean: String = name.chars().map(|c| if can_stand(c) { c } else { '_' }).collect();
    if clean.is_empty() { interface.to_string() } else { clean }
}

/// Decides for each packet whether it belongs to one selected interface.
pub struct PortMatcher {
    port: String,
    /// The interface of the last packet by number and name (numbers restart in each section of a file), and true if
    /// this interface is the selected one.
    last: Option<(u32, Box<str>, bool)>,
}

impl PortMatcher {
    pub fn port(port: &str) -> Self {
        Self { port: port.to_owned(), last: None }
    }

    /// Creates a matcher that selects the interface of this packet.
    pub fn of_packet<R: Read>(reader: &Reader<R>, interface: u32) -> Self {
        Self::port(&port_of(reader, interface))
    }

    /// True if the packets of this interface belong to the selected interface.
    #[inline]
    pub fn matches<R: Read>(&mut self, reader: &Reader<R>, interface: u32) -> bool {
        let name = reader.interfaces().get(interface as usize).map_or("", |name| name);
        // PERF: 75 → 3 ns/packet if the interface has no name (pcap): `memcmp` of length 0 executes a load with an
        // empty mask from an invalid address, for which some CPUs take a microcode assist.
        let same = |known: &str| known.len() == name.len() && (name.is_empty() || known == name);
        if let Some((number, known, is)) = &self.last
            && *number == interface
            && same(known)
        {
            return *is;
        }
        let is = port_of(reader, interface) == self.port;
        self.last = Some((interface, name.into(), is));
        is
    }
}
