//! The XDP program of one interface. It stays for as long as the interface is captured: what is exchanged is the program that it goes on
//! with ([`XdpDispatcher::exchange`]), if there is one, which then decides. Without one it counts each frame and sends it to the socket of its
//! queue, if that has one.
//!
//! ```text
//! bpf_tail_call(ctx, programs, 0)                   comes back only where the slot is empty
//! verdict = bpf_redirect_map(sockets, ctx->rx_queue_index, XDP_PASS)
//! fates[ctx->rx_queue_index][verdict == XDP_REDIRECT ? user : unclaimed] += 1        one set per processor
//! return verdict
//! ```
//! The flags of `bpf_redirect_map` are what it answers when the map has no socket for the queue: such frames go on to
//! the kernel as if we were not there. The program itself therefore knows which of the two happened, and its count of
//! frames sent to a socket is independent of what the socket says it received and lost. All programs of a port count in the same
//! map ([`PacketOutcome`]), so the books go on over every exchange.
//!
//! Why a slot, and not `BPF_LINK_UPDATE`: that exchanges the program just as well, but then sleeps under the kernel's network lock
//! until all processors have left the old one (`bpf_dispatcher_update` in kernel/bpf/dispatcher.c calls `synchronize_rcu`), 8 to 15 ms of which
//! nobody here has any use: what the old program still works on is told by its generation.
// PERF: an exchange takes 15 ms by the link, 0.07 ms by the slot, which costs a packet 1 ns (records/2026-11-22-xdp.md).

use super::swap::{PortMap, PreparedProgram, spec};
use crate::ProgramOutcomes;
use bpf::{
    Asm, AttachError, AttachMode, Code, Condition, Frames, Helper, Link, LoadError, MapError, MapKind, MapSet, MapSpec,
    Program, RawMap, Reg, Size, XdpAction, XdpMode,
};
use kernel_programs::{Object, PacketOutcome, QueueGenerations, Role};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use sys::packet::PacketSocket;

/// The program's count of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatcherCounts {
    /// Sent to a socket.
    pub redirected: u64,
    /// Of these, packets that the program left undecided.
    pub undecided: u64,
    /// Left to the kernel because the queue has no socket.
    pub passed: u64,
    /// Kept from the socket by the program's decision.
    pub disposed: ProgramOutcomes,
}

/// The attached program with its maps. It is detached when the last source that uses it is dropped.
#[derive(Debug)]
pub struct XdpDispatcher {
    /// First, so that it goes first: whoever comes after it never runs without the slot's program.
    link: Link,
    /// The slot.
    programs: RawMap,
    running: Mutex<SlotProgram>,
    sockets: Arc<RawMap>,
    outcomes: Arc<RawMap>,
    generations: Arc<RawMap>,
    /// Held while the queues' one value is read, changed and written.
    seeing: Mutex<()>,
    queues: u32,
    frames: Frames,
    /// Has the port take frames for other hosts too; the port forgets it with the socket, however this process ends.
    _promiscuous_socket: PacketSocket,
}

/// What is in the slot, which itself keeps the program.
#[derive(Debug, Default)]
struct SlotProgram {
    /// There is something in it.
    busy: bool,
    /// The maps of the program, with their roles; none of ours.
    maps: MapSet,
    roles: Vec<Role>,
}

/// Why there is no program on the interface.
#[derive(Debug)]
pub enum DispatcherError {
    /// A map was refused.
    Map(MapError),
    /// Something could not be put into a map.
    Fill(String, io::Error),
    /// The code and its maps do not belong together, which is a bug of ours.
    Unbound(String),
    /// The program was refused.
    Load(LoadError),
    /// It could not be attached.
    Attach(AttachError),
    /// It could not take over from the one before.
    Exchange(io::Error),
    /// The port could not be told to take frames for other hosts.
    Promiscuous(io::Error),
}

/// The only key of the slot, and of what is known of the queues.
const ONLY: [u8; 4] = [0; 4];

/// Offsets in `struct xdp_md`.
mod context {
    pub const RX_QUEUE_INDEX: i16 = 16;
}

impl XdpDispatcher {
    /// Puts the program on the interface. All frames pass until a queue is taken.
    ///
    /// # Errors
    /// [`DispatcherError`].
    pub fn attach(ifindex: u32, queues: u32, frames: Frames, options: AttachMode) -> Result<Self, DispatcherError> {
        let create = |spec| RawMap::create(spec).map(Arc::new).map_err(DispatcherError::Map);
        let (sockets, fates) = (create(sockets_spec(queues))?, create(outcomes_spec(queues))?);
        let seen = create(generations_spec(queues))?;
        let programs = RawMap::create(programs_spec()).map_err(DispatcherError::Map)?;
        let root = code(Some(&programs), &*sockets, &*fates);
        let program = Program::load("netgrain", &root, frames).map_err(DispatcherError::Load)?;
        let link = Link::attach(program, ifindex, options).map_err(DispatcherError::Attach)?;
        // A card leaves out what is not for it before any program runs; on a mirror port that is nearly everything.
        let ear = PacketSocket::open().map_err(DispatcherError::Promiscuous)?;
        ear.promiscuous(ifindex).map_err(DispatcherError::Promiscuous)?;
        let (running, seeing) = Default::default();
        Ok(Self {
            link,
            programs,
            running,
            sockets,
            outcomes: fates,
            generations: seen,
            seeing,
            queues,
            frames,
            _promiscuous_socket: ear,
        })
    }

    /// What is done where the slot is empty, as a program of its own over this port's maps.
    pub fn code(&self) -> Code {
        code(None, &*self.sockets, &*self.outcomes)
    }

    /// Lets other code take over between two frames. Code that is to keep the books uses this port's maps as
    /// [`XdpDispatcher::code`] does.
    ///
    /// # Errors
    /// [`DispatcherError`]; the program before then stays.
    pub fn replace(&self, name: &str, code: &Code) -> Result<(), DispatcherError> {
        let program = Program::load(name, code, self.frames).map_err(DispatcherError::Load)?;
        self.exchange(PreparedProgram { program: Arc::new(program), maps: MapSet::default(), roles: vec![], kept: 0 })
            .map(drop)
    }

    /// Makes a program of the language ready: its maps are made, or kept from the program that runs now where they mean the same,
    /// and filled; the verifier has accepted it. Nothing has changed at the port by then. `devices` are the interfaces of the program's
    /// names, `clock` is what takes the kernel's monotonic clock to 1970.
    ///
    /// # Errors
    /// [`DispatcherError`], the verifier's log among them.
    pub fn prepare(
        &self,
        object: &Object,
        devices: &[u32],
        clock: Duration,
    ) -> Result<PreparedProgram, DispatcherError> {
        let before = self.lock().maps.clone();
        let own: Vec<MapSpec> = object.maps.iter().map(|need| spec(need, devices)).collect();
        let wanted: Vec<MapSpec> = own.iter().filter(|spec| !self.is_ours(spec)).cloned().collect();
        let maps = before.next(&wanted).map_err(DispatcherError::Map)?;
        let mut fresh = maps.maps().iter().enumerate();
        let (mut all, mut kept) = (Vec::new(), 0);
        for (need, spec) in object.maps.iter().zip(&own) {
            if self.is_ours(spec) {
                all.push(match need.role {
                    Role::Sockets => &self.sockets,
                    Role::Generations => &self.generations,
                    _ => &self.outcomes,
                });
                continue;
            }
            let Some((at, map)) = fresh.next() else { break };
            all.push(map);
            kept += usize::from(maps.shares(at, &before));
            let fill = |key: &[u8], value: &[u8]| {
                map.set(key, value).map_err(|e| DispatcherError::Fill(map.spec().name.clone(), e))
            };
            match need.role {
                Role::Clock => fill(&0u32.to_ne_bytes(), &(clock.as_nanos() as u64).to_ne_bytes())?,
                Role::Devices => {
                    for (slot, device) in (0u32..).zip(devices) {
                        fill(&slot.to_ne_bytes(), &device.to_ne_bytes())?;
                    }
                }
                _ if maps.shares(at, &before) => {}
                _ => need.content.iter().try_for_each(|(key, value)| fill(key, value))?,
            }
        }
        let fds: Vec<BorrowedFd<'_>> = all.iter().map(|map| map.as_fd()).collect();
        let code = object.code.with_maps(&fds).map_err(|e| DispatcherError::Unbound(e.to_string()))?;
        let program = Program::load("netgrain_port", &code, self.frames).map_err(DispatcherError::Load)?;
        let roles = object.maps.iter().zip(&own).filter(|(_, spec)| !self.is_ours(spec)).map(|(need, _)| need.role);
        let roles = roles.collect();
        Ok(PreparedProgram { program: Arc::new(program), maps, roles, kept })
    }

    /// Lets a prepared program take over between two frames; answers how long that took. A queue that has seen it does not see the one
    /// before again; another queue may still be at a frame with that one.
    ///
    /// # Errors
    /// [`DispatcherError`]; the program before then stays.
    pub fn exchange(&self, prepared: PreparedProgram) -> Result<Duration, DispatcherError> {
        let mut running = self.lock();
        let begun = Instant::now();
        let program = prepared.program.as_fd().as_raw_fd();
        self.programs.set(&ONLY, &program.to_ne_bytes()).map_err(DispatcherError::Exchange)?;
        let taken = begun.elapsed();
        *running = SlotProgram { busy: true, maps: prepared.maps, roles: prepared.roles };
        Ok(taken)
    }

    /// Empties the slot: no frame that comes from now on is decided in the kernel. One that is in the program at this moment still is
    /// ([`sys::bpf::wait_for_running_programs`]).
    ///
    /// # Errors
    /// [`DispatcherError`].
    pub fn relieve(&self) -> Result<(), DispatcherError> {
        let mut running = self.lock();
        if running.busy {
            self.programs.remove(&ONLY).map_err(DispatcherError::Exchange)?;
            *running = SlotProgram::default();
        }
        Ok(())
    }

    /// A map of the program that runs, to be read or tended.
    pub fn map(&self, role: Role) -> Option<PortMap> {
        let running = self.lock();
        let at = running.roles.iter().position(|r| *r == role)?;
        running.maps.maps().get(at).cloned()
    }

    /// How many queues the port has; fates are counted for each.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SlotProgram> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is one of the maps that the port keeps whatever program runs.
    fn is_ours(&self, spec: &MapSpec) -> bool {
        [&self.sockets, &self.outcomes, &self.generations].iter().any(|map| map.spec() == spec)
    }

    /// Tells the kernel that whoever reads `queue` has seen a packet of the program with this generation, so that those that follow
    /// need not say it ([`QueueGenerations`]). Until the kernel knows, each packet says it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn acknowledge(&self, queue: u32, generation: u32) -> io::Result<()> {
        let _alone = self.seeing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.generations.get(&ONLY)?.unwrap_or_default();
        let Some(of_queue) = of_queue(&mut all, queue) else { return Ok(()) };
        // What another queue's program writes at this moment may be lost, and comes again with its next packet.
        *of_queue = QueueGenerations { by_user: generation, ..QueueGenerations::read(of_queue) }.bytes();
        self.generations.set(&ONLY, &all)
    }

    /// The last generation of which packets of `queue` could not say that they are its own; 0 if all could.
    ///
    /// # Errors
    /// The kernel's.
    pub fn last_untagged(&self, queue: u32) -> io::Result<u32> {
        let mut all = self.generations.get(&ONLY)?.unwrap_or_default();
        Ok(of_queue(&mut all, queue).map_or(0, |of_queue| QueueGenerations::read(of_queue).last_untagged))
    }

    /// Native or generic.
    pub fn mode(&self) -> XdpMode {
        self.link.mode()
    }

    /// From now on frames of `queue` go to `socket`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// From now on frames of `queue` go to the kernel. Programs that run at this moment may still choose the socket.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_back(&self, queue: u32) -> io::Result<()> {
        self.sockets.remove(&queue.to_ne_bytes()).map(drop)
    }

    /// What the program did with frames of `queue`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counts(&self, queue: u32) -> io::Result<DispatcherCounts> {
        let per_cpu = self.outcomes.get(&queue.to_ne_bytes())?.unwrap_or_default();
        let sum = |fate: PacketOutcome| {
            let of_cpu = |cpu: &[u8]| cpu[8 * fate as usize..].first_chunk().map_or(0, |n| u64::from_ne_bytes(*n));
            per_cpu.chunks_exact(8 * PacketOutcome::COUNT).map(of_cpu).sum::<u64>()
        };
        Ok(DispatcherCounts {
            redirected: sum(PacketOutcome::User) + sum(PacketOutcome::Undecided),
            undecided: sum(PacketOutcome::Undecided),
            passed: sum(PacketOutcome::Unclaimed),
            disposed: ProgramOutcomes {
                dropped: sum(PacketOutcome::Dropped),
                forwarded: sum(PacketOutcome::Forwarded),
                to_host: sum(PacketOutcome::Kernel),
                unsent: sum(PacketOutcome::Unsent),
            },
        })
    }
}

/// The slot.
fn programs_spec() -> MapSpec {
    MapSpec {
        name: "ng_programs".into(),
        kind: MapKind::ProgArray,
        key_bytes: 4,
        value_bytes: 4,
        entries: 1,
        semantics: "the program that runs".into(),
    }
}

/// Sockets by queue, as every program of the port knows them.
fn sockets_spec(queues: u32) -> MapSpec {
    MapSpec {
        name: "ng_sockets".into(),
        kind: MapKind::XskMap,
        key_bytes: 4,
        value_bytes: 4,
        entries: queues,
        semantics: "sockets by queue".into(),
    }
}

/// Fates by queue, as every program of the port counts them.
fn outcomes_spec(queues: u32) -> MapSpec {
    MapSpec {
        name: "ng_fates".into(),
        kind: MapKind::PerCpuArray,
        key_bytes: 4,
        value_bytes: 8 * PacketOutcome::COUNT as u32,
        entries: queues,
        semantics: "fates by queue".into(),
    }
}

/// Which programs were seen by queue, as every program of the port knows it.
fn generations_spec(queues: u32) -> MapSpec {
    MapSpec {
        name: "ng_seen".into(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: QueueGenerations::BYTES as u32 * queues,
        entries: 1,
        semantics: "programs seen by queue".into(),
    }
}

fn of_queue(all: &mut [u8], queue: u32) -> Option<&mut [u8; QueueGenerations::BYTES]> {
    all.get_mut(QueueGenerations::BYTES * queue as usize..)?.first_chunk_mut()
}

/// The program as drawn above, which goes on with what is in the slot if it has one.
fn code(programs: Option<&RawMap>, sockets: &impl AsFd, fates: &impl AsFd) -> Code {
    const QUEUE_ON_STACK: i16 = -4;
    let mut asm = Asm::new();
    let (passed, out) = (asm.label(), asm.label());
    if let Some(programs) = programs {
        asm.mov_reg(Reg::R6, Reg::R1);
        asm.map(Reg::R2, programs);
        // A number that the verifier knows makes this a jump whose target the kernel patches, not a look at the map.
        asm.mov(Reg::R3, 0);
        asm.call(Helper::TailCall);
        asm.mov_reg(Reg::R1, Reg::R6);
    }
    asm.load(Size::W, Reg::R2, Reg::R1, context::RX_QUEUE_INDEX);
    asm.store(Size::W, Reg::R10, QUEUE_ON_STACK, Reg::R2);
    asm.map(Reg::R1, sockets);
    asm.mov(Reg::R3, XdpAction::Pass.number());
    asm.call(Helper::RedirectMap);
    asm.mov_reg(Reg::R6, Reg::R0);

    asm.map(Reg::R1, fates);
    asm.mov_reg(Reg::R2, Reg::R10);
    asm.alu(bpf::Alu::Add, Reg::R2, i32::from(QUEUE_ON_STACK));
    asm.call(Helper::MapLookupElem);
    asm.jump_if(Condition::Eq, Reg::R0, 0, out);
    asm.jump_if(Condition::Ne, Reg::R6, XdpAction::Redirect.number(), passed);
    count(&mut asm, 8 * PacketOutcome::User as i16);
    asm.jump(out);
    asm.place(passed);
    count(&mut asm, 8 * PacketOutcome::Unclaimed as i16);

    asm.place(out);
    asm.mov_reg(Reg::R0, Reg::R6);
    asm.exit();
    asm.finish().expect("both labels are placed, a few slots away")
}

/// `*(u64 *)(r0 + at) += 1`. Not atomic: the value is this processor's own, and XDP programs do not interrupt each other.
fn count(asm: &mut Asm, at: i16) {
    asm.load(Size::Dw, Reg::R1, Reg::R0, at);
    asm.alu(bpf::Alu::Add, Reg::R1, 1);
    asm.store(Size::Dw, Reg::R0, at, Reg::R1);
}
