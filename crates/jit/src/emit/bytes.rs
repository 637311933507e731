//! Bytes of a packet: whether they were captured, and what they are. The only place where they are loaded.

use super::Emitter;
use ::ir::Reg;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, Type, Value};

/// Bytes of a packet behind a promise.
const GUARANTEED: MemFlagsData = MemFlagsData::new().with_notrap().with_readonly().with_can_move();

impl Emitter<'_> {
    /// Whether so many bytes behind a base were captured, in eight bits.
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
        // A large base could wrap the sum around. One that is inside, in a packet of less than 4 GiB, cannot.
        let begins_inside = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, base, self.len);
        self.b.ins().band(begins_inside, ends_inside)
    }

    /// Whether a value is known to be below 2^32 because it was widened.
    fn is_small(&self, value: Value) -> bool {
        let dfg = &self.b.func.dfg;
        dfg.value_def(value).inst().is_some_and(|inst| dfg.insts[inst].opcode() == ir::Opcode::Uextend)
    }

    /// Bytes of the packet in network order. The only place where they are read.
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
            // Two loads of four bytes that overlap.
            _ => self.joined((I32, 0), (I32, u32::from(width) - 4), from, offset, 8 * (u64::from(width) - 4)),
        }
    }

    fn swapped(&mut self, ty: Type, from: Value, offset: u32) -> Value {
        let raw = self.b.ins().load(ty, GUARANTEED, from, offset as i32);
        let number = if ty == I8 { raw } else { self.b.ins().bswap(raw) };
        if ty == I64 { number } else { self.b.ins().uextend(I64, number) }
    }

    /// The first load above the low `bits` bits of the second.
    fn joined(&mut self, high: (Type, u32), low: (Type, u32), from: Value, offset: u32, bits: u64) -> Value {
        let (high, low) = (self.swapped(high.0, from, offset + high.1), self.swapped(low.0, from, offset + low.1));
        let (shift, mask) = (self.number(bits), self.number((1 << bits) - 1));
        let (high, low) = (self.b.ins().ishl(high, shift), self.b.ins().band(low, mask));
        self.b.ins().bor(high, low)
    }
}
