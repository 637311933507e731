//! Layer 2: the groups of a running engine.
//!
//! The crate `group` decides which packets each member gets. This crate contains the threads and sockets ([`Groups`]),
//! creates the groups of the configuration, and implements the services that groups need from an engine
//! ([`group::EngineServices`]): programs as machine code, member filters, sinks for interfaces and files, and host
//! interfaces.
#![forbid(unsafe_code)]

mod error;
mod groups;
mod host_interface;
mod instance;
mod language;
mod log_limiter;
mod map_capacity;
mod member_filter;
mod queue_context;
mod reconcile;
mod services;
mod shared_worker;
mod shorthand;
mod sink;

pub use error::{GroupPlanError, GroupProgramError, GroupsError};
pub use groups::{ControlSocketPlan, DispatcherSetup, Groups, InterfaceSetup, groups_socket, is_reported_at};
pub use reconcile::{GroupPlan, MemberPlan, ReconcileMessage};
pub use services::standalone_services;

/// Checks whether a group can run this program.
///
/// # Errors
/// The reason why a group cannot run the program.
pub fn check_group_program(source: &str) -> Result<(), GroupProgramError> {
    match shorthand::parse(source, wire::link::ETHERNET)? {
        Some(_) => Ok(()),
        None => language::check(source),
    }
}
