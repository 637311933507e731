//! Emits the tests that a packet is a [`CommonCase`]. If they succeed, they determine all facts from the headers of the
//! packet.
//!
//! For a packet of a common case, the facts must be equal to those of [`wire::Headers`] and, for the innermost packet,
//! of [`wire::Decoded`]. Hence the tests require that the network header is complete, has no options and is no
//! fragment; that the IP packet ends inside the frame, and not before the end of the smallest transport header; and
//! that no port is a tunnel port. A malformed TCP offset or UDP length needs no test, because it changes no fact.

use super::{Emitter, FOUND};
use crate::packet::{ParseDepth, at};
use ::ir::CommonCase;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I16, I16X8, I32};
use cranelift_codegen::ir::{self, ConstantData, InstBuilder, Value};
use wire::{TUNNEL_PORTS, link};

/// Number of lanes of the vector that contains all tunnel ports.
const LANES: usize = 8;
const _: () = assert!(TUNNEL_PORTS.len() <= LANES);

impl Emitter<'_> {
    /// Tests that the packet begins with Ethernet and that its headers are not yet parsed. If the caller has already
    /// set facts, these facts are used instead of the packet bytes.
    pub(super) fn is_unparsed_ethernet(&mut self, no: ir::Block) {
        let both = self.b.ins().load(I32, FOUND, self.here, at::LINK_TYPE_AND_KNOWN as i32);
        let ordinary = i64::from(link::ETHERNET) | (ParseDepth::Bytes as i64) << 16;
        let is = self.b.ins().icmp_imm_s(IntCC::Equal, both, ordinary);
        self.require(is, no);
    }

    /// If the packet belongs to this common case, execution continues, otherwise it jumps to `no`. Tests whose result
    /// is mostly the same for successive packets are branches; protocol and ports vary from packet to packet, so
    /// arithmetic compares them.
    pub(super) fn is_common_case(&mut self, shape: CommonCase, depth: ParseDepth, no: ir::Block) {
        let captured = self.number(shape.captured().into());
        let whole = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, captured, self.len);
        self.require(whole, no);
        // One load reads ethertype, IP version and header length, which are adjacent in the packet; another load reads
        // length, fragmentation and protocol.
        let head = self.bytes(None, 12, 4);
        let (kind, length, protocol) = match shape {
            CommonCase::V4 => {
                let (kind, fields) = (self.b.ins().ushr_imm_s(head, 8), self.bytes(None, shape.l3() + 2, 8));
                let kind = self.b.ins().icmp_imm_s(IntCC::Equal, kind, 0x08_0045);
                self.require(kind, no);
                let fragment = self.b.ins().band_imm_s(fields, 0x3fff << 16);
                let kind = self.b.ins().icmp_imm_s(IntCC::Equal, fragment, 0);
                let (total, protocol) = (self.b.ins().ushr_imm_s(fields, 48), self.b.ins().band_imm_s(fields, 0xff));
                (kind, self.b.ins().iadd_imm_s(total, -20), protocol)
            }
            CommonCase::V6 => {
                let (kind, fields) = (self.b.ins().ushr_imm_s(head, 12), self.bytes(None, shape.l3() + 4, 4));
                let kind = self.b.ins().icmp_imm_s(IntCC::Equal, kind, 0x8_6dd6);
                let next = self.b.ins().ushr_imm_s(fields, 8);
                (kind, self.b.ins().ushr_imm_s(fields, 16), self.b.ins().band_imm_s(next, 0xff))
            }
        };
        self.require(kind, no);
        let [tcp, udp] = CommonCase::PROTOCOLS.map(|n| self.b.ins().icmp_imm_s(IntCC::Equal, protocol, n as i64));
        let either = self.b.ins().bor(tcp, udp);
        self.require(either, no);
        let (of_tcp, of_udp) = (self.number(20), self.number(8));
        let least = self.b.ins().select(tcp, of_tcp, of_udp);
        // The comparison is signed, because the length is negative if the length field of an IPv4 packet is below 20.
        let has_header = self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, length, least);
        self.require(has_header, no);
        let (end, wire) = (self.b.ins().iadd_imm_s(length, i64::from(shape.l4())), self.wide(I32, at::WIRE_LEN));
        let is_inside = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, wire);
        self.require(is_inside, no);
        if depth == ParseDepth::Inner {
            let port = self.is_port_of_tunnel(shape);
            let tunnel = self.b.ins().band(udp, port);
            let none = self.b.ins().icmp_imm_s(IntCC::Equal, tunnel, 0);
            self.require(none, no);
        }
    }

    /// Tests whether a port is a tunnel port; the result is a truth value of eight bits. A vector instruction compares
    /// all tunnel ports at once, because branches would be unpredictable.
    fn is_port_of_tunnel(&mut self, shape: CommonCase) -> Value {
        let ports = (0..LANES).map(|lane| TUNNEL_PORTS[lane.min(TUNNEL_PORTS.len() - 1)]);
        let bytes: Vec<u8> = ports.flat_map(u16::to_le_bytes).collect();
        let constant = self.b.func.dfg.constants.insert(ConstantData::from(bytes));
        let known = self.b.ins().vconst(I16X8, constant);
        let [src, dst] = [0, 2].map(|offset| {
            let port = self.bytes(None, shape.l4() + offset, 2);
            let port = self.b.ins().ireduce(I16, port);
            let all = self.b.ins().splat(I16X8, port);
            self.b.ins().icmp(IntCC::Equal, all, known)
        });
        let either = self.b.ins().bor(src, dst);
        self.b.ins().vany_true(either)
    }

    /// If the condition holds, execution continues, otherwise it jumps to `no`.
    fn require(&mut self, condition: Value, no: ir::Block) {
        let yes = self.b.create_block();
        self.b.ins().brif(condition, yes, &[], no, &[]);
        self.on_in(yes);
    }
}
