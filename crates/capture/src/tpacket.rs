//! TPACKET_V3: frames of a port that the host goes on using (packet(7), `net/packet/af_packet.c`).
//!
//! The kernel writes a copy of every frame into a ring of blocks that it shares with us, and hands a block over when it is
//! full or [`TpacketConfig::retire`] after its first frame. Several threads form a *fanout group*: each has a ring of its
//! own, and a symmetric hash keeps both directions of a conversation together.
//!
//! What is counted: every frame that the socket's filter lets through, once. The kernel's own count of them (`seen`) is
//! independent of ours, and after a stop it equals what was handed over plus what was lost here. The count begins and ends
//! with that filter: sockets are bound, grouped and warmed while it refuses everything, so that no frame is taken twice
//! during the set-up, and stopping is a single atomic step. The sources of a group are stopped together: what the group
//! deals to a stopped one is taken by nobody.
//!
//! Stamps are the kernel's, taken when it hands the frame to its protocols; or the card's, if the card was told to stamp
//! everything it receives. The card's clock is then expected to follow the system's (`phc2sys`).
//!
//! What is not offered: defragmentation in the fanout group (`PACKET_FANOUT_FLAG_DEFRAG`). It hands over the reassembled
//! datagram *in place of* its fragments, and a recorder must keep what was on the wire. A fragment without ports can
//! therefore reach another thread than the rest of its flow; stamps put them back in order.

mod drain;
mod open;

pub use open::{TpacketConfig, open};
pub use sys::packet::Fanout;

use crate::{Counts, Frame, Polled, Source, SourceError, SourceInfo, VlanTag};
use base::Timestamp;
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
    /// Where the next frame is.
    place: BlockPosition,
    phase: Phase,
    account: SocketCounts,
    port: Port,
    retire: Duration,
    /// The port was down when last asked. While it is, its departure makes no event, so it must be asked for.
    down: bool,
}

/// The block being walked. The kernel fills blocks in turn, so the next one is always known.
#[derive(Clone, Copy, Debug, Default)]
struct BlockPosition {
    block: u32,
    /// Records left in it, once it has been entered.
    left: Option<u32>,
    offset: u32,
}

enum Phase {
    Capturing,
    /// The filter refuses everything; what was let through before is being handed over.
    Draining(Drain),
    /// Nothing will ever come: stopped and drained.
    Over,
    /// Nothing will ever come: the port went away and what it brought was handed over.
    Gone,
    /// The stop itself was refused; said once, by the next poll.
    Broken(io::Error),
}

/// What is asked of the port itself, by number, because names change.
struct Port {
    netlink: Netlink,
    link: u32,
    /// The longest that one frame of the wire can be, in bytes, without the tag that the kernel takes out.
    longest: u32,
    /// What a card had missed when we began, which no socket sees. Only one source of a group has it, or losses would
    /// multiply; ports without a card have nothing to miss.
    missed_before: Option<u64>,
}

impl Port {
    /// Ethernet header, and the inner of two tags.
    const LINK_OVERHEAD: u32 = 14 + 4;

    fn new(netlink: Netlink, link: &Link, counts_missed: bool) -> Self {
        Self {
            netlink,
            link: link.index,
            longest: link.mtu + Self::LINK_OVERHEAD,
            missed_before: counts_missed.then(|| missed(link)),
        }
    }

    /// Frames that the card missed since we began; `None` where nobody counts, or the port has gone.
    fn missed(&mut self) -> Option<u64> {
        let before = self.missed_before?;
        let link = self.netlink.link_by_index(self.link).ok()?;
        Some(missed(&link).saturating_sub(before))
    }

    /// The MTU may have been raised since.
    fn measure_again(&mut self) {
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

    fn poll<F: FnMut(&Frame<'_>)>(
        &mut self,
        budget: usize,
        wait: Duration,
        mut take: F,
    ) -> Result<Polled, SourceError> {
        match &self.phase {
            Phase::Over => return Ok(Polled::End),
            Phase::Gone => return Err(SourceError::Gone { name: self.info.name.clone() }),
            Phase::Broken(_) => {
                if let Phase::Broken(error) = std::mem::replace(&mut self.phase, Phase::Over) {
                    return Err(self.system("stop the capture", error, ""));
                }
            }
            Phase::Capturing | Phase::Draining(_) => (),
        }
        let mut taken = self.read_block(budget, &mut take);
        if taken == 0 {
            self.rest(wait)?;
            taken = self.read_block(budget, &mut take);
        }
        if taken > 0 {
            self.down = false;
            return Ok(Polled::Frames(taken));
        }
        self.finish_counts()
    }

    fn counts(&mut self) -> Result<Counts, SourceError> {
        self.account.absorb(&self.socket).map_err(|e| self.system("read the socket's counters", e, ""))?;
        // A port that has gone tells nothing any more; what it told last stays.
        self.account.nic = self.port.missed().unwrap_or(self.account.nic);
        Ok(self.account.counts())
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
            Phase::Gone => self.phase = Phase::Over,
            Phase::Over | Phase::Broken(_) => (),
        }
    }
}

impl Tpacket {
    /// Hands over what lies in the ring, up to `budget` frames, and gives every finished block back at once.
    fn read_block(&mut self, budget: usize, take: &mut impl FnMut(&Frame<'_>)) -> usize {
        let mut taken = 0;
        let mut measured = false;
        while taken < budget {
            let Some(block) = self.ring.block(self.place.block) else { break };
            let mut left = self.place.left.unwrap_or_else(|| {
                self.place.offset = block.first();
                block.count()
            });
            while left > 0 && taken < budget {
                let Some(record) = block.record(self.place.offset) else {
                    // Never seen; if it happens, the rest of the block is lost and says so.
                    self.account.broken += u64::from(left);
                    left = 0;
                    break;
                };
                if record.length > self.port.longest && !measured {
                    // Once in a call: merged frames come in crowds, a new MTU once in a year.
                    self.port.measure_again();
                    measured = true;
                }
                take(&frame(&record, self.port.longest));
                self.place.offset += record.next;
                left -= 1;
                taken += 1;
            }
            self.place.left = Some(left);
            if left == 0 {
                self.ring.release(self.place.block);
                self.place =
                    BlockPosition { block: (self.place.block + 1) % self.ring.blocks(), left: None, offset: 0 };
            }
        }
        self.account.delivered += taken as u64;
        taken
    }

    /// Waits for the socket, and finds out what an error on it means.
    fn rest(&mut self, wait: Duration) -> Result<(), SourceError> {
        // A drain ends by the clock, of which the socket says nothing.
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
            let link = self.socket.bound_link().map_err(|e| self.system("ask for the interface", e, ""))?;
            if link.is_none() {
                self.phase = Phase::Draining(Drain::begin(Instant::now(), self.retire, true));
            }
        }
        Ok(())
    }

    /// Nothing is in the ring: is that for now, or for good?
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
        self.phase = Phase::Over;
        Ok(Polled::End)
    }

    fn system(&self, what: &'static str, error: io::Error, advice: &str) -> SourceError {
        SourceError::System { name: self.info.name.clone(), what, error, advice: advice.to_owned() }
    }
}

/// A record in the words of the contract.
#[inline]
fn frame<'a>(record: &Record<'a>, longest: u32) -> Frame<'a> {
    // Kernels that do not say which identifier the tag had only ever take out 802.1Q tags.
    let tpid = if record.status & status::VLAN_TPID != 0 { record.vlan_tpid } else { 0x8100 };
    let tagged = record.status & status::VLAN != 0;
    Frame {
        wire_len: record.length,
        vlan: if tagged { Some(VlanTag { tpid, tci: record.vlan_tci }) } else { None },
        stamp: Some(Timestamp::from_secs_nanos(u64::from(record.seconds), u64::from(record.nanos))),
        outgoing: record.is_outgoing(),
        // The kernel marks merged TCP; anything else longer than the wire allows was merged too. Merged UDP that is still
        // short enough for one frame cannot be told apart.
        super_frame: record.status & status::GSO_TCP != 0 || record.length > longest,
        ..Frame::new(record.bytes)
    }
}
