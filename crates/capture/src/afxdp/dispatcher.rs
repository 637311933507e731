//! The XDP program of one interface. It stays attached as long as the interface is captured. A program of the packet
//! language can be installed in the dispatcher's slot ([`XdpDispatcher::swap`]); then that program decides on each
//! packet. While the slot is empty, the dispatcher itself counts each frame, and redirects the frame to the socket of
//! its queue if the queue has a socket.
//!
//! ```text
//! bpf_tail_call(ctx, programs, 0)                   returns only if the slot is empty
//! verdict = bpf_redirect_map(sockets, ctx->rx_queue_index, XDP_PASS)
//! outcomes[ctx->rx_queue_index][verdict == XDP_REDIRECT ? user : unclaimed] += 1     one set per processor
//! return verdict
//! ```
//! If timestamps of the NIC or of the kernel are requested, the program writes the timestamp before the frame in place
//! of the tail call ([`super::timestamps`]).
//!
//! The flags of `bpf_redirect_map` are its return value if the map has no socket for the queue: the kernel then
//! receives the frame as if no program were attached. So the return value distinguishes the two cases, and the
//! program's count of redirected frames is independent of the counters of the socket. All programs of an interface
//! count in the same map ([`PacketOutcome`]), so the counters continue across every swap.
//!
//! The dispatcher has a slot for the program because `BPF_LINK_UPDATE` is slower: that call also replaces the program,
//! but then sleeps under the kernel's network lock until all CPUs have left the old program (`bpf_dispatcher_update` in
//! kernel/bpf/dispatcher.c calls `synchronize_rcu`). The wait of 8 to 15 ms is not needed here, because the generation
//! of a packet shows which program processed it. PERF: a swap takes 15 ms by the link and 0.07 ms by the slot; the slot
//! costs 1 ns per packet (records/2026-11-22-xdp.md).

use super::swap::{PortMap, PreparedProgram, spec};
use super::timestamps::{StampCode, XdpTimestamps};
use super::xdp_context as context;
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

/// The numbers of frames that the XDP program counted for one queue, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatcherCounts {
    /// Frames redirected to the socket.
    pub redirected: u64,
    /// Frames that were redirected to the socket and on which the program did not decide.
    pub undecided: u64,
    /// Frames passed to the kernel because the queue has no socket.
    pub passed: u64,
    /// Packets that the program did not redirect to the socket, by outcome.
    pub disposed: ProgramOutcomes,
}

/// The attached program with its maps. It is detached when the last source that uses it is dropped.
#[derive(Debug)]
pub struct XdpDispatcher {
    /// This is the first field, so the link is dropped first and the dispatcher is detached. If `programs` were dropped
    /// first, the slot would be empty while the dispatcher is still attached, and frames would be processed without the
    /// program of the slot.
    link: Link,
    /// The program array with one slot.
    programs: RawMap,
    running: Mutex<SlotProgram>,
    sockets: Arc<RawMap>,
    outcomes: Arc<RawMap>,
    generations: Arc<RawMap>,
    /// This lock is held while the single value of `generations` is read, changed and written back.
    generations_update: Mutex<()>,
    queues: u32,
    frames: Frames,
    /// The timestamps that the dispatcher writes before each frame.
    timestamps: XdpTimestamps,
    /// The reason why the dispatcher does not write the requested timestamps.
    timestamp_fallback: Option<String>,
    /// Puts the interface into promiscuous mode; the kernel ends the mode when it closes the socket, also after a
    /// crash.
    _promiscuous_socket: PacketSocket,
}

/// The state of the slot. The slot itself holds the reference to the program.
#[derive(Debug, Default)]
struct SlotProgram {
    /// True if the slot holds a program.
    is_occupied: bool,
    /// The maps of the program, with their roles; without the maps of the dispatcher.
    maps: MapSet,
    roles: Vec<Role>,
}

/// Reasons why the dispatcher or a program could not be installed.
#[derive(Debug)]
pub enum DispatcherError {
    /// The kernel refused to create a map.
    Map(MapError),
    /// The kernel refused an entry of a map.
    Fill(String, io::Error),
    /// The code refers to maps that were not supplied: a bug of netgrain.
    Unbound(String),
    /// The kernel refused to load the program.
    Load(LoadError),
    /// The kernel refused to attach the program.
    Attach(AttachError),
    /// The kernel refused to replace the program in the slot.
    Swap(io::Error),
    /// The kernel refused promiscuous mode.
    Promiscuous(io::Error),
}

/// The only key of the program array and of the map of generations.
const ONLY: [u8; 4] = [0; 4];

impl XdpDispatcher {
    /// Attaches the program to the interface. All frames pass to the kernel until a queue is redirected to a socket.
    /// If the interface does not have the timestamps, the dispatcher writes none
    /// ([`XdpDispatcher::timestamp_fallback`]). A dispatcher that writes timestamps has no slot for a program of the
    /// packet language.
    ///
    /// # Errors
    /// [`DispatcherError`].
    pub fn attach(
        ifindex: u32,
        queues: u32,
        frames: Frames,
        options: AttachMode,
        requested: XdpTimestamps,
    ) -> Result<Self, DispatcherError> {
        let create = |spec| RawMap::create(spec).map(Arc::new).map_err(DispatcherError::Map);
        let (sockets, outcomes) = (create(sockets_spec(queues))?, create(outcomes_spec(queues))?);
        let seen = create(generations_spec(queues))?;
        let programs = RawMap::create(programs_spec()).map_err(DispatcherError::Map)?;
        let plain = |start| -> Result<Link, DispatcherError> {
            let root = code(start, &*sockets, &*outcomes);
            let program = Program::load("netgrain", &root, frames).map_err(DispatcherError::Load)?;
            Link::attach(program, ifindex, options).map_err(DispatcherError::Attach)
        };
        let (link, timestamps, timestamp_fallback) = match requested {
            XdpTimestamps::None => (plain(Start::Slot(&programs))?, requested, None),
            XdpTimestamps::Kernel => (plain(Start::Stamp(StampCode::KernelClock))?, requested, None),
            XdpTimestamps::Hardware => {
                let stamped = |stamp| code(Start::Stamp(stamp), &*sockets, &*outcomes);
                match attach_for_nic_timestamps(ifindex, frames, options, stamped)? {
                    Ok(link) => (link, requested, None),
                    Err(reason) => (plain(Start::Slot(&programs))?, XdpTimestamps::None, Some(reason)),
                }
            }
        };
        // Without promiscuous mode the NIC discards frames for other hosts before any program runs; on a mirror port
        // these are nearly all frames.
        let promiscuous_socket = PacketSocket::open().map_err(DispatcherError::Promiscuous)?;
        promiscuous_socket.promiscuous(ifindex).map_err(DispatcherError::Promiscuous)?;
        let (running, generations_update) = Default::default();
        Ok(Self {
            link,
            programs,
            running,
            sockets,
            outcomes,
            generations: seen,
            generations_update,
            queues,
            frames,
            timestamps,
            timestamp_fallback,
            _promiscuous_socket: promiscuous_socket,
        })
    }

    /// The code for an empty slot, as a separate program over the maps of this interface.
    pub fn code(&self) -> Code {
        code(Start::Deliver, &*self.sockets, &*self.outcomes)
    }

    /// Replaces the running program by other code between two frames. The counters continue if the code uses the maps
    /// of this interface, as [`XdpDispatcher::code`] does.
    ///
    /// # Errors
    /// [`DispatcherError`]; the previous program then continues to run.
    pub fn replace(&self, name: &str, code: &Code) -> Result<(), DispatcherError> {
        let program = Program::load(name, code, self.frames).map_err(DispatcherError::Load)?;
        self.swap(PreparedProgram { program: Arc::new(program), maps: MapSet::default(), roles: vec![], kept: 0 })
            .map(drop)
    }

    /// Prepares a program of the packet language: creates and fills its maps, or uses again those maps of the running
    /// program that have the same meaning, and has the verifier accept the code. The interface is not changed yet.
    /// `egress` are the interfaces that the program names; `clock` is the offset from the kernel's monotonic clock to
    /// 1970.
    ///
    /// # Errors
    /// [`DispatcherError`], with the verifier's log if the verifier refused the program.
    pub fn prepare(
        &self,
        object: &Object,
        egress: &[u32],
        clock: Duration,
    ) -> Result<PreparedProgram, DispatcherError> {
        let before = self.lock().maps.clone();
        let own: Vec<MapSpec> = object.maps.iter().map(|need| spec(need, egress)).collect();
        let wanted: Vec<MapSpec> = own.iter().filter(|spec| !self.is_own(spec)).cloned().collect();
        let maps = before.next(&wanted).map_err(DispatcherError::Map)?;
        let mut fresh = maps.maps().iter().enumerate();
        let (mut all, mut kept) = (Vec::new(), 0);
        for (need, spec) in object.maps.iter().zip(&own) {
            if self.is_own(spec) {
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
                Role::EgressInterfaces => {
                    for (slot, interface) in (0u32..).zip(egress) {
                        fill(&slot.to_ne_bytes(), &interface.to_ne_bytes())?;
                    }
                }
                _ if maps.shares(at, &before) => {}
                _ => need.content.iter().try_for_each(|(key, value)| fill(key, value))?,
            }
        }
        let fds: Vec<BorrowedFd<'_>> = all.iter().map(|map| map.as_fd()).collect();
        let code = object.code.with_maps(&fds).map_err(|e| DispatcherError::Unbound(e.to_string()))?;
        let program = Program::load("netgrain_port", &code, self.frames).map_err(DispatcherError::Load)?;
        let roles = object.maps.iter().zip(&own).filter(|(_, spec)| !self.is_own(spec)).map(|(need, _)| need.role);
        let roles = roles.collect();
        Ok(PreparedProgram { program: Arc::new(program), maps, roles, kept })
    }

    /// Installs a prepared program between two frames and returns the duration of the swap. Each queue changes to the
    /// new program at its next frame: a queue that has run the new program does not run the previous program again,
    /// while another queue may still process a frame with the previous program.
    ///
    /// # Errors
    /// [`DispatcherError`]; the previous program then continues to run.
    pub fn swap(&self, prepared: PreparedProgram) -> Result<Duration, DispatcherError> {
        let mut running = self.lock();
        let begun = Instant::now();
        let program = prepared.program.as_fd().as_raw_fd();
        self.programs.set(&ONLY, &program.to_ne_bytes()).map_err(DispatcherError::Swap)?;
        let taken = begun.elapsed();
        *running = SlotProgram { is_occupied: true, maps: prepared.maps, roles: prepared.roles };
        Ok(taken)
    }

    /// Empties the slot, so that no program of the packet language decides on frames that arrive later. A program that
    /// is running at this moment still decides on its current frame ([`sys::bpf::wait_for_running_programs`]).
    ///
    /// # Errors
    /// [`DispatcherError`].
    pub fn empty_slot(&self) -> Result<(), DispatcherError> {
        let mut running = self.lock();
        if running.is_occupied {
            self.programs.remove(&ONLY).map_err(DispatcherError::Swap)?;
            *running = SlotProgram::default();
        }
        Ok(())
    }

    /// A map of the running program, for reading and maintenance.
    pub fn map(&self, role: Role) -> Option<PortMap> {
        let running = self.lock();
        let at = running.roles.iter().position(|r| *r == role)?;
        running.maps.maps().get(at).cloned()
    }

    /// Number of queues of the interface; outcomes are counted for each.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SlotProgram> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the map belongs to the dispatcher and stays the same for all programs.
    fn is_own(&self, spec: &MapSpec) -> bool {
        [&self.sockets, &self.outcomes, &self.generations].iter().any(|map| map.spec() == spec)
    }

    /// Records in the kernel that the reader of `queue` has received a packet of the program with this generation. Then
    /// later packets need not carry the generation ([`QueueGenerations`]); before, each packet carries it.
    ///
    /// # Errors
    /// Returns the kernel's error if a system call fails.
    pub fn acknowledge(&self, queue: u32, generation: u32) -> io::Result<()> {
        let _alone = self.generations_update.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.generations.get(&ONLY)?.unwrap_or_default();
        let Some(of_queue) = of_queue(&mut all, queue) else { return Ok(()) };
        // This call may overwrite an update that the XDP program makes at the same time for another queue. The program
        // repeats its update at the next packet of that queue.
        *of_queue = QueueGenerations { by_user: generation, ..QueueGenerations::read(of_queue) }.bytes();
        self.generations.set(&ONLY, &all)
    }

    /// The last generation with packets of `queue` that could not carry their generation; 0 if there were none.
    ///
    /// # Errors
    /// Returns the kernel's error if a system call fails.
    pub fn last_untagged(&self, queue: u32) -> io::Result<u32> {
        let mut all = self.generations.get(&ONLY)?.unwrap_or_default();
        Ok(of_queue(&mut all, queue).map_or(0, |of_queue| QueueGenerations::read(of_queue).last_untagged))
    }

    /// Native or generic.
    pub fn mode(&self) -> XdpMode {
        self.link.mode()
    }

    /// The timestamps that the program writes before each frame.
    pub fn timestamps(&self) -> XdpTimestamps {
        self.timestamps
    }

    /// The reason why the program does not write the requested timestamps; `None` if it writes them.
    pub fn timestamp_fallback(&self) -> Option<&str> {
        self.timestamp_fallback.as_deref()
    }

    /// Redirects the frames of `queue` to `socket` from now on.
    ///
    /// # Errors
    /// Returns the kernel's error if a system call fails.
    pub fn take(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// From now on the frames of `queue` are passed to the kernel's network stack. A program that is running at this
    /// moment may still redirect its frame to the socket.
    ///
    /// # Errors
    /// Returns the kernel's error if a system call fails.
    pub fn give_back(&self, queue: u32) -> io::Result<()> {
        self.sockets.remove(&queue.to_ne_bytes()).map(drop)
    }

    /// The program's counters of `queue`.
    ///
    /// # Errors
    /// Returns the kernel's error if a system call fails.
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

/// The specification of the slot.
fn programs_spec() -> MapSpec {
    MapSpec {
        name: "ng_programs".into(),
        kind: MapKind::ProgArray,
        key_bytes: 4,
        value_bytes: 4,
        entries: 1,
        semantics: "the running program".into(),
    }
}

/// The map of sockets by queue, shared by all programs of the interface.
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

/// The map of outcomes by queue, shared by all programs of the interface.
fn outcomes_spec(queues: u32) -> MapSpec {
    MapSpec {
        name: "ng_outcomes".into(),
        kind: MapKind::PerCpuArray,
        key_bytes: 4,
        value_bytes: 8 * PacketOutcome::COUNT as u32,
        entries: queues,
        semantics: "outcomes by queue".into(),
    }
}

/// The map of generations by queue, shared by all programs of the interface.
fn generations_spec(queues: u32) -> MapSpec {
    MapSpec {
        name: "ng_generations".into(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: QueueGenerations::BYTES as u32 * queues,
        entries: 1,
        semantics: "generations by queue".into(),
    }
}

fn of_queue(all: &mut [u8], queue: u32) -> Option<&mut [u8; QueueGenerations::BYTES]> {
    all.get_mut(QueueGenerations::BYTES * queue as usize..)?.first_chunk_mut()
}

/// Attaches a program that writes the NIC's timestamps. The inner error is the reason why the interface does not have
/// the timestamps; the outer error would also prevent another program from being attached.
fn attach_for_nic_timestamps(
    ifindex: u32,
    frames: Frames,
    options: AttachMode,
    code: impl FnOnce(StampCode) -> Code,
) -> Result<Result<Link, String>, DispatcherError> {
    if options == AttachMode::Only(XdpMode::Generic) {
        return Ok(Err("generic XDP has no timestamps of the NIC".to_owned()));
    }
    let stamp = match StampCode::of_nic(ifindex) {
        Ok(stamp) => stamp,
        Err(reason) => return Ok(Err(reason)),
    };
    let program = match Program::load_for_interface("netgrain", &code(stamp), frames, ifindex) {
        Ok(program) => program,
        Err(e) => {
            return Ok(Err(format!("the kernel refuses a program that reads the NIC's timestamps ({})", e.error)));
        }
    };
    match Link::attach(program, ifindex, AttachMode::Only(XdpMode::Native)) {
        Ok(link) => Ok(Ok(link)),
        Err(AttachError::Refused { error, .. }) => {
            Ok(Err(format!("the driver refuses a program that reads the NIC's timestamps ({error})")))
        }
        Err(e) => Err(DispatcherError::Attach(e)),
    }
}

/// The beginning of the program.
#[derive(Clone, Copy)]
enum Start<'a> {
    /// A tail call to the slot.
    Slot(&'a RawMap),
    /// The timestamp is written before the frame.
    Stamp(StampCode),
    /// Nothing.
    Deliver,
}

/// The program shown in the documentation of this module, with this beginning.
fn code(start: Start<'_>, sockets: &impl AsFd, outcomes: &impl AsFd) -> Code {
    const QUEUE_ON_STACK: i16 = -4;
    let mut asm = Asm::new();
    let (passed, out) = (asm.label(), asm.label());
    if !matches!(start, Start::Deliver) {
        asm.mov_reg(Reg::R6, Reg::R1);
    }
    match start {
        Start::Slot(programs) => {
            asm.map(Reg::R2, programs);
            // With a constant index, the kernel patches a direct jump to the target instead of reading the map.
            asm.mov(Reg::R3, 0);
            asm.call(Helper::TailCall);
        }
        Start::Stamp(stamp) => stamp.emit(&mut asm),
        Start::Deliver => (),
    }
    if !matches!(start, Start::Deliver) {
        asm.mov_reg(Reg::R1, Reg::R6);
    }
    asm.load(Size::W, Reg::R2, Reg::R1, context::RX_QUEUE_INDEX);
    asm.store(Size::W, Reg::R10, QUEUE_ON_STACK, Reg::R2);
    asm.map(Reg::R1, sockets);
    asm.mov(Reg::R3, XdpAction::Pass.number());
    asm.call(Helper::RedirectMap);
    asm.mov_reg(Reg::R6, Reg::R0);

    asm.map(Reg::R1, outcomes);
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
    asm.finish().expect("both labels are placed within reach of a jump")
}

/// Appends `*(u64 *)(r0 + at) += 1`. The addition need not be atomic: the value is per CPU, and XDP programs do not
/// interrupt each other.
fn count(asm: &mut Asm, at: i16) {
    asm.load(Size::Dw, Reg::R1, Reg::R0, at);
    asm.alu(bpf::Alu::Add, Reg::R1, 1);
    asm.store(Size::Dw, Reg::R0, at, Reg::R1);
}
