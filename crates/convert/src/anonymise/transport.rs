//! Rewrites transport headers: truncates the payload, and updates the checksums, which cover the addresses of the IP
//! header.

use super::AnonymisationCounts;
use super::options::blank_tcp;
use super::rewrite::{DEPTH, KeptBytes, PseudoHeader, Rewriter, be16, correct};
use wire::{Checksum, IpProtocol, Sctp, Tcp, Udp};

/// Protocol numbers of tunnels, for which the crate `wire` has no constants.
const IPV4_IN_IP: IpProtocol = IpProtocol(4);
const IPV6_IN_IP: IpProtocol = IpProtocol(41);

/// Length of the generic DCCP header (RFC 4340 §5.1).
const DCCP: usize = 12;

/// Length of an IGMP message without the source list or group records of version 3.
const IGMP: usize = 8;

impl Rewriter {
    /// Rewrites the bytes after a network header, up to the end of the packet.
    pub(super) fn transport(
        &mut self,
        protocol: IpProtocol,
        segment: &mut [u8],
        above: PseudoHeader,
        counts: &mut AnonymisationCounts,
    ) -> KeptBytes {
        let keep = self.keep_payload && !above.quoted;
        let up_to = |len: usize, segment: &[u8]| KeptBytes::to(segment.len().min(len));
        match protocol {
            IpProtocol::TCP => {
                let header = self.tcp(segment, above, counts);
                if keep { KeptBytes::to(segment.len()) } else { up_to(header, segment) }
            }
            IpProtocol::UDP | IpProtocol::UDP_LITE => {
                const CHECKSUM: usize = 6;
                // In UDP, a checksum of 0 means that there is none, so a computed checksum of 0 is written as 0xffff.
                if segment.len() >= Udp::LEN && be16(segment, CHECKSUM) != 0 {
                    correct(segment, CHECKSUM, above.before, above.after);
                    if be16(segment, CHECKSUM) == 0 {
                        segment[CHECKSUM..CHECKSUM + 2].fill(0xff);
                    }
                }
                if keep { KeptBytes::to(segment.len()) } else { up_to(Udp::LEN, segment) }
            }
            IpProtocol::ICMP => self.icmp(segment, above, counts),
            IpProtocol::ICMPV6 => self.icmp6(segment, above, counts),
            IpProtocol::IGMP => {
                let before = Checksum::new().bytes(segment);
                if segment.len() < IGMP {
                    return KeptBytes::only(0);
                }
                self.v4(segment, 4);
                correct(segment, 2, before, Checksum::new().bytes(segment));
                KeptBytes::to(IGMP)
            }
            // The checksum of SCTP does not cover the IP addresses. Chunks are removed, because they may contain
            // addresses.
            IpProtocol::SCTP => up_to(Sctp::LEN, segment),
            IpProtocol::DCCP => {
                correct(segment, 6, above.before, above.after);
                up_to(DCCP, segment)
            }
            IPV4_IN_IP | IPV6_IN_IP if above.depth < DEPTH => {
                self.packet(segment, above.depth + 1, above.quoted, counts)
            }
            IpProtocol::NONE => KeptBytes::to(0),
            _ => KeptBytes::only(0),
        }
    }

    /// Rewrites a TCP header and returns its length.
    fn tcp(&mut self, segment: &mut [u8], above: PseudoHeader, counts: &mut AnonymisationCounts) -> usize {
        const OFFSET: usize = 12;
        const CHECKSUM: usize = 16;
        if segment.len() < Tcp::LEN {
            correct(segment, CHECKSUM, above.before, above.after);
            return Tcp::LEN;
        }
        let header = (usize::from(segment[OFFSET] >> 4) * 4).max(Tcp::LEN);
        let end = header.min(segment.len());
        let options = Tcp::LEN..end;
        let before = above.before.bytes(&segment[options.clone()]);
        counts.options += blank_tcp(&mut segment[options.clone()]);
        let after = above.after.bytes(&segment[options]);
        correct(segment, CHECKSUM, before, after);
        header
    }
}
