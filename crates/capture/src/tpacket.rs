//! TPACKET_V3: copies of the frames of an interface that the host also uses (packet(7), `net/packet/af_packet.c`).
//!
//! The kernel writes a copy of every frame into a ring of blocks in shared memory. It hands over a block when the block
//! is full, or [`TpacketConfig::retire`] after its first frame. Several threads form a *fanout group*: each has its own
//! ring, and a symmetric hash keeps both directions of a flow in one ring.
//!
//! Every frame that passes the socket's filter is counted once. The kernel's count of these frames (`seen`) is
//! independent of the counters of this source; after a stop it equals the delivered frames plus the losses of this
//! source. The count begins and ends with that filter: sockets are bound, grouped and prepared while it refuses every
//! frame, so that no frame is received twice during set-up, and a stop is a single atomic step. The sources of a group
//! must be stopped together: frames that the group assigns to a stopped source have no reader.
//!
//! The kernel makes the timestamp of a frame when it passes the frame to its protocols. If the NIC is set to timestamp
//! every received frame, its timestamps are used instead, converted to system time ([`crate::NicTime`]). The status of
//! each frame says which of the two made its timestamp. This source does not set the NIC to timestamp frames
//! (`SIOCSHWTSTAMP`): the setting belongs to the whole interface, a PTP daemon on the host depends on it, and some
//! drivers restart the NIC when it changes.
//!
//! Defragmentation in the fanout group (`PACKET_FANOUT_FLAG_DEFRAG`) is not supported: the kernel delivers the
//! reassembled datagram instead of its fragments, and a recorder must store the frames of the wire. Therefore a
//! fragment without ports can reach another thread than the other packets of its flow. The order of the packets can be
//! restored by their timestamps.

mod drain;
mod open;

pub use open::{TpacketConfig, TpacketTimestamps, open};
pub use sys::packet::Fanout;

use crate::nic_time::NicTime;
use crate::{Counts, Frame, FrameSink, Polled, Source, SourceError, SourceInfo, VlanTag};
use base::{Timestamp, TimestampMethod};
use drain::{Drain, SocketCounts};
use std::io;
use std::time::{Duration, Instant};
use sys::netlink::{Link, Netlink};
use sys::packet::PacketSocket;
use sys::packet::ring::{Record, Ring, status};

/// One socket and its ring.
pub struct Tpacket {
    info: SourceInfo,
    socket: PacketSocket,
    ring: Ring,
    /// The position in the ring of the next frame to deliver.
    position: BlockPosition,
    phase: Phase,
    account: SocketCounts,
    port: Port,
    /// The clock of the NIC, if the socket requests its timestamps.
    nic_time: Option<NicTime>,
    retire: Duration,
    /// True if the interface was down at the last check. If an interface is removed while it is down, the socket gets
    /// no event. So `wait_for_frames` must then check regularly whether the interface still exists.
    down: bool,
}

/// The block being read. The kernel fills blocks in turn, so the next block is always known.
#[derive(Clone, Copy, Debug, Default)]
struct BlockPosition {
    block: u32,
    /// Number of packets in the block that were not read yet; `None` before the first packet is read.
    left: Option<u32>,
    offset: u32,
}

enum Phase {
    Capturing,
    /// The filter refuses every frame. Frames that passed the filter before that are still delivered.
    Draining(Drain),
    /// The source was stopped and drained. No frame will follow.
    Drained,
    /// The interface disappeared and its frames were delivered. No frame will follow.
    Gone,
    /// The kernel refused the stop; the next poll returns the error once.
    Broken(io::Error),
}

/// Sends queries about an interface to the kernel. The interface is identified by its index, because names change.
struct Port {
    netlink: Netlink,
    link: u32,
    /// Length in bytes of the longest frame on the wire, without the VLAN tag that the kernel removes.
    longest: u32,
    /// Number of frames that the NIC had missed when the source was opened; no socket receives such frames. The value
    /// is `Some` in only one source of a fanout group, so that losses are counted once. It is 0 for an interface
    /// without a NIC.
    missed_before: Option<u64>,
}

impl Port {
    /// Length in bytes of the Ethernet header and of the inner of two VLAN tags.
    const LINK_OVERHEAD: u32 = 14 + 4;

    fn new(netlink: Netlink, link: &Link, counts_missed: bool) -> Self {
        Self {
            netlink,
            link: link.index,
            longest: link.mtu + Self::LINK_OVERHEAD,
            missed_before: counts_missed.then(|| missed(link)),
        }
    }

    /// Frames that the NIC missed since the start; `None` if another source counts them or the interface has
    /// disappeared.
    fn missed(&mut self) -> Option<u64> {
        let before = self.missed_before?;
        let link = self.netlink.link_by_index(self.link).ok()?;
        Some(missed(&link).saturating_sub(before))
    }

    /// Reads the MTU of the interface again, because it may have been raised.
    fn refresh_mtu(&mut self) {
        if let Ok(link) = self.netlink.link_by_index(self.link) {
            self.longest = link.mtu + Self::LINK_OVERHEAD;
        }
    }
}

fn missed(link: &Link) -> u64 {
    link.stats.rx_missed + link.stats.rx_fifo
}

impl Source for Tpacket {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn poll_into<S: FrameSink>(&mut self, budget: usize, wait: Duration, sink: &mut S) -> Result<Polled, SourceError> {
        match &self.phase {
            Phase::Drained => return Ok(Polled::End),
            Phase::Gone => return Err(SourceError::Gone { name: self.info.name.clone() }),
            Phase::Broken(_) => {
                if let Phase::Broken(error) = std::mem::replace(&mut self.phase, Phase::Drained) {
                    return Err(self.system("stop the capture", error, ""));
                }
            }
            Phase::Capturing | Phase::Draining(_) => (),
        }
        let mut taken = self.read_block(budget, sink);
        if taken == 0 {
            self.wait_for_frames(wait)?;
            taken = self.read_block(budget, sink);
        }
        if taken > 0 {
            self.down = false;
            return Ok(Polled::Frames(taken));
        }
        self.finish_counts()
    }

    fn counts(&mut self) -> Result<Counts, SourceError> {
        self.account.absorb(&self.socket).map_err(|e| self.system("read the socket's counters", e, ""))?;
        // An interface that has disappeared has no counters, so the last value is not changed.
        self.account.nic = self.port.missed().unwrap_or(self.account.nic);
        if let Some(nic_time) = &mut self.nic_time {
            nic_time.renew();
        }
        let nic_clock = self.nic_time.as_ref().and_then(NicTime::state);
        Ok(Counts { nic_clock, ..self.account.counts() })
    }

    fn stop(&mut self) {
        match self.phase {
            Phase::Capturing => {
                self.phase = match self.socket.refuse_all() {
                    Ok(()) => Phase::Draining(Drain::begin(Instant::now(), self.retire, false)),
                    Err(error) => Phase::Broken(error),
                };
            }
            Phase::Draining(ref mut drain) => drain.gone = false,
            Phase::Gone => self.phase = Phase::Drained,
            Phase::Drained | Phase::Broken(_) => (),
        }
    }
}

impl Tpacket {
    /// Delivers up to `budget` frames of the ring to the sink, and returns every finished block to the kernel
    /// immediately.
    fn read_block(&mut self, budget: usize, sink: &mut impl FrameSink) -> usize {
        let mut taken = 0;
        let mut measured = false;
        while taken < budget {
            let Some(block) = self.ring.block(self.position.block) else { break };
            let mut left = self.position.left.unwrap_or_else(|| {
                self.position.offset = block.first();
                block.count()
            });
            while left > 0 && taken < budget {
                let Some(record) = block.record(self.position.offset) else {
                    // A malformed block was never observed; the rest of such a block counts as lost.
                    self.account.broken += u64::from(left);
                    left = 0;
                    break;
                };
                if record.length > self.port.longest && !measured {
                    // The MTU is read at most once per call, because merged frames are frequent and a change of the MTU
                    // is rare.
                    self.port.refresh_mtu();
                    measured = true;
                }
                let mut frame = frame(&record, self.port.longest);
                if let (Some(nic_time), Some(TimestampMethod::Hardware)) = (&mut self.nic_time, frame.stamp_method) {
                    frame.stamp = frame.stamp.map(|stamp| nic_time.convert(stamp.nanos()));
                }
                sink.take(&frame);
                self.position.offset += record.next;
                left -= 1;
                taken += 1;
            }
            self.position.left = Some(left);
            if left == 0 {
                self.ring.release(self.position.block);
                self.position =
                    BlockPosition { block: (self.position.block + 1) % self.ring.blocks(), left: None, offset: 0 };
            }
        }
        self.account.delivered += taken as u64;
        taken
    }

    /// Waits for the socket and interprets its error, if there is one.
    fn wait_for_frames(&mut self, wait: Duration) -> Result<(), SourceError> {
        // While draining, the wait is limited, because a drain can end after some time without an event of the socket.
        let wait = if matches!(self.phase, Phase::Draining(_)) { wait.min(self.retire) } else { wait };
        let ready = self.socket.wait_readable(wait).map_err(|e| self.system("wait for frames", e, ""))?;
        if ready.error {
            let error = self.socket.take_error().map_err(|e| self.system("read the socket's error", e, ""))?;
            match error {
                Some(e) if e.raw_os_error() != Some(sys::packet::PORT_DOWN) => {
                    return Err(self.system("capture", e, ""));
                }
                Some(_) => self.down = true,
                None => (),
            }
        }
        if self.down && matches!(self.phase, Phase::Capturing) {
            let link = self.socket.bound_link().map_err(|e| self.system("query the interface", e, ""))?;
            if link.is_none() {
                self.phase = Phase::Draining(Drain::begin(Instant::now(), self.retire, true));
            }
        }
        Ok(())
    }

    /// Called when the ring is empty. Returns `Idle` if further frames may arrive, `End` after a complete drain, or an
    /// error if the interface disappeared.
    fn finish_counts(&mut self) -> Result<Polled, SourceError> {
        let Phase::Draining(drain) = &self.phase else { return Ok(Polled::Idle) };
        let (drain, now) = (*drain, Instant::now());
        if !drain.may_be_over(now) {
            return Ok(Polled::Idle);
        }
        self.account.absorb(&self.socket).map_err(|e| self.system("read the socket's counters", e, ""))?;
        if self.account.owed() > 0 && !drain.must_be_over(now) {
            return Ok(Polled::Idle);
        }
        self.account.give_up();
        if drain.gone {
            self.phase = Phase::Gone;
            return Err(SourceError::Gone { name: self.info.name.clone() });
        }
        self.phase = Phase::Drained;
        Ok(Polled::End)
    }

    fn system(&self, what: &'static str, error: io::Error, advice: &str) -> SourceError {
        SourceError::System { name: self.info.name.clone(), what, error, advice: advice.to_owned() }
    }
}

/// Converts a packet record of the TPACKET ring to a [`Frame`].
#[inline]
fn frame<'a>(record: &Record<'a>, longest: u32) -> Frame<'a> {
    // Kernels that do not report the tag protocol identifier remove only 802.1Q tags.
    let tpid = if record.status & status::VLAN_TPID != 0 { record.vlan_tpid } else { 0x8100 };
    let tagged = record.status & status::VLAN != 0;
    Frame {
        wire_len: record.length,
        vlan: if tagged { Some(VlanTag { tpid, tci: record.vlan_tci }) } else { None },
        stamp: Some(Timestamp::from_secs_nanos(u64::from(record.seconds), u64::from(record.nanos))),
        // A socket that requests timestamps of the NIC gets those of the kernel for frames that the NIC has not
        // timestamped, such as frames that the host sends (`tpacket_get_timestamp` in net/packet/af_packet.c).
        stamp_method: Some(match record.status & status::HARDWARE_STAMP {
            0 => TimestampMethod::Kernel,
            _ => TimestampMethod::Hardware,
        }),
        outgoing: record.is_outgoing(),
        // The kernel marks merged TCP frames; any other frame longer than the MTU allows was merged too. Merged UDP
        // frames that fit the MTU cannot be recognized.
        super_frame: record.status & status::GSO_TCP != 0 || record.length > longest,
        ..Frame::new(record.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_record_says_whether_the_nic_or_the_kernel_made_its_timestamp() {
        let record = Record {
            bytes: &[0; 60],
            length: 60,
            seconds: 5,
            nanos: 7,
            status: status::HARDWARE_STAMP,
            vlan_tpid: 0,
            vlan_tci: 0,
            packet_type: 0,
            next: 0,
        };
        // `TP_STATUS_TS_SOFTWARE` is set if the kernel made the timestamp before the packet socket got the frame.
        const SOFTWARE_STAMP: u32 = 1 << 29;
        for (status, method) in [
            (status::HARDWARE_STAMP, TimestampMethod::Hardware),
            (status::HARDWARE_STAMP | status::VLAN, TimestampMethod::Hardware),
            (SOFTWARE_STAMP, TimestampMethod::Kernel),
            (0, TimestampMethod::Kernel),
        ] {
            let frame = frame(&Record { status, ..record }, 1514);
            assert_eq!(frame.stamp_method, Some(method), "{status:#x}");
            assert_eq!(frame.stamp, Some(Timestamp::from_nanos(5_000_000_007)));
        }
    }
}
