//! The XDP program that turns a frame into the next frame of the test traffic, and the XDP program that reads the
//! clock.
//!
//! ```text
//! sequence = *counter; *counter += 1
//! flow     = flows[sequence % flow count]
//! frame[24..38] = flow.bytes
//! departure     = ktime_get_tai_ns() - (TAI - UTC)
//! frame[44..56] = sequence (48 bit), departure (48 bit), big-endian
//! frame[n-4..n] = flow.crc ^ tables[0][frame[44]] ^ … ^ tables[11][frame[55]]
//! return redirect(port)
//! ```
//! The kernel passes the same pages repeatedly without restoring them (`xdp_test_run_batch` in net/bpf/test_run.c), so
//! the program writes every byte that differs between frames each time; all other bytes are those of the template. One
//! thread runs the program, so the counter needs no atomics. The maps hold CRCs in network byte order: XOR does not
//! depend on byte order, and the frame receives them unchanged.

use bpf::{Alu, Asm, Code, Condition, Helper, Map, MapKind, Reg, Size, XdpAction};
use r#gen::{FlowPart, Parts};
use std::io;

/// The sequence number and the departure time in the timestamp field of a frame have 48 bits each.
pub(super) const LOW_48: u64 = (1 << 48) - 1;

/// Offsets in `struct xdp_md`.
mod context {
    pub const DATA: i16 = 0;
    pub const DATA_END: i16 = 4;
}

/// Offsets in a value of the map of flows.
mod flow {
    /// 14 bytes.
    pub const BYTES: i16 = 0;
    /// The CRC of the flow's bytes: 4 bytes in network byte order.
    pub const CRC: i16 = 16;
    /// Number of 4-byte words in a value of the map of flows.
    pub const WORDS: usize = 5;
}

/// Size in bytes of one CRC table, which has 256 CRCs of 4 bytes.
const TABLE_BYTES: i16 = 1024;
/// Number of bytes of a timestamp field. For each of these bytes there is a CRC table.
const STAMP_BYTES: i16 = 12;

/// The maps of the program.
pub(super) struct Maps {
    counter: Map<u32, u64>,
    flows: Map<u32, [u32; flow::WORDS]>,
    tables: Map<u32, [[u32; 256]; STAMP_BYTES as usize]>,
}

impl Maps {
    /// Creates the maps for these frames; the first frame has the sequence number `first`.
    pub(super) fn create(parts: &Parts, first: u64) -> io::Result<Self> {
        let maps = Self {
            counter: Map::create(MapKind::Array, "ng_gen_counter", 1)?,
            flows: Map::create(MapKind::Array, "ng_gen_flows", parts.flows())?,
            tables: Map::create(MapKind::Array, "ng_gen_tables", 1)?,
        };
        maps.counter.set(0, first)?;
        for id in 0..parts.flows() {
            maps.flows.set(id, words(parts.flow(id)))?;
        }
        maps.tables.set(0, parts.stamp_tables().map(|table| table.map(u32::to_be)))?;
        Ok(maps)
    }

    /// The sequence number of the next frame.
    pub(super) fn next(&self) -> io::Result<u64> {
        Ok(self.counter.get(0)?.unwrap_or_default())
    }
}

fn words(part: FlowPart) -> [u32; flow::WORDS] {
    let mut bytes = [0; flow::WORDS * 4];
    bytes[..part.bytes.len()].copy_from_slice(&part.bytes);
    bytes[flow::CRC as usize..].copy_from_slice(&part.crc.to_be_bytes());
    std::array::from_fn(|i| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[i * 4 + byte])))
}

/// The program shown in the documentation of this module, for frames of `len` bytes in `flows` flows, sent through the
/// interface `ifindex`. TAI is `tai_ahead` nanoseconds ahead of UTC.
pub(super) fn code(maps: &Maps, len: usize, flows: u32, ifindex: u32, tai_ahead: u64) -> Code {
    const INDEX_ON_STACK: i16 = -4;
    let (flow_at, stamp_at, crc_at) = (Parts::FLOW_AT as i16, Parts::STAMP_AT as i16, len as i16 - 4);
    let (frame, sequence, crc, departure) = (Reg::R6, Reg::R8, Reg::R7, Reg::R9);
    let mut asm = Asm::new();
    let abort = asm.label();
    asm.load(Size::W, frame, Reg::R1, context::DATA);
    asm.load(Size::W, Reg::R2, Reg::R1, context::DATA_END);
    asm.mov_reg(Reg::R3, frame);
    asm.alu(Alu::Add, Reg::R3, len as i32);
    asm.jump_if_reg(Condition::Gt, Reg::R3, Reg::R2, abort);

    let value_of = |asm: &mut Asm, map: &dyn Fn(&mut Asm)| {
        map(asm);
        asm.mov_reg(Reg::R2, Reg::R10);
        asm.alu(Alu::Add, Reg::R2, i32::from(INDEX_ON_STACK));
        asm.call(Helper::MapLookupElem);
        asm.jump_if(Condition::Eq, Reg::R0, 0, abort);
    };
    asm.store_imm(Size::W, Reg::R10, INDEX_ON_STACK, 0);
    value_of(&mut asm, &|asm| asm.map(Reg::R1, &maps.counter));
    asm.load(Size::Dw, sequence, Reg::R0, 0);
    asm.mov_reg(Reg::R1, sequence);
    asm.alu(Alu::Add, Reg::R1, 1);
    asm.store(Size::Dw, Reg::R0, 0, Reg::R1);

    asm.mov_reg(Reg::R1, sequence);
    asm.alu(Alu::Mod, Reg::R1, flows as i32);
    asm.store(Size::W, Reg::R10, INDEX_ON_STACK, Reg::R1);
    value_of(&mut asm, &|asm| asm.map(Reg::R1, &maps.flows));
    for (size, at) in [(Size::Dw, 0), (Size::W, 8), (Size::H, 12)] {
        asm.load(size, Reg::R1, Reg::R0, flow::BYTES + at);
        asm.store(size, frame, flow_at + at, Reg::R1);
    }
    asm.load(Size::W, crc, Reg::R0, flow::CRC);

    asm.store_imm(Size::W, Reg::R10, INDEX_ON_STACK, 0);
    asm.call(Helper::KtimeGetTaiNs);
    asm.wide(departure, tai_ahead);
    asm.alu_reg(Alu::Sub, Reg::R0, departure);
    asm.mov_reg(departure, Reg::R0);

    // The timestamp field in two words, of 8 and of 4 bytes: sequence number and upper 16 bits of the departure time,
    // then its lower 32 bits.
    asm.alu(Alu::Shl, sequence, 16);
    asm.mov_reg(Reg::R1, departure);
    asm.alu(Alu::Shr, Reg::R1, 32);
    asm.alu(Alu::And, Reg::R1, 0xffff);
    asm.alu_reg(Alu::Or, sequence, Reg::R1);
    for (size, bits, word, at) in [(Size::Dw, 64, sequence, 0), (Size::W, 32, departure, 8)] {
        asm.mov_reg(Reg::R1, word);
        asm.big_endian(Reg::R1, bits);
        asm.store(size, frame, stamp_at + at, Reg::R1);
    }

    value_of(&mut asm, &|asm| asm.map(Reg::R1, &maps.tables));
    for position in 0..STAMP_BYTES {
        let (word, below) = if position < 8 { (sequence, 56 - 8 * position) } else { (departure, 88 - 8 * position) };
        // The offset of the byte's CRC in the table: four times the value of the byte.
        asm.mov_reg(Reg::R1, word);
        match below {
            0 => asm.alu(Alu::Shl, Reg::R1, 2),
            _ => asm.alu(Alu::Shr, Reg::R1, i32::from(below) - 2),
        }
        asm.alu(Alu::And, Reg::R1, 0xff << 2);
        asm.alu_reg(Alu::Add, Reg::R1, Reg::R0);
        asm.load(Size::W, Reg::R1, Reg::R1, position * TABLE_BYTES);
        asm.alu_reg(Alu::Xor, crc, Reg::R1);
    }
    asm.store(Size::W, frame, crc_at, crc);

    asm.mov(Reg::R1, ifindex as i32);
    asm.mov(Reg::R2, 0);
    asm.call(Helper::Redirect);
    asm.exit();
    asm.place(abort);
    asm.mov(Reg::R0, XdpAction::Aborted.number());
    asm.exit();
    asm.finish().expect("the label is placed within reach of a jump")
}

/// Writes the kernel's TAI, as the program above reads it, to the first eight bytes of the frame, in host byte order.
pub(super) fn clock_code() -> Code {
    let mut asm = Asm::new();
    let out = asm.label();
    asm.load(Size::W, Reg::R6, Reg::R1, context::DATA);
    asm.load(Size::W, Reg::R2, Reg::R1, context::DATA_END);
    asm.mov_reg(Reg::R3, Reg::R6);
    asm.alu(Alu::Add, Reg::R3, 8);
    asm.jump_if_reg(Condition::Gt, Reg::R3, Reg::R2, out);
    asm.call(Helper::KtimeGetTaiNs);
    asm.store(Size::Dw, Reg::R6, 0, Reg::R0);
    asm.place(out);
    asm.mov(Reg::R0, XdpAction::Drop.number());
    asm.exit();
    asm.finish().expect("the label is placed within reach of a jump")
}
