//! Conversations for flow meters: both directions, TCP with handshake and sequence numbers beside UDP, packets of all
//! conversations interleaved at random, so that every packet finds its flow somewhere else in memory.
//!
//! Seven in ten conversations are TCP. Lengths have two peaks, as in backbones: empty acknowledgements and full segments.

use crate::output::Stop;
use base::{Prng, Timestamp};
use std::io::Write;
use std::net::Ipv4Addr;
use wire::{build::Frame, link, tcp_flags as flag};

/// Bytes captured of each packet: link, network and transport header with options, and a little more.
pub const SNAPLEN: usize = 96;

/// What to make.
#[derive(Clone, Copy, Debug)]
pub struct ConversationModel {
    /// Packets in all.
    pub packets: u64,
    /// Conversations that are alive together.
    pub conversations: u32,
    /// Nanoseconds from packet to packet.
    pub step: u64,
    /// Chooses everything.
    pub seed: u64,
}

/// Headers and answers that one end of a conversation has sent so far.
#[derive(Clone, Copy, Default)]
struct State {
    packets: u32,
    /// Next sequence number of either end.
    next: [u32; 2],
}

impl ConversationModel {
    /// Writes them as nanosecond pcap of [`SNAPLEN`] bytes each.
    pub fn write(&self, out: impl Write) -> Result<(), Stop> {
        self.write_cut(out, SNAPLEN)
    }

    /// Writes them as nanosecond pcap of so many bytes each, at most.
    pub fn write_cut(&self, out: impl Write, snaplen: usize) -> Result<(), Stop> {
        let mut writer =
            pcap::classic::Writer::new(out, pcap::classic::Resolution::Nanos, link::ETHERNET).map_err(Stop::say)?;
        let mut prng = Prng::new(self.seed);
        let mut states = vec![State::default(); self.conversations as usize];
        let payload = [0x5a; 1500];
        let mut bytes = [0; 1600];
        let mut ts = Timestamp::from_secs_nanos(1_700_000_000, 0);
        for i in 0..self.packets {
            // Once in turn, so that all are there; then at random.
            let n =
                if i < u64::from(self.conversations) { i as u32 } else { prng.below(self.conversations.into()) as u32 };
            let state = &mut states[n as usize];
            let length = match prng.below(10) {
                0..4 => 0,
                4..7 => 1400,
                _ => prng.below(1400) as usize,
            };
            let (reverse, frame) = frame(n, state, &payload[..length], &mut prng);
            let whole = frame.header_len() + length;
            frame.fill(&mut bytes[..whole]);
            let sent = length as u32 + if n % 10 < 7 && state.packets < 2 { 1 } else { 0 };
            state.next[usize::from(reverse)] = state.next[usize::from(reverse)].wrapping_add(sent);
            state.packets += 1;
            writer.write(ts, whole as u32, &bytes[..whole.min(snaplen)]).map_err(Stop::say)?;
            ts = Timestamp::from_nanos(ts.nanos() + self.step);
        }
        writer.finish().and_then(|mut out| out.flush()).map_err(Stop::say)
    }
}

/// The next packet of a conversation, and whether the answering end sends it.
fn frame<'a>(n: u32, state: &State, payload: &'a [u8], prng: &mut Prng) -> (bool, Frame<'a>) {
    let (client, server) = (Ipv4Addr::from(0x0a00_0000 + n), Ipv4Addr::from(0xac10_0000 + n % 5000));
    let (from, to) = (1024 + (n % 60_000) as u16, [443, 80, 53, 8080][n as usize % 4]);
    let reverse = match state.packets {
        0 => false,
        1 => true,
        _ => prng.below(2) == 1,
    };
    let ends = if reverse { (server, to, client, from) } else { (client, from, server, to) };
    if n % 10 >= 7 {
        return (reverse, Frame::udp4(ends.0, ends.1, ends.2, ends.3).payload(payload));
    }
    let (own, other) = (usize::from(reverse), usize::from(!reverse));
    let frame = Frame::tcp4(ends.0, ends.1, ends.2, ends.3);
    (
        reverse,
        match state.packets {
            0 => frame.tcp(flag::SYN, 0, 0),
            1 => frame.tcp(flag::SYN | flag::ACK, 0, 1),
            _ => frame.tcp(flag::ACK, state.next[own], state.next[other]),
        }
        .payload(payload),
    )
}
