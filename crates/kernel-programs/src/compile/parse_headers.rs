//! The header parser of kernel programs. For a completely captured frame, the parser either finds the same packet facts
//! as [`wire::Headers`] or leaves the packet undecided. It leaves the packet undecided if the packet has headers that
//! [`wire::Headers`] supports and this parser does not. So the facts of decided packets are correct.
//!
//! ```text
//! Ethernet ─ up to two tags ─┬─ IPv4 ─────────────────────────────┬─ transport, if its minimal header is complete
//!                            ├─ IPv6 ─ up to three extensions ────┘
//!                            └─ other: ethertype and offset
//! ```

use super::Emitter;
use crate::frame::{self, fact};
use crate::{Clock, EXTENSIONS, MapKind, MapRequirement, Role, TAGS};
use ebpf::{Alu, Condition, Helper, Label, Reg as R, Size};
use wire::{EtherType, IpProtocol, TUNNEL_PORTS};

/// The following constants are the registers that the parser uses. `FRAME` points to the frame. `HEADER` contains the
/// ethertype and later points to the network header. `LEFT` contains the offset of the network header and later the
/// remaining length of the IP packet. `PROTOCOL` contains the protocol number.
pub(super) const FRAME: R = R::R6;
pub(super) const HEADER: R = R::R7;
const LEFT: R = R::R8;
pub(super) const PROTOCOL: R = R::R9;

pub(super) const ETHERNET: i16 = 14;
const TAG: i16 = 4;
/// Maximum offset in bytes of an extension header; a packet with an extension header beyond it is left undecided.
const FARTHEST_EXTENSION: i32 = 0xfff;
/// Maximum offset in bytes of a transport header; like [`wire::Headers`], the parser ignores transport headers beyond
/// it.
const FARTHEST: i32 = 255;

/// The smallest ethertype. A smaller value in the field after the MAC addresses is the length of an IEEE 802.3 frame.
const MIN_TYPE: i32 = 1536;

/// The IP protocols that [`wire::Decoded`] decodes as tunnels.
const TUNNELS: [u8; 3] = [4, 41, 47];

/// Returns the value that a load of two bytes gives if a packet contains `n` in network byte order.
pub(super) const fn raw(n: u16) -> i32 {
    n.swap_bytes() as i32
}

impl Emitter<'_> {
    /// Emits the header parser for the packet at FRAME. After it, the facts that the program reads are on the stack.
    pub(super) fn parse_headers(&mut self) {
        if self.needs.parses_headers() {
            self.link();
        }
    }

    /// Emits code that stores the packet's timestamp on the stack.
    pub(super) fn time(&mut self) {
        let running = self.options.clock == Clock::Running;
        let slot = self.map(Role::Clock, || MapRequirement {
            role: Role::Clock,
            name: "ng_clock".into(),
            kind: MapKind::Array,
            key: 4,
            value: 8,
            entries: 1,
            content: vec![],
            semantics: if running { "clock offset".into() } else { "clock".into() },
        });
        if running {
            self.asm.call(Helper::KtimeGetNs);
        } else {
            self.asm.mov(R::R0, 0);
        }
        self.asm.value_slot(R::R1, slot);
        self.asm.load(Size::Dw, R::R1, R::R1, 0);
        self.asm.alu_reg(Alu::Add, R::R0, R::R1);
        self.asm.store(Size::Dw, R::R10, frame::TIME, R::R0);
    }

    /// Leaves the packet undecided unless the first `end` bytes after `pointer` were captured.
    fn there(&mut self, pointer: R, end: i16) {
        self.captured(pointer, end.into(), self.exits.undecided);
    }

    fn link(&mut self) {
        let [typed, done] = [(); 2].map(|()| self.asm.label());
        if self.needs.vlan {
            self.asm.store_imm(Size::H, R::R10, fact::VLAN, 0);
        }
        // Initialises the facts with the values for frames without IP.
        self.asm.store_imm(Size::W, R::R10, fact::FAMILY, 0);
        self.there(FRAME, ETHERNET);
        self.asm.load(Size::H, HEADER, FRAME, ETHERNET - 2);
        self.asm.mov(LEFT, ETHERNET.into());
        self.asm.jump_if(Condition::Eq, HEADER, raw(EtherType::IPV4.0), typed);
        self.asm.jump_if(Condition::Eq, HEADER, raw(EtherType::IPV6.0), typed);
        for n in 0..=TAGS as i16 {
            let tag = self.asm.label();
            for kind in [EtherType::VLAN, EtherType::QINQ, EtherType::QINQ_OLD] {
                let to = if n == TAGS as i16 { self.exits.undecided } else { tag };
                self.asm.jump_if(Condition::Eq, HEADER, raw(kind.0), to);
            }
            self.asm.jump(typed);
            if n == TAGS as i16 {
                break;
            }
            self.asm.place(tag);
            self.there(FRAME, ETHERNET + TAG * (n + 1));
            if n == 0 && self.needs.vlan {
                self.asm.load(Size::H, R::R1, FRAME, ETHERNET);
                self.asm.big_endian(R::R1, 16);
                self.asm.alu(Alu::And, R::R1, 0xfff);
                self.asm.alu(Alu::Or, R::R1, 0x1000);
                self.asm.store(Size::H, R::R10, fact::VLAN, R::R1);
            }
            self.asm.load(Size::H, HEADER, FRAME, ETHERNET + TAG * (n + 1) - 2);
            self.asm.mov(LEFT, i32::from(ETHERNET + TAG * (n + 1)));
        }
        self.asm.place(typed);
        self.network(done);
        self.asm.place(done);
    }

    /// Parses the network header. Before it, HEADER contains the ethertype, and LEFT the offset of the network header.
    fn network(&mut self, done: Label) {
        for around in [EtherType::MPLS, EtherType::MPLS_MULTICAST, EtherType::PPPOE] {
            self.asm.jump_if(Condition::Eq, HEADER, raw(around.0), self.exits.undecided);
        }
        self.asm.store(Size::B, R::R10, fact::L3, LEFT);
        self.asm.mov_reg(R::R5, HEADER);
        self.asm.big_endian(R::R5, 16);
        self.asm.store(Size::H, R::R10, fact::ETHERTYPE, R::R5);
        // The offset is stored and loaded again, because the kernel's verifier then only records that it is at most
        // 255. Otherwise the verifier would check the following code once for each path to this point.
        self.asm.load(Size::B, LEFT, R::R10, fact::L3);
        self.asm.load(Size::H, R::R5, R::R10, fact::ETHERTYPE);
        self.asm.mov_reg(HEADER, FRAME);
        self.asm.alu_reg(Alu::Add, HEADER, LEFT);
        let (v4, v6) = (self.asm.label(), self.asm.label());
        self.asm.jump_if(Condition::Eq, R::R5, EtherType::IPV4.0.into(), v4);
        self.asm.jump_if(Condition::Eq, R::R5, EtherType::IPV6.0.into(), v6);
        // If the ethertype field contains a length, a SNAP header with an ethertype may follow.
        self.asm.jump_if(Condition::Lt, R::R5, MIN_TYPE, self.exits.undecided);
        if self.needs.inner {
            self.asm.jump_if(Condition::Ne, R::R5, EtherType::ARP.0.into(), self.exits.undecided);
        }
        self.there(HEADER, 1);
        self.asm.jump(done);

        let transport = self.asm.label();
        self.asm.place(v4);
        self.ipv4();
        self.asm.jump(transport);
        self.asm.place(v6);
        self.ipv6(transport);
        self.asm.place(transport);
        self.transport(done);
    }

    /// Parses the IPv4 header at HEADER. After it, r4 is the offset of the IP payload and LEFT the length of the
    /// payload.
    fn ipv4(&mut self) {
        let out = self.exits.undecided;
        self.there(HEADER, 20);
        let a = &mut self.asm;
        a.load(Size::B, R::R4, HEADER, 0);
        a.mov_reg(R::R1, R::R4);
        a.alu(Alu::Shr, R::R1, 4);
        a.jump_if(Condition::Ne, R::R1, 4, out);
        a.alu(Alu::And, R::R4, 15);
        a.alu(Alu::Shl, R::R4, 2);
        a.jump_if(Condition::Lt, R::R4, 20, out);
        a.load(Size::H, R::R1, HEADER, 2);
        a.big_endian(R::R1, 16);
        a.jump_if_reg(Condition::Lt, R::R1, R::R4, out);
        // The complete IP packet must be captured; r0 is still the end of the frame.
        a.alu_reg(Alu::Sub, R::R0, HEADER);
        a.jump_if_reg(Condition::Gt, R::R1, R::R0, out);
        a.alu_reg(Alu::Sub, R::R1, R::R4);
        a.alu_reg(Alu::Add, R::R4, LEFT);
        a.mov_reg(LEFT, R::R1);
        a.store_imm(Size::B, R::R10, fact::FAMILY, 4);
        a.load(Size::B, PROTOCOL, HEADER, 9);
        a.load(Size::H, R::R1, HEADER, 6);
        a.big_endian(R::R1, 16);
        self.fragment(0x1fff, 0x2000);
    }

    /// Computes the fragment fact from the IP header field in r1: `later` is the mask of the fragment offset, and
    /// `more` the more-fragments flag.
    fn fragment(&mut self, later: i32, more: i32) {
        if self.needs.whole {
            self.asm.alu(Alu::And, R::R1, later | more);
            return self.asm.jump_if(Condition::Ne, R::R1, 0, self.exits.undecided);
        }
        let a = &mut self.asm;
        let (whole, other) = (a.label(), a.label());
        a.mov_reg(R::R2, R::R1);
        a.alu(Alu::And, R::R2, later | more);
        a.jump_if(Condition::Eq, R::R2, 0, whole);
        a.mov(R::R2, 1);
        a.alu(Alu::And, R::R1, later);
        a.jump_if(Condition::Eq, R::R1, 0, other);
        a.mov(R::R2, 2);
        a.place(other);
        a.store(Size::B, R::R10, fact::FRAGMENT, R::R2);
        a.place(whole);
    }

    /// Parses the IPv6 header at HEADER. After it, r4 is the offset of the IP payload and LEFT the length of the
    /// payload.
    fn ipv6(&mut self, transport: Label) {
        let out = self.exits.undecided;
        self.there(HEADER, 40);
        let a = &mut self.asm;
        a.load(Size::B, R::R1, HEADER, 0);
        a.alu(Alu::Shr, R::R1, 4);
        a.jump_if(Condition::Ne, R::R1, 6, out);
        a.load(Size::B, PROTOCOL, HEADER, 6);
        a.load(Size::H, R::R1, HEADER, 4);
        a.big_endian(R::R1, 16);
        a.alu_reg(Alu::Sub, R::R0, HEADER);
        a.alu(Alu::Sub, R::R0, 40);
        a.jump_if_reg(Condition::Gt, R::R1, R::R0, out);
        a.mov_reg(R::R4, LEFT);
        a.alu(Alu::Add, R::R4, 40);
        a.mov_reg(LEFT, R::R1);
        a.store_imm(Size::B, R::R10, fact::FAMILY, 6);
        // The length field of a jumbogram (RFC 2675) is 0, and a hop-by-hop header follows.
        let (plain, known) = (a.label(), a.label());
        a.jump_if(Condition::Ne, R::R1, 0, known);
        a.jump_if(Condition::Eq, PROTOCOL, IpProtocol::HOP_BY_HOP.0.into(), out);
        a.place(known);
        for n in 0..=EXTENSIONS {
            let extension = self.asm.label();
            for kind in extensions() {
                let to = if n == EXTENSIONS { out } else { extension };
                self.asm.jump_if(Condition::Eq, PROTOCOL, kind.into(), to);
            }
            self.asm.jump(plain);
            if n == EXTENSIONS {
                break;
            }
            self.asm.place(extension);
            self.extension(plain);
        }
        self.asm.place(plain);
        self.asm.jump(transport);
    }

    /// Parses the extension header at offset r4; LEFT is the number of bytes from its first byte on. After the fragment
    /// header of a fragment, jumps to `plain`.
    fn extension(&mut self, plain: Label) {
        let out = self.exits.undecided;
        let a = &mut self.asm;
        a.jump_if(Condition::Lt, LEFT, 8, out);
        a.jump_if(Condition::Gt, R::R4, FARTHEST_EXTENSION, out);
        // The offset is stored and loaded again, for the same reason as the offset of the network header: the verifier
        // then checks the following code only once.
        a.store(Size::H, R::R10, fact::OFFSET, R::R4);
        a.load(Size::H, R::R4, R::R10, fact::OFFSET);
        a.alu(Alu::And, R::R4, FARTHEST_EXTENSION);
        a.mov_reg(R::R3, FRAME);
        a.alu_reg(Alu::Add, R::R3, R::R4);
        self.there(R::R3, 8);
        let a = &mut self.asm;
        let (fragment, authentication, sized, next) = (a.label(), a.label(), a.label(), a.label());
        a.load(Size::B, R::R5, R::R3, 1);
        a.jump_if(Condition::Eq, PROTOCOL, IpProtocol::FRAGMENT.0.into(), fragment);
        a.jump_if(Condition::Eq, PROTOCOL, IpProtocol::AH.0.into(), authentication);
        a.alu(Alu::Add, R::R5, 1);
        a.alu(Alu::Shl, R::R5, 3);
        a.jump(sized);
        a.place(authentication);
        a.alu(Alu::Add, R::R5, 2);
        a.alu(Alu::Shl, R::R5, 2);
        a.place(sized);
        a.load(Size::B, PROTOCOL, R::R3, 0);
        a.jump_if_reg(Condition::Gt, R::R5, LEFT, out);
        a.alu_reg(Alu::Add, R::R4, R::R5);
        a.alu_reg(Alu::Sub, LEFT, R::R5);
        a.jump(next);

        a.place(fragment);
        a.load(Size::B, PROTOCOL, R::R3, 0);
        a.load(Size::H, R::R1, R::R3, 2);
        a.big_endian(R::R1, 16);
        a.alu(Alu::Add, R::R4, 8);
        a.alu(Alu::Sub, LEFT, 8);
        self.fragment(0xfff8, 1);
        if self.needs.whole {
            return self.asm.place(next);
        }
        self.asm.load(Size::B, R::R1, R::R10, fact::FRAGMENT);
        self.asm.jump_if(Condition::Eq, R::R1, 0, next);
        // In a fragment, no further header follows the fragment header.
        for kind in extensions() {
            self.asm.jump_if(Condition::Eq, PROTOCOL, kind.into(), out);
        }
        self.asm.jump(plain);
        self.asm.place(next);
    }

    /// Finds the transport header. Before it, r4 is the offset of the IP payload, and LEFT the length of the payload.
    fn transport(&mut self, done: Label) {
        let (out, needs) = (self.exits.undecided, self.needs);
        self.asm.store(Size::B, R::R10, fact::PROTOCOL, PROTOCOL);
        if needs.inner {
            for tunnel in TUNNELS {
                self.asm.jump_if(Condition::Eq, PROTOCOL, tunnel.into(), out);
            }
        }
        if !needs.transport && !needs.inner {
            return;
        }
        if !needs.whole {
            self.asm.load(Size::B, R::R1, R::R10, fact::FRAGMENT);
            self.asm.jump_if(Condition::Eq, R::R1, 2, done);
        }
        let a = &mut self.asm;
        let (tcp, udp, sctp, enough, far) = (a.label(), a.label(), a.label(), a.label(), a.label());
        a.jump_if(Condition::Gt, R::R4, FARTHEST, far);
        a.jump_if(Condition::Eq, PROTOCOL, IpProtocol::TCP.0.into(), tcp);
        for of_eight in [IpProtocol::UDP, IpProtocol::ICMP, IpProtocol::ICMPV6] {
            a.jump_if(Condition::Eq, PROTOCOL, of_eight.0.into(), udp);
        }
        a.jump_if(Condition::Eq, PROTOCOL, IpProtocol::SCTP.0.into(), sctp);
        // Other protocols have no minimum header length, so one captured byte is sufficient.
        for (label, least) in [(None, 1), (Some(tcp), 20), (Some(udp), 8), (Some(sctp), 12)] {
            if let Some(label) = label {
                self.asm.place(label);
            }
            self.asm.jump_if(Condition::Lt, LEFT, least, done);
            self.asm.jump(enough);
        }
        self.asm.place(far);
        if needs.inner {
            // The UDP header is beyond the maximum offset, so the parser does not test its ports; the packet may be a
            // tunnel and is left undecided.
            self.asm.jump_if(Condition::Eq, PROTOCOL, IpProtocol::UDP.0.into(), out);
        }
        self.asm.jump(done);
        self.asm.place(enough);
        self.asm.store(Size::B, R::R10, fact::L4, R::R4);
        if needs.inner {
            self.ports(done);
        }
    }

    /// Leaves a UDP packet undecided if one of its ports is a tunnel port.
    fn ports(&mut self, done: Label) {
        let a = &mut self.asm;
        a.jump_if(Condition::Ne, PROTOCOL, IpProtocol::UDP.0.into(), done);
        a.load(Size::B, R::R4, R::R10, fact::L4);
        a.mov_reg(R::R3, FRAME);
        a.alu_reg(Alu::Add, R::R3, R::R4);
        self.there(R::R3, 4);
        self.no_tunnel(R::R3, 0);
    }

    /// Leaves the packet undecided if one of the two ports at `offset` after `pointer` is a tunnel port.
    pub(super) fn no_tunnel(&mut self, pointer: R, offset: i16) {
        let out = self.exits.undecided;
        for at in [offset, offset + 2] {
            let a = &mut self.asm;
            let plain = a.label();
            a.load(Size::H, R::R1, pointer, at);
            a.big_endian(R::R1, 16);
            // A comparison with the range of tunnel ports is sufficient for most ports, because they are outside of it.
            a.jump_if(Condition::Lt, R::R1, TUNNEL_PORTS[0].into(), plain);
            a.jump_if(Condition::Gt, R::R1, TUNNEL_PORTS[TUNNEL_PORTS.len() - 1].into(), plain);
            for port in TUNNEL_PORTS {
                a.jump_if(Condition::Eq, R::R1, port.into(), out);
            }
            a.place(plain);
        }
    }
}

/// The IP protocol numbers of IPv6 extension headers.
fn extensions() -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(|p| IpProtocol(*p).is_extension())
}
