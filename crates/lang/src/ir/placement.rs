//! Where the stages of a program can run.
//!
//! A program that is attached to a port in the kernel (XDP) gives each packet *one* fate: to user space, to the stack, out of one device,
//! or nowhere. It cannot copy, write logs, or know what only a worker in user space knows. It need not be able to: a packet for which
//! the program comes to such a thing is handed to user space *undecided*, where the program runs for it from the start. That is
//! right as long as nothing was done for it before, so the part for the kernel is the longest run of stages from the start where
//!
//! * nothing is counted and no map written or touched on any way to what the kernel cannot do,
//! * each stage lets some packet through, lest it be in the kernel in name only,
//! * no map is used on both sides: state is either here or there.
//!
//! The record travels beside the packet, so what only sets the record (marks, classes, hashes, whom to steer to) can be decided in
//! either place; where nothing but the record is left behind, the kernel decides who passes, and user space makes it
//! ([`crate::ebpf::Metadata`]). Where the stages look into tunnels, what may be one is undecided before anything else ([`crate::ebpf`]), so the
//! innermost packet is the outermost one for all that is left. So are fragments where the stages remember which way they go, unless all that
//! comes of it is the record that user space makes.

use super::{Effect, End, Expiry, Inst, Meta, Program, Set};

/// Where a stage runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the kernel, before the packet has cost anything.
    Kernel {
        /// Which packets it leaves to user space.
        undecided: Vec<&'static str>,
    },
    /// In user space, for this reason.
    User(String),
}

impl Placement {
    /// Whether in the kernel.
    pub const fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel { .. })
    }
}

/// Where each stage runs: the longest run of stages from the start that the kernel can do, and why it is not longer.
pub fn placement(program: &Program) -> Vec<Placement> {
    let stages = program.stages.len();
    let found = (1..=stages).rev().find_map(|n| KernelPrefix::of(program, n).ok().map(|study| (n, study)));
    let in_kernel = found.as_ref().map_or(0, |f| f.0);
    let mut reason = (in_kernel < stages).then(|| KernelPrefix::of(program, in_kernel + 1).err()).flatten();
    (0..stages)
        .map(|stage| match (&found, reason.take()) {
            (Some((n, study)), why) if stage < *n => {
                reason = why;
                Placement::Kernel { undecided: study.undecided(program, stage) }
            }
            (_, Some(why)) => Placement::User(why),
            (_, None) => Placement::User("behind a stage in user space".into()),
        })
        .collect()
}

/// A stage in which a packet may be given to the stack that was, or will be, given to somebody else as well: a copy, which the
/// kernel cannot make.
pub fn copies_to_stack(program: &Program) -> Option<usize> {
    let forwards = |inst: &Inst| matches!(inst, Inst::Forward { .. });
    let of = |inst: &Inst| *inst == Inst::Kernel;
    let blocks = &program.blocks;
    // By block, whether a packet that comes there may have been forwarded, and may still come to anybody. Blocks lead forward only.
    let (mut sent, mut goes_on) = (vec![false; blocks.len()], vec![true; blocks.len()]);
    for (at, block) in blocks.iter().enumerate() {
        if sent[at] || block.code.iter().any(forwards) {
            for target in block.end.targets() {
                // One that is not there is none; the verifier says so.
                if let Some(sent) = sent.get_mut(target.0 as usize) {
                    *sent = true;
                }
            }
        }
    }
    let mut copies = |at: usize| {
        let block = &blocks[at];
        let mut targets = block.end.targets().map(|t| goes_on.get(t.0 as usize).copied().unwrap_or(true));
        let after = block.end == End::Pass || targets.any(|on| on);
        goes_on[at] = after || block.code.iter().any(forwards);
        block.code.iter().any(of) && (sent[at] || goes_on[at])
    };
    let found = (0..blocks.len()).rev().filter(|at| copies(*at)).last()?;
    (0..program.stages.len()).find(|stage| program.blocks_of(*stage).contains(&found))
}

/// What the kernel cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Copy,
    Log,
    Local,
}

impl Obstacle {
    /// What a stage does that always comes to it.
    const fn why(self) -> &'static str {
        match self {
            Self::Copy => "copies the packet, and the kernel gives each packet one fate",
            Self::Log => "writes a log",
            Self::Local => "asks what only the worker in user space knows",
        }
    }

    /// Which packets come to it, where not all do.
    const fn recipients(self) -> &'static str {
        match self {
            Self::Copy => "packets that are copied",
            Self::Log => "packets that are logged",
            Self::Local => "packets that are asked for what only the worker knows",
        }
    }
}

/// The first stages of a program as the kernel would run them.
#[derive(Clone, Debug)]
pub(crate) struct KernelPrefix {
    /// By block: the first instruction that is not for the kernel. The way ends there.
    pub stops: Vec<Option<(usize, Obstacle)>>,
    /// By block: whether a packet that the kernel decides comes here.
    pub reached: Vec<bool>,
}

/// What may still come, seen from a place in the program.
#[derive(Clone, Copy, Default)]
struct Reachable {
    passes: bool,
    forwards: bool,
    kernel: bool,
}

impl KernelPrefix {
    /// Of the first `stages` stages; or why they are not for the kernel.
    pub fn of(program: &Program, stages: usize) -> Result<Self, String> {
        let study = Self::of_some(program, stages)?;
        for stage in 0..stages {
            study.lets_some_through(program, stage)?;
        }
        let cut = study.reached.len();
        let both = program.maps_of(0..cut) & program.maps_of(cut..program.blocks.len());
        if both != 0 {
            let map = &program.maps[both.trailing_zeros() as usize].name;
            return Err(format!("the map `{map}` would be in the kernel and in user space"));
        }
        Ok(study)
    }

    /// Of stages that may be for the kernel although none of these packets gets through: others do.
    pub fn of_some(program: &Program, stages: usize) -> Result<Self, String> {
        let cut = program.stages.get(stages).map_or(program.blocks.len(), |s| s.first.0 as usize);
        let stops = stops(program, cut);
        let mut reached = vec![false; cut];
        let mut acted = vec![false; cut];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        for at in 0..cut {
            if !reached[at] {
                continue;
            }
            let block = &program.blocks[at];
            let len = stops[at].map_or(block.code.len(), |s| s.0);
            let acts = acted[at] || block.code[..len].iter().any(|i| program.acts(i));
            match stops[at] {
                Some((_, what)) if acts => return Err(format!("{} after something was counted or kept", what.why())),
                Some(_) => (),
                None => block.end.targets().map(|t| t.0 as usize).filter(|t| *t < cut).for_each(|t| {
                    reached[t] = true;
                    acted[t] |= acts;
                }),
            }
        }
        Ok(Self { stops, reached })
    }

    fn lets_some_through(&self, program: &Program, stage: usize) -> Result<(), String> {
        let blocks = program.blocks_of(stage);
        let end = blocks.end;
        let mut why = None;
        for at in blocks.filter(|b| self.reached[*b]) {
            match (self.stops[at], program.blocks[at].end) {
                (Some((_, what)), _) => why = why.or(Some(what)),
                (None, End::Pass | End::Drop) => return Ok(()),
                (None, other) if other.targets().any(|t| t.0 as usize >= end) => return Ok(()),
                _ => (),
            }
        }
        why.map_or(Ok(()), |what| Err(what.why().to_owned()))
    }

    /// Which packets a stage leaves to user space.
    fn undecided(&self, program: &Program, stage: usize) -> Vec<&'static str> {
        let mut all = Vec::new();
        if program.effects_of(stage).has(Effect::Tunnel) {
            all.push("packets that may be tunnels");
        }
        if program.effects_of(stage).has(Effect::Datagram) {
            all.push("fragments, whose datagrams are remembered there");
        }
        for at in program.blocks_of(stage).filter(|b| self.reached[*b]) {
            if let Some((_, what)) = self.stops[at]
                && !all.contains(&what.recipients())
            {
                all.push(what.recipients());
            }
        }
        all
    }
}

/// By block, the first thing that the kernel cannot do. A packet that is forwarded or given to the stack must meet its end without
/// anything else coming of it.
fn stops(program: &Program, cut: usize) -> Vec<Option<(usize, Obstacle)>> {
    let mut ahead = vec![Reachable::default(); cut];
    let mut stops = vec![None; cut];
    for at in (0..cut).rev() {
        let block = &program.blocks[at];
        let mut now = Reachable { passes: block.end == End::Pass, ..Reachable::default() };
        for target in block.end.targets().map(|t| t.0 as usize) {
            // A target that is not behind is none; the verifier says so.
            let then = ahead.get(target).copied().unwrap_or(Reachable { passes: true, ..Reachable::default() });
            now = Reachable {
                passes: now.passes | then.passes,
                forwards: now.forwards | then.forwards,
                kernel: now.kernel | then.kernel,
            };
        }
        for (i, inst) in block.code.iter().enumerate().rev() {
            let obstacle = match inst {
                Inst::Log(_) => Some(Obstacle::Log),
                Inst::Meta { meta: Meta::Sequence | Meta::Rss, .. } => Some(Obstacle::Local),
                Inst::Member { set, .. } if program.sets.get(usize::from(*set)) == Some(&Set::Host) => {
                    Some(Obstacle::Local)
                }
                Inst::Forward { .. } if now.passes || now.forwards || now.kernel => Some(Obstacle::Copy),
                Inst::Kernel if now.passes || now.forwards => Some(Obstacle::Copy),
                _ => None,
            };
            match (obstacle, inst) {
                (Some(what), _) => {
                    stops[at] = Some((i, what));
                    now = Reachable::default();
                }
                (None, Inst::Forward { .. }) => now.forwards = true,
                (None, Inst::Kernel) => now.kernel = true,
                _ => (),
            }
        }
        ahead[at] = now;
    }
    stops
}

impl Program {
    /// Whether an instruction changes what outlives the packet.
    fn acts(&self, inst: &Inst) -> bool {
        match inst {
            Inst::Count { .. } | Inst::MapPut { .. } | Inst::MapAdd { .. } | Inst::MapDelete { .. } => true,
            Inst::MapGet { map, .. } => {
                self.maps.get(usize::from(*map)).is_some_and(|m| matches!(m.expiry, Expiry::Idle(_)))
            }
            _ => false,
        }
    }

    /// The maps that blocks use, as bits.
    fn maps_of(&self, blocks: std::ops::Range<usize>) -> u64 {
        let insts = self.blocks[blocks].iter().flat_map(|b| &b.code);
        insts.fold(0, |all, inst| match inst {
            Inst::Has { map, .. }
            | Inst::MapGet { map, .. }
            | Inst::MapPut { map, .. }
            | Inst::MapAdd { map, .. }
            | Inst::MapDelete { map, .. } => all | 1 << (map % 64),
            _ => all,
        })
    }
}
