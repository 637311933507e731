//! Generates random programs that the verifier accepts, and packets for them.
//!
//! A random program has the structure of compiled programs: it consists of stages of statements; branches join again; a
//! bounds test precedes each load; and a register that is written on only one of two paths is not read after the paths
//! join. Constants are in the range of real packet fields, so that comparisons have both results.

use base::Prng;
use ir::{Builder, Cmp, Expiry, Fact, FragmentScope, Inst, Layer, Log, Map, Meta, Op, Operand, Program, Reg, Set, Var};
use ir::{Facts, Key, Prefix};
use wire::EtherType;
use wire::build::Frame;

const OPS: [Op; 12] =
    [Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Rem, Op::And, Op::Or, Op::Xor, Op::Shl, Op::Shr, Op::Min, Op::Max];
const CMPS: [Cmp; 8] = [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge, Cmp::AnyBit, Cmp::AllBits];
const FACTS: [Fact; 6] = [Fact::Ethertype, Fact::Family, Fact::Protocol, Fact::Fragment, Fact::L3, Fact::L4];
const METAS: [Meta; 15] = [
    Meta::WireLen,
    Meta::CapLen,
    Meta::Time,
    Meta::Port,
    Meta::Queue,
    Meta::Rss,
    Meta::Sequence,
    Meta::Outgoing,
    Meta::Duplicate,
    Meta::Ethernet,
    Meta::Vlan,
    Meta::Depth,
    Meta::Part,
    Meta::Ingress,
    Meta::HashKey,
];
const VARS: [Var; 6] = [Var::Kind, Var::Classes, Var::Hash, Var::Hash2, Var::Mark, Var::State];
const NUMBERS: [u64; 22] = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    14,
    17,
    20,
    42,
    53,
    64,
    0x800,
    0x86dd,
    0xffff,
    0xffff_ffff,
    1 << 32,
    (1 << 32) + 1,
    u64::MAX - 1,
    u64::MAX,
];

fn pick<T: Copy>(prng: &mut Prng, from: &[T]) -> T {
    from[prng.below(from.len() as u64) as usize]
}

/// Generates a random program with up to `stages` stages.
pub fn program(prng: &mut Prng, stages: u64) -> Program {
    let mut g = Generator { b: Builder::default(), prng, live: vec![], maps: vec![], sets: 0, budget: 60 };
    g.tables();
    for _ in 0..1 + g.prng.below(stages) {
        if !g.b.is_live() {
            break;
        }
        g.b.stage("stage");
        g.live.clear();
        g.budget = 60;
        let count = 1 + g.prng.below(8);
        g.statements(count, 0);
    }
    g.b.finish()
}

struct Generator<'a> {
    b: Builder,
    prng: &'a mut Prng,
    /// The registers that contain a value at the current point of the program.
    live: Vec<Reg>,
    /// Words of each map's key.
    maps: Vec<u8>,
    sets: u16,
    budget: u32,
}

impl Generator<'_> {
    fn tables(&mut self) {
        for name in ["eth1", "eth2"] {
            self.b.egress_interface(name);
        }
        self.b.message("seen");
        for i in 0..self.prng.below(4) {
            let expiry = match self.prng.below(3) {
                0 => Expiry::Never,
                1 => Expiry::Idle(self.prng.below(2000)),
                _ => Expiry::Lifetime(self.prng.below(2000)),
            };
            let (words, capacity) = (1 + self.prng.below(8) as u8, 1 + self.prng.below(20) as u32);
            let map = Map { name: format!("m{i}"), key: Key::default(), words, capacity, expiry };
            self.b.tables().maps.push(map);
            self.maps.push(words);
        }
        for _ in 0..self.prng.below(3) {
            let set = match self.prng.below(6) {
                0 => Set::Host,
                1 => Set::Ranges(vec![]),
                2 => Set::Ranges((0..20).map(|i| (i << 90 | 5, i << 90 | 1 << 70)).collect()),
                _ => {
                    let texts =
                        ["10.0.0.0/8", "192.168.1.0/24", "10.0.0.2", "2001:db8::/32", "2001:db8::1:0/112", "0.0.0.0/0"];
                    let count = 1 + self.prng.below(5);
                    Set::of_prefixes((0..count).filter_map(|_| Prefix::parse(pick(self.prng, &texts))))
                }
            };
            self.b.tables().sets.push(set);
            self.sets += 1;
        }
    }

    fn statements(&mut self, count: u64, depth: u32) {
        for _ in 0..count {
            if self.budget == 0 || !self.b.is_live() {
                return;
            }
            self.budget -= 1;
            match self.prng.below(12) {
                0 | 1 if depth < 4 => self.split(depth),
                2 | 3 => self.load(depth),
                4 => self.effect(),
                5 => self.table(),
                6 if depth > 0 && self.prng.below(3) == 0 => match self.prng.below(2) {
                    0 => self.b.pass(),
                    _ => self.b.discard(),
                },
                7 | 8 => self.set(),
                _ => {
                    let value = self.value();
                    self.live.push(value);
                }
            }
        }
    }

    /// Generates a branch whose two paths join again. Of the registers that the paths write, only the register that
    /// both paths write is readable after the join.
    fn split(&mut self, depth: u32) {
        let (yes, no, end) = (self.b.label(), self.b.label(), self.b.label());
        let (a, b, cmp) = (self.read(), self.operand(), pick(self.prng, &CMPS));
        let both = self.b.reg();
        self.b.branch(a, cmp, b, yes, no);
        let live = self.live.clone();
        for label in [yes, no] {
            self.b.place(label);
            self.live = live.clone();
            let count = self.prng.below(4);
            self.statements(count, depth + 1);
            let from = self.operand();
            self.into(both, from);
            self.b.jump(end);
        }
        self.b.place(end);
        self.live = live;
        self.live.push(both);
    }

    fn into(&mut self, to: Reg, from: Operand) {
        self.b.push(match from {
            Operand::Reg(from) => Inst::Copy { to, from },
            Operand::Imm(value) => Inst::Const { to, value },
        });
    }

    /// Generates a bounds test and a load. If the bounds test fails, the register of the load gets another value.
    fn load(&mut self, depth: u32) {
        let (after, short) = (self.b.label(), self.b.label());
        let base = match self.prng.below(5) {
            0 | 1 => None,
            2 => Some(self.b.fact(pick(self.prng, &[Layer::Outer, Layer::Inner]), Fact::L3)),
            3 => Some(self.b.fact(pick(self.prng, &[Layer::Outer, Layer::Inner]), Fact::L4)),
            _ => Some(self.read()),
        };
        let (offset, width) = (self.prng.below(70) as u32, 1 + self.prng.below(8) as u8);
        let slack = self.prng.below(3) as u32;
        let to = self.b.reg();
        self.b.fits(base, offset, u32::from(width) + slack, short);
        self.b.push(Inst::Load { to, base, offset: offset + slack.min(self.prng.below(3) as u32), width });
        let live = self.live.clone();
        self.live.push(to);
        let count = self.prng.below(3);
        self.statements(count, depth + 1);
        self.b.jump(after);
        self.b.place(short);
        self.live.clone_from(&live);
        if self.prng.below(2) == 0 {
            let from = self.operand();
            self.into(to, from);
        } else {
            self.into(to, Operand::Imm(0));
        }
        self.b.place(after);
        self.live = live;
        self.live.push(to);
    }

    fn effect(&mut self) {
        let by = self.operand();
        self.b.push(match self.prng.below(7) {
            0 => Inst::Forward { interface: self.prng.below(2) as u16 },
            1 => Inst::Kernel,
            2 => Inst::Log(pick(self.prng, &[Log::Message(0), Log::Packet, Log::Buffer, Log::Trace])),
            _ => Inst::Count { counter: self.prng.below(64) as u8, by },
        });
    }

    fn set(&mut self) {
        let var = pick(self.prng, &VARS);
        let from = match var {
            Var::Kind if self.prng.below(4) > 0 => Operand::Imm(self.prng.below(5)),
            Var::Kind => Operand::Reg(self.read()),
            _ => self.operand(),
        };
        self.b.set(var, from);
    }

    fn table(&mut self) {
        if self.maps.is_empty() {
            return;
        }
        let map = self.prng.below(self.maps.len() as u64) as u16;
        // There are only few different keys, so that operations often find existing entries.
        let key: Vec<Reg> = (0..self.maps[usize::from(map)])
            .map(|_| {
                let word = self.read();
                self.b.op(Op::And, word, 3)
            })
            .collect();
        let (to, value) = (self.b.reg(), self.operand());
        let inst = match self.prng.below(6) {
            0 => Inst::Has { to, map, key },
            1 => Inst::MapGet { to, map, key },
            2 => Inst::MapPut { map, key, value },
            3 => Inst::MapDelete { map, key },
            _ => Inst::MapAdd { to, map, key, by: value },
        };
        if inst.target().is_some() {
            self.live.push(to);
        }
        self.b.push(inst);
    }

    fn value(&mut self) -> Reg {
        match self.prng.below(12) {
            0 => self.b.constant(pick(self.prng, &NUMBERS)),
            1 => {
                let var = pick(self.prng, &VARS);
                self.b.get(var)
            }
            2 => {
                let meta = pick(self.prng, &METAS);
                self.b.meta(meta)
            }
            3 | 4 => {
                let (layer, fact) = (pick(self.prng, &[Layer::Outer, Layer::Inner]), pick(self.prng, &FACTS));
                self.b.fact(layer, fact)
            }
            5 => {
                let from = self.read();
                self.b.mix(from)
            }
            6 if self.sets > 0 => {
                let (hi, lo, to) = (self.read(), self.read(), self.b.reg());
                let set = self.prng.below(self.sets.into()) as u16;
                self.b.push(Inst::Member { to, set, hi, lo });
                to
            }
            7 => {
                let (a, b, cmp, to) = (self.read(), self.operand(), pick(self.prng, &CMPS), self.b.reg());
                self.b.push(Inst::Is { to, cmp, a, b });
                to
            }
            8 => {
                let parts = pick(self.prng, &[FragmentScope::Outer, FragmentScope::Inner, FragmentScope::Enclosing]);
                let form = self.prng.below(3) as u32;
                let (to, value) = (self.b.reg(), self.operand());
                self.b.push(Inst::Datagram { to, parts, form, value });
                to
            }
            _ => {
                let (a, b, op) = (self.read(), self.operand(), pick(self.prng, &OPS));
                // Sometimes emits an instruction that overwrites a register. The bounds tests of the old value, and the
                // knowledge that the old value is a constant, are then invalid.
                let to = if self.prng.below(4) == 0 { a } else { self.b.reg() };
                self.b.push(Inst::Op { to, op, a, b });
                to
            }
        }
    }

    fn read(&mut self) -> Reg {
        if self.live.is_empty() || self.prng.below(10) == 0 {
            let meta = pick(self.prng, &METAS);
            let reg = self.b.meta(meta);
            self.live.push(reg);
            return reg;
        }
        pick(self.prng, &self.live)
    }

    fn operand(&mut self) -> Operand {
        match self.prng.below(2) {
            0 => Operand::Imm(pick(self.prng, &NUMBERS)),
            _ => Operand::Reg(self.read()),
        }
    }
}

/// Generates a frame or a fragment of it, possibly in a tunnel whose packet may itself be a fragment. The number of
/// datagrams is small, so that several fragments of the same datagram occur.
fn part(prng: &mut Prng, frame: Vec<u8>) -> Vec<u8> {
    let is_plain = |frame: &[u8]| frame.len() >= 14 + 40 + 16 && matches!(frame[12..14], [8, 0] | [0x86, 0xdd]);
    let fragment = |prng: &mut Prng, frame: Vec<u8>| {
        let (id, size) = (prng.below(3) as u32, 8 * (1 + prng.below(7) as usize));
        if !is_plain(&frame) || frame.len() <= 14 + 40 + size {
            return frame;
        }
        let mut parts = testkit::fragments(&frame, id, size);
        parts.swap_remove(prng.below(parts.len().min(3) as u64) as usize)
    };
    let inner = if prng.below(2) == 0 { fragment(prng, frame) } else { frame };
    if prng.below(2) == 0 {
        return inner;
    }
    let payload = [&wire::build::tunnel::vxlan(prng.below(2) as u32)[..], &inner].concat();
    let port = 50_000 + prng.below(3) as u16;
    let mut bytes = [0; 400];
    let outer = Frame::udp4([172, 16, 0, 1], port, [172, 16, 0, 2], 4789).payload(&payload);
    let outer = outer.write(&mut bytes).expect("room").to_vec();
    if prng.below(2) == 0 { fragment(prng, outer) } else { outer }
}

/// Generates a frame: valid, truncated, corrupted, or with random bytes.
pub fn frame(prng: &mut Prng) -> Vec<u8> {
    let (a, b) = ([10, 0, 0, prng.below(4) as u8], [192, 168, 1, prng.below(4) as u8]);
    let (p, q) = (prng.below(100) as u16, 53 + prng.below(3) as u16);
    let frame = match prng.below(5) {
        0 => Frame::udp4(a, p, b, q),
        1 => Frame::tcp4(a, p, b, q),
        2 => Frame::udp6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], p, [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2], q),
        3 => Frame::tcp6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], p, [9; 8], q),
        _ => Frame::udp4(b, q, a, p),
    };
    let frame = if prng.below(4) == 0 { frame.tag(EtherType::VLAN, prng.below(4096) as u16) } else { frame };
    let mut bytes = vec![0; frame.header_len() + prng.below(60) as usize];
    frame.fill(&mut bytes);
    if prng.below(3) == 0 {
        bytes = part(prng, bytes);
    }
    match prng.below(6) {
        0 => bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize),
        1 => {
            for _ in 0..1 + prng.below(4) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] = prng.next_u64() as u8;
            }
        }
        2 => {
            bytes.truncate(prng.below(200) as usize);
            prng.fill(&mut bytes);
        }
        _ => (),
    }
    bytes
}

/// Combines facts from the capture source with facts from the packet bytes.
pub fn combined(parsed: &Facts, sequence: u64, source: &Facts) -> Facts {
    let Facts { time, rss, mark, port, duplicate, queue, ingress, outgoing, .. } = *source;
    Facts { time, rss, mark, port, duplicate, queue, ingress, outgoing, sequence, ..*parsed }
}

/// Generates facts of a capture source; the time mostly increases.
pub fn facts(prng: &mut Prng, before: u64) -> Facts {
    let back = if prng.below(10) == 0 { prng.below(500) } else { 0 };
    Facts {
        time: (before + prng.below(300)).saturating_sub(back),
        wire_len: prng.below(2) as u32 * prng.below(2000) as u32,
        rss: prng.next_u64() as u32,
        mark: prng.below(3) as u32 * 21,
        port: prng.below(3) as u16,
        duplicate: prng.below(6) as u8,
        queue: prng.below(8) as u16,
        ingress: prng.below(3) as u16,
        outgoing: prng.below(2) as u8,
        ..Facts::default()
    }
}
