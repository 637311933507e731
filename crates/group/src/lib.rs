//! Groups: a program decides what happens to each packet and who among the waiting readers gets it.
//!
//! A *group* is a program, the queues it looks at, and its *members*: processes that each have a branch of the ring
//! ([`ring::Branch`]), descriptors of their own over the one copy of the bytes. Members are in *classes*, and a program
//! delivers to all members of some classes, or steers to one of them by a hash ([`steering`]). Groups on the same port know
//! nothing of each other. Programs are exchanged while packets flow, without one being lost between.
//!
//! Invariant (the ledger, continued): of every packet that a group received it is known whether its program dropped it,
//! nobody was there, or it passed; and of every copy, whether it was delivered, refused by the member's filter, or lost
//! because the member had left no room ([`Counts`]). A residue is a bug. No member, dead or alive, slow or hostile, costs
//! another one anything.
//!
//! After PFQ (Bonelli, Giordano, Procissi), without its kernel module, its fold that moves all flows, and its uninitialised
//! slot when nobody is there. `docs/GROUPS.md` is for users.
#![forbid(unsafe_code)]

mod client;
mod control;
mod counts;
mod dispatch;
mod engine_services;
mod entry;
mod group;
mod idle_backoff;
mod join;
mod limits;
mod members;
mod object;
mod registry;
mod request;
pub mod steering;
mod unresponsive;
mod verdict;

pub use client::{Client, ClientError, Generations, LeaveHandle, MemberSession};
pub use control::ControlServer;
pub use counts::{
    ClassCounts, ClosedSinkTotals, Counts, MemberCounts, ReaderCounts, SinkCounts, SinkResult, SinkTotals,
};
pub use dispatch::{BATCH, CommandQueue, Dispatcher, DispatcherCommand, IDLE_SLEEP, SwapResult, TurnResult};
pub use engine_services::{EngineServices, IngressInterface, PacketSink, RingHandle};
pub use entry::{ClientIdentity, GroupView, MemberView};
pub use group::{Group, GroupAccounting, Port, Swap};
pub use idle_backoff::MemberBackoff;
pub use join::JoinResult;
pub use limits::Limits;
pub use members::{Eligible, Member, Membership};
pub use registry::{GROUPS, LoadResult, Registry};
pub use request::{FILE_BYTES_DEFAULT, Policy, Request, Response};
pub use steering::{MEMBERS, Steering, WEIGHT_MAX};
pub use unresponsive::{DispatcherState, UnresponsiveQueue};
pub use verdict::{
    CLASSES, Compiled, Delivery, FORWARDS, Forwards, FragmentCounts, MapUsage, MemberFilter, Packet, Program,
    ProgramInfo, Verdict, class,
};
