//! Rewrites ICMP (RFC 792) and ICMPv6 (RFC 4443, 4861, 2710): the quoted packets and the addresses in the messages.
//!
//! The checksum covers the whole message, so it is updated after all other changes. Of messages whose type is not in
//! the lists of this module, only the first eight bytes are kept, which contain no address.

use super::AnonymisationCounts;
use super::rewrite::{DEPTH, KeptBytes, PseudoHeader, Rewriter, correct};
use wire::{Checksum, Icmp};

const CHECKSUM: usize = 2;

/// ICMP message types.
mod v4 {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const QUENCH: u8 = 4;
    pub const REDIRECT: u8 = 5;
    pub const ECHO: u8 = 8;
    pub const EXCEEDED: u8 = 11;
    pub const PARAMETER: u8 = 12;
}

/// ICMPv6 message types.
mod v6 {
    pub const ERRORS: std::ops::RangeInclusive<u8> = 1..=4;
    pub const ECHO: std::ops::RangeInclusive<u8> = 128..=129;
    pub const LISTENER: std::ops::RangeInclusive<u8> = 130..=132;
    pub const ROUTER_SOLICITATION: u8 = 133;
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    pub const NEIGHBOUR: std::ops::RangeInclusive<u8> = 135..=136;
    pub const REDIRECT: u8 = 137;
}

/// Options of neighbour discovery (RFC 4861 §4.6).
mod nd {
    pub const SOURCE_LINK: u8 = 1;
    pub const TARGET_LINK: u8 = 2;
    pub const PREFIX: u8 = 3;
    pub const MTU: u8 = 5;
}

impl Rewriter {
    pub(super) fn icmp(
        &mut self,
        message: &mut [u8],
        above: PseudoHeader,
        counts: &mut AnonymisationCounts,
    ) -> KeptBytes {
        if message.len() < Icmp::LEN {
            return KeptBytes::only(0);
        }
        let before = Checksum::new().bytes(message);
        let kept = match message[0] {
            v4::UNREACHABLE | v4::QUENCH | v4::REDIRECT | v4::EXCEEDED | v4::PARAMETER => {
                if message[0] == v4::REDIRECT {
                    self.v4(message, 4);
                }
                self.quoted(message, above, counts)
            }
            v4::ECHO | v4::ECHO_REPLY if self.keep_payload && !above.quoted => KeptBytes::to(message.len()),
            _ => KeptBytes::to(Icmp::LEN),
        };
        correct(message, CHECKSUM, before, Checksum::new().bytes(message));
        kept
    }

    pub(super) fn icmp6(
        &mut self,
        message: &mut [u8],
        above: PseudoHeader,
        counts: &mut AnonymisationCounts,
    ) -> KeptBytes {
        if message.len() < Icmp::LEN {
            return KeptBytes::only(0);
        }
        let before = above.before.bytes(message);
        let kind = message[0];
        // Number of addresses after the first eight bytes, and offset of the neighbour discovery options.
        let (addresses, options) = match kind {
            v6::ROUTER_SOLICITATION => (0, Some(8)),
            v6::ROUTER_ADVERTISEMENT => (0, Some(16)),
            _ if v6::NEIGHBOUR.contains(&kind) => (1, Some(24)),
            v6::REDIRECT => (2, Some(40)),
            _ if v6::LISTENER.contains(&kind) => (1, None),
            _ => (0, None),
        };
        let fixed = Icmp::LEN + addresses * 16;
        let kept = if message.len() < options.unwrap_or(fixed).max(fixed) {
            KeptBytes::only(Icmp::LEN)
        } else {
            for n in 0..addresses {
                self.v6(message, Icmp::LEN + n * 16);
            }
            match options {
                Some(at) => self.discovery(&mut message[at..], counts).after_header(at),
                None if v6::ERRORS.contains(&kind) => self.quoted(message, above, counts),
                None if v6::ECHO.contains(&kind) && self.keep_payload && !above.quoted => KeptBytes::to(message.len()),
                None => KeptBytes::to(fixed),
            }
        };
        correct(message, CHECKSUM, before, above.after.bytes(message));
        kept
    }

    /// Rewrites the packet that an ICMP error message quotes after its first eight bytes.
    fn quoted(&mut self, message: &mut [u8], above: PseudoHeader, counts: &mut AnonymisationCounts) -> KeptBytes {
        if above.depth >= DEPTH {
            return KeptBytes::only(Icmp::LEN);
        }
        self.packet(&mut message[Icmp::LEN..], above.depth + 1, true, counts).after_header(Icmp::LEN)
    }

    /// Rewrites the options of neighbour discovery: MAC addresses and prefixes are anonymised, the MTU is kept, all
    /// other options are blanked, including the quoted packet of a redirect.
    fn discovery(&mut self, options: &mut [u8], counts: &mut AnonymisationCounts) -> KeptBytes {
        let mut at = 0;
        while at + 2 <= options.len() {
            let len = usize::from(options[at + 1]) * 8;
            if len == 0 || at + len > options.len() {
                return KeptBytes::only(at);
            }
            let option = &mut options[at..at + len];
            match (option[0], len) {
                (nd::SOURCE_LINK | nd::TARGET_LINK, 8) => self.mac(option, 2),
                (nd::PREFIX, 32) => self.prefix(option),
                (nd::MTU, 8) => {}
                _ => {
                    option[2..].fill(0);
                    counts.options += 1;
                }
            }
            at += len;
        }
        KeptBytes::to(at)
    }

    /// Anonymises the address of a prefix option up to the prefix length, and sets all bits after the prefix to zero.
    fn prefix(&mut self, option: &mut [u8]) {
        const PREFIX: usize = 16;
        let len = option[2].min(128);
        self.v6(option, PREFIX);
        let mut bits = [0; 16];
        bits.copy_from_slice(&option[PREFIX..]);
        let host_bits = u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        option[PREFIX..].copy_from_slice(&(u128::from_be_bytes(bits) & !host_bits).to_be_bytes());
    }
}
