//! The layers below IP: link headers, VLAN tags, MPLS labels. The single steps are in `shim.rs`; [`crate::Headers`]
//! uses them too.

use super::DecodeError;
use super::decoder::Decoder;
use crate::bytes::{be16, be32};
use crate::shim::{self, LabelPayload};
use crate::{EtherType, ethernet, link, mpls, vlan};

impl Decoder<'_> {
    pub fn link(&mut self, link_type: u16) -> Option<()> {
        let (ethertype, at) = match link_type {
            link::ETHERNET => return self.ethernet(0),
            link::RAW_IP | link::RAW_IPV4 | link::RAW_IPV6 => (self.ip_version(0)?, 0),
            link::NULL | link::LOOP => {
                let head: &[u8; link::LOOP_LEN] = self.need(0, DecodeError::LinkShort)?;
                (link::of_family(*head), link::LOOP_LEN)
            }
            link::LINUX_SLL => {
                let head: &[u8; link::SLL_LEN] = self.need(0, DecodeError::LinkShort)?;
                (EtherType(be16(head, link::SLL_PROTOCOL)), link::SLL_LEN)
            }
            link::LINUX_SLL2 => {
                let head: &[u8; link::SLL2_LEN] = self.need(0, DecodeError::LinkShort)?;
                (EtherType(be16(head, link::SLL2_PROTOCOL)), link::SLL2_LEN)
            }
            _ => return self.decode_error(DecodeError::LinkUnknown),
        };
        self.below(ethertype, at)
    }

    pub fn ethernet(&mut self, at: usize) -> Option<()> {
        let ethertype = self.ethernet_header(at)?;
        self.below(ethertype, at + ethernet::at::END)
    }

    fn ethernet_header(&mut self, at: usize) -> Option<EtherType> {
        let head: &[u8; ethernet::at::END] = self.need(at, DecodeError::LinkShort)?;
        self.out.l2 = u16::try_from(at).ok();
        self.first_tag = true;
        Some(EtherType(be16(head, ethernet::at::ETHERTYPE)))
    }

    /// The ethertype of the IP packet that begins with this byte, by its version.
    pub fn ip_version(&mut self, at: usize) -> Option<EtherType> {
        match self.need::<1>(at, DecodeError::LinkShort)?[0] >> 4 {
            4 => Some(EtherType::IPV4),
            6 => Some(EtherType::IPV6),
            _ => self.decode_error(DecodeError::IpVersion),
        }
    }

    /// Follows tags, labels, PPPoE and SNAP to the network layer. The loop ends, because the numbers of tags and labels
    /// have limits, PPPoE is followed only by labels or IP, and SNAP is never followed by SNAP.
    pub fn below(&mut self, mut ethertype: EtherType, mut at: usize) -> Option<()> {
        let (mut tags, mut labels) = (0, 0);
        loop {
            self.out.ethertype = ethertype;
            (ethertype, at) = match ethertype {
                EtherType::IPV4 => return self.ipv4(at),
                EtherType::IPV6 => return self.ipv6(at),
                EtherType::PPPOE => {
                    let found = shim::pppoe(self.frame, at, self.end);
                    let (inside, at, end) = self.step(found)?;
                    self.end = end;
                    (inside, at)
                }
                _ if ethertype.is_vlan() => self.tag(at, &mut tags)?,
                _ if ethertype.is_mpls() => self.labels(at, &mut labels)?,
                _ => match shim::snap(ethertype, self.frame, at) {
                    Some(announced) => announced,
                    None => {
                        self.out.l3 = self.offset(at);
                        return None;
                    }
                },
            };
        }
    }

    /// Returns the value of a successful step. If the step failed, stores its decode error and returns `None`.
    fn step<T>(&mut self, found: Result<T, DecodeError>) -> Option<T> {
        found.map_err(|error| self.decode_error::<()>(error)).ok()
    }

    fn tag(&mut self, at: usize, tags: &mut usize) -> Option<(EtherType, usize)> {
        if *tags == vlan::MAX_TAGS {
            self.out.l3 = self.offset(at);
            return self.decode_error(DecodeError::TagsTooMany);
        }
        *tags += 1;
        let tag: &[u8; vlan::at::END] = self.need(at, DecodeError::LinkShort)?;
        let id = Some(be16(tag, vlan::at::TCI) & vlan::at::ID_MASK);
        self.out.vlans = match self.out.vlans {
            _ if self.first_tag => [id, None],
            [outer, None] => [outer, id],
            known => known,
        };
        self.first_tag = false;
        Some((EtherType(be16(tag, vlan::at::ETHERTYPE)), at + vlan::at::END))
    }

    /// Follows the label stack to its bottom and determines the payload protocol, if possible.
    fn labels(&mut self, mut at: usize, labels: &mut usize) -> Option<(EtherType, usize)> {
        let top = at;
        while *labels < mpls::MAX_LABELS {
            *labels += 1;
            let entry: &[u8; mpls::LABEL_LEN] = self.need(at, DecodeError::LinkShort)?;
            let entry = mpls::Label::from_word(be32(entry, 0));
            if at == top {
                self.out.mpls = Some(entry.label);
            }
            at += mpls::LABEL_LEN;
            if entry.bottom {
                return self.under_labels(at);
            }
        }
        self.out.l3 = self.offset(at);
        self.decode_error(DecodeError::LabelsTooMany)
    }

    fn under_labels(&mut self, at: usize) -> Option<(EtherType, usize)> {
        let Some(first) = self.frame.get(at) else { return self.decode_error(DecodeError::Cut) };
        match shim::under_labels(*first, self.frame, at, self.end) {
            LabelPayload::Network(EtherType::MPLS) => {
                self.out.ethertype = EtherType::MPLS;
                self.out.l3 = self.offset(at);
                None
            }
            LabelPayload::Network(known) => Some((known, at)),
            LabelPayload::Ethernet(at) => Some((self.ethernet_header(at)?, at + ethernet::at::END)),
        }
    }

    /// Ethertype and offset of the payload of PPP; ethertype 0 means a protocol that is not decoded.
    pub fn ppp(&mut self, at: usize) -> Option<(EtherType, usize)> {
        let found = shim::ppp(self.frame, at, self.end);
        self.step(found)
    }
}
