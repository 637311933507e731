//! What to capture and what to do with it: the whole of a capture's configuration, as a value.

use crate::group::GroupPlan;
use crate::meter::MeterPlan;
use base::Timestamp;
use capture::auto::SourceKind;
use capture::{AnySource, SourceError, afxdp, file, sim, tpacket};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where packets come from.
#[derive(Clone, Debug)]
pub enum SourcePlan {
    /// A port.
    Interface(InterfacePlan),
    /// A capture file, or `-`.
    File {
        /// Its path.
        path: PathBuf,
        /// How fast to replay it.
        options: file::Options,
    },
    /// Capture files, one after the other as one stream.
    Files {
        /// Their paths, in the order of time; `-` is standard input.
        paths: Vec<PathBuf>,
        /// How fast to replay them.
        options: file::Options,
        /// What to call it; without, as the first file.
        name: Option<String>,
    },
    /// Simulated traffic; on virtual time if a start is given.
    Sim {
        /// What to make up.
        spec: sim::Spec,
        /// First moment of virtual time.
        start: Option<Timestamp>,
        /// What to call it; without, `sim`.
        name: Option<String>,
    },
}

/// A port to capture.
#[derive(Clone, Debug)]
pub struct InterfacePlan {
    /// Its name.
    pub name: String,
    /// Which way.
    pub kind: SourceKind,
    /// AF_XDP: how many queues, counted from 0 (all without); TPACKET: how many threads.
    pub queues: Option<u16>,
    /// AF_XDP: insist on generic or native mode, copy or zero copy, ring sizes, busy polling.
    pub afxdp: afxdp::AfXdpConfig,
    /// TPACKET: block and ring sizes.
    pub tpacket: tpacket::TpacketConfig,
}

impl InterfacePlan {
    /// The usual way.
    pub fn new(name: &str, kind: SourceKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            queues: None,
            afxdp: afxdp::AfXdpConfig::new(name),
            tpacket: tpacket::TpacketConfig::new(name),
        }
    }
}

impl SourcePlan {
    /// Opens the sources, one per engine thread; ports let no frame in before [`AnySource::begin`].
    ///
    /// # Errors
    /// The first source's that cannot be opened.
    pub fn open(&self) -> Result<Vec<AnySource>, SourceError> {
        match self {
            Self::Interface(plan) => plan.open(),
            Self::File { path, options } => Ok(vec![AnySource::File(file::File::open(path, options.clone())?)]),
            Self::Files { paths, options, .. } => {
                let first = paths.first().map_or(Path::new("-"), PathBuf::as_path);
                Ok(vec![AnySource::File(file::File::open(first, options.clone())?)])
            }
            Self::Sim { spec, start, .. } => Ok(vec![AnySource::Sim(sim::Sim::open(spec, *start)?)]),
        }
    }

    /// The name that files, metrics and listeners know this capture by.
    pub fn label(&self) -> String {
        match self {
            Self::Interface(plan) => plan.name.clone(),
            Self::File { path, .. } => file_label(path),
            Self::Files { name: Some(name), .. } => name.clone(),
            Self::Files { paths, .. } => paths.first().map_or_else(|| "stdin".into(), |path| file_label(path)),
            Self::Sim { name, .. } => name.clone().unwrap_or_else(|| "sim".into()),
        }
    }
}

/// What a capture of this file is called.
fn file_label(path: &Path) -> String {
    match path.file_name() {
        Some(name) if path != Path::new("-") => name.to_string_lossy().replace('/', "_"),
        _ => "stdin".into(),
    }
}

impl InterfacePlan {
    fn open(&self) -> Result<Vec<AnySource>, SourceError> {
        Ok(match self.kind {
            SourceKind::AfXdp => {
                let mut config = self.afxdp.clone();
                config.queues = self.queues.map(|n| (0..n).collect());
                config.prepared = true;
                afxdp::open(&config)?.into_iter().map(AnySource::AfXdp).collect()
            }
            SourceKind::Tpacket => {
                let mut config = self.tpacket.clone();
                config.threads = self.queues.unwrap_or(1);
                config.prepared = true;
                tpacket::open(&config)?.into_iter().map(AnySource::Tpacket).collect()
            }
        })
    }
}

/// How other processes may listen.
#[derive(Clone, Debug)]
pub struct SocketPlan {
    /// Where; the default is [`default_socket`].
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// Its owner.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
    /// Whether that owner and group may also attach gates.
    pub allow_lossless: bool,
    /// Ports that their groups may send through; root and the engine's own user may use any.
    pub forward: Vec<String>,
}

/// Where the engine of this interface listens unless told otherwise: `/run/netgrain/NAME.sock`, and
/// `/run/netgrain/NAME.netns-NUMBER.sock` in other network namespaces than the machine's first, because each of them can
/// have an interface of this name.
pub fn default_socket(interface: &str) -> PathBuf {
    let namespace = sys::netns::number_if_not_initial().map(|number| format!(".netns-{number}")).unwrap_or_default();
    PathBuf::from("/run/netgrain").join(format!("{interface}{namespace}.sock"))
}

/// What the recorder writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Nanosecond pcap, byte for byte what lies in the ring.
    #[default]
    Pcap,
    /// The thesis's RAW with its padding.
    Raw,
}

/// Writes in flight when nobody said. Measured on a virtual disk with 2 MiB pages (1000 B, `--sim`): 8 in flight wrote
/// 1.9 GB/s, 16 2.7, 32 3.0; the price is the ring's memory for as many MiB.
pub const WRITE_DEPTH: u32 = 32;

/// Where and how to record.
#[derive(Clone, Debug)]
pub struct StorePlan {
    /// The store's folder.
    pub dir: PathBuf,
    /// The files' format.
    pub format: Format,
    /// Writes in flight at a time.
    pub depth: u32,
}

/// A program of the packet language that judges every packet before the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramPlan {
    /// What to call it: the file that it came from.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Bytes of a file where nobody chose: fewer are taken on a volume that this would be too many for.
pub const DEFAULT_SEGMENT: u64 = 2 << 30;

/// A capture, completely described.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where packets come from.
    pub source: SourcePlan,
    /// Bytes of each queue's ring (descriptors add a quarter); without, as many as suit the source and the memory
    /// (`engine/src/sizes.rs`).
    pub ring: Option<u64>,
    /// Captures of this process that share what memory it takes by itself, this one included.
    pub shares: u16,
    /// Most bytes of one file.
    pub segment: u64,
    /// A new file at every multiple of this.
    pub rotate: Option<Duration>,
    /// Most bytes stored of one packet.
    pub snaplen: u32,
    /// Packets to keep, in the filter language; none keeps all.
    pub filter: Option<String>,
    /// What judges the packets before that.
    pub program: Option<ProgramPlan>,
    /// Processors for engine threads, dealt in turn; empty for the port's NUMA node.
    pub cpus: Vec<usize>,
    /// Spin instead of sleeping while there are no packets.
    pub spin: bool,
    /// Record.
    pub store: Option<StorePlan>,
    /// Make flow records and rows.
    pub meter: Option<MeterPlan>,
    /// Let listeners in.
    pub socket: Option<SocketPlan>,
    /// Groups that are there from the first packet on.
    pub groups: Vec<GroupPlan>,
    /// Stop after this long.
    pub duration: Option<Duration>,
    /// Stop after this many stored packets (per queue).
    pub packets: Option<u64>,
    /// How long a gate of another process may hold up the ring.
    pub reader_timeout: Option<Duration>,
}

impl Plan {
    /// Everything that lies in these packets, in a ring of the usual size, recorded nowhere.
    pub fn new(source: SourcePlan) -> Self {
        Self {
            source,
            ring: None,
            shares: 1,
            segment: DEFAULT_SEGMENT,
            rotate: None,
            snaplen: ring::CAPLEN_MAX as u32,
            filter: None,
            program: None,
            cpus: Vec::new(),
            spin: false,
            store: None,
            meter: None,
            socket: None,
            groups: Vec::new(),
            duration: None,
            packets: None,
            reader_timeout: Some(Duration::from_secs(10)),
        }
    }

    /// Bytes kept of each packet, as far as the format of the files can say.
    pub fn snaplen_in_force(&self) -> u32 {
        match &self.store {
            Some(StorePlan { format: Format::Raw, .. }) => self.snaplen.min(pcap::raw::MAX_CAPLEN.into()),
            _ => self.snaplen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_is_called_by_its_name() {
        let sim = |name: Option<&str>| {
            let spec = "60".parse().expect("a specification");
            SourcePlan::Sim { spec, start: None, name: name.map(str::to_owned) }.label()
        };
        assert_eq!((sim(None).as_str(), sim(Some("lab")).as_str()), ("sim", "lab"));
    }
}
