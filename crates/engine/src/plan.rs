//! The configuration of a capture as a value: the source of its packets, and how the packets are used.

use crate::duplicates::DuplicatePlan;
use base::Timestamp;
use capture::auto::SourceKind;
use capture::{AnySource, SourceError, afxdp, file, sim, tpacket};
use group_services::GroupPlan;
use interface_program::ProgramPlan;
use meter::MeterPlan;
use std::path::{Path, PathBuf};
use std::time::Duration;
use timestamping::{SwitchTimestamps, TimestampSetting};

/// The source of the packets.
#[derive(Clone, Debug)]
pub enum SourcePlan {
    /// A network interface.
    Interface(InterfacePlan),
    /// A capture file; the path `-` is standard input.
    File {
        /// The path.
        path: PathBuf,
        /// Replay speed and other options of the file.
        options: file::Options,
    },
    /// Several capture files, read one after the other as one stream.
    Files {
        /// The paths, in order of time; `-` is standard input.
        paths: Vec<PathBuf>,
        /// Replay speed and other options of the files.
        options: file::Options,
        /// The name of the capture; by default the name of the first file.
        name: Option<String>,
    },
    /// Simulated traffic. If `start` is given, the timestamps of the packets are virtual time, which begins at `start`.
    Sim {
        /// The traffic to simulate.
        spec: sim::Spec,
        /// The start of virtual time.
        start: Option<Timestamp>,
        /// The name of the capture; default: `sim`.
        name: Option<String>,
    },
}

/// An interface to be captured.
#[derive(Clone, Debug)]
pub struct InterfacePlan {
    /// The interface name.
    pub name: String,
    /// The kind of source: AF_XDP or TPACKET.
    pub kind: SourceKind,
    /// For AF_XDP, the number of queues, counted from queue 0 (default: all); for TPACKET, the number of capture
    /// threads.
    pub queues: Option<u16>,
    /// The options of AF_XDP: generic or native mode, copy or zero copy, ring sizes, busy polling.
    pub afxdp: afxdp::AfXdpConfig,
    /// The options of TPACKET: block and ring sizes.
    pub tpacket: tpacket::TpacketConfig,
}

impl InterfacePlan {
    /// Returns a plan with default options.
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
    /// Opens the sources, one for each engine thread. Interfaces deliver no frame before [`AnySource::begin`].
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

    /// Returns the capture files and their options. An interface or a simulation has no files.
    pub fn files(&self) -> (Vec<PathBuf>, file::Options) {
        match self {
            Self::File { path, options } => (vec![path.clone()], options.clone()),
            Self::Files { paths, options, .. } => (paths.clone(), options.clone()),
            Self::Interface(_) | Self::Sim { .. } => (Vec::new(), file::Options::default()),
        }
    }

    /// Returns the name of this capture, which is used in file paths, metrics and for listeners.
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

/// Returns the name that the capture of this file has by default.
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

/// The socket through which other processes attach as listeners.
#[derive(Clone, Debug)]
pub struct SocketPlan {
    /// The path of the socket; the default is [`default_socket`].
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// The owner of the socket.
    pub uid: Option<u32>,
    /// The group of the socket.
    pub gid: Option<u32>,
    /// True if processes of the socket's owner and group may also attach lossless readers.
    pub allow_lossless: bool,
    /// The interfaces to which groups that were created by other users may send packets. Groups of root and of the
    /// engine's own user may send packets to all interfaces.
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
    /// Nanosecond pcap. The files contain the same record bytes as the ring.
    #[default]
    Pcap,
    /// The format RAW of HPCAP, with its padding.
    Raw,
}

/// Default number of writes in flight. Measured on a virtual disk with 2 MiB pages (packets of 1000 B, `--sim`): 1.9
/// GB/s with 8 writes in flight, 2.7 GB/s with 16, 3.0 GB/s with 32. Each write in flight occupies 1 MiB of the ring.
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

/// Default size of a packet file in bytes. The recorder chooses a smaller size if the volume is too small for this.
pub const DEFAULT_SEGMENT: u64 = 2 << 30;

/// The complete configuration of a capture.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The source of the packets.
    pub source: SourcePlan,
    /// Size of each queue's ring in bytes; the descriptors add a quarter. `None` for the default, which depends on the
    /// source and the memory (`engine/src/sizes.rs`).
    pub ring: Option<u64>,
    /// Number of captures in this process, including this one. The default memory of a process is divided among its
    /// captures.
    pub shares: u16,
    /// The largest size of a packet file in bytes.
    pub segment: u64,
    /// A new packet file begins at every multiple of this duration.
    pub rotate: Option<Duration>,
    /// The snaplen: the largest number of bytes stored of a packet.
    pub snaplen: u32,
    /// The capture filter; `None` to store all packets.
    pub filter: Option<String>,
    /// The detection of duplicates among the packets that match the filter; `None` for none.
    pub duplicates: Option<DuplicatePlan>,
    /// The program that runs for each packet before the filter.
    pub program: Option<ProgramPlan>,
    /// The CPUs for engine threads, assigned in turn. If empty, the CPUs of the interface's NUMA node are used.
    pub cpus: Vec<usize>,
    /// True to spin instead of sleeping while no packets arrive.
    pub spin: bool,
    /// The method of timestamping.
    pub timestamps: TimestampSetting,
    /// The format of the timestamps that a switch adds to the frames.
    pub switch_timestamps: SwitchTimestamps,
    /// The options for recording packets; `None` to record none.
    pub store: Option<StorePlan>,
    /// The options of flow records and series rows; `None` to make none.
    pub meter: Option<MeterPlan>,
    /// The socket for listeners; `None` to admit none.
    pub socket: Option<SocketPlan>,
    /// Groups that are created before the first packet.
    pub groups: Vec<GroupPlan>,
    /// The capture stops after this time.
    pub duration: Option<Duration>,
    /// The capture stops after this number of stored packets per queue.
    pub packets: Option<u64>,
    /// The reader timeout: the longest time for which the producer waits for a lossless listener.
    pub reader_timeout: Option<Duration>,
}

impl Plan {
    /// Returns a plan that captures all packets of a source, with default sizes and without recording.
    pub fn new(source: SourcePlan) -> Self {
        Self {
            source,
            ring: None,
            shares: 1,
            segment: DEFAULT_SEGMENT,
            rotate: None,
            snaplen: ring::CAPLEN_MAX as u32,
            filter: None,
            duplicates: None,
            program: None,
            cpus: Vec::new(),
            spin: false,
            timestamps: TimestampSetting::Auto,
            switch_timestamps: SwitchTimestamps::Off,
            store: None,
            meter: None,
            socket: None,
            groups: Vec::new(),
            duration: None,
            packets: None,
            reader_timeout: Some(Duration::from_secs(10)),
        }
    }

    /// Returns the snaplen that applies: the configured snaplen or, if it is less, the limit of the file format.
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
    fn the_label_of_a_simulation_is_its_name() {
        let sim = |name: Option<&str>| {
            let spec = "60".parse().expect("a specification");
            SourcePlan::Sim { spec, start: None, name: name.map(str::to_owned) }.label()
        };
        assert_eq!((sim(None).as_str(), sim(Some("lab")).as_str()), ("sim", "lab"));
    }
}
