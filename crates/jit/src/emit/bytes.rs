//! Emits tests that packet bytes were captured, and loads of these bytes. No other module emits loads of packet bytes.

use super::Emitter;
use ::ir::Reg;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, Type, Value};

/// Flags of loads of packet bytes. A test before each of these loads has shown that the bytes were captured.
const GUARANTEED: MemFlagsData = MemFlagsData::new().with_notrap().with_readonly().with_can_move();

impl Emitter<'_> {
    /// Emits a test that `len` bytes at `base + offset` were captured; the result is a truth value of eight bits.
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
        // `base + bytes` may overflow if the base is large. It cannot overflow if the base is an offset in the packet,
        // because a packet has less than 4 GiB.
        let begins_inside = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, base, self.len);
        self.b.ins().band(begins_inside, ends_inside)
    }

    /// True if the upper 32 bits of the value are certainly zero, because the value was zero-extended.
    fn is_small(&self, value: Value) -> bool {
        let dfg = &self.b.func.dfg;
        dfg.value_def(value).inst().is_some_and(|inst| dfg.insts[inst].opcode() == ir::Opcode::Uextend)
    }

    /// Emits a load of packet bytes in network byte order. All loads of packet bytes are in this function.
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
            // Reads the bytes as two overlapping loads of four bytes.
            _ => self.joined((I32, 0), (I32, u32::from(width) - 4), from, offset, 8 * (u64::from(width) - 4)),
        }
    }

    fn swapped(&mut self, ty: Type, from: Value, offset: u32) -> Value {
        let raw = self.b.ins().load(ty, GUARANTEED, from, offset as i32);
        let number = if ty == I8 { raw } else { self.b.ins().bswap(raw) };
        if ty == I64 { number } else { self.b.ins().uextend(I64, number) }
    }

    /// Combines two loads: the value of the first is shifted left by `bits`, and the second supplies the low `bits`
    /// bits.
    fn joined(&mut self, high: (Type, u32), low: (Type, u32), from: Value, offset: u32, bits: u64) -> Value {
        let (high, low) = (self.swapped(high.0, from, offset + high.1), self.swapped(low.0, from, offset + low.1));
        let (shift, mask) = (self.number(bits), self.number((1 << bits) - 1));
        let (high, low) = (self.b.ins().ishl(high, shift), self.b.ins().band(low, mask));
        self.b.ins().bor(high, low)
    }
}
