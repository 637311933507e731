//! The way of most packets: Ethernet without a tag, IPv4 without options or IPv6 without extensions, no fragment, all of the least
//! header of TCP or UDP.
//!
//! Everything in such a packet is at a place that is known beforehand, so what the walk finds out step by step ([`super::walk`]) is
//! here a dozen comparisons with nothing to be kept between them. A packet that fails one goes along the walk as if it had never been
//! here; the two have to agree, and the random packets of `crates/bpf/tests` take both.

use super::compile::Emitter;
use super::frame::fact;
use super::walk::{ETHERNET, FRAME, HEADER, PROTOCOL, raw};
use ::ebpf::{Alu, Condition, Label, Reg as R, Size};
use wire::{EtherType, IpProtocol};

/// Least headers, in bytes.
const TCP: i16 = 20;
const UDP: i16 = 8;

/// A version of IP, and where its packets go that are common, with offsets from the first byte of the frame.
struct Version {
    ethertype: EtherType,
    family: i32,
    /// Of the field that says how long it is, and how many bytes of the header that includes.
    length: i16,
    includes: i16,
    protocol: i16,
    /// Where TCP or UDP begins.
    transport: i16,
}

const VERSIONS: [Version; 2] = [
    Version {
        ethertype: EtherType::IPV4,
        family: 4,
        length: ETHERNET + 2,
        includes: 20,
        protocol: ETHERNET + 9,
        transport: ETHERNET + 20,
    },
    Version {
        ethertype: EtherType::IPV6,
        family: 6,
        length: ETHERNET + 4,
        includes: 0,
        protocol: ETHERNET + 6,
        transport: ETHERNET + 40,
    },
];

impl Emitter<'_> {
    /// Goes to one of the answers for a type of which there are such packets.
    pub(super) fn if_common(&mut self) -> [Label; 2] {
        VERSIONS.map(|version| {
            let here = self.asm.label();
            self.asm.jump_if(Condition::Eq, HEADER, raw(version.ethertype.0), here);
            here
        })
    }

    /// What [`Emitter::if_common`] went to: to `done` with all facts, or to `other` with everything as it was but for r0 to r5 and
    /// PROTOCOL. FRAME is the frame, of which the Ethernet header is there, and HEADER its type.
    ///
    /// This stands behind the walk, because the verifier looks first at what comes next: once it knows where the walk leads, it need not go
    /// on from here again, which it would have to the other way round.
    pub(super) fn common(&mut self, places: [Label; 2], other: Label, done: Label) {
        for (version, here) in VERSIONS.into_iter().zip(places) {
            self.asm.place(here);
            self.common_of(&version, other);
            self.asm.jump(done);
        }
    }

    fn common_of(&mut self, v: &Version, other: Label) {
        let [tcp, known] = [(); 2].map(|()| self.asm.label());
        // No packet of this way is shorter; and then r0 is the end of the frame.
        self.captured(FRAME, (v.transport + UDP).into(), other);
        let a = &mut self.asm;
        a.load(Size::B, R::R1, FRAME, ETHERNET);
        if v.family == 4 {
            a.jump_if(Condition::Ne, R::R1, 0x45, other);
            a.load(Size::H, R::R1, FRAME, ETHERNET + 6);
            a.jump_if(Condition::Set, R::R1, raw(0x3fff), other);
        } else {
            a.alu(Alu::Shr, R::R1, 4);
            a.jump_if(Condition::Ne, R::R1, 6, other);
        }
        a.load(Size::H, R::R1, FRAME, v.length);
        a.big_endian(R::R1, 16);
        a.alu_reg(Alu::Sub, R::R0, FRAME);
        a.alu(Alu::Sub, R::R0, i32::from(v.transport - v.includes));
        a.jump_if_reg(Condition::Gt, R::R1, R::R0, other);
        a.load(Size::B, PROTOCOL, FRAME, v.protocol);
        a.jump_if(Condition::Eq, PROTOCOL, IpProtocol::TCP.0.into(), tcp);
        a.jump_if(Condition::Ne, PROTOCOL, IpProtocol::UDP.0.into(), other);
        a.jump_if(Condition::Lt, R::R1, (v.includes + UDP).into(), other);
        if self.needs.inner {
            self.no_tunnel(FRAME, v.transport);
        }
        self.asm.jump(known);
        self.asm.place(tcp);
        self.asm.jump_if(Condition::Lt, R::R1, (v.includes + TCP).into(), other);
        self.asm.place(known);
        let a = &mut self.asm;
        a.store_imm(Size::B, R::R10, fact::L3, ETHERNET.into());
        a.store_imm(Size::H, R::R10, fact::ETHERTYPE, v.ethertype.0.into());
        a.store_imm(Size::B, R::R10, fact::FAMILY, v.family);
        a.store(Size::B, R::R10, fact::PROTOCOL, PROTOCOL);
        a.store_imm(Size::B, R::R10, fact::L4, v.transport.into());
    }
}
