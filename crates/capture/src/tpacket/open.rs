//! Opens the sockets of a configuration.

use super::{BlockPosition, Phase, Port, SocketCounts, Tpacket};
use crate::contract::ethernet;
use crate::nic_time::NicTime;
use crate::{SourceError, SourceInfo, TimestampSource};
use base::units::show_bytes;
use std::io;
use std::time::Duration;
use sys::ethtool;
use sys::netlink::{Link, Netlink};
use sys::packet::ring::Layout;
use sys::packet::{Fanout, PacketSocket};
use sys::privilege::{self, Capabilities, Capability};

/// A block must have space for the longest possible frame, 64 KiB, and for the kernel's metadata.
const MIN_BLOCK_BYTES: u32 = 128 << 10;
/// The kernel allocates a block as contiguous memory where possible, which rarely succeeds for more than 4 MiB.
const MAX_BLOCK_BYTES: u32 = 4 << 20;
/// Blocks consist of whole pages; this alignment suits every page size in use.
const BLOCK_ALIGN: u32 = 64 << 10;
/// The kernel must hand over a frame within this time, even on a quiet interface.
const MAX_RETIRE: Duration = Duration::from_millis(10);
/// The largest number of sockets in one fanout group, one socket per thread; the kernel would allow more.
const MAX_THREADS: u16 = 64;
const ETH_P_ALL: u16 = 0x0003;
const LINKTYPE_ETHERNET: u16 = 1;

/// The timestamps that a TPACKET source requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TpacketTimestamps {
    /// Those of the NIC if it is set to timestamp all received frames, otherwise those of the kernel.
    #[default]
    Best,
    /// Those of the kernel.
    Kernel,
    /// Those of the NIC.
    Hardware,
}

/// The configuration of a capture: interface, memory, and distribution over threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpacketConfig {
    /// The interface.
    pub interface: String,
    /// Number of sources, 1 to 64, one for each thread of the caller; several sources form a fanout group.
    pub threads: u16,
    /// Bytes of a block: 128 KiB to 4 MiB, in steps of 64 KiB.
    pub block_bytes: u32,
    /// Number of blocks of each source, at least 2.
    pub blocks: u32,
    /// Longest time that a frame waits in a block that is not full: 1 to 10 ms. The kernel rounds up to its timer tick.
    pub retire: Duration,
    /// How frames are distributed among several sources.
    pub fanout: Fanout,
    /// The timestamps to request.
    pub timestamps: TpacketTimestamps,
    /// True to receive frames for other hosts as well.
    pub promiscuous: bool,
    /// True to prepare everything, but admit no frame until [`Tpacket::begin`] is called.
    pub prepared: bool,
}

impl TpacketConfig {
    /// The defaults for `interface`: one thread, 64 blocks of 1 MiB, 4 ms, promiscuous.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            threads: 1,
            block_bytes: 1 << 20,
            blocks: 64,
            // One tick of a kernel with 250 Hz. The kernel rounds the retire time up to its ticks; on every kernel the
            // result is at most 10 ms.
            retire: Duration::from_millis(4),
            fanout: Fanout::Hash,
            timestamps: TpacketTimestamps::Best,
            promiscuous: true,
            prepared: false,
        }
    }

    fn check(&self) -> Result<(), SourceError> {
        let reason = if !(1..=MAX_THREADS).contains(&self.threads) {
            format!("{} threads requested; the range is 1 to {MAX_THREADS}", self.threads)
        } else if !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&self.block_bytes)
            || !self.block_bytes.is_multiple_of(BLOCK_ALIGN)
        {
            format!(
                "blocks of {} bytes requested; the range is {} to {} in steps of {}",
                self.block_bytes,
                show_bytes(MIN_BLOCK_BYTES.into()),
                show_bytes(MAX_BLOCK_BYTES.into()),
                show_bytes(BLOCK_ALIGN.into())
            )
        } else if self.blocks < 2 {
            format!("{} blocks requested; at least 2 are required, one to fill and one to read", self.blocks)
        } else if self.retire < Duration::from_millis(1) || self.retire > MAX_RETIRE {
            format!("a retire time of {:?} requested; the range is 1 ms to {MAX_RETIRE:?}", self.retire)
        } else {
            return Ok(());
        };
        Err(SourceError::Unsupported { name: self.interface.clone(), reason })
    }
}

/// Opens the sources of `config`, one for each thread. None of them admits a frame before all are ready.
///
/// # Errors
/// [`SourceError::Unsupported`] for a configuration out of range or an interface that does not carry Ethernet frames,
/// [`SourceError::System`] with advice if the kernel refuses.
pub fn open(config: &TpacketConfig) -> Result<Vec<Tpacket>, SourceError> {
    config.check()?;
    let fail = |what: &'static str, error: io::Error, advice: String| SourceError::System {
        name: config.interface.clone(),
        what,
        error,
        advice,
    };
    let mut netlink = Netlink::route().map_err(|e| fail("query the kernel's interfaces", e, String::new()))?;
    let link = netlink
        .link(&config.interface)
        .map_err(|e| fail("find the interface", e, "`ip link` lists the interfaces".to_owned()))?;
    ethernet(&link)?;
    let stamps_all = ethtool::stamps_all_received(&link.name);
    let hardware_stamps = stamps_all && config.timestamps != TpacketTimestamps::Kernel;
    if config.timestamps == TpacketTimestamps::Hardware && !stamps_all {
        return Err(SourceError::Unsupported { name: link.name.clone(), reason: no_hardware_timestamps(&link.name) });
    }

    let mut group = None;
    let mut sources = Vec::new();
    for thread in 0..config.threads {
        let source = open_one(config, &link, thread, hardware_stamps)?;
        if config.threads > 1 {
            let joined = source.socket.join_fanout(group, config.fanout, link.is_loopback());
            let advice = "before kernel 6.10 the interface must be up first".to_owned();
            group = Some(joined.map_err(|e| fail("form a fanout group", e, advice))?);
        }
        sources.push(source);
    }
    if !config.prepared {
        sources.iter().try_for_each(Tpacket::begin)?;
    }
    Ok(sources)
}

/// The reason why the NIC does not timestamp all frames.
fn no_hardware_timestamps(name: &str) -> String {
    let can = ethtool::stamping(name).unwrap_or_default();
    if can.hardware && can.every_frame {
        format!("the NIC can timestamp all received frames, but is not set to; `hwstamp_ctl -i {name} -r 1` sets it")
    } else {
        "the NIC cannot timestamp all received frames; use the timestamps of the kernel".to_owned()
    }
}

impl Tpacket {
    /// Admits frames. Required once after opening with [`TpacketConfig::prepared`].
    ///
    /// # Errors
    /// If the kernel refuses to change the filter.
    pub fn begin(&self) -> Result<(), SourceError> {
        self.socket.accept_all().map_err(|error| SourceError::System {
            name: self.info.name.clone(),
            what: "begin the capture",
            error,
            advice: String::new(),
        })
    }
}

/// A completely configured socket whose filter still refuses every frame.
fn open_one(config: &TpacketConfig, link: &Link, thread: u16, hardware_stamps: bool) -> Result<Tpacket, SourceError> {
    let step = |what: &'static str, advice: &'static str| {
        move |error| SourceError::System { name: config.interface.clone(), what, error, advice: advice.to_owned() }
    };
    let netlink = Netlink::route().map_err(step("query the kernel's interfaces", ""))?;
    let socket = PacketSocket::open().map_err(|error| SourceError::System {
        name: config.interface.clone(),
        what: "open a packet socket",
        error,
        advice: privilege::advice("a packet socket", Capabilities::of(&[Capability::NetRaw])),
    })?;
    socket.refuse_all().map_err(step("set a filter", ""))?;
    let layout = Layout { block_bytes: config.block_bytes, blocks: config.blocks, retire: config.retire };
    let ring = socket.receive_ring(layout).map_err(step("create the receive ring", "use fewer or smaller blocks"))?;
    if hardware_stamps {
        socket.hardware_stamps().map_err(step("enable hardware timestamps", ""))?;
    }
    if link.is_loopback() {
        // A frame on a loopback interface is both sent and received: without this option it would be captured twice.
        socket
            .ignore_outgoing()
            .map_err(step("exclude frames that the host sends", "Linux 4.20 or later is required"))?;
    }
    if config.promiscuous {
        socket.promiscuous(link.index).map_err(step("enable promiscuous mode", ""))?;
    }
    socket.bind(link.index, Some(ETH_P_ALL)).map_err(step("listen on the interface", ""))?;

    let (nic_time, timestamp_warning) = match hardware_stamps.then(|| NicTime::open(&link.name)) {
        Some((nic_time, warning)) => (Some(nic_time), warning),
        None => (None, None),
    };
    let timestamp_source = if hardware_stamps { TimestampSource::Hardware } else { TimestampSource::Kernel };
    let memory = u64::from(config.block_bytes) * u64::from(config.blocks);
    let share = match config.threads {
        1 => String::new(),
        n => format!(" {}/{n}", thread + 1),
    };
    Ok(Tpacket {
        info: SourceInfo {
            name: config.interface.clone(),
            queue: thread,
            description: format!(
                "TPACKET_V3 {}{share}: shared with the host, {} ring of {} blocks, {} ms, {} timestamps{}",
                config.interface,
                show_bytes(memory),
                config.blocks,
                config.retire.as_millis(),
                timestamp_source.name(),
                if config.promiscuous { ", promiscuous" } else { "" }
            ),
            link_type: LINKTYPE_ETHERNET,
            timestamp_source,
            timestamp_fallback: None,
            timestamp_warning,
            link_mbps: ethtool::speed(&config.interface).map(|speed| speed.megabits),
            counted_from: "frames that reached the packet socket",
        },
        socket,
        ring,
        position: BlockPosition::default(),
        phase: Phase::Capturing,
        account: SocketCounts::default(),
        port: Port::new(netlink, link, thread == 0 && link.parent_device.is_some()),
        nic_time,
        retire: config.retire,
        down: false,
    })
}
