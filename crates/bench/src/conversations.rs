//! Generates conversations for flow meters: both directions, TCP with handshake and sequence numbers, and UDP. Packets
//! of all conversations alternate at random, so that the flow entry of each packet is at another address in memory.
//!
//! 70 % of the conversations are TCP. Lengths have two peaks, as in backbone traffic: empty acknowledgements and full
//! segments.

use crate::output::Stop;
use base::{Prng, Timestamp};
use std::io::Write;
use std::net::Ipv4Addr;
use wire::{build::Frame, link, tcp_flags as flag};

/// The snaplen: space for the headers of the link, network and transport layer with options, and for a few bytes of
/// payload.
pub const SNAPLEN: usize = 96;

/// Parameters of the generated traffic.
#[derive(Clone, Copy, Debug)]
pub struct ConversationModel {
    /// Number of packets.
    pub packets: u64,
    /// Number of concurrent conversations.
    pub conversations: u32,
    /// Nanoseconds from packet to packet.
    pub step: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Packets and sequence numbers that both endpoints of a conversation have sent so far.
#[derive(Clone, Copy, Default)]
struct State {
    packets: u32,
    /// Next sequence number of each endpoint.
    next: [u32; 2],
}

impl ConversationModel {
    /// Writes the packets as nanosecond pcap with snaplen [`SNAPLEN`].
    pub fn write(&self, out: impl Write) -> Result<(), Stop> {
        self.write_cut(out, SNAPLEN)
    }

    /// Writes the packets as nanosecond pcap with the given snaplen.
    pub fn write_cut(&self, out: impl Write, snaplen: usize) -> Result<(), Stop> {
        let mut writer =
            pcap::classic::Writer::new(out, pcap::classic::Resolution::Nanos, link::ETHERNET).map_err(Stop::error)?;
        let mut prng = Prng::new(self.seed);
        let mut states = vec![State::default(); self.conversations as usize];
        let payload = [0x5a; 1500];
        let mut bytes = [0; 1600];
        let mut ts = Timestamp::from_secs_nanos(1_700_000_000, 0);
        for i in 0..self.packets {
            // First one packet of each conversation, so that all conversations exist; then packets of random
            // conversations.
            let n =
                if i < u64::from(self.conversations) { i as u32 } else { prng.below(self.conversations.into()) as u32 };
            let state = &mut states[n as usize];
            let length = match prng.below(10) {
                0..4 => 0,
                4..7 => 1400,
                _ => prng.below(1400) as usize,
            };
            let (reverse, frame) = frame(n, state, &payload[..length], &mut prng);
            let wire_len = frame.header_len() + length;
            frame.fill(&mut bytes[..wire_len]);
            let sent = length as u32 + if n % 10 < 7 && state.packets < 2 { 1 } else { 0 };
            state.next[usize::from(reverse)] = state.next[usize::from(reverse)].wrapping_add(sent);
            state.packets += 1;
            writer.write(ts, wire_len as u32, &bytes[..wire_len.min(snaplen)]).map_err(Stop::error)?;
            ts = Timestamp::from_nanos(ts.nanos() + self.step);
        }
        writer.finish().and_then(|mut out| out.flush()).map_err(Stop::error)
    }
}

/// The next packet of a conversation, and true if the responder sends the packet.
fn frame<'a>(n: u32, state: &State, payload: &'a [u8], prng: &mut Prng) -> (bool, Frame<'a>) {
    let (client, server) = (Ipv4Addr::from(0x0a00_0000 + n), Ipv4Addr::from(0xac10_0000 + n % 5000));
    let (from, to) = (1024 + (n % 60_000) as u16, [443, 80, 53, 8080][n as usize % 4]);
    let reverse = match state.packets {
        0 => false,
        1 => true,
        _ => prng.below(2) == 1,
    };
    let addresses_and_ports = if reverse { (server, to, client, from) } else { (client, from, server, to) };
    if n % 10 >= 7 {
        return (
            reverse,
            Frame::udp4(addresses_and_ports.0, addresses_and_ports.1, addresses_and_ports.2, addresses_and_ports.3)
                .payload(payload),
        );
    }
    let (own, other) = (usize::from(reverse), usize::from(!reverse));
    let frame = Frame::tcp4(addresses_and_ports.0, addresses_and_ports.1, addresses_and_ports.2, addresses_and_ports.3);
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
