//! The general case of [`Decoded::of`]. The decoder proceeds from the link layer inwards, one IP layer after the other.

use super::{DecodeError, Decoded, FragmentKey, MAX_TUNNELS, Tunnel, TunnelKind};
use crate::bytes::{be16, chunk};
use crate::{EtherType, Family, Fragment, IpProtocol, udp};

/// The state of the decoder. Each step returns the offset of the next header, or `None` if there is none.
pub(super) struct Decoder<'a> {
    pub frame: &'a [u8],
    /// The offset at which the current layer ends on the wire. The current layer is first the frame, then the IP
    /// packet, then the tunnel payload.
    pub end: usize,
    /// Offset of the IP payload, captured or not; 0 if it is unknown or the header contradicts itself.
    pub above: usize,
    /// True if the next VLAN tag is the outermost of its Ethernet header.
    pub first_tag: bool,
    /// The fragmentation state of the outermost IP packet that is a fragment. `None` if the caller does not need it;
    /// then the content of a fragmented tunnel packet is not decoded.
    fragment: Option<FragmentKey>,
    /// The tunnels with sequence numbers that were found so far, also those whose content is not decoded, and the
    /// number of these tunnels.
    pub numbered: [Option<Tunnel>; MAX_TUNNELS as usize],
    pub count: usize,
    pub out: Decoded,
}

/// The payload of a tunnel: its protocol and offset.
pub(super) struct TunnelPayload {
    pub at: usize,
    pub what: NextHeader,
    pub tunnel: Tunnel,
    /// True if only a UDP port suggests the tunnel, so the inner header must be validated.
    pub guessed: bool,
}

/// The protocol of the header at an offset.
#[derive(Clone, Copy)]
pub(super) enum NextHeader {
    Ethernet,
    Typed(EtherType),
    Ppp,
    /// IP; the version is in the first four bits.
    Ip,
}

/// Decodes a frame and overwrites `out`. The result is written in place: a return by value would move the result of the
/// common case, which writes to the same memory, through registers.
#[inline(never)]
pub(super) fn decode(frame: &[u8], wire: usize, link_type: u16, out: &mut Decoded) {
    *out = Decoder::new(frame, wire).decode(link_type);
}

impl<'a> Decoder<'a> {
    pub fn new(frame: &'a [u8], wire: usize) -> Self {
        let numbered = [None; MAX_TUNNELS as usize];
        Self {
            frame,
            end: wire,
            above: 0,
            first_tag: true,
            fragment: None,
            numbered,
            count: 0,
            out: Decoded::default(),
        }
    }

    /// As [`Self::decode`], but also decodes the content of first fragments of tunnel packets.
    pub fn with_fragments(frame: &'a [u8], wire: usize, link_type: u16) -> (Decoded, FragmentKey) {
        let mut decoder = Self { fragment: Some(FragmentKey::default()), ..Self::new(frame, wire) };
        decoder.run(link_type);
        decoder.record_fragment();
        (decoder.out, decoder.fragment.unwrap_or_default())
    }

    pub fn decode(mut self, link_type: u16) -> Decoded {
        self.run(link_type);
        self.out
    }

    /// Stores the fragmentation state of this packet, unless an outer packet is a fragment.
    fn record_fragment(&mut self) {
        if let Some(fragment @ FragmentKey { fragment: Fragment::Whole, .. }) = &mut self.fragment {
            *fragment = FragmentKey { fragment: self.out.fragment, l3: self.out.l3 };
        }
    }

    /// Treats the missing rest of a fragmented datagram like bytes that the capture truncated.
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
                // If only a UDP port suggests the tunnel, its sequence number is not recorded.
                self.count = if guessed { count } else { self.count };
                break;
            }
        }
        self.out.is_common_case = self.out.is_common_case();
    }

    /// Decodes the tunnel header above IP, if there is one.
    fn tunnel(&mut self) -> Option<TunnelPayload> {
        let is_tunnel = match self.out.protocol {
            IpProtocol::IPV4 | IpProtocol::IPV6 | IpProtocol::GRE => true,
            IpProtocol::UDP => {
                super::tunnel_ports::may_be_tunnel(self.out.src_port.0.into(), self.out.dst_port.0.into())
            }
            _ => false,
        };
        if !is_tunnel {
            return None;
        }
        let into_parts = self.fragment.is_some() && self.out.fragment == Fragment::First;
        if self.out.fragment != Fragment::Whole && !into_parts {
            self.record_number_of_first_fragment();
            return self.decode_error(DecodeError::TunnelFragment);
        }
        if self.above == 0 {
            return None;
        }
        if into_parts {
            self.record_fragment();
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

    /// Records the sequence number in the first fragment of a tunnel packet, although the content of the packet is not
    /// decoded. Without this, the sequence number of each tunnel packet that exceeds the MTU would count as missing.
    fn record_number_of_first_fragment(&mut self) {
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

    /// Describes the tunnel that the current IP packet carries.
    pub fn carrier(&mut self, kind: TunnelKind, id: u32, sequence: Option<u32>) -> Tunnel {
        let tunnel = Tunnel { kind, id, sequence, outer_l3: self.out.l3 };
        if sequence.is_some()
            && let Some(slot) = self.numbered.get_mut(self.count)
        {
            *slot = Some(tunnel);
            self.count += 1;
        }
        tunnel
    }

    /// Enters a tunnel. Returns false, with a decode error, if the tunnel does not carry an IP packet.
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
        let error = self.out.error;
        let doubtful = inside.guessed
            && matches!(error, Some(DecodeError::IpVersion | DecodeError::IpHeader | DecodeError::IpLength));
        if self.out.family != Family::Other && !doubtful {
            if let Some(error) = outer.error {
                self.out.error = None;
                self.decode_error::<()>(error);
            }
            if let Some(error) = error {
                self.decode_error::<()>(error);
            }
            return true;
        }
        self.out = outer;
        self.decode_error::<()>(match error {
            None => DecodeError::TunnelNotIp,
            Some(error) if inside.guessed && error.is_malformed() => DecodeError::TunnelImplausible,
            Some(error) => error,
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

    /// `N` bytes of a header at `at`. If they are missing, the decode error is `short` when the packet ends there, and
    /// truncation when only the capture ends there.
    pub fn need<const N: usize>(&mut self, at: usize, short: DecodeError) -> Option<&'a [u8; N]> {
        if at + N > self.end {
            return self.decode_error(short);
        }
        match chunk(self.frame, at) {
            None => self.decode_error(DecodeError::Cut),
            found => found,
        }
    }

    /// Stores a decode error unless an equally severe error was stored before.
    #[inline(never)]
    pub fn decode_error<T>(&mut self, error: DecodeError) -> Option<T> {
        if self.out.error.is_none_or(|known| error.is_malformed() && !known.is_malformed()) {
            self.out.error = Some(error);
        }
        self.out.malformed |= error.is_malformed();
        None
    }

    /// Converts an offset to the type of the fields of [`Decoded`]; 0 if no byte at this offset was captured.
    pub fn offset(&self, at: usize) -> u16 {
        if at < self.frame.len() { u16::try_from(at).unwrap_or(0) } else { 0 }
    }
}
