//! Emits accesses to maps, sets and counters as calls of kernel helpers. Keys and values of a call are on the stack,
//! and values that are needed after the call are stored on the stack before the call.

use super::Emitter;
use super::number::immediate;
use crate::{MapKind, MapRequirement, MapValue, Role, SET_MAPS, frame};
use ebpf::{Alu, Condition, Helper, Label, Reg as R, Size};
use ir::{COUNTERS, Expiry, Inst, MAX_MAPS, Operand, Program, Reg, Set};

/// Maximum number of ranges of a set that is tested range by range; larger sets are in a longest-prefix-match trie.
const INLINE_RANGES: usize = 6;
/// Number of bits of an address; IPv4 addresses are stored in their IPv6 form.
const ADDRESS_BITS: u32 = 128;
/// The flag `BPF_NOEXIST`: create the entry only if there is none with the key.
const ONLY_NEW: i32 = 1;
/// The error `-EEXIST`: another queue has created the entry since the lookup.
const EXISTS: i32 = -17;
/// Number of bits of the set number, which precedes the address in a key.
const SET_BITS: u32 = 32;
/// Size in bytes of a key in a map of sets: prefix length, set number, and the address in network byte order.
const SET_KEY: u32 = 24;

/// Offsets within the value of a map entry.
mod entry {
    pub const NUMBER: i16 = 0;
    pub const STAMP: i16 = 8;
}

/// True if the code of the instruction calls a kernel helper, which clobbers r1 to r5.
pub(super) fn calls(inst: &Inst, program: &Program) -> bool {
    match inst {
        Inst::Has { .. }
        | Inst::MapGet { .. }
        | Inst::MapPut { .. }
        | Inst::MapAdd { .. }
        | Inst::MapDelete { .. }
        | Inst::Count { .. } => true,
        Inst::Member { set, .. } => program.sets.get(usize::from(*set)).is_some_and(|s| few(s).is_none()),
        _ => false,
    }
}

impl Emitter<'_> {
    fn flow_map(&mut self, map: u16) -> u16 {
        let m = &self.form.program.maps[usize::from(map)];
        let need = MapRequirement {
            role: Role::Flow(map),
            name: m.name.clone(),
            kind: MapKind::Hash,
            key: u32::from(m.words) * 8,
            value: MapValue::BYTES as u32,
            entries: m.capacity,
            content: vec![],
            semantics: format!("flow map {m}"),
        };
        self.map(Role::Flow(map), || need)
    }

    fn counters(&mut self) -> u16 {
        // The size of this map is the same for all programs, so the counters continue when another program replaces
        // this program.
        let numbers = usize::from(COUNTERS) + MAX_MAPS;
        self.map(Role::Counters, || MapRequirement {
            role: Role::Counters,
            name: "ng_counters".into(),
            kind: MapKind::PerCpuArray,
            key: 4,
            value: 8 * numbers as u32,
            entries: 1,
            content: vec![],
            semantics: "counters".into(),
        })
    }

    fn key(&mut self, key: &[Reg]) {
        for (i, word) in key.iter().enumerate() {
            let word = self.read(*word, R::R0);
            self.asm.store(Size::Dw, R::R10, frame::KEY + 8 * i as i16, word);
        }
    }

    /// Emits code that writes the value of a new entry to the stack.
    fn value(&mut self, map: u16, value: Operand) {
        match value {
            Operand::Imm(n) if immediate(n).is_some() => {
                self.asm.store_imm(Size::Dw, R::R10, frame::VALUE + entry::NUMBER, n as i32);
            }
            _ => {
                let value = self.operand(value, R::R0);
                self.asm.store(Size::Dw, R::R10, frame::VALUE + entry::NUMBER, value);
            }
        }
        if self.expiry(map) == Expiry::Never {
            self.asm.store_imm(Size::Dw, R::R10, frame::VALUE + entry::STAMP, 0);
        } else {
            self.asm.load(Size::Dw, R::R0, R::R10, frame::TIME);
            self.asm.store(Size::Dw, R::R10, frame::VALUE + entry::STAMP, R::R0);
        }
    }

    fn expiry(&self, map: u16) -> Expiry {
        self.form.program.maps[usize::from(map)].expiry
    }

    /// Emits a lookup of the key on the stack. After the lookup, r0 contains the address of the entry's value, or 0 if
    /// the map does not contain the key.
    fn look_up(&mut self, slot: u16, key: i16) {
        self.asm.map_slot(R::R1, slot);
        self.asm.mov_reg(R::R2, R::R10);
        self.asm.alu(Alu::Add, R::R2, key.into());
        self.asm.call(Helper::MapLookupElem);
    }

    /// Emits a jump to `gone` that is taken if the entry whose address is in r0 has expired.
    fn unless_expired(&mut self, map: u16, gone: Label) {
        let (Expiry::Idle(ns) | Expiry::Lifetime(ns)) = self.expiry(map) else { return };
        let fresh = self.asm.label();
        self.asm.load(Size::Dw, R::R1, R::R0, entry::STAMP);
        self.asm.load(Size::Dw, R::R2, R::R10, frame::TIME);
        self.asm.jump_if_reg(Condition::Le, R::R2, R::R1, fresh);
        self.asm.alu_reg(Alu::Sub, R::R2, R::R1);
        match immediate(ns) {
            Some(ns) => self.asm.jump_if(Condition::Gt, R::R2, ns, gone),
            None => {
                self.asm.wide(R::R1, ns);
                self.asm.jump_if_reg(Condition::Gt, R::R2, R::R1, gone);
            }
        }
        self.asm.place(fresh);
    }

    /// If the map has an idle timeout, emits code that renews the timestamp of the entry whose address is in r0.
    /// Clobbers r1 and r2.
    fn touch(&mut self, map: u16) {
        if !matches!(self.expiry(map), Expiry::Idle(_)) {
            return;
        }
        let newer = self.asm.label();
        self.asm.load(Size::Dw, R::R1, R::R0, entry::STAMP);
        self.asm.load(Size::Dw, R::R2, R::R10, frame::TIME);
        self.asm.jump_if_reg(Condition::Le, R::R2, R::R1, newer);
        self.asm.store(Size::Dw, R::R0, entry::STAMP, R::R2);
        self.asm.place(newer);
    }

    pub(super) fn has(&mut self, to: Reg, map: u16, key: &[Reg]) {
        let (slot, absent, end) = (self.flow_map(map), self.asm.label(), self.asm.label());
        self.key(key);
        self.look_up(slot, frame::KEY);
        self.asm.jump_if(Condition::Eq, R::R0, 0, absent);
        self.unless_expired(map, absent);
        self.asm.mov(R::R0, 1);
        self.asm.jump(end);
        self.asm.place(absent);
        self.asm.mov(R::R0, 0);
        self.asm.place(end);
        self.write(to, R::R0);
    }

    pub(super) fn map_get(&mut self, to: Reg, map: u16, key: &[Reg]) {
        let (slot, absent, end) = (self.flow_map(map), self.asm.label(), self.asm.label());
        self.key(key);
        self.look_up(slot, frame::KEY);
        self.asm.jump_if(Condition::Eq, R::R0, 0, absent);
        self.unless_expired(map, absent);
        self.touch(map);
        self.asm.load(Size::Dw, R::R0, R::R0, entry::NUMBER);
        self.asm.jump(end);
        self.asm.place(absent);
        self.asm.mov(R::R0, 0);
        self.asm.place(end);
        self.write(to, R::R0);
    }

    pub(super) fn map_put(&mut self, map: u16, key: &[Reg], value: Operand) {
        let (slot, absent, end) = (self.flow_map(map), self.asm.label(), self.asm.label());
        let gone = self.asm.label();
        self.value(map, value);
        self.key(key);
        self.look_up(slot, frame::KEY);
        self.asm.jump_if(Condition::Eq, R::R0, 0, absent);
        self.unless_expired(map, gone);
        self.touch(map);
        self.asm.load(Size::Dw, R::R1, R::R10, frame::VALUE + entry::NUMBER);
        self.asm.store(Size::Dw, R::R0, entry::NUMBER, R::R1);
        self.asm.jump(end);
        self.renew(map, gone, end);
        self.asm.place(absent);
        self.insert(slot, map);
        self.asm.place(end);
    }

    pub(super) fn map_add(&mut self, to: Reg, map: u16, key: &[Reg], by: Operand) {
        let (slot, found, gone, end) = (self.flow_map(map), self.asm.label(), self.asm.label(), self.asm.label());
        self.value(map, by);
        self.key(key);
        self.look_up(slot, frame::KEY);
        self.asm.jump_if(Condition::Ne, R::R0, 0, found);
        // The code inserts an entry with the number 0 and then adds to this number atomically. So if another queue
        // inserts an entry with the same key at the same time, the additions of both queues are counted.
        self.asm.load(Size::Dw, R::R1, R::R10, frame::VALUE + entry::NUMBER);
        self.asm.store(Size::Dw, R::R10, frame::ADDEND, R::R1);
        self.asm.store_imm(Size::Dw, R::R10, frame::VALUE + entry::NUMBER, 0);
        self.insert(slot, map);
        self.asm.load(Size::Dw, R::R1, R::R10, frame::ADDEND);
        self.asm.store(Size::Dw, R::R10, frame::VALUE + entry::NUMBER, R::R1);
        self.look_up(slot, frame::KEY);
        self.asm.jump_if(Condition::Eq, R::R0, 0, gone);
        self.asm.place(found);
        if self.expiry(map) == Expiry::Never {
            self.add(end);
        } else {
            let old = self.asm.label();
            self.unless_expired(map, old);
            self.touch(map);
            self.add(end);
            self.renew(map, old, gone);
        }
        self.asm.place(gone);
        self.asm.load(Size::Dw, R::R0, R::R10, frame::VALUE + entry::NUMBER);
        self.asm.place(end);
        self.write(to, R::R0);
    }

    /// Emits an atomic addition of the number on the stack to the entry whose address is in r0. After the addition, r0
    /// contains the sum.
    fn add(&mut self, then: Label) {
        self.asm.load(Size::Dw, R::R2, R::R10, frame::VALUE + entry::NUMBER);
        self.asm.mov_reg(R::R1, R::R2);
        // The addition is atomic, because packets of a flow may arrive on several queues, so several CPUs may update
        // the entry.
        self.asm.atomic_fetch_add(Size::Dw, R::R0, entry::NUMBER, R::R1);
        self.asm.alu_reg(Alu::Add, R::R1, R::R2);
        self.asm.mov_reg(R::R0, R::R1);
        self.asm.jump(then);
    }

    pub(super) fn map_delete(&mut self, map: u16, key: &[Reg]) {
        let slot = self.flow_map(map);
        self.key(key);
        self.asm.map_slot(R::R1, slot);
        self.asm.mov_reg(R::R2, R::R10);
        self.asm.alu(Alu::Add, R::R2, frame::KEY.into());
        self.asm.call(Helper::MapDeleteElem);
    }

    /// Emits code that overwrites the expired entry whose address is in r0 with the value on the stack.
    fn renew(&mut self, map: u16, gone: Label, then: Label) {
        if self.expiry(map) == Expiry::Never {
            return;
        }
        self.asm.place(gone);
        for at in [entry::NUMBER, entry::STAMP] {
            self.asm.load(Size::Dw, R::R1, R::R10, frame::VALUE + at);
            self.asm.store(Size::Dw, R::R0, at, R::R1);
        }
        self.asm.jump(then);
    }

    /// Emits code that inserts an entry with the key and the value on the stack. If the map is full, the code counts
    /// the entry as refused.
    fn insert(&mut self, slot: u16, map: u16) {
        let done = self.asm.label();
        self.asm.map_slot(R::R1, slot);
        self.asm.mov_reg(R::R2, R::R10);
        self.asm.alu(Alu::Add, R::R2, frame::KEY.into());
        self.asm.mov_reg(R::R3, R::R10);
        self.asm.alu(Alu::Add, R::R3, frame::VALUE.into());
        self.asm.mov(R::R4, ONLY_NEW);
        self.asm.call(Helper::MapUpdateElem);
        self.asm.jump_if(Condition::Eq, R::R0, 0, done);
        self.asm.jump_if(Condition::Eq, R::R0, EXISTS, done);
        self.raise(i16::from(COUNTERS) + map as i16, None);
        self.asm.place(done);
    }

    pub(super) fn count(&mut self, counter: u8, by: Operand) {
        if let Operand::Reg(by) = by {
            let by = self.read(by, R::R0);
            self.asm.store(Size::Dw, R::R10, frame::VALUE, by);
        }
        self.raise(counter.into(), Some(by));
    }

    /// Emits code that adds a constant, the number on the stack, or 1 to a counter.
    fn raise(&mut self, number: i16, by: Option<Operand>) {
        let (slot, none) = (self.counters(), self.asm.label());
        self.asm.store_imm(Size::W, R::R10, frame::INDEX, 0);
        self.look_up(slot, frame::INDEX);
        self.asm.jump_if(Condition::Eq, R::R0, 0, none);
        self.asm.load(Size::Dw, R::R1, R::R0, 8 * number);
        match by {
            None => self.asm.alu(Alu::Add, R::R1, 1),
            Some(Operand::Imm(n)) => match immediate(n) {
                Some(n) => self.asm.alu(Alu::Add, R::R1, n),
                None => {
                    self.asm.wide(R::R2, n);
                    self.asm.alu_reg(Alu::Add, R::R1, R::R2);
                }
            },
            Some(Operand::Reg(_)) => {
                self.asm.load(Size::Dw, R::R2, R::R10, frame::VALUE);
                self.asm.alu_reg(Alu::Add, R::R1, R::R2);
            }
        }
        // The addition need not be atomic: each CPU has its own value, and XDP programs do not interrupt each other.
        self.asm.store(Size::Dw, R::R0, 8 * number, R::R1);
        self.asm.place(none);
    }

    pub(super) fn member(&mut self, to: Reg, set: u16, hi: Reg, lo: Reg) {
        let program = &self.form.program;
        let table = &program.sets[usize::from(set)];
        let (yes, end) = (self.asm.label(), self.asm.label());
        if let Some(ranges) = few(table) {
            let (hi, lo) = (self.read(hi, R::R1), self.read(lo, R::R2));
            for range in ranges {
                let next = self.asm.label();
                if let Some(same) = range.hi {
                    self.constant(R::R0, same);
                    self.asm.jump_if_reg(Condition::Ne, hi, R::R0, next);
                }
                let of = if range.hi.is_some() { lo } else { hi };
                if range.first > 0 {
                    self.constant(R::R0, range.first);
                    self.asm.jump_if_reg(Condition::Lt, of, R::R0, next);
                }
                self.constant(R::R0, range.last);
                self.asm.jump_if_reg(Condition::Le, of, R::R0, yes);
                self.asm.place(next);
            }
            self.asm.mov(R::R0, 0);
        } else {
            let slot = self.sets(set, table);
            let (hi, lo) = (self.read(hi, R::R0), self.read(lo, R::R1));
            self.asm.store(Size::Dw, R::R10, frame::KEY + 8, hi);
            self.asm.store(Size::Dw, R::R10, frame::KEY + 16, lo);
            for at in [8, 16] {
                self.asm.load(Size::Dw, R::R0, R::R10, frame::KEY + at);
                self.asm.big_endian(R::R0, 64);
                self.asm.store(Size::Dw, R::R10, frame::KEY + at, R::R0);
            }
            self.asm.store_imm(Size::W, R::R10, frame::KEY, (SET_BITS + ADDRESS_BITS) as i32);
            self.asm.store_imm(Size::W, R::R10, frame::KEY + 4, u32::from(set).to_be().cast_signed());
            self.look_up(slot, frame::KEY);
            self.asm.jump_if(Condition::Ne, R::R0, 0, yes);
        }
        self.asm.jump(end);
        self.asm.place(yes);
        self.asm.mov(R::R0, 1);
        self.asm.place(end);
        self.write(to, R::R0);
    }

    /// Returns the index of the map that contains this large set. The first call adds the set to the map.
    ///
    /// A program with a rule for each customer may have a set for each customer, but a program has at most
    /// [`crate::MAPS_MAX`] maps. Hence several sets share a map if there are more than [`SET_MAPS`] sets.
    ///
    /// PERF: additional time of a lookup if the trie contains one set: 0 ns; two sets: 3 ns; eight: 10 ns; seventy: 30
    /// ns. Hence each set has a separate trie if the program has at most [`SET_MAPS`] sets.
    fn sets(&mut self, set: u16, table: &Set) -> u16 {
        let (role, name) = (Role::Sets(set % SET_MAPS), format!("ng_sets_{}", set % SET_MAPS));
        let slot = self.map(role, || MapRequirement {
            role,
            name,
            kind: MapKind::LpmTrie,
            key: SET_KEY,
            value: 4,
            entries: 0,
            content: vec![],
            semantics: String::new(),
        });
        let Set::Ranges(ranges) = table else { return slot };
        if !self.tries.insert(set) {
            return slot;
        }
        let number = u32::from(set).to_be_bytes();
        let need = &mut self.maps[usize::from(slot)];
        need.content.extend(ranges.iter().flat_map(|r| prefixes(*r)).map(|(address, bits)| {
            let mut key = (SET_BITS + bits).to_ne_bytes().to_vec();
            key.extend(number);
            key.extend(address.to_be_bytes());
            (key, 1_u32.to_ne_bytes().to_vec())
        }));
        need.entries = need.content.len() as u32;
        let sum = need.content.iter().flat_map(|c| &c.0).fold(0, |sum, b| base::hash::combine(sum, u64::from(*b)));
        need.semantics = format!("sets {sum:016x}");
        slot
    }
}

/// The prefixes whose union is an address range; each has an address and a prefix length from 0 to 128.
fn prefixes((first, last): (u128, u128)) -> Vec<(u128, u32)> {
    let mut out = Vec::new();
    let mut from = first;
    loop {
        // log2 of the size of the largest aligned block of addresses that begins at `from` and is inside the range.
        let aligned = from.trailing_zeros().min(ADDRESS_BITS);
        let size = (0..=aligned).rev().find(|n| block_end(from, *n) <= last).unwrap_or(0);
        out.push((from, ADDRESS_BITS - size));
        match block_end(from, size).checked_add(1) {
            Some(next) if next <= last => from = next,
            _ => return out,
        }
    }
}

/// The last address of a block of 2^n addresses that begins at `from`.
const fn block_end(from: u128, n: u32) -> u128 {
    if n >= ADDRESS_BITS { u128::MAX } else { from | ((1 << n) - 1) }
}

/// An address range that can be tested by comparisons of one 64-bit half of an address: of the low half if all
/// addresses of the range have the same high half `hi`, otherwise of the high half.
struct Simple {
    hi: Option<u64>,
    first: u64,
    last: u64,
}

/// Returns the ranges of an address set that is tested range by range; `None` if the set has too many ranges, or a
/// range that [`Simple`] comparisons cannot test.
fn few(set: &Set) -> Option<Vec<Simple>> {
    match set {
        Set::Host => Some(vec![]),
        Set::Ranges(ranges) if ranges.len() > INLINE_RANGES => None,
        Set::Ranges(ranges) => ranges.iter().map(|r| Simple::of(*r)).collect(),
    }
}

impl Simple {
    fn of((first, last): (u128, u128)) -> Option<Self> {
        let halves = |n: u128| ((n >> 64) as u64, n as u64);
        let ((first_hi, first_lo), (last_hi, last_lo)) = (halves(first), halves(last));
        if (first_lo, last_lo) == (0, u64::MAX) {
            return Some(Self { hi: None, first: first_hi, last: last_hi });
        }
        (first_hi == last_hi).then_some(Self { hi: Some(first_hi), first: first_lo, last: last_lo })
    }
}
