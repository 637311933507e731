//! Groups: a program decides what happens to each packet and who among the waiting readers gets it.
//!
//! A *group* is a program, the queues it looks at, and its *members*: processes that each have a branch of the ring
//! ([`ring::Branch`]), descriptors of their own over the one copy of the bytes. Members are in *classes*, and a program
//! delivers to all members of some classes, or steers to one of them by a hash ([`steer`]). Groups on the same port know
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
mod counts;
mod dispatch;
mod door;
mod entry;
mod group;
mod limits;
mod members;
mod nap;
mod object;
mod outside;
mod registry;
mod request;
mod seats;
mod silent;
pub mod steer;
mod verdict;

pub use client::{Client, ClientError, Farewell, Generations, Seat};
pub use counts::{ClassCounts, Closed, Counts, MemberCounts, PortCounts, PortSums, Put, Seen};
pub use dispatch::{BATCH, Dispatcher, NAP, Order, Orders, Swapped, Turn};
pub use door::Door;
pub use entry::{GroupView, MemberView, Visitor};
pub use group::{Books, Group, Port, Swap};
pub use limits::Limits;
pub use members::{Eligible, Member, Membership};
pub use nap::Nap;
pub use outside::{Outlet, Outside, Source, Track};
pub use registry::{GROUPS, Loaded, Registry};
pub use request::{Answer, FILE_MOST, Policy, Request};
pub use seats::Joined;
pub use silent::{Silent, Standing};
pub use steer::{MEMBERS, Steering, WEIGHT_MAX};
pub use verdict::{
    About, CLASSES, Compiled, Datagrams, Delivery, FORWARDS, Filling, Forwards, Packet, Program, Sieve, Verdict, class,
};
