//! Layer 2: the groups of a running engine: a dispatcher for each ring, the control sockets, and the services of the
//! engine to groups.
//!
//! The crate `group` makes all decisions. This crate has the threads and implements the services: programs
//! ([`language`], [`shorthand`]), filters ([`member_filter`]), interfaces and files as sinks, and the interface to the
//! host.
#![forbid(unsafe_code)]

mod error;
mod groups;
mod host_interface;
mod language;
mod log_limiter;
mod map_capacity;
mod member_filter;
mod reconcile;
mod shared;
mod shorthand;
mod sink;

pub use error::GroupsError;
pub use groups::{
    ControlSocketPlan, DispatcherSetup, Groups, PortSetup, check_group_program, groups_socket, is_served_at,
    lent_to_groups,
};
pub use reconcile::{GroupPlan, MemberPlan, ReconcileMessages};
