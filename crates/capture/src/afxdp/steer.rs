//! Our XDP program on one interface: it counts each frame and sends it to the socket of its queue, if there is one.
//!
//! ```text
//! verdict = bpf_redirect_map(sockets, ctx->rx_queue_index, XDP_PASS)
//! counters[ctx->rx_queue_index][verdict == XDP_REDIRECT ? 0 : 1] += 1        one set per processor
//! return verdict
//! ```
//! The flags of `bpf_redirect_map` are what it answers when the map has no socket for the queue: such frames go on to
//! the kernel as if we were not there. The program itself therefore knows which of the two happened, and its count of
//! frames sent to a socket is independent of what the socket says it received and lost.

use bpf::{
    Asm, AttachError, Code, Condition, Frames, Helper, Link, LoadError, Map, MapKind, Mode, ModeWish, PerCpuMap,
    Program, Reg, Size, Verdict,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use sys::packet::PacketSocket;

/// The program's count of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steered {
    /// Sent to a socket.
    pub redirected: u64,
    /// Left to the kernel.
    pub passed: u64,
}

/// The attached program with its maps. It is detached when the last source that uses it is dropped.
#[derive(Debug)]
pub struct Steer {
    link: Mutex<Link>,
    sockets: Map<u32, u32>,
    counters: PerCpuMap<[u64; 2]>,
    frames: Frames,
    mode: Mode,
    /// Has the port take frames for other hosts too; the port forgets it with the socket, however this process ends.
    _ear: PacketSocket,
}

/// Why there is no program on the interface.
#[derive(Debug)]
pub enum SteerError {
    /// A map was refused.
    Map(io::Error),
    /// The program was refused.
    Load(LoadError),
    /// It could not be attached.
    Attach(AttachError),
    /// The port could not be told to take frames for other hosts.
    Promiscuous(io::Error),
}

/// Offsets in `struct xdp_md`.
mod context {
    pub const RX_QUEUE_INDEX: i16 = 16;
}

impl Steer {
    /// Puts the program on the interface. All frames pass until a queue is taken.
    ///
    /// # Errors
    /// [`SteerError`].
    pub fn attach(ifindex: u32, queues: u32, frames: Frames, wish: ModeWish) -> Result<Self, SteerError> {
        let sockets = Map::create(MapKind::XskMap, "ng_sockets", queues).map_err(SteerError::Map)?;
        let counters = PerCpuMap::create("ng_counters", queues).map_err(SteerError::Map)?;
        let program = Program::load("netgrain", &code(&sockets, &counters), frames).map_err(SteerError::Load)?;
        let link = Link::attach(program, ifindex, wish).map_err(SteerError::Attach)?;
        let mode = link.mode();
        // A card leaves out what is not for it before any program runs; on a mirror port that is nearly everything.
        let ear = PacketSocket::open().map_err(SteerError::Promiscuous)?;
        ear.promiscuous(ifindex).map_err(SteerError::Promiscuous)?;
        Ok(Self { link: Mutex::new(link), sockets, counters, frames, mode, _ear: ear })
    }

    /// The code that is attached first, over this port's maps.
    pub fn code(&self) -> Code {
        code(&self.sockets, &self.counters)
    }

    /// Lets other code take over between two frames. Code that is to keep the books uses this port's maps as
    /// [`Steer::code`] does.
    ///
    /// # Errors
    /// [`SteerError`]; the program before then stays.
    pub fn replace(&self, name: &str, code: &Code) -> Result<(), SteerError> {
        let program = Program::load(name, code, self.frames).map_err(SteerError::Load)?;
        let refused = |error| SteerError::Attach(AttachError::Refused { mode: self.mode, error });
        self.link.lock().unwrap_or_else(PoisonError::into_inner).replace(program).map_err(refused)
    }

    /// Native or generic.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// From now on frames of `queue` go to `socket`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(queue, socket.as_raw_fd() as u32)
    }

    /// From now on frames of `queue` go to the kernel. Programs that run at this moment may still choose the socket.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_back(&self, queue: u32) -> io::Result<()> {
        self.sockets.remove(queue).map(drop)
    }

    /// What the program did with frames of `queue`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn steered(&self, queue: u32) -> io::Result<Steered> {
        let per_cpu = self.counters.get(queue)?.unwrap_or_default();
        Ok(per_cpu.iter().fold(Steered::default(), |sum, [redirected, passed]| Steered {
            redirected: sum.redirected + redirected,
            passed: sum.passed + passed,
        }))
    }
}

/// The program as drawn above.
fn code(sockets: &impl AsFd, counters: &impl AsFd) -> Code {
    const QUEUE_ON_STACK: i16 = -4;
    let mut asm = Asm::new();
    let (passed, out) = (asm.label(), asm.label());
    asm.load(Size::W, Reg::R2, Reg::R1, context::RX_QUEUE_INDEX);
    asm.store(Size::W, Reg::R10, QUEUE_ON_STACK, Reg::R2);
    asm.map(Reg::R1, sockets);
    asm.mov(Reg::R3, Verdict::Pass.number());
    asm.call(Helper::RedirectMap);
    asm.mov_reg(Reg::R6, Reg::R0);

    asm.map(Reg::R1, counters);
    asm.mov_reg(Reg::R2, Reg::R10);
    asm.alu(bpf::Alu::Add, Reg::R2, i32::from(QUEUE_ON_STACK));
    asm.call(Helper::MapLookupElem);
    asm.jump_if(Condition::Eq, Reg::R0, 0, out);
    asm.jump_if(Condition::Ne, Reg::R6, Verdict::Redirect.number(), passed);
    count(&mut asm, 0);
    asm.jump(out);
    asm.place(passed);
    count(&mut asm, 8);

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
