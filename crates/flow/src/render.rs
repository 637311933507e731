//! From what a flow is in memory to the record that others read.

use crate::entry::{Entry, Hot, NO_LABEL, Rare, bit};
use crate::key::{self, NO_VLAN};
use crate::meter::Meter;
use crate::pool::NONE;
use crate::record::{Around, Early, EndReason, Key, Locator, Record, Side, TcpState};
use crate::slim::{self, LOG};
use base::Timestamp;
use base::hash::combine;
use std::net::{IpAddr, Ipv4Addr};
use wire::{IpProtocol, MacAddr, TunnelKind};

/// A record to be written over.
pub(crate) fn blank() -> Record {
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Record {
        id: 0,
        key: Key { src: nobody, dst: nobody, src_port: 0, dst_port: 0, protocol: IpProtocol(0) },
        around: Around::default(),
        interface: 0,
        began: Timestamp::ZERO,
        part: 0,
        sides: [Side::default(); 2],
        end: EndReason::Idle,
        tcp: TcpState::None,
        syn_rtt: None,
        ack_rtt: None,
        early: Vec::new(),
        payload: [Vec::new(), Vec::new()],
        locator: None,
        lost: 0,
    }
}

impl Meter {
    /// Writes the record of a flow over another one.
    pub(crate) fn render(&self, flow: u32, id: u64, reason: EndReason, out: &mut Record) {
        let (Entry { hot, body }, rare) = (&self.flows[flow], self.rares[flow as usize]);
        let full = hot.has(bit::FULL).then(|| &self.fulls[hot.more]);
        let macs = [0, 1].map(|side| hot.has(bit::MAC[side]).then_some(MacAddr(rare.macs[side])));
        if let Some(full) = full {
            out.sides = [full.sides[0].render(macs[0]), full.sides[1].render(macs[1])];
        } else {
            let unfolded;
            let pair = if hot.has(bit::PAIR) {
                &self.pairs[hot.more]
            } else {
                unfolded = self.unfold(flow);
                &unfolded
            };
            for (n, out) in out.sides.iter_mut().enumerate() {
                *out = pair.sides[n].render(&body.sums[n], pair.first(n, body.start), macs[n]);
            }
        }
        out.id = id;
        out.key = key_of(hot, &rare);
        out.around = around_of(hot, &rare);
        out.interface = self.interface;
        out.began = Timestamp::from_nanos(body.start);
        out.part = full.map_or(0, |f| f.part);
        out.end = reason;
        out.tcp = hot.state;
        let [syn, ack] = rare.shake;
        out.syn_rtt = hot.has(bit::SYN_RTT).then_some(syn);
        out.ack_rtt = hot.has(bit::ACK_RTT).then_some(ack);
        self.early(flow, &mut out.early);
        for (side, bytes) in out.payload.iter_mut().enumerate() {
            bytes.clear();
            if let Some(payloads) = self.payloads.as_ref().filter(|_| out.part == 0) {
                bytes.extend_from_slice(payloads.of(flow, side));
            }
        }
        let [first, last] = body.positions;
        out.locator = hot.has(bit::LOCATED).then_some(Locator { queue: hot.queue, first, last });
        out.lost = self.losses.between(out.first().secs(), out.last().secs());
    }

    /// The same for all records of a flow, whatever meter made them.
    pub(crate) fn id(&self, flow: u32) -> u64 {
        let (hot, rare) = (&self.flows[flow].hot, self.rares[flow as usize]);
        let start = self.flows[flow].body.start;
        let ([a, b, c, d], [src, dst]) = hot.oriented();
        let ports = u64::from(src) << 48 | u64::from(dst) << 32 | u64::from(rare.icmp);
        let kinds = u64::from(hot.protocol) << 56 | u64::from(hot.tunnel) << 48 | u64::from(self.interface) << 32;
        [a, b, c, d, ports, kinds | u64::from(rare.mpls), hot.around, start].into_iter().fold(0, combine)
    }

    fn early(&self, flow: u32, out: &mut Vec<Early>) {
        out.clear();
        let hot = &self.flows[flow].hot;
        let (chunk, more) = match hot.bits & (bit::FULL | bit::PAIR) {
            0 => (hot.more, &[][..]),
            bit::PAIR => (self.pairs[hot.more].chunk(), &[][..]),
            _ if self.fulls[hot.more].part == 0 => (self.fulls[hot.more].chunk, &self.fulls[hot.more].more[..]),
            _ => return,
        };
        let (length, flags) = (self.rares[flow as usize].first_length, self.flows[flow].body.sums[0].first_flags);
        out.push(Early { after: 0, length, flags, reverse: false });
        if chunk != NONE {
            let words = &self.chunks[chunk].log[..usize::from(hot.packets).min(LOG) - 1];
            out.extend(words.iter().chain(more).map(|w| slim::unpack(*w)));
        }
        out.truncate(self.config.early);
    }
}

fn key_of(hot: &Hot, rare: &Rare) -> Key {
    let (ends, [src_port, dst_port]) = hot.oriented();
    let [src, dst] = key::addresses(&ends, hot.has(bit::V6));
    let protocol = IpProtocol(hot.protocol);
    let dst_port = if key::is_icmp(protocol) { rare.icmp } else { dst_port };
    Key { src, dst, src_port, dst_port, protocol }
}

fn around_of(hot: &Hot, rare: &Rare) -> Around {
    let tag = |shift: u32| Some((hot.around >> shift) as u16).filter(|id| *id != NO_VLAN);
    let tunnel: Option<TunnelKind> = key::tunnel_kind(hot.tunnel);
    Around {
        vlans: [tag(48), tag(32)],
        mpls: Some(rare.mpls).filter(|label| *label != NO_LABEL),
        tunnel: tunnel.map(|kind| (kind, hot.around as u32)),
    }
}
