//! Packet bytes: tests that they were captured, and their loads. No other module loads packet bytes.

use super::Emitter;
use ::ir::Reg;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, Type, Value};

/// Flags of loads within tested bounds.
const GUARANTEED: MemFlagsData = MemFlagsData::new().with_notrap().with_readonly().with_can_move();

impl Emitter<'_> {
    /// True (in eight bits) if so many bytes after a base were captured.
    pub(super) fn fits(&mut self, base: Option<Reg>, bytes: u32) -> Value {
        let bytes = self.number(bytes.into());
        let Some(base) = base else {
            return self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, bytes, self.len);
        };
        let base = self.reg(base);
        let end = self.b.ins().iadd(base, bytes);
        let ends_inside = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, self.len);
        if self.is_small(base) {
            return ends_inside;
        }
        // The sum may overflow if the base is large. A base inside the packet, which has less than 4 GiB, cannot
        // overflow it.
        let begins_inside = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, base, self.len);
        self.b.ins().band(begins_inside, ends_inside)
    }

    /// True if the value is below 2^32 because it was zero-extended.
    fn is_small(&self, value: Value) -> bool {
        let dfg = &self.b.func.dfg;
        dfg.value_def(value).inst().is_some_and(|inst| dfg.insts[inst].opcode() == ir::Opcode::Uextend)
    }

    /// Loads packet bytes in network byte order. All loads of packet bytes are here.
    pub(super) fn bytes(&mut self, base: Option<Reg>, offset: u32, width: u8) -> Value {
        let from = match base {
            Some(base) => {
                let base = self.reg(base);
                self.b.ins().iadd(self.start, base)
            }
            None => self.start,
        };
        match width {
            1 => self.swapped(I8, from, offset),
            2 => self.swapped(I16, from, offset),
            3 => self.joined((I16, 0), (I8, 2), from, offset, 8),
            4 => self.swapped(I32, from, offset),
            8 => self.swapped(I64, from, offset),
            // Two overlapping loads of four bytes.
            _ => self.joined((I32, 0), (I32, u32::from(width) - 4), from, offset, 8 * (u64::from(width) - 4)),
        }
    }

    fn swapped(&mut self, ty: Type, from: Value, offset: u32) -> Value {
        let raw = self.b.ins().load(ty, GUARANTEED, from, offset as i32);
        let number = if ty == I8 { raw } else { self.b.ins().bswap(raw) };
        if ty == I64 { number } else { self.b.ins().uextend(I64, number) }
    }

    /// Two loads combined: the first is shifted left by `bits`, the second gives the low `bits` bits.
    fn joined(&mut self, high: (Type, u32), low: (Type, u32), from: Value, offset: u32, bits: u64) -> Value {
        let (high, low) = (self.swapped(high.0, from, offset + high.1), self.swapped(low.0, from, offset + low.1));
        let (shift, mask) = (self.number(bits), self.number((1 << bits) - 1));
        let (high, low) = (self.b.ins().ishl(high, shift), self.b.ins().band(low, mask));
        self.b.ins().bor(high, low)
    }
}
