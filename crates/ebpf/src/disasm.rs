//! The disassembler for eBPF. It prints the notation of the kernel's verifier log, so that a listing can be compared
//! with the log line by line.

use crate::asm::Code;
use crate::insn::{Insn, class, part};
use std::fmt;

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slots = self.insns().enumerate();
        while let Some((at, insn)) = slots.next() {
            if insn.code() == part::WIDE | class::LD
                && let Some((_, upper)) = slots.next()
            {
                let value = u64::from(upper.imm() as u32) << 32 | u64::from(insn.imm() as u32);
                match insn.src() {
                    0 => writeln!(f, "{at}: r{} = {value:#x} ll", insn.dst())?,
                    part::PSEUDO_MAP_FD => writeln!(f, "{at}: r{} = map[fd:{}]", insn.dst(), insn.imm())?,
                    part::PSEUDO_MAP_SLOT => writeln!(f, "{at}: r{} = map[{}]", insn.dst(), insn.imm())?,
                    part::PSEUDO_MAP_SLOT_VALUE => writeln!(f, "{at}: r{} = value[{}]", insn.dst(), insn.imm())?,
                    other => writeln!(f, "{at}: r{} = {value:#x} ll (pseudo {other})", insn.dst())?,
                }
                continue;
            }
            write!(f, "{at}: ")?;
            line(f, at, insn)?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, 0, *self)
    }
}

fn line(f: &mut fmt::Formatter<'_>, at: usize, i: Insn) -> fmt::Result {
    let (dst, src, off, imm) = (i.dst(), i.src(), i.off(), i.imm());
    let operation = i.code() & 0xf0;
    match i.code() & 0x07 {
        class::ALU | class::ALU64 if operation == part::SWAP => write!(f, "r{dst} = be{imm} r{dst}"),
        c @ (class::ALU | class::ALU64) => {
            let w = if c == class::ALU { 'w' } else { 'r' };
            let Some(sign) = alu_sign(operation) else { return unknown(f, i) };
            write!(f, "{w}{dst} {sign} ")?;
            if i.code() & part::BY_REG != 0 { write!(f, "{w}{src}") } else { write!(f, "{imm}") }
        }
        class::LDX if i.code() & 0xe0 == part::MEM => write!(f, "r{dst} = *({} *)(r{src} {off:+})", size_name(i)),
        class::ST if i.code() & 0xe0 == part::MEM => write!(f, "*({} *)(r{dst} {off:+}) = {imm}", size_name(i)),
        class::STX if i.code() & 0xe0 == part::MEM => write!(f, "*({} *)(r{dst} {off:+}) = r{src}", size_name(i)),
        class::STX if i.code() & 0xe0 == part::ATOMIC && imm == 0 => {
            write!(f, "lock *({} *)(r{dst} {off:+}) += r{src}", size_name(i))
        }
        class::STX if i.code() & 0xe0 == part::ATOMIC && imm == part::FETCH => {
            write!(f, "r{src} = fetch_add(*({} *)(r{dst} {off:+}), r{src})", size_name(i))
        }
        class::JMP if operation == part::CALL && src == part::PSEUDO_KERNEL_FUNCTION => {
            write!(f, "call kernel_function#{imm}")
        }
        class::JMP if operation == part::CALL => write!(f, "call {imm}"),
        class::JMP if operation == part::EXIT => write!(f, "exit"),
        class::JMP if operation == part::ALWAYS => write!(f, "goto {}", target(at, off)),
        c @ (class::JMP | class::JMP32) => {
            let w = if c == class::JMP32 { 'w' } else { 'r' };
            let Some(sign) = condition_sign(operation) else { return unknown(f, i) };
            write!(f, "if {w}{dst} {sign} ")?;
            if i.code() & part::BY_REG != 0 {
                write!(f, "{w}{src}")?
            } else {
                write!(f, "{imm}")?
            }
            write!(f, " goto {}", target(at, off))
        }
        _ => unknown(f, i),
    }
}

fn unknown(f: &mut fmt::Formatter<'_>, i: Insn) -> fmt::Result {
    write!(f, "unknown {:02x?}", i.bytes())
}

fn target(at: usize, off: i16) -> i64 {
    at as i64 + 1 + i64::from(off)
}

fn size_name(i: Insn) -> &'static str {
    match i.code() & 0x18 {
        0x10 => "u8",
        0x08 => "u16",
        0x00 => "u32",
        _ => "u64",
    }
}

fn alu_sign(operation: u8) -> Option<&'static str> {
    Some(match operation {
        0x00 => "+=",
        0x10 => "-=",
        0x20 => "*=",
        0x30 => "/=",
        0x40 => "|=",
        0x50 => "&=",
        0x60 => "<<=",
        0x70 => ">>=",
        0x90 => "%=",
        0xa0 => "^=",
        0xb0 => "=",
        0xc0 => "s>>=",
        _ => return None,
    })
}

fn condition_sign(operation: u8) -> Option<&'static str> {
    Some(match operation {
        0x10 => "==",
        0x20 => ">",
        0x30 => ">=",
        0x40 => "&",
        0x50 => "!=",
        0x60 => "s>",
        0x70 => "s>=",
        0xa0 => "<",
        0xb0 => "<=",
        0xc0 => "s<",
        0xd0 => "s<=",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Alu, Asm, Condition, Helper, Reg, Size};

    #[test]
    fn listings_use_the_notation_of_the_verifier_log() {
        let mut a = Asm::new();
        let end = a.label();
        a.load(Size::W, Reg::R2, Reg::R1, 16);
        a.store(Size::H, Reg::R10, -4, Reg::R2);
        a.store_imm(Size::B, Reg::R10, -8, 7);
        a.atomic_add(Size::Dw, Reg::R0, 8, Reg::R1);
        a.alu(Alu::Sar, Reg::R3, 5);
        a.alu32_reg(Alu::Mod, Reg::R3, Reg::R4);
        a.big_endian(Reg::R3, 16);
        a.wide(Reg::R1, 1 << 40);
        a.jump_if_reg(Condition::Sle, Reg::R1, Reg::R2, end);
        a.map_slot(Reg::R1, 3);
        a.value_slot(Reg::R2, 4);
        a.atomic_fetch_add(Size::Dw, Reg::R2, 8, Reg::R1);
        a.jump(end);
        a.call(Helper::MapLookupElem);
        a.call_kernel_function(9);
        a.place(end);
        a.exit();
        let listing = format!("{:?}", a.finish().unwrap());
        let expected = "0: r2 = *(u32 *)(r1 +16)\n1: *(u16 *)(r10 -4) = r2\n2: *(u8 *)(r10 -8) = 7\n\
            3: lock *(u64 *)(r0 +8) += r1\n4: r3 s>>= 5\n5: w3 %= w4\n6: r3 = be16 r3\n7: r1 = 0x10000000000 ll\n\
            9: if r1 s<= r2 goto 18\n10: r1 = map[3]\n12: r2 = value[4]\n14: r1 = fetch_add(*(u64 *)(r2 +8), r1)\n\
            15: goto 18\n16: call 1\n17: call kernel_function#9\n18: exit\n";
        assert_eq!(listing, expected);
    }
}
