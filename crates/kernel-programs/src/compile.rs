//! Compiles the IR to eBPF instructions: chooses the stages and the specialisations, and emits the prologue. The other
//! parts of the code are emitted by the modules below, all of which extend [`Emitter`].

mod blocks;
mod exits;
mod fast_path;
mod number;
mod parse_headers;
mod tables;

use super::alloc::{Allocation, reached_code};
use super::common_case::{drop_unused, plain, without_record};
use super::refusal::Refusal;
use super::{EmitOptions, MAPS_MAX, MapRequirement, Metadata, Object, Role, frame, meta};
use ebpf::{Alu, Asm, AsmError, Condition, Helper, Label, Reg as R, Size};
use ir::{
    Builder, CommonCase, DEFAULT_CLASS, End, Expiry, Fact, FragmentScope, Inst, KernelPrefix, Layer, Meta, Placement,
    Program, Start, UserSpaceReason, VerdictKind, placement,
};
use parse_headers::FRAME;
use std::collections::BTreeSet;

/// Maximum length in bytes of a frame that the kernel handles if the program computes offsets; longer frames are left
/// undecided. The kernel's verifier does not track packet offsets beyond 65535.
pub(super) const LEN_MAX: i32 = 0x7fff;

/// Maximum size of a program, in IR instructions, for which fast paths are generated. The limit bounds the work of the
/// kernel's verifier.
const MAX_INSTRUCTIONS: usize = 1000;

/// Offsets in `struct xdp_md`.
pub(super) mod context {
    pub const DATA: i16 = 0;
    pub const DATA_END: i16 = 4;
    pub const DATA_META: i16 = 8;
    pub const RX_QUEUE_INDEX: i16 = 16;
}

/// XDP return values.
pub(super) mod verdict {
    pub const DROP: i32 = 1;
    pub const PASS: i32 = 2;
    pub const REDIRECT: i32 = 4;
}

/// The state of the code generator.
pub(super) struct Emitter<'a> {
    pub asm: Asm,
    pub options: &'a EmitOptions,
    /// The kind of metadata before a packet, and the number of stages that the metadata report for a packet that
    /// passes.
    pub metadata: Metadata,
    pub done: u8,
    pub needs: Requirements,
    pub maps: Vec<MapRequirement>,
    /// The address sets whose prefixes have already been added to a map.
    pub tries: BTreeSet<u16>,
    pub exits: Exits,
    /// The specialisation whose code is being generated.
    pub form: &'a Specialisation,
    blocks: Vec<Label>,
    /// For each block that is the target of an emitted jump: for each register, true if the packet pointer for the
    /// offset in that register is available at the start of the block.
    pointers: Vec<Option<Vec<bool>>>,
}

/// A variant of the program, for the packets of one common case or for all packets, with the results of its analysis.
#[derive(Debug)]
pub(super) struct Specialisation {
    pub program: Program,
    pub allocation: Allocation,
    /// For each register of the program: true if the program writes only header offsets to it, which are at most 255.
    short: Vec<bool>,
    prefix: KernelPrefix,
}

/// The variants of the program: one for each common case, and one for all other packets.
struct Specialisations {
    common_cases: Vec<(CommonCase, Specialisation)>,
    any: Specialisation,
}

/// The kind of metadata before a packet, and the number of stages that the metadata report for a packet that passes.
#[derive(Clone, Copy)]
struct MetadataPlan {
    metadata: Metadata,
    done: u8,
}

/// The packet facts that the program reads, and other features that its code needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requirements {
    pub link: bool,
    pub vlan: bool,
    pub network: bool,
    pub transport: bool,
    pub inner: bool,
    /// Fragments are left undecided.
    pub whole: bool,
    pub time: bool,
    pub sink: bool,
    /// True if the program reads a variable of the verdict record.
    pub record: bool,
    pub long: bool,
}

/// The exits of the program.
#[derive(Clone, Copy)]
pub(super) struct Exits {
    pub user: Label,
    pub undecided: Label,
    /// The exit for a packet that is passed to user space without metadata, because the driver leaves no space before
    /// the frame.
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
            _ => UserSpaceReason::Empty,
        };
        let stage = program.stages.first().map_or(String::new(), |s| s.text.clone());
        return Err(Refusal::Nothing { stage, why });
    }
    // If the code for these stages exceeds a limit (code length, stack size, number of maps), the last stage is omitted
    // and compilation is repeated.
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
    let prefix = KernelPrefix::of(&head, stages).map_err(refuse)?;
    if request.metadata == Metadata::None && decided(&head, &prefix).any(acts) {
        return Err(Refusal::NoMetadata);
    }
    // The search for instructions with effects includes instructions after an operation that the kernel cannot perform:
    // if the result of that operation is used only for the verdict record, `without_record` removes the operation, and
    // the kernel then reaches the instructions after it.
    let mut all = head.blocks.iter().flat_map(|b| &b.code);
    let (acts, sets) = (all.clone().any(acts), all.any(|i| matches!(i, Inst::Set { .. })));
    let metadata = match request.metadata {
        Metadata::Compact if acts => Metadata::Full,
        wished => wished,
    };
    // If the kernel does not pass the record to user space, user space computes it from the first stage on; so the
    // metadata report that no stage has run.
    let reports_stages = metadata == Metadata::Full || !sets;
    let done = if reports_stages { stages.min(u8::MAX.into()) as u8 } else { 0 };
    if metadata != Metadata::Full && !acts {
        head = without_record(&head);
    }
    let (looks_inside, whole) = (reads_inner(&head), uses_fragments(&head));
    let head = plain(&head, request, whole)?;
    let prefix = KernelPrefix::of(&head, stages).map_err(refuse)?;
    let any = Specialisation::of(head, prefix);
    let needs = Requirements { inner: looks_inside, whole, ..Requirements::default() }.and_of(&any);
    let common_cases = if needs.beyond_link() && any.size() <= MAX_INSTRUCTIONS { &CommonCase::ALL[..] } else { &[] };
    let common_cases = common_cases.iter().map(|case| Ok((*case, any.of_plain(*case, stages)?)));
    let common_cases = common_cases.collect::<Result<_, _>>().map_err(refuse)?;
    let (mut forms, plan) = (Specialisations { common_cases, any }, MetadataPlan { metadata, done });
    match write(&forms, needs, plan, stages, request) {
        // If the code is too long or needs too much stack, it is generated again without fast paths; if it is still too
        // large, the caller omits stages.
        Err(Refusal::TooLong { .. } | Refusal::Stack { .. }) if !forms.common_cases.is_empty() => {
            forms.common_cases.clear();
            write(&forms, needs, plan, stages, request)
        }
        done => done,
    }
}

/// Compiles a program that passes every packet to user space, and otherwise only writes the program generation, into
/// the metadata or into [`super::QueueGenerations`].
pub(super) fn announce(request: &EmitOptions) -> Object {
    let mut nothing = Builder::default();
    nothing.pass();
    let program = nothing.finish();
    let prefix = KernelPrefix { stops: vec![None], reached: vec![true] };
    let forms = Specialisations { common_cases: vec![], any: Specialisation::of(program, prefix) };
    let plan = MetadataPlan { metadata: request.metadata, done: 0 };
    write(&forms, Requirements::default(), plan, 0, request).expect("a program without stages is within all limits")
}

/// Generates the code of all variants of the program, the prologue, the header parser and the exits.
fn write(
    forms: &Specialisations,
    needs: Requirements,
    plan: MetadataPlan,
    stages: usize,
    request: &EmitOptions,
) -> Result<Object, Refusal> {
    let Specialisations { common_cases, any } = forms;
    let all = || common_cases.iter().map(|(_, form)| form).chain([any]);
    all().try_for_each(|form| frame::fits(form.allocation.slots))?;
    let needs = all().fold(needs, Requirements::and_of);
    let mut asm = Asm::new();
    let exits = Exits { user: asm.label(), undecided: asm.label(), silent: asm.label(), drop: asm.label() };
    let MetadataPlan { metadata, done } = plan;
    let (maps, blocks, pointers) = (vec![], vec![], vec![]);
    let tries = BTreeSet::new();
    let mut e =
        Emitter { asm, options: request, metadata, done, needs, maps, tries, exits, form: any, blocks, pointers };
    e.enter();
    e.fast_paths(common_cases);
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
    fn of(program: Program, prefix: KernelPrefix) -> Self {
        let allocation = Allocation::of(&program, &prefix, |inst| tables::calls(inst, &program));
        let short = short(&program);
        Self { program, prefix, allocation, short }
    }

    /// The variant for packets of this common case.
    fn of_plain(&self, case: CommonCase, stages: usize) -> Result<Self, UserSpaceReason> {
        let mut program = self.program.simplified_for(case, Start::Fresh);
        while drop_unused(&mut program) {}
        let prefix = KernelPrefix::of_some(&program, stages)?;
        Ok(Self::of(program, prefix))
    }

    fn size(&self) -> usize {
        self.program.blocks.iter().map(|b| b.code.len() + 1).sum()
    }
}

/// For each register: true if the program writes only header offsets to it.
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

/// The instructions of the program that the kernel part contains: in each block that the kernel part can reach, those
/// before the first instruction that leaves the packet undecided.
fn decided<'a>(head: &'a Program, prefix: &'a KernelPrefix) -> impl Iterator<Item = &'a Inst> {
    let blocks = head.blocks.iter().enumerate().filter(|b| prefix.reached[b.0]);
    blocks.flat_map(|(at, b)| reached_code(b, prefix.stops[at].map(|s| s.0)))
}

/// True if the instruction may change state that outlives the packet; `MapGet` may renew the timestamp of an entry.
fn acts(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Count { .. } | Inst::MapPut { .. } | Inst::MapAdd { .. } | Inst::MapDelete { .. } | Inst::MapGet { .. }
    )
}

fn reads_inner(program: &Program) -> bool {
    let reads = |inst: &Inst| {
        matches!(
            inst,
            Inst::Fact { layer: Layer::Inner, .. }
                | Inst::Datagram { parts: FragmentScope::Inner | FragmentScope::Enclosing, .. }
                | Inst::Meta { meta: Meta::Depth | Meta::Part, .. }
        )
    };
    program.blocks.iter().flat_map(|b| &b.code).any(reads)
}

/// True if the program uses fragment tracking. Only user space has the fragment tracker, so the kernel then leaves all
/// fragments undecided.
fn uses_fragments(program: &Program) -> bool {
    program.blocks.iter().flat_map(|b| &b.code).any(|i| matches!(i, Inst::Datagram { .. }))
}

impl Requirements {
    /// True if the program needs any header parsed.
    pub const fn parses_headers(&self) -> bool {
        self.link || self.vlan || self.beyond_link()
    }

    /// True if the program needs headers parsed after the Ethernet header.
    pub const fn beyond_link(&self) -> bool {
        self.network || self.transport || self.inner || self.whole
    }

    /// Returns the union of the requirements in `self` and those of the variant `form` of the program.
    fn and_of(mut self, form: &Specialisation) -> Self {
        let (n, Specialisation { program, prefix, short, .. }) = (&mut self, form);
        for (at, block) in program.blocks.iter().enumerate().filter(|b| prefix.reached[b.0]) {
            for inst in reached_code(block, prefix.stops[at].map(|s| s.0)) {
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

impl Emitter<'_> {
    /// Returns the index of the map with this role, and adds the map on the first call.
    pub fn map(&mut self, role: Role, need: impl FnOnce() -> MapRequirement) -> u16 {
        let found = self.maps.iter().position(|m| m.role == role).unwrap_or_else(|| {
            self.maps.push(need());
            self.maps.len() - 1
        });
        found as u16
    }

    /// Generates the prologue, which stores the packet pointers and the initial verdict record on the stack. After the
    /// prologue, FRAME points to the first byte of the packet, and r0 to the byte after its last byte.
    fn enter(&mut self) {
        let a = &mut self.asm;
        a.store(Size::Dw, R::R10, frame::CONTEXT, R::R1);
        a.mov_reg(R::R6, R::R1);
        let carries_record = self.metadata == Metadata::Full;
        if carries_record {
            // The space for metadata is reserved before any effect, because a packet without this space is left
            // undecided, and an undecided packet must not have had effects.
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
        if !carries_record && !self.needs.record {
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
}
