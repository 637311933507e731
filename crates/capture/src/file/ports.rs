//! The ports of a capture file: pcapng may hold packets of several interfaces, and a frame that passed two of them is two packets.

use super::input::Input;
use pcap::Reader;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Ports of files that are told apart; those of more are taken for one port.
const MOST: usize = 64;

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// What it is called; [`Options::port`](super::Options::port).
    pub name: String,
    /// The files that have packets of it.
    pub paths: Vec<PathBuf>,
}

/// The ports of these files, in the order in which they are met. Empty where there is nothing to tell apart (one port, or none),
/// where there are more than 64, and for a pipe, which nobody can read twice. A file that describes several interfaces before its
/// first packet is read to its end for that; what is wrong with it is said when it is replayed.
pub fn ports(paths: &[impl AsRef<Path>]) -> Vec<Port> {
    let mut found = Vec::new();
    let several = paths.iter().map(|path| look(path.as_ref(), &mut found)).fold(false, |a, b| a | b);
    if several && (2..=MOST).contains(&found.len()) { found } else { Vec::new() }
}

/// Adds the ports of a file; says whether it describes several interfaces.
fn look(path: &Path, found: &mut Vec<Port>) -> bool {
    let regular = path != Path::new("-") && path.metadata().is_ok_and(|m| m.is_file());
    let reader = regular.then(|| Input::open(path).ok()).flatten().and_then(|input| Reader::open(input).ok());
    let Some(mut reader) = reader else { return false };
    let mut last = None;
    while let Ok(true) = reader.advance() {
        let Some(interface) = reader.current().map(|packet| packet.interface) else { break };
        let described = (interface, reader.interfaces().get(interface as usize).cloned());
        if last.as_ref() != Some(&described) {
            let name = port_of(&reader, interface);
            match found.iter_mut().find(|port| port.name == name) {
                Some(port) if port.paths.iter().any(|known| known == path) => {}
                Some(port) => port.paths.push(path.to_owned()),
                None => found.push(Port { name, paths: vec![path.to_owned()] }),
            }
            last = Some(described);
        }
        if reader.interfaces().len() < 2 || found.len() > MOST {
            break;
        }
    }
    reader.interfaces().len() > 1
}

/// What the port is called that a packet belongs to: as its interface, but for what cannot stand in the name of a folder; by the
/// number where there is no name.
fn port_of<R: Read>(reader: &Reader<R>, interface: u32) -> String {
    let name = reader.interfaces().get(interface as usize).map_or("", |name| name);
    let can_stand = |c: char| !(c.is_control() || c.is_whitespace() || c == '/');
    let clean: String = name.chars().map(|c| if can_stand(c) { c } else { '_' }).collect();
    if clean.is_empty() { interface.to_string() } else { clean }
}

/// One port, to ask of packets whether they are of it.
pub struct Is {
    port: String,
    /// What the last packet's interface was, by number and name (numbers begin anew in each section of a file), and whether it is
    /// of the port.
    last: Option<(u32, Box<str>, bool)>,
}

impl Is {
    pub fn port(port: &str) -> Self {
        Self { port: port.to_owned(), last: None }
    }

    /// The port of a packet of this interface.
    pub fn that_of<R: Read>(reader: &Reader<R>, interface: u32) -> Self {
        Self::port(&port_of(reader, interface))
    }

    /// Whether a packet of this interface is of it.
    #[inline]
    pub fn has<R: Read>(&mut self, reader: &Reader<R>, interface: u32) -> bool {
        let name = reader.interfaces().get(interface as usize).map_or("", |name| name);
        if let Some((number, known, is)) = &self.last
            && (*number, &**known) == (interface, name)
        {
            return *is;
        }
        let is = port_of(reader, interface) == self.port;
        self.last = Some((interface, name.into(), is));
        is
    }
}
