//! Groups: a program decides for each packet which of the group's members get it.
//!
//! A *group* is a program, the queues whose packets it evaluates, and its *members*. A member is usually a process with
//! a branch of the ring on each queue ([`ring::Branch`]): its own descriptors, over the one copy of the packet bytes.
//! Members belong to *classes*. A program delivers a packet to all members of some classes, or steers it to one of them
//! by a hash ([`steering`]). Groups on the same interface are independent. A program can be swapped under traffic
//! without packet loss.
//!
//! Invariant (accounting): each packet that a group received was dropped by the program, had no eligible member, or was
//! passed to at least one member. Each copy of a packet for a member was delivered, refused by the filter of the
//! member, or lost because the branch of the member was full ([`Counts`]). A packet or copy without one of these
//! outcomes is a bug. A member that crashes, is slow or is malicious neither slows down another member nor makes
//! another member lose packets.
//!
//! The design follows PFQ (Bonelli, Giordano, Procissi) with three differences. It needs no kernel module. It does not
//! use PFQ's fold, which moves nearly all flows when the members change. It does not read an uninitialised slot in
//! groups without members, as PFQ does. `docs/reference/groups.md` is the user documentation.
#![forbid(unsafe_code)]

mod admission;
mod client;
mod control;
mod counts;
mod dispatch;
mod engine_services;
mod entry;
mod error;
mod group;
mod idle_backoff;
mod ingress_interface;
mod join;
mod limits;
mod members;
mod object;
mod registry;
mod request;
mod service_error;
pub mod steering;
mod unresponsive;
mod verdict;

pub use client::{Client, ClientError, GenerationError, Generations, LeaveHandle, MemberSession};
pub use control::ControlServer;
pub use counts::{
    ClassCounts, ClosedSinkTotals, Counts, MemberCounts, ReaderCounts, SinkCounts, SinkResult, SinkTotals,
};
pub use dispatch::{BATCH, CommandQueue, Dispatcher, DispatcherCommand, IDLE_SLEEP, SwapResult, TurnResult};
pub use engine_services::{EngineServices, PacketSink, RingHandle};
pub use entry::{ClientIdentity, GroupView, MemberView};
pub use error::{MemberError, PermissionError, RequestError};
pub use group::{Group, GroupAccounting, Port, Swap};
pub use idle_backoff::MemberBackoff;
pub use ingress_interface::IngressInterface;
pub use join::JoinResult;
pub use limits::{GROUPS, LimitError, LimitScope, Limits};
pub use members::{Eligible, Member, Membership};
pub use registry::{LoadResult, Registry};
pub use request::{FILE_BYTES_DEFAULT, Policy, Request, Response};
pub use service_error::ServiceError;
pub use steering::{MEMBERS, Steering, WEIGHT_MAX};
pub use unresponsive::{DispatcherState, UnresponsiveQueue};
pub use verdict::{
    CLASSES, Compiled, Delivery, FORWARDS, Forwards, FragmentCounts, MapUsage, MemberFilter, Packet, Program,
    ProgramInfo, Verdict, class,
};
