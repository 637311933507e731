//! What lies below IP: link headers, VLAN tags, MPLS labels with or without a pseudowire, PPPoE and PPP.

use super::Odd;
use super::walk::Walk;
use crate::bytes::{be16, be32, chunk};
use crate::{EtherType, ethernet, ipv4, ipv6, link, mpls, vlan};

/// A PPPoE session header (RFC 2516 §4): version and type, code, session, length.
mod pppoe {
    pub const VERSION_TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const LEN: usize = 4;
    pub const END: usize = 6;
}

/// Protocol numbers of PPP (RFC 1332, 5072, 3032).
mod ppp {
    pub const IPV4: u16 = 0x0021;
    pub const IPV6: u16 = 0x0057;
    pub const MPLS: u16 = 0x0281;
}

/// Bytes of the control word of a pseudowire (RFC 4385 §3), whose first half-byte is 0.
const CONTROL_WORD: usize = 4;

impl Walk<'_> {
    pub fn link(&mut self, link_type: u16) -> Option<()> {
        let (ethertype, at) = match link_type {
            link::ETHERNET => return self.ethernet(0),
            link::RAW_IP | link::RAW_IPV4 | link::RAW_IPV6 => (self.ip_version(0)?, 0),
            link::NULL | link::LOOP => {
                let head: &[u8; link::LOOP_LEN] = self.need(0, Odd::LinkShort)?;
                (link::of_family(*head), link::LOOP_LEN)
            }
            link::LINUX_SLL => {
                let head: &[u8; link::SLL_LEN] = self.need(0, Odd::LinkShort)?;
                (EtherType(be16(head, link::SLL_PROTOCOL)), link::SLL_LEN)
            }
            link::LINUX_SLL2 => {
                let head: &[u8; link::SLL2_LEN] = self.need(0, Odd::LinkShort)?;
                (EtherType(be16(head, link::SLL2_PROTOCOL)), link::SLL2_LEN)
            }
            _ => return self.odd(Odd::LinkUnknown),
        };
        self.below(ethertype, at)
    }

    pub fn ethernet(&mut self, at: usize) -> Option<()> {
        let ethertype = self.ethernet_header(at)?;
        self.below(ethertype, at + ethernet::at::END)
    }

    fn ethernet_header(&mut self, at: usize) -> Option<EtherType> {
        let head: &[u8; ethernet::at::END] = self.need(at, Odd::LinkShort)?;
        self.out.l2 = u16::try_from(at).ok();
        self.first_tag = true;
        Some(EtherType(be16(head, ethernet::at::ETHERTYPE)))
    }

    /// Which IP begins with this byte.
    pub fn ip_version(&mut self, at: usize) -> Option<EtherType> {
        match self.need::<1>(at, Odd::LinkShort)?[0] >> 4 {
            4 => Some(EtherType::IPV4),
            6 => Some(EtherType::IPV6),
            _ => self.odd(Odd::IpVersion),
        }
    }

    /// Looks through tags, labels and PPPoE to the network layer. The bounds on tags and labels bound the loop: PPPoE
    /// leads to labels or to IP.
    pub fn below(&mut self, mut ethertype: EtherType, mut at: usize) -> Option<()> {
        let (mut tags, mut labels) = (0, 0);
        loop {
            self.out.ethertype = ethertype;
            (ethertype, at) = match ethertype {
                EtherType::IPV4 => return self.ipv4(at),
                EtherType::IPV6 => return self.ipv6(at),
                EtherType::PPPOE => self.pppoe(at)?,
                _ if ethertype.is_vlan() => self.tag(at, &mut tags)?,
                _ if ethertype.is_mpls() => match self.labels(at, &mut labels)? {
                    (EtherType::MPLS, at) => {
                        self.out.l3 = self.offset(at);
                        return None;
                    }
                    known => known,
                },
                _ => {
                    self.out.l3 = self.offset(at);
                    return None;
                }
            };
        }
    }

    fn tag(&mut self, at: usize, tags: &mut usize) -> Option<(EtherType, usize)> {
        if *tags == vlan::MAX_TAGS {
            self.out.l3 = self.offset(at);
            return self.odd(Odd::TagsTooMany);
        }
        *tags += 1;
        let tag: &[u8; vlan::at::END] = self.need(at, Odd::LinkShort)?;
        let id = Some(be16(tag, vlan::at::TCI) & vlan::at::ID_MASK);
        self.out.vlans = match self.out.vlans {
            _ if self.first_tag => [id, None],
            [outer, None] => [outer, id],
            known => known,
        };
        self.first_tag = false;
        Some((EtherType(be16(tag, vlan::at::ETHERTYPE)), at + vlan::at::END))
    }

    /// To the bottom of the stack, and what lies under it; [`EtherType::MPLS`] if that cannot be told.
    fn labels(&mut self, mut at: usize, labels: &mut usize) -> Option<(EtherType, usize)> {
        let top = at;
        while *labels < mpls::MAX_LABELS {
            *labels += 1;
            let entry: &[u8; mpls::LABEL_LEN] = self.need(at, Odd::LinkShort)?;
            let entry = mpls::Label::from_word(be32(entry, 0));
            if at == top {
                self.out.mpls = Some(entry.label);
            }
            at += mpls::LABEL_LEN;
            if entry.bottom {
                return Some(self.under_labels(at));
            }
        }
        self.out.l3 = self.offset(at);
        self.odd(Odd::LabelsTooMany)
    }

    /// RFC 4928 §3: 4 and 6 are IP. Else it may be Ethernet, behind a control word if the first half-byte is 0; nothing
    /// announces it, so its ethertype must be one that leads on. An IP packet is taken for Ethernet only if it cannot be
    /// IP: destination addresses that begin with 4 or 6 exist.
    fn under_labels(&mut self, at: usize) -> (EtherType, usize) {
        let Some(first) = self.frame.get(at) else {
            self.odd::<()>(Odd::Cut);
            return (EtherType::MPLS, at);
        };
        let known = mpls::payload_ethertype(*first);
        let fits = |skip: usize| {
            chunk::<2>(self.frame, at + skip + ethernet::at::ETHERTYPE).is_some_and(|b| leads_on(EtherType(be16(b, 0))))
        };
        let skip = match known {
            EtherType::IPV4 | EtherType::IPV6 if self.ip_fits(at) || !fits(0) => None,
            EtherType::IPV4 | EtherType::IPV6 => Some(0),
            _ if first >> 4 == 0 && fits(CONTROL_WORD) => Some(CONTROL_WORD),
            _ => fits(0).then_some(0),
        };
        match skip.and_then(|skip| Some((self.ethernet_header(at + skip)?, at + skip + ethernet::at::END))) {
            Some(ethernet) => ethernet,
            None => (known, at),
        }
    }

    /// Whether the lengths of an IP header are possible here.
    fn ip_fits(&self, at: usize) -> bool {
        let Some(head) = chunk::<{ ipv6::at::PAYLOAD_LEN + 2 }>(self.frame, at) else { return true };
        let (first, room) = (head[ipv4::at::VERSION_IHL], self.end.saturating_sub(at));
        match first >> 4 {
            4 => first & 15 >= 5 && usize::from(be16(head, ipv4::at::TOTAL_LEN)) <= room,
            _ => ipv6::at::END + usize::from(be16(head, ipv6::at::PAYLOAD_LEN)) <= room,
        }
    }

    fn pppoe(&mut self, at: usize) -> Option<(EtherType, usize)> {
        let head: &[u8; pppoe::END] = self.need(at, Odd::LinkShort)?;
        let end = at + pppoe::END + usize::from(be16(head, pppoe::LEN));
        if (head[pppoe::VERSION_TYPE], head[pppoe::CODE]) != (0x11, 0) || end > self.end {
            return self.odd(Odd::PppoeHeader);
        }
        self.end = end;
        self.ppp(at + pppoe::END)
    }

    /// PPP (RFC 1661 §2, 1662 §3.1): perhaps address and control, then a protocol of one or two bytes. The ethertype 0
    /// stands for a protocol that is not looked into.
    pub fn ppp(&mut self, mut at: usize) -> Option<(EtherType, usize)> {
        if chunk(self.frame, at) == Some(&[0xff, 0x03]) {
            at += 2;
        }
        let first = u16::from(self.need::<1>(at, Odd::LinkShort)?[0]);
        // The last byte of a protocol number is odd, and no other is.
        let (protocol, at) =
            if first & 1 == 1 { (first, at + 1) } else { (be16(self.need::<2>(at, Odd::LinkShort)?, 0), at + 2) };
        let ethertype = match protocol {
            ppp::IPV4 => EtherType::IPV4,
            ppp::IPV6 => EtherType::IPV6,
            ppp::MPLS => EtherType::MPLS,
            _ => EtherType(0),
        };
        Some((ethertype, at))
    }
}

/// Whether what follows an Ethernet header of this type is looked into, or is ARP: what a pseudowire carries.
const fn leads_on(ethertype: EtherType) -> bool {
    matches!(ethertype, EtherType::IPV4 | EtherType::IPV6 | EtherType::ARP | EtherType::PPPOE)
        || ethertype.is_vlan()
        || ethertype.is_mpls()
}
