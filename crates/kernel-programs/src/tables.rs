//! Maps, sets and counters, by calls of kernel helpers. The keys and values for a call are on the stack; values that
//! are needed after the call are stored there before.

use super::compile::Emitter;
use super::number::immediate;
use super::{MapKind, MapRequirement, MapValue, Role, SET_MAPS, frame};
use ebpf::{Alu, Condition, Helper, Label, Reg as R, Size};
use ir::{COUNTERS, Expiry, Inst, MAX_MAPS, Operand, Program, Reg, Set};

/// Maximum number of ranges of a set that are compared one by one; a larger set is in a trie.
const INLINE_RANGES: usize = 6;
/// Bits of an address in its IPv6 form.
const ADDRESS_BITS: u32 = 128;
/// `BPF_NOEXIST`: creates the entry only if it is absent.
const ONLY_NEW: i32 = 1;
/// `-EEXIST`: another queue created the entry first.
const EXISTS: i32 = -17;
/// Bits of the set number, which precedes the address in the key.
const SET_BITS: u32 = 32;
/// Size of a key of the sets in bytes: prefix length, set number, and the address in network order.
const SET_KEY: u32 = 24;

/// Offsets within the value of an entry.
mod entry {
    pub const NUMBER: i16 = 0;
    pub const STAMP: i16 = 8;
}

/// True if the instruction calls a kernel helper, which clobbers r1 to r5.
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
        // The size does not depend on the program, so the counters continue when another program replaces this program.
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

    /// Writes the value of a new entry to the stack.
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

    /// r0 = the address of the value for the key on the stack; 0 if there is none.
    fn look_up(&mut self, slot: u16, key: i16) {
        self.asm.map_slot(R::R1, slot);
        self.asm.mov_reg(R::R2, R::R10);
        self.asm.alu(Alu::Add, R::R2, key.into());
        self.asm.call(Helper::MapLookupElem);
    }

    /// Jumps to `gone` if the entry at r0 has expired.
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

    /// Touches the entry at r0 if the map has an idle timeout. Clobbers r1 and r2.
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
        // Insert an entry with the number 0, then add to it: if another queue inserts the entry meanwhile, neither
        // addend is lost.
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

    /// Atomically adds the number on the stack to the entry at r0. r0 = the sum.
    fn add(&mut self, then: Label) {
        self.asm.load(Size::Dw, R::R2, R::R10, frame::VALUE + entry::NUMBER);
        self.asm.mov_reg(R::R1, R::R2);
        // Packets of a flow may arrive on several queues.
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

    /// Replaces the expired entry at r0 by the value on the stack.
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

    /// Inserts an entry with the key and the value on the stack; counts the refusal if the map is full.
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

    /// Adds a constant, the number on the stack, or 1 to a counter.
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
        // Not atomic: each CPU has its own value, and XDP programs do not interrupt each other.
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

    /// The map that holds a large set; the first call adds the set to the map.
    ///
    /// A program with a rule for each customer has a set for each customer, but a program has at most
    /// [`super::MAPS_MAX`] maps. Hence more than [`SET_MAPS`] sets share maps.
    ///
    /// PERF: additional time of a lookup in a trie: with one set 0, two 3, eight 10, seventy 30 ns. So up to
    /// [`SET_MAPS`] sets, each set has a trie of its own.
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

/// The prefixes that make up a range: each an address and a prefix length of the 128-bit form.
fn prefixes((first, last): (u128, u128)) -> Vec<(u128, u32)> {
    let mut out = Vec::new();
    let mut from = first;
    loop {
        // The largest aligned block that begins here and does not exceed the range.
        let aligned = from.trailing_zeros().min(ADDRESS_BITS);
        let size = (0..=aligned).rev().find(|n| block_end(from, *n) <= last).unwrap_or(0);
        out.push((from, ADDRESS_BITS - size));
        match block_end(from, size).checked_add(1) {
            Some(next) if next <= last => from = next,
            _ => return out,
        }
    }
}

/// The last address of a block of 2^n addresses.
const fn block_end(from: u128, n: u32) -> u128 {
    if n >= ADDRESS_BITS { u128::MAX } else { from | ((1 << n) - 1) }
}

/// A range of addresses that comparisons of one half decide: of the low half if all addresses have the high half `hi`,
/// otherwise of the high half.
struct Simple {
    hi: Option<u64>,
    first: u64,
    last: u64,
}

/// The ranges of a set, if they are few enough and simple enough to be compared one by one.
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
