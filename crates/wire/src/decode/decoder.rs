//! The general case of [`Decoded::of`]: from the link inwards, one layer of IP after the other.

use super::{DecodeError, Decoded, FragmentKey, MAX_TUNNELS, Tunnel, TunnelKind};
use crate::bytes::{be16, chunk};
use crate::{EtherType, Family, Fragment, IpProtocol, udp};

/// Where the walk is. Each step says either where the next header begins, or that there is none.
pub(super) struct Decoder<'a> {
    pub frame: &'a [u8],
    /// Where what is looked at ends on the wire: the frame, then the IP packet, then what a tunnel carries.
    pub end: usize,
    /// Where what IP carries begins, captured or not; 0 where that cannot be told, or its header contradicts itself.
    pub above: usize,
    /// Whether the next VLAN tag is the outermost of its Ethernet header.
    pub first_tag: bool,
    /// The outermost part of a datagram; `None` where that does not matter, and parts are not looked into.
    part: Option<FragmentKey>,
    /// The tunnels so far that number their packets, entered or not, and how many they are.
    pub numbered: [Option<Tunnel>; MAX_TUNNELS as usize],
    pub count: usize,
    pub out: Decoded,
}

/// What a tunnel carries, and where.
pub(super) struct TunnelPayload {
    pub at: usize,
    pub what: NextHeader,
    pub tunnel: Tunnel,
    /// Only a port says so: it must prove to be right.
    pub guessed: bool,
}

/// What begins at an offset.
#[derive(Clone, Copy)]
pub(super) enum NextHeader {
    Ethernet,
    Typed(EtherType),
    Ppp,
    /// IP of the version that its first half-byte says.
    Ip,
}

/// Writes what a frame is over whatever was there. In place, so that the common case, which is written there too, need
/// not be put together from registers with this one.
#[inline(never)]
pub(super) fn decode(frame: &[u8], wire: usize, link_type: u16, out: &mut Decoded) {
    *out = Decoder::new(frame, wire).decode(link_type);
}

impl<'a> Decoder<'a> {
    pub fn new(frame: &'a [u8], wire: usize) -> Self {
        let numbered = [None; MAX_TUNNELS as usize];
        Self { frame, end: wire, above: 0, first_tag: true, part: None, numbered, count: 0, out: Decoded::default() }
    }

    /// The same, into first fragments as well.
    pub fn through_parts(frame: &'a [u8], wire: usize, link_type: u16) -> (Decoded, FragmentKey) {
        let mut walk = Self { part: Some(FragmentKey::default()), ..Self::new(frame, wire) };
        walk.run(link_type);
        walk.note_part();
        (walk.out, walk.part.unwrap_or_default())
    }

    pub fn decode(mut self, link_type: u16) -> Decoded {
        self.run(link_type);
        self.out
    }

    /// Keeps what the packet is a part of, if it is one and none around it was.
    fn note_part(&mut self) {
        if let Some(part @ FragmentKey { fragment: Fragment::Whole, .. }) = &mut self.part {
            *part = FragmentKey { fragment: self.out.fragment, l3: self.out.l3 };
        }
    }

    /// The rest of a first fragment's datagram is as if the capture had left it out.
    fn complete(&mut self) {
        self.frame = &self.frame[..self.end.min(self.frame.len())];
        let claimed = match self.out.protocol {
            IpProtocol::UDP => chunk::<2>(self.frame, self.above + udp::at::LEN).map(|len| usize::from(be16(len, 0))),
            _ => None,
        };
        self.end = self.above + claimed.unwrap_or(usize::from(u16::MAX));
    }

    pub fn run(&mut self, link_type: u16) {
        self.link(link_type);
        while self.out.family != Family::Other {
            let count = self.count;
            let Some(inside) = self.tunnel() else { break };
            let guessed = inside.guessed;
            if !self.enter(inside) {
                // What only a port has said is not a number.
                self.count = if guessed { count } else { self.count };
                break;
            }
        }
        self.out.is_common_case = self.out.is_common_case();
    }

    /// What the IP packet carries, if it is a tunnel.
    fn tunnel(&mut self) -> Option<TunnelPayload> {
        let is_tunnel = match self.out.protocol {
            IpProtocol::IPV4 | IpProtocol::IPV6 | IpProtocol::GRE => true,
            IpProtocol::UDP => super::udp::may_be_tunnel(self.out.src_port.0.into(), self.out.dst_port.0.into()),
            _ => false,
        };
        if !is_tunnel {
            return None;
        }
        let into_parts = self.part.is_some() && self.out.fragment == Fragment::First;
        if self.out.fragment != Fragment::Whole && !into_parts {
            self.number_of_first_part();
            return self.decode_error(DecodeError::TunnelFragment);
        }
        if self.above == 0 {
            return None;
        }
        if into_parts {
            self.note_part();
            self.complete();
        }
        match self.out.protocol {
            IpProtocol::GRE => self.gre(self.above),
            IpProtocol::UDP => self.udp_tunnel(),
            protocol => {
                let version = if protocol == IpProtocol::IPV4 { EtherType::IPV4 } else { EtherType::IPV6 };
                let tunnel = self.carrier(TunnelKind::IpInIp, 0, None);
                Some(TunnelPayload { at: self.above, what: NextHeader::Typed(version), tunnel, guessed: false })
            }
        }
    }

    /// The first part of a fragmented tunnel packet has the number of all of it, though what is inside is not looked at: without it
    /// there would seem to be a gap at each packet that was too long.
    fn number_of_first_part(&mut self) {
        if self.out.fragment != Fragment::First || self.above == 0 {
            return;
        }
        let (out, end, count) = (self.out, self.end, self.count);
        let is_number = match self.out.protocol {
            IpProtocol::GRE => {
                self.gre(self.above);
                true
            }
            IpProtocol::UDP => self.tunnel_id_of_first_fragment(),
            _ => false,
        };
        (self.out, self.end, self.count) = (out, end, if is_number { self.count } else { count });
    }

    /// A tunnel carried by the IP packet that is looked at.
    pub fn carrier(&mut self, kind: TunnelKind, id: u32, sequence: Option<u32>) -> Tunnel {
        let tunnel = Tunnel { kind, id, sequence, outer_l3: self.out.l3 };
        if sequence.is_some()
            && let Some(place) = self.numbered.get_mut(self.count)
        {
            *place = Some(tunnel);
            self.count += 1;
        }
        tunnel
    }

    /// Goes into a tunnel; stays outside and says why if there is no IP packet in it.
    pub fn enter(&mut self, inside: TunnelPayload) -> bool {
        let outer = self.out;
        if outer.depth == MAX_TUNNELS {
            self.decode_error::<()>(DecodeError::TunnelsTooMany);
            return false;
        }
        let (vlans, mpls, depth) = (outer.vlans, outer.mpls, outer.depth + 1);
        self.out = Decoded { vlans, mpls, depth, tunnel: Some(inside.tunnel), ..Decoded::default() };
        self.first_tag = true;
        self.content(inside.what, inside.at);
        let odd = self.out.error;
        let doubtful = inside.guessed
            && matches!(odd, Some(DecodeError::IpVersion | DecodeError::IpHeader | DecodeError::IpLength));
        if self.out.family != Family::Other && !doubtful {
            if let Some(odd) = outer.error {
                self.out.error = None;
                self.decode_error::<()>(odd);
            }
            if let Some(odd) = odd {
                self.decode_error::<()>(odd);
            }
            return true;
        }
        self.out = outer;
        self.decode_error::<()>(match odd {
            None => DecodeError::TunnelNotIp,
            Some(odd) if inside.guessed && odd.is_malformed() => DecodeError::TunnelImplausible,
            Some(odd) => odd,
        });
        false
    }

    fn content(&mut self, what: NextHeader, at: usize) -> Option<()> {
        match what {
            NextHeader::Ethernet => self.ethernet(at),
            NextHeader::Typed(ethertype) => self.below(ethertype, at),
            NextHeader::Ppp => self.ppp(at).and_then(|(ethertype, at)| self.below(ethertype, at)),
            NextHeader::Ip => self.ip_version(at).and_then(|ethertype| self.below(ethertype, at)),
        }
    }

    /// `N` bytes at `at`, where a header must be. If they are not there, that is the fault of the sender (`short`) or of
    /// the capture.
    pub fn need<const N: usize>(&mut self, at: usize, short: DecodeError) -> Option<&'a [u8; N]> {
        if at + N > self.end {
            return self.decode_error(short);
        }
        match chunk(self.frame, at) {
            None => self.decode_error(DecodeError::Cut),
            found => found,
        }
    }

    /// Notes what is odd, if nothing as bad was noted before.
    #[inline(never)]
    pub fn decode_error<T>(&mut self, odd: DecodeError) -> Option<T> {
        if self.out.error.is_none_or(|known| odd.is_malformed() && !known.is_malformed()) {
            self.out.error = Some(odd);
        }
        self.out.malformed |= odd.is_malformed();
        None
    }

    /// An offset as it is reported: 0 where nothing was captured.
    pub fn offset(&self, at: usize) -> u16 {
        if at < self.frame.len() { u16::try_from(at).unwrap_or(0) } else { 0 }
    }
}
