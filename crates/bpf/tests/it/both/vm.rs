//! A strict eBPF interpreter (RFC 9669) with maps, which needs no privileges. A test fails if the program accesses
//! memory out of bounds, or reads a byte of the stack that it has not written.

use super::kernel::{Machine, RunResult, metadata};
use ir::{COUNTERS, MAX_MAPS, Program as Ir};
use kernel_programs::{MapKind, MapValue, Object, PacketOutcome, QueueGenerations, Role};
use netgrain_bpf::Insn;
use std::collections::BTreeMap;

const CONTEXT: u64 = 0x0001_0000;
const HEADROOM: usize = 256;
const STACK: usize = 512;
/// Addresses consist of a region number, shifted left by this number of bits, and an offset in the region.
const REGION: u32 = 20;
const PACKET: u64 = 1;
const STACK_REGION: u64 = 2;
const FIRST_VALUE: u64 = 3;
/// The number by which helper calls refer to a map is this constant plus the index of the map.
const MAP: u64 = 0x7000_0000;
const E2BIG: i64 = -7;
const EEXIST: i64 = -17;
const EINVAL: i64 = -22;
const REDIRECT: u64 = 4;

pub struct Vm {
    pub object: Object,
    code: Vec<Insn>,
    /// For each map, the addresses of the values by key.
    maps: Vec<BTreeMap<Vec<u8>, u64>>,
    values: Vec<Vec<u8>>,
    /// Number of instructions that the last run executed.
    pub steps: u64,
    /// The index of the interface through which the last run sent its packet; `None` if it sent none.
    pub egress_interface: Option<u32>,
    /// True if the simulated driver leaves space for metadata before a frame.
    pub has_metadata_space: bool,
}

struct Run<'a> {
    vm: &'a mut Vm,
    packet: Vec<u8>,
    data_meta: usize,
    stack: [Option<u8>; STACK],
    r: [u64; 11],
}

impl Vm {
    pub fn load(object: Object) -> Self {
        let code = object.code.insns().collect();
        let mut vm = Self {
            code,
            maps: vec![],
            values: vec![],
            object,
            steps: 0,
            egress_interface: None,
            has_metadata_space: true,
        };
        for need in vm.object.maps.clone() {
            let mut map = BTreeMap::new();
            let is_array = matches!(need.kind, MapKind::Array | MapKind::PerCpuArray | MapKind::DevMap);
            for index in (0..need.entries).filter(|_| is_array) {
                let at = vm.value(vec![0; need.value as usize]);
                map.insert(index.to_ne_bytes().to_vec(), at);
            }
            for (key, value) in need.content {
                let at = vm.value(value);
                map.insert(key, at);
            }
            vm.maps.push(map);
        }
        vm
    }

    fn value(&mut self, bytes: Vec<u8>) -> u64 {
        self.values.push(bytes);
        (FIRST_VALUE + self.values.len() as u64 - 1) << REGION
    }

    fn bytes_at(&self, address: u64) -> &[u8] {
        &self.values[((address >> REGION) - FIRST_VALUE) as usize]
    }

    fn map(&self, role: Role) -> Option<usize> {
        self.object.maps.iter().position(|m| m.role == role)
    }

    /// The 64-bit numbers in the first value of an array map.
    fn first(&self, role: Role) -> Option<Vec<u64>> {
        let at = self.maps[self.map(role)?][&vec![0; 4]];
        Some(self.bytes_at(at).chunks_exact(8).map(number).collect())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

impl Machine for Vm {
    fn object(&self) -> &Object {
        &self.object
    }

    fn run(&mut self, frame: &[u8], time: u64) -> RunResult {
        if let Some(clock) = self.map(Role::Clock) {
            let at = self.maps[clock][&vec![0; 4]];
            self.values[((at >> REGION) - FIRST_VALUE) as usize] = time.to_ne_bytes().to_vec();
        }
        let before = self.outcomes();
        let packet = [&[0; HEADROOM], frame].concat();
        let mut run = Run { vm: self, packet, data_meta: HEADROOM, stack: [None; STACK], r: [0; 11] };
        let verdict = run.all();
        let (meta, packet) = (run.data_meta, run.packet);
        assert_eq!(&packet[HEADROOM..], frame, "the packet is unchanged");
        let metadata = metadata(&packet[meta..HEADROOM]);
        let after = self.outcomes();
        let outcome = PacketOutcome::ALL.into_iter().find(|f| after[*f as usize] != before[*f as usize]);
        assert_eq!(after.iter().sum::<u64>(), before.iter().sum::<u64>() + 1, "each packet has exactly one outcome");
        RunResult { verdict: verdict as u32, outcome, metadata }
    }

    fn egress_interface(&self) -> Option<u32> {
        self.egress_interface
    }

    fn outcomes(&self) -> Vec<u64> {
        self.first(Role::Outcomes).expect("every object counts outcomes")
    }

    fn seen(&self) -> QueueGenerations {
        let at = self.map(Role::Generations).map(|map| self.maps[map][&vec![0; 4]]);
        at.map_or(QueueGenerations::default(), |at| {
            QueueGenerations::read(self.bytes_at(at).first_chunk().expect("one queue"))
        })
    }

    fn see(&mut self, generation: u32) {
        let now = QueueGenerations { by_user: generation, ..self.seen() };
        if let Some(map) = self.map(Role::Generations) {
            let at = self.maps[map][&vec![0; 4]];
            self.values[((at >> REGION) - FIRST_VALUE) as usize] = now.bytes().to_vec();
        }
    }

    fn counters(&self) -> (Vec<u64>, Vec<u64>) {
        let all = self.first(Role::Counters).unwrap_or_else(|| vec![0; usize::from(COUNTERS) + MAX_MAPS]);
        let (counters, refused) = all.split_at(COUNTERS.into());
        (counters.to_vec(), refused.to_vec())
    }

    fn entries(&mut self, ir: &Ir, map: usize, now: u64) -> Vec<(Vec<u64>, u64)> {
        let Some(index) = self.map(Role::Flow(map as u16)) else { return vec![] };
        let all: Vec<_> = self.maps[index].iter().map(|(k, at)| (k.clone(), *at)).collect();
        let mut live = Vec::new();
        for (key, at) in all {
            let entry = MapValue::read(self.bytes_at(at).try_into().expect("an entry"));
            if entry.expired(ir.maps[map].expiry, now) {
                self.maps[index].remove(&key);
            } else {
                live.push((key.chunks_exact(8).map(number).collect(), entry.number));
            }
        }
        live.sort_unstable();
        live
    }
}

impl Run<'_> {
    fn all(&mut self) -> u64 {
        (self.r[1], self.r[10]) = (CONTEXT, (STACK_REGION << REGION) + STACK as u64);
        let mut at = 0;
        (self.vm.steps, self.vm.egress_interface) = (0, None);
        loop {
            let i = self.vm.code[at];
            self.vm.steps += 1;
            assert!(self.vm.steps < 100_000, "the program does not terminate");
            let (dst, src) = (usize::from(i.dst()), usize::from(i.src()));
            let by_register = i.code() & 8 != 0;
            let signed = i64::from(i.imm()) as u64;
            let operand = if by_register { self.r[src] } else { signed };
            at += 1;
            match i.code() & 7 {
                0 => {
                    let upper = self.vm.code[at].imm() as u32;
                    at += 1;
                    self.r[dst] = match i.src() {
                        0 => u64::from(upper) << 32 | u64::from(i.imm() as u32),
                        5 => MAP + i.imm() as u64,
                        6 => self.vm.maps[i.imm() as usize][&vec![0; 4]],
                        other => panic!("a 64-bit load with pseudo source {other}"),
                    };
                }
                1 => self.r[dst] = self.read(self.r[src], i.off(), width(i)),
                2 => self.write(self.r[dst], i.off(), width(i), signed),
                3 if i.code() & 0xe0 == 0xc0 => {
                    let old = self.read(self.r[dst], i.off(), width(i));
                    self.write(self.r[dst], i.off(), width(i), old.wrapping_add(self.r[src]));
                    match i.imm() {
                        0 => (),
                        1 => self.r[src] = old,
                        other => panic!("atomic operation {other:#x}"),
                    }
                }
                3 => self.write(self.r[dst], i.off(), width(i), self.r[src]),
                4 | 7 => self.r[dst] = arithmetic(i, self.r[dst], operand),
                5 | 6 => match i.code() & 0xf0 {
                    0x80 => self.call(i.imm()),
                    0x90 => return self.r[0],
                    _ => {
                        let taken = if i.code() & 7 == 6 {
                            holds(i, u64::from(self.r[dst] as u32), u64::from(operand as u32))
                        } else {
                            holds(i, self.r[dst], operand)
                        };
                        if taken {
                            at = (at as i64 + i64::from(i.off())) as usize;
                        }
                    }
                },
                _ => unreachable!("three bits"),
            }
        }
    }

    fn read(&mut self, base: u64, off: i16, width: usize) -> u64 {
        let address = base.wrapping_add_signed(off.into());
        let data = (PACKET << REGION) + HEADROOM as u64;
        if address >> REGION == 0 {
            assert_eq!(width, 4, "fields of the context have four bytes");
            return match address - CONTEXT {
                0 => data,
                4 => (PACKET << REGION) + self.packet.len() as u64,
                8 => (PACKET << REGION) + self.data_meta as u64,
                16 => 0,
                other => panic!("byte {other} of the context"),
            };
        }
        let from = (address & ((1 << REGION) - 1)) as usize;
        match address >> REGION {
            PACKET => {
                assert!(from >= self.data_meta, "a byte before the packet");
                number(&self.packet[from..from + width])
            }
            STACK_REGION => self.stack[from..from + width].iter().rev().fold(0, |n, b| {
                n << 8 | u64::from(b.unwrap_or_else(|| panic!("read of unwritten stack byte fp-{}", STACK - from)))
            }),
            _ => number(&self.vm.bytes_at(address)[from..from + width]),
        }
    }

    fn write(&mut self, base: u64, off: i16, width: usize, value: u64) {
        let address = base.wrapping_add_signed(off.into());
        let from = (address & ((1 << REGION) - 1)) as usize;
        let bytes = &value.to_le_bytes()[..width];
        match address >> REGION {
            PACKET => {
                assert!((self.data_meta..=HEADROOM - width).contains(&from), "only metadata is written");
                self.packet[from..from + width].copy_from_slice(bytes);
            }
            STACK_REGION => {
                for (to, b) in self.stack[from..from + width].iter_mut().zip(bytes) {
                    *to = Some(*b);
                }
            }
            region => {
                let value = &mut self.vm.values[(region - FIRST_VALUE) as usize];
                value[from..from + width].copy_from_slice(bytes);
            }
        }
    }

    fn bytes(&mut self, address: u64, len: u32) -> Vec<u8> {
        (0..len as i16).map(|at| self.read(address, at, 1) as u8).collect()
    }

    fn call(&mut self, helper: i32) {
        let arguments = self.r;
        let map = arguments[1].wrapping_sub(MAP) as usize;
        let result = match helper {
            1 => {
                let key = self.bytes(arguments[2], self.vm.object.maps[map].key);
                self.vm.find(map, &key).unwrap_or(0)
            }
            2 => {
                let need = self.vm.object.maps[map].clone();
                let (key, value) = (self.bytes(arguments[2], need.key), self.bytes(arguments[3], need.value));
                let held = &self.vm.maps[map];
                match (held.contains_key(&key), arguments[4]) {
                    (true, 1) => EEXIST as u64,
                    (false, _) if held.len() >= need.entries as usize => E2BIG as u64,
                    _ => {
                        let at = self.vm.value(value);
                        self.vm.maps[map].insert(key, at);
                        0
                    }
                }
            }
            3 => {
                let key = self.bytes(arguments[2], self.vm.object.maps[map].key);
                self.vm.maps[map].remove(&key);
                0
            }
            51 => match self.vm.object.maps[map].entries > arguments[2] as u32 {
                true => {
                    self.vm.egress_interface =
                        (self.vm.object.maps[map].kind == MapKind::DevMap).then_some(arguments[2] as u32);
                    REDIRECT
                }
                false => arguments[3] & 3,
            },
            54 if !self.vm.has_metadata_space => EINVAL as u64,
            54 => {
                let moved = self.data_meta as i64 + arguments[2] as i64;
                assert!((0..=HEADROOM as i64).contains(&moved) && moved % 4 == 0, "metadata of {moved}");
                self.data_meta = moved as usize;
                0
            }
            other => panic!("unknown helper {other}"),
        };
        self.r[0] = result;
        // In the kernel, a helper call clobbers these registers.
        self.r[1..6].fill(0xdead_dead_dead_dead);
    }
}

impl Vm {
    fn find(&self, map: usize, key: &[u8]) -> Option<u64> {
        if self.object.maps[map].kind != MapKind::LpmTrie {
            return self.maps[map].get(key).copied();
        }
        let longest = self.maps[map].iter().filter(|(prefix, _)| {
            let bits = number(&prefix[..4]) as usize;
            (0..bits).all(|b| (prefix[4 + b / 8] ^ key[4 + b / 8]) >> (7 - b % 8) & 1 == 0)
        });
        longest.max_by_key(|(prefix, _)| number(&prefix[..4])).map(|(_, at)| *at)
    }
}

fn width(i: Insn) -> usize {
    match i.code() & 0x18 {
        0x10 => 1,
        0x08 => 2,
        0x00 => 4,
        _ => 8,
    }
}

fn arithmetic(i: Insn, a: u64, b: u64) -> u64 {
    let wide = i.code() & 7 == 7;
    if i.code() & 0xf0 == 0xd0 {
        return match i.imm() {
            16 => u64::from((a as u16).swap_bytes()),
            32 => u64::from((a as u32).swap_bytes()),
            _ => a.swap_bytes(),
        };
    }
    let (a, b) = if wide { (a, b) } else { (u64::from(a as u32), u64::from(b as u32)) };
    let count = b & if wide { 63 } else { 31 };
    let out = match i.code() & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << count,
        0x70 => a >> count,
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xb0 => b,
        other => panic!("arithmetic {other:#x}"),
    };
    if wide { out } else { u64::from(out as u32) }
}

fn holds(i: Insn, a: u64, b: u64) -> bool {
    match i.code() & 0xf0 {
        0x00 => true,
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0xa0 => a < b,
        0xb0 => a <= b,
        other => panic!("comparison {other:#x}"),
    }
}
