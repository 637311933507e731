//! Represents flow keys as lists of 64-bit words. The fields are in the order of [`Field::ALL`]: an IP address has two
//! words, a MAC address one, and the smaller fields are packed into as few words as possible. In a symmetric key, the
//! fields of the smaller endpoint precede those of the greater endpoint. Endpoints are compared by IP address, then by
//! MAC address, then by port.

use super::address::wide;
use super::fragment::FragmentScope;
use super::view::Layer;
use super::{ParsedPacket, Run, Table};
use ir::{Field, Key};
use lang::term::{FlowMap, HeaderField};

impl Run<'_> {
    /// Returns the packet from whose headers flow keys are computed: inside an `outer` term the outermost packet,
    /// otherwise the innermost packet.
    pub(super) fn flows_of(&self, scope: ParsedPacket) -> Layer {
        if scope.outside { self.view.outer } else { self.view.inner }
    }

    /// Returns the map, and the flow key of the packet, if the packet contains all fields of the key.
    pub(super) fn entry(&mut self, map: &FlowMap, scope: ParsedPacket) -> Option<(&mut Table, Vec<u64>)> {
        let layer = self.flows_of(scope);
        let mut key = self.key(map.key, layer, [0; 2])?;
        if map.key.has(Field::SrcPort) || map.key.has(Field::DstPort) {
            let fragment_scope = if scope.outside { FragmentScope::Outer } else { FragmentScope::Inner };
            let ports = self.datagram_ports(layer, fragment_scope);
            key = self.key(map.key, layer, ports)?;
        }
        let table = self.memory.tables.entry(map.name.clone()).or_insert_with(|| Table::new(map));
        Some((table, key))
    }

    /// Calls `what` with the map and the flow key of the packet; does nothing if the packet lacks a field of the key.
    pub(super) fn on_flow(&mut self, map: &FlowMap, scope: ParsedPacket, what: impl FnOnce(&mut Table, Vec<u64>, u64)) {
        let now = self.packet.facts.time;
        if let Some((table, key)) = self.entry(map, scope) {
            what(table, key, now);
        }
    }

    /// The words of the packet's flow key, with these ports; `None` if the packet lacks a field of the key.
    pub(super) fn key(&self, key: Key, layer: Layer, ports: [u16; 2]) -> Option<Vec<u64>> {
        let mut fields: Vec<(Field, u128)> = Vec::new();
        for field in key.fields() {
            fields.push((field, self.of_field(field, layer, ports)?));
        }
        if key.is_symmetric() {
            let pairs =
                [(Field::IpSrc, Field::IpDst), (Field::EthSrc, Field::EthDst), (Field::SrcPort, Field::DstPort)];
            let both: Vec<_> = pairs.into_iter().filter(|(a, b)| key.has(*a) && key.has(*b)).collect();
            let value = |field| fields.iter().find(|f| f.0 == field).map_or(0, |f| f.1);
            let senders: Vec<u128> = both.iter().map(|p| value(p.0)).collect();
            let receivers: Vec<u128> = both.iter().map(|p| value(p.1)).collect();
            if receivers < senders {
                for (pair, (sender, receiver)) in both.iter().zip(senders.iter().zip(&receivers)) {
                    for (field, value) in &mut fields {
                        if *field == pair.0 {
                            *value = *receiver;
                        } else if *field == pair.1 {
                            *value = *sender;
                        }
                    }
                }
            }
        }
        let (mut words, mut open): (Vec<u64>, Option<(usize, u32)>) = (Vec::new(), None);
        for (field, value) in fields {
            match (field.bits(), open) {
                (128, _) => words.extend([(value >> 64) as u64, value as u64]),
                (48, _) => words.push(value as u64),
                (bits, Some((word, used))) if used + bits <= 64 => {
                    words[word] |= (value as u64) << used;
                    open = Some((word, used + bits));
                }
                (bits, _) => {
                    open = Some((words.len(), bits));
                    words.push(value as u64);
                }
            }
        }
        Some(words)
    }

    /// The value of a field; `None` if the packet lacks the IP or Ethernet header of the field. The value is 0 if a
    /// VLAN tag, ethertype, transport header or ICMP header is missing.
    fn of_field(&self, field: Field, layer: Layer, ports: [u16; 2]) -> Option<u128> {
        let header = |field| self.field(field, layer);
        let mac = |end: usize| self.view.macs.map(|m| m[end].iter().fold(0, |n, b| n << 8 | u128::from(*b)));
        Some(match field {
            Field::EthType => layer.ethertype.unwrap_or(0).into(),
            Field::EthSrc => mac(0)?,
            Field::EthDst => mac(1)?,
            Field::Vlan => self.view.vlan.unwrap_or(0).into(),
            Field::IpSrc => wide(layer.ip?.src),
            Field::IpDst => wide(layer.ip?.dst),
            Field::IpProto => layer.ip?.protocol.into(),
            Field::IpEcn => (header(HeaderField::IpTos)? & 3).into(),
            Field::IpDscp => (header(HeaderField::IpTos)? & 0xfc).into(),
            Field::SrcPort => layer.ip.map(|_| ports[0])?.into(),
            Field::DstPort => layer.ip.map(|_| ports[1])?.into(),
            Field::IcmpType => self.icmp(layer)[0].into(),
            Field::IcmpCode => self.icmp(layer)[1].into(),
        })
    }

    /// ICMP type and code of the packet, if both were captured.
    fn icmp(&self, layer: Layer) -> [u64; 2] {
        let of = |field| self.field(field, layer);
        match (of(HeaderField::IcmpType), of(HeaderField::IcmpCode)) {
            (Some(kind), Some(code)) => [kind, code],
            _ => [0; 2],
        }
    }
}
