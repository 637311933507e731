//! The configuration of a capture as a value: its source, and the uses of its packets.

use base::Timestamp;
use capture::auto::SourceKind;
use capture::{AnySource, SourceError, afxdp, file, sim, tpacket};
use group_services::GroupPlan;
use interface_program::ProgramPlan;
use meter::MeterPlan;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The source of the packets.
#[derive(Clone, Debug)]
pub enum SourcePlan {
    /// A network interface.
    Interface(InterfacePlan),
    /// A capture file, or `-`.
    File {
        /// The path.
        path: PathBuf,
        /// The replay speed.
        options: file::Options,
    },
    /// Capture files, read one after the other as one stream.
    Files {
        /// The paths, in order of time; `-` is standard input.
        paths: Vec<PathBuf>,
        /// The replay speed.
        options: file::Options,
        /// The name of the capture; default: that of the first file.
        name: Option<String>,
    },
    /// Simulated traffic; on virtual time if a start is given.
    Sim {
        /// The traffic to simulate.
        spec: sim::Spec,
        /// The start of virtual time.
        start: Option<Timestamp>,
        /// The name of the capture; default: `sim`.
        name: Option<String>,
    },
}

/// An interface to capture from.
#[derive(Clone, Debug)]
pub struct InterfacePlan {
    /// The interface name.
    pub name: String,
    /// The kind of source: AF_XDP or TPACKET.
    pub kind: SourceKind,
    /// AF_XDP: number of queues, counted from 0 (default: all); TPACKET: number of threads.
    pub queues: Option<u16>,
    /// AF_XDP: generic or native mode, copy or zero copy, ring sizes, busy polling.
    pub afxdp: afxdp::AfXdpConfig,
    /// TPACKET: block and ring sizes.
    pub tpacket: tpacket::TpacketConfig,
}

impl InterfacePlan {
    /// Makes a plan with default options.
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
    /// Opens the sources, one per engine thread; interfaces deliver no frame before [`AnySource::begin`].
    ///
    /// # Errors
    /// The error of the first source that cannot be opened.
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

    /// Returns the capture files and their replay speed; no files for an interface or a simulation.
    pub fn files(&self) -> (Vec<PathBuf>, file::Options) {
        match self {
            Self::File { path, options } => (vec![path.clone()], options.clone()),
            Self::Files { paths, options, .. } => (paths.clone(), options.clone()),
            Self::Interface(_) | Self::Sim { .. } => (Vec::new(), file::Options::default()),
        }
    }

    /// Returns the name of this capture in file paths, metrics and listeners.
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

/// Returns the name of the capture of a file.
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

/// The socket at which other processes attach as listeners.
#[derive(Clone, Debug)]
pub struct SocketPlan {
    /// The path; the default is [`default_socket`].
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// The owner of the socket.
    pub uid: Option<u32>,
    /// The group of the socket.
    pub gid: Option<u32>,
    /// True if that owner and group may also attach lossless readers.
    pub allow_lossless: bool,
    /// Interfaces through which their groups may send; root and the engine's own user may use any.
    pub forward: Vec<String>,
}

/// Returns the default socket path of an interface: `/run/netgrain/NAME.sock`, and
/// `/run/netgrain/NAME.netns-NUMBER.sock` in network namespaces other than the initial namespace, because each
/// namespace can have an interface of this name.
pub fn default_socket(interface: &str) -> PathBuf {
    let namespace = sys::netns::number_if_not_initial().map(|number| format!(".netns-{number}")).unwrap_or_default();
    PathBuf::from("/run/netgrain").join(format!("{interface}{namespace}.sock"))
}

/// The format of the packet files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Nanosecond pcap; the files are byte for byte the content of the ring.
    #[default]
    Pcap,
    /// The RAW format of HPCAP's thesis, with its padding.
    Raw,
}

/// Default number of writes in flight. Measured on a virtual disk with 2 MiB pages (1000 B, `--sim`): 8 in flight wrote
/// 1.9 GB/s, 16 2.7, 32 3.0; each write in flight occupies 1 MiB of the ring.
pub const WRITE_DEPTH: u32 = 32;

/// The recording options.
#[derive(Clone, Debug)]
pub struct StorePlan {
    /// The directory of the store.
    pub dir: PathBuf,
    /// The format of the packet files.
    pub format: Format,
    /// Number of writes in flight.
    pub depth: u32,
}

/// Default bytes of a packet file; the recorder chooses less if this is too large for the volume.
pub const DEFAULT_SEGMENT: u64 = 2 << 30;

/// The complete configuration of a capture.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The source of the packets.
    pub source: SourcePlan,
    /// Bytes of each queue's ring (descriptors add a quarter); by default the size depends on the source and the memory
    /// (`engine/src/sizes.rs`).
    pub ring: Option<u64>,
    /// Number of captures of this process, this one included, that share the memory that the process takes by default.
    pub shares: u16,
    /// The most bytes of one packet file.
    pub segment: u64,
    /// Start a new file at every multiple of this duration.
    pub rotate: Option<Duration>,
    /// The most bytes stored of one packet.
    pub snaplen: u32,
    /// The capture filter; `None` keeps all packets.
    pub filter: Option<String>,
    /// The program that evaluates the packets before the filter.
    pub program: Option<ProgramPlan>,
    /// Processors for engine threads, assigned in turn; empty for those of the interface's NUMA node.
    pub cpus: Vec<usize>,
    /// Spin instead of sleeping while there are no packets.
    pub spin: bool,
    /// Record packets.
    pub store: Option<StorePlan>,
    /// Make flow records and series rows.
    pub meter: Option<MeterPlan>,
    /// Admit listeners.
    pub socket: Option<SocketPlan>,
    /// Groups that exist from the first packet on.
    pub groups: Vec<GroupPlan>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Stop after this many stored packets (per queue).
    pub packets: Option<u64>,
    /// How long a lossless listener may hold up the ring (reader timeout).
    pub reader_timeout: Option<Duration>,
}

impl Plan {
    /// Makes a plan that captures all packets of a source, with default sizes and without recording.
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

    /// Returns the bytes kept of each packet, as limited by the format of the files.
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
