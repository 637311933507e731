//! From the intermediate form to instructions: the parts of a program in the order in which they run.

use super::alloc::{Allocation, Location, ValueRef, reached_code};
use super::common_case::{drop_unused, plain, without_record};
use super::parse_headers::FRAME;
use super::refusal::Refusal;
use super::{EmitOptions, MAPS_MAX, MapRequirement, Metadata, Object, Role, frame, meta};
use ebpf::{Alu, Asm, AsmError, Condition, Helper, Label, Reg as R, Size};
use ir::{
    self, BlockId, Builder, CommonCase, DEFAULT_CLASS, End, Expiry, Fact, FragmentScope, Inst, KernelPrefix, Layer,
    Meta, Placement, Program, Start, VerdictKind, placement,
};
use std::collections::BTreeSet;

/// Frames are looked at up to here where the program computes offsets: the verifier follows no packet beyond 65535.
pub(super) const LEN_MAX: i32 = 0x7fff;

/// Programs with more instructions of the intermediate form have no forms for plain packets, so that the verifier's work stays in proportion.
const MAX_INSTRUCTIONS: usize = 1000;

/// Offsets in `struct xdp_md`.
pub(super) mod context {
    pub const DATA: i16 = 0;
    pub const DATA_END: i16 = 4;
    pub const DATA_META: i16 = 8;
    pub const RX_QUEUE_INDEX: i16 = 16;
}

/// Verdicts of XDP.
pub(super) mod verdict {
    pub const DROP: i32 = 1;
    pub const PASS: i32 = 2;
    pub const REDIRECT: i32 = 4;
}

/// What is being written.
pub(super) struct Emitter<'a> {
    pub asm: Asm,
    pub options: &'a EmitOptions,
    /// What goes along with a packet, and how many stages are said to be done for one that passes.
    pub metadata: Metadata,
    pub done: u8,
    pub needs: Requirements,
    pub maps: Vec<MapRequirement>,
    /// The sets whose prefixes are in a map.
    pub tries: BTreeSet<u16>,
    pub exits: Exits,
    /// Which form is being written.
    pub form: &'a Specialisation,
    blocks: Vec<Label>,
    /// By block: the bases whose pointer is there, one bit for each.
    pointers: Vec<Option<Vec<bool>>>,
}

/// The program for some packets, and what is to be known of it.
#[derive(Debug)]
pub(super) struct Specialisation {
    pub program: Program,
    pub allocation: Allocation,
    /// By register: whether it only ever holds an offset within 255.
    short: Vec<bool>,
    study: KernelPrefix,
}

/// What is left of the program for each sort of plain packets, and all of it.
struct Specialisations {
    ways: Vec<(CommonCase, Specialisation)>,
    any: Specialisation,
}

/// What goes along with a packet, and how many stages are said to be done for one that passes.
#[derive(Clone, Copy)]
struct MetadataPlan {
    metadata: Metadata,
    done: u8,
}

/// What the program wants to know of the headers, and what of the machinery it uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requirements {
    pub link: bool,
    pub vlan: bool,
    pub network: bool,
    pub transport: bool,
    pub inner: bool,
    /// Fragments are not for the kernel.
    pub whole: bool,
    pub time: bool,
    pub sink: bool,
    /// Something asks for a variable of the record.
    pub record: bool,
    pub long: bool,
}

/// Where packets leave the program.
#[derive(Clone, Copy)]
pub(super) struct Exits {
    pub user: Label,
    pub undecided: Label,
    /// Undecided, and not even that can be said.
    pub silent: Label,
    pub drop: Label,
}

pub(super) fn compile(program: &Program, request: &EmitOptions) -> Result<Object, Refusal> {
    program.verify()?;
    if request.link_type != wire::link::ETHERNET {
        return Err(Refusal::LinkType(request.link_type));
    }
    let places = placement(program);
    let stages = places.iter().take_while(|p| p.is_kernel()).count();
    if stages == 0 {
        let why = match places.into_iter().next() {
            Some(Placement::User(why)) => why,
            _ => "is empty".to_owned(),
        };
        let stage = program.stages.first().map_or(String::new(), |s| s.text.clone());
        return Err(Refusal::Nothing { stage, why });
    }
    // What is too long, has too much in hand at once or too many maps, is cut earlier.
    (1..=stages)
        .rev()
        .map(|n| first_stages(program, n, request))
        .find(|object| {
            !matches!(
                object,
                Err(Refusal::Stack { .. } | Refusal::TooLong { .. } | Refusal::Maps { .. } | Refusal::Nothing { .. })
            )
        })
        .unwrap_or_else(|| first_stages(program, stages, request))
}

fn first_stages(program: &Program, stages: usize, request: &EmitOptions) -> Result<Object, Refusal> {
    let mut head = program.split(stages).0;
    let stage = program.stages.first().map_or(String::new(), |s| s.text.clone());
    let refuse = |why| Refusal::Nothing { stage: stage.clone(), why };
    KernelPrefix::of(program, stages).map_err(refuse)?;
    let study = KernelPrefix::of(&head, stages).map_err(refuse)?;
    if request.metadata == Metadata::None && decided(&head, &study).any(acts) {
        return Err(Refusal::NoMetadata);
    }
    // What comes after something that the kernel cannot do counts here: if that served the record alone, the kernel gets beyond it.
    let mut all = head.blocks.iter().flat_map(|b| &b.code);
    let (acts, sets) = (all.clone().any(acts), all.any(|i| matches!(i, Inst::Set { .. })));
    let metadata = match request.metadata {
        Metadata::Compact if acts => Metadata::Full,
        wished => wished,
    };
    // Where the record is left to user space, it has to be made there.
    let made = metadata == Metadata::Full || !sets;
    let done = if made { stages.min(u8::MAX.into()) as u8 } else { 0 };
    if metadata != Metadata::Full && !acts {
        head = without_record(&head);
    }
    let (looks_inside, whole) = (reads_inner(&head), uses_fragments(&head));
    let head = plain(&head, request, whole)?;
    let study = KernelPrefix::of(&head, stages).map_err(refuse)?;
    let any = Specialisation::of(head, study);
    let needs = Requirements { inner: looks_inside, whole, ..Requirements::default() }.and_of(&any);
    let ways = if needs.beyond_link() && any.size() <= MAX_INSTRUCTIONS { &CommonCase::ALL[..] } else { &[] };
    let ways = ways.iter().map(|sort| Ok((*sort, any.of_plain(*sort, stages)?)));
    let ways = ways.collect::<Result<_, _>>().map_err(refuse)?;
    let (mut forms, travels) = (Specialisations { ways, any }, MetadataPlan { metadata, done });
    match write(&forms, needs, travels, stages, request) {
        // Rather no way of their own for some packets than fewer stages.
        Err(Refusal::TooLong { .. } | Refusal::Stack { .. }) if !forms.ways.is_empty() => {
            forms.ways.clear();
            write(&forms, needs, travels, stages, request)
        }
        done => done,
    }
}

/// Lets everything pass and says which program it is.
pub(super) fn announce(request: &EmitOptions) -> Object {
    let mut nothing = Builder::default();
    nothing.pass();
    let program = nothing.finish();
    let study = KernelPrefix { stops: vec![None], reached: vec![true] };
    let forms = Specialisations { ways: vec![], any: Specialisation::of(program, study) };
    let travels = MetadataPlan { metadata: request.metadata, done: 0 };
    write(&forms, Requirements::default(), travels, 0, request).expect("two dozen instructions and three maps")
}

/// The instructions of all forms, and what is around them.
fn write(
    forms: &Specialisations,
    needs: Requirements,
    travels: MetadataPlan,
    stages: usize,
    request: &EmitOptions,
) -> Result<Object, Refusal> {
    let Specialisations { ways, any } = forms;
    let all = || ways.iter().map(|(_, form)| form).chain([any]);
    all().try_for_each(|form| frame::fits(form.allocation.slots))?;
    let needs = all().fold(needs, Requirements::and_of);
    let mut asm = Asm::new();
    let exits = Exits { user: asm.label(), undecided: asm.label(), silent: asm.label(), drop: asm.label() };
    let MetadataPlan { metadata, done } = travels;
    let (maps, blocks, pointers) = (vec![], vec![], vec![]);
    let tries = BTreeSet::new();
    let mut e =
        Emitter { asm, options: request, metadata, done, needs, maps, tries, exits, form: any, blocks, pointers };
    e.enter();
    e.fast_paths(ways);
    e.parse_headers();
    e.body(any);
    e.leave();
    let Emitter { mut asm, maps, .. } = e;
    if maps.len() > MAPS_MAX {
        return Err(Refusal::Maps { need: maps.len() });
    }
    asm.prune();
    let code = asm.finish().map_err(|e| match e {
        AsmError::TooFar { distance, .. } => Refusal::TooLong { distance },
        AsmError::Unplaced { .. } | AsmError::NoMap { .. } => Refusal::TooLong { distance: 0 },
    })?;
    Ok(Object { code, maps, stages, metadata, parses_headers: needs.parses_headers(), is_evaluated_again: done == 0 })
}

impl Specialisation {
    fn of(program: Program, study: KernelPrefix) -> Self {
        let homes = Allocation::of(&program, &study, |inst| super::tables::calls(inst, &program));
        let short = short(&program);
        Self { program, study, allocation: homes, short }
    }

    /// What is left of it for such packets.
    fn of_plain(&self, sort: CommonCase, stages: usize) -> Result<Self, String> {
        let mut program = self.program.simplified_for(sort, Start::Fresh);
        while drop_unused(&mut program) {}
        let study = KernelPrefix::of_some(&program, stages)?;
        Ok(Self::of(program, study))
    }

    fn size(&self) -> usize {
        self.program.blocks.iter().map(|b| b.code.len() + 1).sum()
    }
}

/// By register: whether all that is written to it is where a header begins.
fn short(program: &Program) -> Vec<bool> {
    let mut short = vec![true; program.registers.into()];
    for inst in program.blocks.iter().flat_map(|b| &b.code) {
        if let Some(to) = inst.target()
            && !matches!(inst, Inst::Fact { fact: Fact::L3 | Fact::L4, .. })
        {
            short[usize::from(to.0)] = false;
        }
    }
    short
}

/// The instructions that a packet may come to that the kernel decides.
fn decided<'a>(head: &'a Program, study: &'a KernelPrefix) -> impl Iterator<Item = &'a Inst> {
    let blocks = head.blocks.iter().enumerate().filter(|b| study.reached[b.0]);
    blocks.flat_map(|(at, b)| reached_code(b, study.stops[at].map(|s| s.0)))
}

/// Whether what it does outlives the packets that go to user space.
fn acts(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Count { .. } | Inst::MapPut { .. } | Inst::MapAdd { .. } | Inst::MapDelete { .. } | Inst::MapGet { .. }
    )
}

fn reads_inner(program: &Program) -> bool {
    let asks = |inst: &Inst| {
        matches!(
            inst,
            Inst::Fact { layer: Layer::Inner, .. }
                | Inst::Datagram { parts: FragmentScope::Inner | FragmentScope::Enclosing, .. }
                | Inst::Meta { meta: Meta::Depth | Meta::Part, .. }
        )
    };
    program.blocks.iter().flat_map(|b| &b.code).any(asks)
}

/// True if the program remembers the way of datagrams: in user space, so fragments are undecided from the start.
fn uses_fragments(program: &Program) -> bool {
    program.blocks.iter().flat_map(|b| &b.code).any(|i| matches!(i, Inst::Datagram { .. }))
}

impl Requirements {
    /// Whether any header is looked for.
    pub const fn parses_headers(&self) -> bool {
        self.link || self.vlan || self.beyond_link()
    }

    /// Whether what comes behind Ethernet is looked for.
    pub const fn beyond_link(&self) -> bool {
        self.network || self.transport || self.inner || self.whole
    }

    /// And what this form wants.
    fn and_of(mut self, form: &Specialisation) -> Self {
        let (n, Specialisation { program, study, short, .. }) = (&mut self, form);
        for (at, block) in program.blocks.iter().enumerate().filter(|b| study.reached[b.0]) {
            for inst in reached_code(block, study.stops[at].map(|s| s.0)) {
                match inst {
                    Inst::Fact { fact: Fact::Ethertype | Fact::L3, .. } => n.link = true,
                    Inst::Meta { meta: Meta::Vlan, .. } => n.vlan = true,
                    Inst::Fact { fact: Fact::L4, .. } => n.transport = true,
                    Inst::Fact { .. } => n.network = true,
                    Inst::Meta { meta: Meta::Time, .. } => n.time = true,
                    Inst::Has { map, .. }
                    | Inst::MapGet { map, .. }
                    | Inst::MapPut { map, .. }
                    | Inst::MapAdd { map, .. } => n.time |= program.maps[usize::from(*map)].expiry != Expiry::Never,
                    Inst::Forward { .. } | Inst::Kernel => n.sink = true,
                    Inst::Get { .. } => n.record = true,
                    _ => (),
                }
            }
            if let End::Fits { base, offset, len, .. } = block.end {
                n.long |= base.is_some_and(|b| !short[usize::from(b.0)]) || offset + len > LEN_MAX as u32 / 2;
            }
        }
        self
    }
}

impl<'a> Emitter<'a> {
    /// The index of a map, which is made if it is new.
    pub fn map(&mut self, role: Role, need: impl FnOnce() -> MapRequirement) -> u16 {
        let found = self.maps.iter().position(|m| m.role == role).unwrap_or_else(|| {
            self.maps.push(need());
            self.maps.len() - 1
        });
        found as u16
    }

    /// Pointers to the packet, room for the record, and its first values. Afterwards FRAME is the packet's first byte and r0 its end.
    fn enter(&mut self) {
        let a = &mut self.asm;
        a.store(Size::Dw, R::R10, frame::CONTEXT, R::R1);
        a.mov_reg(R::R6, R::R1);
        let travels = self.metadata == Metadata::Full;
        if travels {
            // Before anything is done: where there is no room, nothing must have been.
            a.mov(R::R2, -(meta::METADATA_BYTES as i32));
            a.call(Helper::XdpAdjustMeta);
            a.jump_if(Condition::Ne, R::R0, 0, self.exits.silent);
        }
        if self.needs.time {
            self.time();
        }
        let a = &mut self.asm;
        a.load(Size::W, R::R0, R::R6, context::DATA_END);
        a.load(Size::W, FRAME, R::R6, context::DATA);
        a.store(Size::Dw, R::R10, frame::DATA, FRAME);
        a.store(Size::Dw, R::R10, frame::DATA_END, R::R0);
        if self.needs.long {
            a.mov_reg(R::R1, R::R0);
            a.alu_reg(Alu::Sub, R::R1, FRAME);
            a.jump_if(Condition::Gt, R::R1, LEN_MAX, self.exits.undecided);
        }
        let a = &mut self.asm;
        if self.needs.sink {
            a.store_imm(Size::H, R::R10, frame::fact::SINK, 0);
        }
        if !travels && !self.needs.record {
            return;
        }
        let record = |at: usize| frame::RECORD + at as i16;
        a.store_imm(Size::W, R::R10, record(meta::at::GENERATION), self.options.generation as i32);
        a.store_imm(Size::W, R::R10, record(meta::at::MARK), 0);
        a.store_imm(Size::Dw, R::R10, record(meta::at::HASH), 0);
        a.store_imm(Size::Dw, R::R10, record(meta::at::CLASSES), DEFAULT_CLASS as i32);
        a.store_imm(Size::W, R::R10, record(meta::at::STATE), 0);
        let last = u32::from(meta::MAGIC) << 16 | u32::from(self.done) << 8 | VerdictKind::Copy as u32;
        a.store_imm(Size::W, R::R10, record(meta::at::KIND), last as i32);
    }

    /// The code of a form's blocks.
    pub fn body(&mut self, form: &'a Specialisation) {
        let Specialisation { program, study, .. } = form;
        self.form = form;
        self.blocks = program.blocks.iter().map(|_| self.asm.label()).collect();
        self.pointers = vec![None; program.blocks.len()];
        let reached: Vec<usize> = (0..program.blocks.len()).filter(|b| study.reached[*b]).collect();
        let registers = usize::from(program.registers);
        for (i, at) in reached.iter().enumerate() {
            let next = reached.get(i + 1).copied();
            self.asm.place(self.blocks[*at]);
            let mut pointers = self.pointers[*at].take().unwrap_or_else(|| vec![false; registers]);
            let block = &program.blocks[*at];
            for inst in reached_code(block, study.stops[*at].map(|s| s.0)) {
                self.inst(inst, &pointers);
                if let Some(to) = inst.target() {
                    pointers[usize::from(to.0)] = false;
                }
            }
            if study.stops[*at].is_some() {
                self.asm.jump(self.exits.undecided);
                continue;
            }
            self.end(block.end, next, &pointers);
            for target in block.end.targets() {
                let mut then = pointers.clone();
                if let End::Fits { base: Some(base), yes, no, .. } = block.end
                    && target == yes
                    && yes != no
                {
                    then[usize::from(base.0)] = true;
                }
                match &mut self.pointers[target.0 as usize] {
                    Some(there) => there.iter_mut().zip(&then).for_each(|(a, b)| *a &= b),
                    empty => *empty = Some(then),
                }
            }
        }
    }

    fn end(&mut self, end: End, next: Option<usize>, pointers: &[bool]) {
        match end {
            End::Jump(to) => self.go(to, next),
            End::Pass => self.asm.jump(self.exits.user),
            End::Drop => self.asm.jump(self.exits.drop),
            End::If { cmp, a, b, yes, no } => {
                // The way that goes on without a jump is the one that comes next.
                match cmp.turned().filter(|_| next == Some(yes.0 as usize)) {
                    Some(not) => self.branch(not, a, b, self.blocks[no.0 as usize]),
                    None => {
                        self.branch(cmp, a, b, self.blocks[yes.0 as usize]);
                        self.go(no, next);
                    }
                }
            }
            End::Fits { base, offset, len, yes, no } => {
                let no = self.blocks[no.0 as usize];
                if offset + len > LEN_MAX as u32 {
                    return self.asm.jump(no);
                }
                let pointer = match base {
                    None => self.first_byte(),
                    Some(base) if pointers[usize::from(base.0)] => self.pointer(base),
                    Some(base) => {
                        self.point(base, no);
                        self.keep(ValueRef::Pointer(base), R::R1);
                        R::R1
                    }
                };
                self.captured(pointer, (offset + len) as i32, no);
                self.go(yes, next);
            }
        }
    }

    fn go(&mut self, to: BlockId, next: Option<usize>) {
        if next != Some(to.0 as usize) {
            self.asm.jump(self.blocks[to.0 as usize]);
        }
    }

    /// On here if the bytes up to `end` behind `pointer` were captured. Works with r0 and r2.
    pub fn captured(&mut self, pointer: R, end: i32, no: Label) {
        self.asm.mov_reg(R::R2, pointer);
        self.asm.alu(Alu::Add, R::R2, end);
        self.asm.load(Size::Dw, R::R0, R::R10, frame::DATA_END);
        self.asm.jump_if_reg(Condition::Gt, R::R2, R::R0, no);
    }

    /// r1 = the packet's byte at the offset in `base`, or to `no` if it is out of all bounds.
    fn point(&mut self, base: ir::Reg, no: Label) {
        let offset = self.read(base, R::R2);
        if !self.form.short[usize::from(base.0)] {
            self.asm.jump_if(Condition::Gt, offset, LEN_MAX, no);
        }
        self.asm.load(Size::Dw, R::R1, R::R10, frame::DATA);
        self.asm.alu_reg(Alu::Add, R::R1, offset);
    }

    /// The register with the pointer that was kept for `base`; r1 if it had to be fetched.
    fn pointer(&mut self, base: ir::Reg) -> R {
        match self.form.allocation.of_what(ValueRef::Pointer(base)) {
            Some(Location::Reg(r)) => r,
            Some(Location::Slot(s)) => {
                self.asm.load(Size::Dw, R::R1, R::R10, frame::slot(s));
                R::R1
            }
            None => R::R1,
        }
    }

    /// r1 = where the frame begins.
    fn first_byte(&mut self) -> R {
        self.asm.load(Size::Dw, R::R1, R::R10, frame::DATA);
        R::R1
    }

    /// The register that holds the number; `scratch` if it had to be fetched.
    pub fn read(&mut self, from: ir::Reg, scratch: R) -> R {
        match self.form.allocation.of_what(ValueRef::Number(from)) {
            Some(Location::Reg(r)) => r,
            Some(Location::Slot(s)) => {
                self.asm.load(Size::Dw, scratch, R::R10, frame::slot(s));
                scratch
            }
            None => {
                if let Some(n) = self.form.allocation.constant(from) {
                    self.constant(scratch, n);
                }
                scratch
            }
        }
    }

    /// The register of a number that is about to be written; r0 if it has none.
    pub fn target(&self, to: ir::Reg) -> R {
        match self.form.allocation.of_what(ValueRef::Number(to)) {
            Some(Location::Reg(r)) => r,
            _ => R::R0,
        }
    }

    /// Puts what is in `from` where it lives.
    pub fn keep(&mut self, what: ValueRef, from: R) {
        match self.form.allocation.of_what(what) {
            Some(Location::Reg(r)) if r != from => self.asm.mov_reg(r, from),
            Some(Location::Slot(s)) => self.asm.store(Size::Dw, R::R10, frame::slot(s), from),
            _ => (),
        }
    }

    /// The same for a number.
    pub fn write(&mut self, to: ir::Reg, from: R) {
        self.keep(ValueRef::Number(to), from);
    }

    /// Bytes of the packet into a register, in the order of numbers. Works with r2; what takes several loads must not go where the
    /// pointer is.
    fn bytes(&mut self, to: R, pointer: R, offset: i16, width: u8) {
        let a = &mut self.asm;
        let (mut at, mut left) = (offset, width);
        for (size, bytes) in [(Size::Dw, 8), (Size::W, 4), (Size::H, 2), (Size::B, 1)] {
            if left < bytes {
                continue;
            }
            let bits = i32::from(bytes) * 8;
            let into = if left == width { to } else { R::R2 };
            a.load(size, into, pointer, at);
            if bytes > 1 {
                a.big_endian(into, bits);
            }
            if into != to {
                a.alu(Alu::Shl, to, bits);
                a.alu_reg(Alu::Or, to, into);
            }
            (at, left) = (at + i16::from(bytes), left - bytes);
        }
    }

    fn inst(&mut self, inst: &Inst, pointers: &[bool]) {
        match inst {
            Inst::Const { to, value } => self.number(*to, *value),
            Inst::Copy { to, from } => {
                let from = self.read(*from, R::R0);
                self.write(*to, from);
            }
            Inst::Op { to, op, a, b } => self.op(*to, *op, *a, *b),
            Inst::Is { to, cmp, a, b } => self.is(*to, *cmp, *a, *b),
            Inst::Mix { to, from } => self.mix(*to, *from),
            Inst::Fact { to, fact, .. } => {
                let (size, at) = fact_at(*fact);
                self.fetch(*to, size, at);
            }
            Inst::Meta { to, meta } => self.meta(*to, *meta),
            Inst::Load { to, base, offset, width } => {
                let pointer = match base {
                    None => self.first_byte(),
                    Some(base) if pointers[usize::from(base.0)] => self.pointer(*base),
                    Some(base) => {
                        // Promised for another register with the same value; the verifier cannot know that they are the same.
                        self.point(*base, self.exits.drop);
                        self.captured(R::R1, (*offset + u32::from(*width)) as i32, self.exits.drop);
                        R::R1
                    }
                };
                let into = self.target(*to);
                let into = if into == pointer { R::R0 } else { into };
                self.bytes(into, pointer, *offset as i16, *width);
                self.write(*to, into);
            }
            Inst::Get { to, var } => {
                let (size, at) = super::meta::at::of(*var);
                self.fetch(*to, size, frame::RECORD + at as i16);
            }
            Inst::Set { var, from } => self.set(*var, *from),
            Inst::Member { to, set, hi, lo } => self.member(*to, *set, *hi, *lo),
            Inst::Has { to, map, key } => self.has(*to, *map, key),
            Inst::MapGet { to, map, key } => self.map_get(*to, *map, key),
            Inst::MapPut { map, key, value } => self.map_put(*map, key, *value),
            Inst::MapAdd { to, map, key, by } => self.map_add(*to, *map, key, *by),
            Inst::MapDelete { map, key } => self.map_delete(*map, key),
            Inst::Count { counter, by } => self.count(*counter, *by),
            Inst::Forward { device } => {
                self.asm.store_imm(Size::H, R::R10, frame::fact::SINK, i32::from(*device) + 2);
            }
            Inst::Kernel => self.asm.store_imm(Size::H, R::R10, frame::fact::SINK, 1),
            // A way ends before it comes to one, and of a whole packet there is nothing to be asked.
            Inst::Log(_) | Inst::Datagram { .. } => (),
        }
    }

    /// A number of the stack into a register of the program.
    fn fetch(&mut self, to: ir::Reg, size: Size, at: i16) {
        let into = self.target(to);
        self.asm.load(size, into, R::R10, at);
        self.write(to, into);
    }

    fn meta(&mut self, to: ir::Reg, meta: Meta) {
        match meta {
            Meta::WireLen | Meta::CapLen => {
                self.asm.load(Size::Dw, R::R0, R::R10, frame::DATA_END);
                self.asm.load(Size::Dw, R::R1, R::R10, frame::DATA);
                self.asm.alu_reg(Alu::Sub, R::R0, R::R1);
                self.write(to, R::R0);
            }
            Meta::Time => self.fetch(to, Size::Dw, frame::TIME),
            Meta::Vlan => self.fetch(to, Size::H, frame::fact::VLAN),
            Meta::Queue => {
                self.asm.load(Size::Dw, R::R1, R::R10, frame::CONTEXT);
                self.asm.load(Size::W, R::R0, R::R1, context::RX_QUEUE_INDEX);
                self.write(to, R::R0);
            }
            // Numbers that are known beforehand, and those at which a way ends.
            Meta::Port
            | Meta::Rss
            | Meta::Sequence
            | Meta::Outgoing
            | Meta::Ethernet
            | Meta::Depth
            | Meta::Part
            | Meta::Ingress
            | Meta::HashKey => (),
        }
    }
}

const fn fact_at(fact: Fact) -> (Size, i16) {
    match fact {
        Fact::Ethertype => (Size::H, frame::fact::ETHERTYPE),
        Fact::Family => (Size::B, frame::fact::FAMILY),
        Fact::Protocol => (Size::B, frame::fact::PROTOCOL),
        Fact::Fragment => (Size::B, frame::fact::FRAGMENT),
        Fact::L3 => (Size::B, frame::fact::L3),
        Fact::L4 => (Size::B, frame::fact::L4),
    }
}
