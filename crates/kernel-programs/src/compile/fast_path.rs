//! Emits fast paths for packets of a [`CommonCase`]. Such a packet is an untagged Ethernet frame with an unfragmented
//! IPv4 packet without options, or an IPv6 packet without extension headers. It has a complete TCP or UDP header of
//! minimal length.
//!
//! In a packet of a common case all offsets are constants, so about a dozen comparisons replace the header parser
//! ([`super::parse_headers`]). The program after these comparisons is specialised for the known values; of `ip >->
//! steer_flow`, for example, no further instruction remains. If a comparison fails, the header parser parses the packet
//! as usual. The fast path and the path through the header parser must give the same result; the random packets of
//! `crates/bpf/tests` use both paths.

use super::parse_headers::{ETHERNET, FRAME, HEADER, raw};
use super::{Emitter, Specialisation};
use ebpf::{Alu, Condition, Label, Reg as R, Size};
use ir::CommonCase;
use wire::IpProtocol;

/// The lengths in bytes of the smallest TCP header and of the UDP header.
const TCP: i16 = 20;
const UDP: i16 = 8;

impl<'a> Emitter<'a> {
    /// Emits the fast paths. Packets that belong to no common case continue after the fast paths, with FRAME unchanged.
    pub(super) fn fast_paths(&mut self, common_cases: &'a [(CommonCase, Specialisation)]) {
        let Some((shortest, _)) = common_cases.first() else { return };
        let other = self.asm.label();
        let a = &mut self.asm;
        a.mov_reg(R::R2, FRAME);
        a.alu(Alu::Add, R::R2, shortest.captured() as i32);
        a.jump_if_reg(Condition::Gt, R::R2, R::R0, other);
        a.load(Size::H, HEADER, FRAME, ETHERNET - 2);
        for (case, form) in common_cases {
            let next = self.asm.label();
            self.asm.jump_if(Condition::Ne, HEADER, raw(case.ethertype()), next);
            if case != shortest {
                self.captured(FRAME, case.captured() as i32, other);
            }
            self.is_plain(*case, other);
            self.body(form);
            self.asm.place(next);
        }
        self.asm.place(other);
    }

    /// Tests whether a packet with the ethertype of this common case belongs to the common case; if not, jumps to
    /// `other`. The caller has tested that the bytes up to the end of a UDP header were captured; r0 is the end of the
    /// frame.
    fn is_plain(&mut self, case: CommonCase, other: Label) {
        let [tcp, known] = [(); 2].map(|()| self.asm.label());
        // The offset of the length field of the IP header, and the number of bytes of the IP header that the value of
        // this field includes.
        let (length, includes) = match case {
            CommonCase::V4 => (ETHERNET + 2, 20),
            CommonCase::V6 => (ETHERNET + 4, 0),
        };
        let transport = case.l4() as i16;
        let a = &mut self.asm;
        a.load(Size::B, R::R1, FRAME, ETHERNET);
        match case {
            CommonCase::V4 => {
                a.jump_if(Condition::Ne, R::R1, 0x45, other);
                a.load(Size::H, R::R1, FRAME, ETHERNET + 6);
                a.jump_if(Condition::Set, R::R1, raw(0x3fff), other);
            }
            CommonCase::V6 => {
                a.alu(Alu::Shr, R::R1, 4);
                a.jump_if(Condition::Ne, R::R1, 6, other);
            }
        }
        a.load(Size::H, R::R1, FRAME, length);
        a.big_endian(R::R1, 16);
        a.alu_reg(Alu::Sub, R::R0, FRAME);
        a.alu(Alu::Sub, R::R0, i32::from(transport - includes));
        a.jump_if_reg(Condition::Gt, R::R1, R::R0, other);
        a.load(Size::B, R::R2, FRAME, case.protocol() as i16);
        a.jump_if(Condition::Eq, R::R2, IpProtocol::TCP.0.into(), tcp);
        a.jump_if(Condition::Ne, R::R2, IpProtocol::UDP.0.into(), other);
        a.jump_if(Condition::Lt, R::R1, (includes + UDP).into(), other);
        if self.needs.inner {
            self.no_tunnel(FRAME, transport);
        }
        self.asm.jump(known);
        self.asm.place(tcp);
        self.asm.jump_if(Condition::Lt, R::R1, (includes + TCP).into(), other);
        self.asm.place(known);
    }
}
