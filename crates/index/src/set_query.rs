//! Translates the key condition of a filter into queries on key sets.
//!
//! The index contains keys only for some prefix lengths. A condition on a prefix of another length becomes a condition
//! on the prefix of the next shorter indexed length, and also on all its prefixes of the next longer indexed length, if
//! there are at most [`MAX_KEYS`]. A range of at most [`MAX_KEYS`] ports becomes a condition on these ports. A
//! condition that would need more keys is left out: every block may match it.

use crate::host_sub_blocks;
use crate::key::{self, KeyKind, Sets};
use crate::set::{Group, bits_of, four_of, group_of, has_all, has_any, word_of};
use crate::sub_blocks::SubBlockMask;
use filter::KeyCondition;
use std::net::IpAddr;

/// The largest number of keys into which one condition is translated.
const MAX_KEYS: u32 = 16;

/// A query on the key sets of a block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SetQuery {
    Anything,
    /// True if the block's key set of this kind contains this key.
    Key(KeyKind, u64),
    /// True if the block's exact bitmap of this kind contains at least one of these values.
    Map(KeyKind, Group),
    All(Vec<SetQuery>),
    Any(Vec<SetQuery>),
}

impl SetQuery {
    pub fn of(need: &KeyCondition) -> Self {
        match need {
            KeyCondition::Anything => Self::Anything,
            KeyCondition::Host(address) => of_host(*address),
            KeyCondition::Net(address, length) => net(*address, *length),
            KeyCondition::Ports(first, last) if u32::from(last.saturating_sub(*first)) < MAX_KEYS => {
                Self::any((*first..=*last).map(|p| Self::Key(KeyKind::Ports, key::port(p))))
            }
            KeyCondition::Ports(..) => Self::Anything,
            KeyCondition::Protocol(number) => Self::Map(KeyKind::Protocols, key::map([*number])),
            KeyCondition::EtherType(number) => Self::Key(KeyKind::LinkLayer, key::ethertype(*number)),
            KeyCondition::Vlan(id) => Self::Key(KeyKind::LinkLayer, key::vlan(*id)),
            KeyCondition::Flow(protocol, a, b) => {
                Self::Key(KeyKind::Flows, key::flow(*protocol, (host(a.0), a.1), (host(b.0), b.1)))
            }
            KeyCondition::All(parts) => Self::all(parts.iter().map(Self::of)),
            KeyCondition::Any(parts) => Self::any(parts.iter().map(Self::of)),
        }
    }

    /// Joins the parts by AND, sorted by cost: a part that reads one group of every block is evaluated before a part
    /// that reads several groups.
    fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts: Vec<Self> = parts.into_iter().filter(|p| *p != Self::Anything).collect();
        parts.sort_by_key(Self::cost);
        match parts.len() {
            0 => Self::Anything,
            1 => parts.remove(0),
            _ => Self::All(parts),
        }
    }

    fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts: Vec<Self> = parts.into_iter().collect();
        if parts.contains(&Self::Anything) {
            return Self::Anything;
        }
        if parts.len() == 1 { parts.remove(0) } else { Self::Any(parts) }
    }

    /// The largest number of stripes (each with one group of every block) that the query reads.
    fn cost(&self) -> usize {
        match self {
            Self::Anything => 0,
            Self::Key(..) | Self::Map(..) => 1,
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::cost).sum(),
        }
    }

    /// The sub-blocks in which a match may begin, in a block with these key sets.
    pub fn sub_block_mask(&self, sets: &Sets) -> SubBlockMask {
        match self {
            Self::Anything => SubBlockMask::ANYWHERE,
            Self::Key(kind, hash) => self.of_group(&sets.of(*kind).may_contain(*hash)),
            Self::Map(kind, _) => self.of_group(&sets.of(*kind).may_contain(0)),
            Self::All(parts) => {
                parts.iter().fold(SubBlockMask::ANYWHERE, |all, p| SubBlockMask(all.0 & p.sub_block_mask(sets).0))
            }
            Self::Any(parts) => {
                parts.iter().fold(SubBlockMask::NOWHERE, |any, p| SubBlockMask(any.0 | p.sub_block_mask(sets).0))
            }
        }
    }

    /// The number of the group to which the key belongs in a key set of `groups` groups; 0 for an exact map, which has
    /// one group. Only for [`Self::Key`] and [`Self::Map`].
    pub fn group(&self, groups: usize) -> usize {
        if let Self::Key(_, hash) = self { group_of(*hash, groups) } else { 0 }
    }

    /// The sub-blocks of a block that may match, where `group` is the group of the block's key set to which the key
    /// belongs, or the only group of the block's exact map. Only for [`Self::Key`] and [`Self::Map`].
    pub fn of_group(&self, group: &Group) -> SubBlockMask {
        let is_there = match self {
            Self::Key(KeyKind::HostSubBlocks, hash) => return host_sub_blocks::sub_block_mask(group, *hash),
            Self::Key(KeyKind::Networks, hash) => {
                let (word, bits) = word_of(*hash);
                group[word] & bits == bits
            }
            Self::Key(KeyKind::Flows | KeyKind::Ports, hash) => has_all(group, &four_of(*hash)),
            Self::Key(_, hash) => has_all(group, &bits_of(*hash)),
            Self::Map(_, values) => has_any(group, values),
            Self::Anything | Self::All(_) | Self::Any(_) => true,
        };
        if is_there { SubBlockMask::ANYWHERE } else { SubBlockMask::NOWHERE }
    }
}

fn host(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(a) => key::host_v4(a.to_bits()),
        IpAddr::V6(a) => key::host_v6(a.to_bits()),
    }
}

/// The query for a host: it tests whether the host is in the block, and in which sub-blocks.
fn of_host(address: IpAddr) -> SetQuery {
    let place = match address {
        IpAddr::V4(a) => key::place_v4(a.to_bits()),
        IpAddr::V6(a) => key::place_v6((a.to_bits() >> 64) as u64, a.to_bits() as u64),
    };
    SetQuery::All(vec![SetQuery::Key(KeyKind::Hosts, host(address)), SetQuery::Key(KeyKind::HostSubBlocks, place)])
}

fn net(address: IpAddr, length: u8) -> SetQuery {
    match address {
        IpAddr::V4(a) => net_v4(a.to_bits(), length.min(32)),
        IpAddr::V6(a) => net_v6(a.to_bits(), length.min(128)),
    }
}

/// The longest indexed prefix length that is at most `length`, and the shortest indexed prefix length above it; `of`
/// lists the indexed lengths.
fn steps(length: u8, of: &[u8]) -> (Option<u8>, Option<u8>) {
    (of.iter().copied().filter(|l| *l <= length).max(), of.iter().copied().filter(|l| *l > length).min())
}

/// All prefixes of `of` bits whose first `length` bits are those of `bits`; `None` if there are more than [`MAX_KEYS`]
/// such prefixes.
fn expand(bits: u128, length: u8, of: u8) -> Option<impl Iterator<Item = u128>> {
    let count = 1u128 << (of - length).min(64);
    (count <= u128::from(MAX_KEYS)).then(|| (0..count).map(move |i| bits | i))
}

fn net_v4(address: u32, length: u8) -> SetQuery {
    if length == 0 {
        let carries = |e| SetQuery::Key(KeyKind::LinkLayer, key::ethertype(e));
        return SetQuery::any([carries(0x0800), carries(0x0806)]);
    }
    let key_of = |bits: u32, length: u8| match length {
        32 => of_host(IpAddr::from(bits.to_be_bytes())),
        _ => SetQuery::Key(KeyKind::Networks, key::net(u64::from(bits), length)),
    };
    let first = (address >> 24) as u8;
    let spread = 0xff_u8.checked_shr(length.into()).unwrap_or(0);
    let mut parts = vec![SetQuery::Map(KeyKind::FirstBytes, key::map(first & !spread..=first | spread))];
    let (shorter, longer) = steps(length, &[16, 24, 32]);
    parts.extend(shorter.map(|l| key_of(address >> (32 - l), l)));
    if let Some(l) = longer.filter(|_| length > 8 && shorter != Some(length))
        && let Some(keys) = expand(u128::from(address >> (32 - l)), length, l)
    {
        parts.push(SetQuery::any(keys.map(|bits| key_of(bits as u32, l))));
    }
    SetQuery::all(parts)
}

fn net_v6(address: u128, length: u8) -> SetQuery {
    let key_of = |bits: u128, length: u8| match length {
        128 => of_host(IpAddr::from(bits.to_be_bytes())),
        _ => SetQuery::Key(KeyKind::Networks, key::net(bits as u64, length)),
    };
    let carrier = SetQuery::Key(KeyKind::LinkLayer, key::ethertype(0x86dd));
    let (shorter, longer) = steps(length, &[32, 48, 64, 128]);
    let mut parts: Vec<SetQuery> = shorter.map(|l| key_of(address >> (128 - l), l)).into_iter().collect();
    if let Some(l) = longer.filter(|_| shorter != Some(length))
        && let Some(keys) = expand(address >> (128 - l), length, l)
    {
        parts.push(SetQuery::any(keys.map(|bits| key_of(bits, l))));
    }
    if parts.is_empty() {
        return carrier;
    }
    SetQuery::all(parts)
}
