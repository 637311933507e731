//! Determines the offload placement of a program: which of its stages run in the kernel, and which in user space.
//!
//! A program that is attached to an interface in the kernel (XDP) has *one* outcome for each packet: the packet is
//! passed to user space, passed to the host's stack, sent through one egress interface, or dropped. It cannot copy
//! packets, write logs, or read values that only a worker in user space has. If the program reaches such an operation
//! for a packet, the kernel passes the packet to user space *undecided*, and the complete program runs there. Running
//! the complete program again is correct only if the kernel has not yet changed any counter or map because of the
//! packet. Hence the kernel runs the longest sequence of stages, from the first stage on, with these properties:
//!
//! * no path to an operation that the kernel cannot perform changes a counter, or writes or touches a map;
//! * each stage completes in the kernel for some packet, since otherwise user space would have to run it for every
//!   packet;
//! * no map is used by stages in the kernel and by stages in user space. (Undecided packets use separate maps in user
//!   space, which `kernel_programs::Object::flow_maps` explains.)
//!
//! The kernel passes the verdict record to user space with the packet, so stages that only set the record (marks,
//! classes, hashes, steering) can run in the kernel or in user space. If a program changes no counter and no map, the
//! kernel may decide only which packets pass, and user space computes the record (`kernel_programs::Metadata`). If the
//! stages inspect tunnels, the kernel first leaves every packet undecided that may contain a tunnel
//! (`netgrain-kernel-programs`), so in all other packets the innermost packet is the outermost packet. If the stages
//! use fragment tracking, the kernel also leaves fragments undecided, unless fragment tracking affects only the record
//! that user space computes.

use super::{Effect, End, Expiry, Inst, Meta, Program, Set};
use std::fmt;

/// The place where a stage runs: the kernel or user space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The stage runs in the kernel, before the packet is passed to user space.
    Kernel {
        /// Descriptions of the packets that this stage passes to user space without a decision.
        undecided: Vec<&'static str>,
    },
    /// The stage runs in user space for this reason.
    User(UserSpaceReason),
}

/// The reason why a stage runs in user space. Its text is printed after the name of the stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserSpaceReason {
    /// In this stage, all packets reach an operation that the kernel cannot perform.
    Obstacle(Obstacle),
    /// An operation that the kernel cannot perform follows a change of a counter or a map.
    ObstacleAfterChange(Obstacle),
    /// The map of this name would be used by a stage in the kernel and by a stage in user space.
    SharedMap(String),
    /// An earlier stage runs in user space.
    AfterUserSpace,
    /// The program has no stage.
    Empty,
}

impl fmt::Display for UserSpaceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Obstacle(obstacle) => f.write_str(obstacle.why()),
            Self::ObstacleAfterChange(obstacle) => {
                write!(f, "{} (and an earlier operation changes a counter or a map)", obstacle.why())
            }
            Self::SharedMap(map) => write!(f, "the map `{map}` would be used in the kernel and in user space"),
            Self::AfterUserSpace => f.write_str("after a stage in user space"),
            Self::Empty => f.write_str("is empty"),
        }
    }
}

impl Placement {
    /// True if the stage runs in the kernel.
    pub const fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel { .. })
    }
}

/// The placement of each stage. The kernel gets the longest possible sequence of stages, from the first stage on; the
/// first stage in user space has the reason why the kernel cannot run it.
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
            (_, None) => Placement::User(UserSpaceReason::AfterUserSpace),
        })
        .collect()
}

/// The first stage that may pass a packet to the host's stack although the packet is also delivered to members or
/// forwarded: the kernel would have to copy the packet, which XDP cannot do.
pub fn copies_to_stack(program: &Program) -> Option<usize> {
    let forwards = |inst: &Inst| matches!(inst, Inst::Forward { .. });
    let of = |inst: &Inst| *inst == Inst::Kernel;
    let blocks = &program.blocks;
    // For each block: `sent` is true if a packet may have been forwarded before the block, and `goes_on` is true if the
    // packet may still be delivered or forwarded after the block. Jumps lead only to later blocks, so one pass over the
    // blocks is sufficient for each value.
    let (mut sent, mut goes_on) = (vec![false; blocks.len()], vec![true; blocks.len()]);
    for (at, block) in blocks.iter().enumerate() {
        if sent[at] || block.code.iter().any(forwards) {
            for target in block.end.targets() {
                // Targets that do not exist are ignored here; the verifier reports them.
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

/// An operation that a program in the kernel cannot perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The packet is copied.
    Copy,
    /// A log is written.
    Log,
    /// The program reads a value that exists only in the worker, in user space.
    Local,
}

impl Obstacle {
    /// The reason why the kernel cannot run a stage in which every packet reaches this operation.
    const fn why(self) -> &'static str {
        match self {
            Self::Copy => "copies the packet, and in the kernel each packet has one outcome",
            Self::Log => "writes a log",
            Self::Local => "reads a value that only the worker in user space has",
        }
    }

    /// A description of the packets that reach this operation, for a stage in which only some packets reach it.
    const fn recipients(self) -> &'static str {
        match self {
            Self::Copy => "packets that are copied",
            Self::Log => "packets that are logged",
            Self::Local => "packets for which the program reads a value that only the worker in user space has",
        }
    }
}

/// The first stages of a program, in the form in which the kernel would run them.
#[derive(Clone, Debug)]
pub struct KernelPrefix {
    /// For each block: index and kind of the first instruction that the kernel cannot run. If a packet
    /// reaches this instruction, user space decides about the packet.
    pub stops: Vec<Option<(usize, Obstacle)>>,
    /// For each block: true if the kernel can execute the block for some packet.
    pub reached: Vec<bool>,
}

/// The kinds of delivery that a packet can still reach from one point of the program.
#[derive(Clone, Copy, Default)]
struct Reachable {
    passes: bool,
    forwards: bool,
    kernel: bool,
}

impl KernelPrefix {
    /// Returns the first `stages` stages, or the reason why the kernel cannot run them.
    pub fn of(program: &Program, stages: usize) -> Result<Self, UserSpaceReason> {
        let study = Self::of_some(program, stages)?;
        for stage in 0..stages {
            study.decides_some_packets(program, stage)?;
        }
        let cut = study.reached.len();
        let both = program.maps_of(0..cut) & program.maps_of(cut..program.blocks.len());
        if both != 0 {
            let map = &program.maps[both.trailing_zeros() as usize].name;
            return Err(UserSpaceReason::SharedMap(map.clone()));
        }
        Ok(study)
    }

    /// Like [`Self::of`], but also accepts stages that leave the decision about every packet to user space. A program
    /// that is specialised for a common case may have such stages, if they decide only about packets outside the common
    /// case.
    pub fn of_some(program: &Program, stages: usize) -> Result<Self, UserSpaceReason> {
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
                Some((_, what)) if acts => return Err(UserSpaceReason::ObstacleAfterChange(what)),
                Some(_) => (),
                None => block.end.targets().map(|t| t.0 as usize).filter(|t| *t < cut).for_each(|t| {
                    reached[t] = true;
                    acted[t] |= acts;
                }),
            }
        }
        Ok(Self { stops, reached })
    }

    fn decides_some_packets(&self, program: &Program, stage: usize) -> Result<(), UserSpaceReason> {
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
        why.map_or(Ok(()), |what| Err(UserSpaceReason::Obstacle(what)))
    }

    /// Returns descriptions of the packets that a stage in the kernel passes to user space without a decision.
    fn undecided(&self, program: &Program, stage: usize) -> Vec<&'static str> {
        let mut all = Vec::new();
        if program.effects_of(stage).has(Effect::Tunnel) {
            all.push("packets that may contain a tunnel");
        }
        if program.effects_of(stage).has(Effect::Datagram) {
            all.push("fragments, which user space tracks");
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

/// For each block, the first operation that the kernel cannot perform. After the kernel has forwarded a packet or
/// passed it to the host's stack, the program must end without another delivery of the packet.
fn stops(program: &Program, cut: usize) -> Vec<Option<(usize, Obstacle)>> {
    let mut ahead = vec![Reachable::default(); cut];
    let mut stops = vec![None; cut];
    for at in (0..cut).rev() {
        let block = &program.blocks[at];
        let mut now = Reachable { passes: block.end == End::Pass, ..Reachable::default() };
        for target in block.end.targets().map(|t| t.0 as usize) {
            // Targets that are not later blocks are treated as `pass` here; the verifier reports them.
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
                Inst::Meta { meta: Meta::Sequence | Meta::Rss | Meta::Duplicate, .. } => Some(Obstacle::Local),
                Inst::Duplicate { .. } => Some(Obstacle::Local),
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
    /// True if the instruction changes state that outlives the packet.
    fn acts(&self, inst: &Inst) -> bool {
        match inst {
            Inst::Count { .. } | Inst::MapPut { .. } | Inst::MapAdd { .. } | Inst::MapDelete { .. } => true,
            Inst::MapGet { map, .. } => {
                self.maps.get(usize::from(*map)).is_some_and(|m| matches!(m.expiry, Expiry::Idle(_)))
            }
            _ => false,
        }
    }

    /// The maps that the blocks use, as a bit mask: bit n is set for map n.
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
