//! The reasons why an engine refuses a request about its groups.

use crate::limits::{GROUPS, LimitError};
use crate::request::{FILTER_MAX, NAME_MAX, PROGRAM_MAX};
use crate::service_error::ServiceError;
use crate::steering::{MEMBERS, WEIGHT_MAX};
use ring::{BRANCH_DESCS_MAX, BRANCH_DESCS_MIN};
use std::error::Error;
use std::fmt;
use std::io;

/// The reason why a request is refused.
#[derive(Debug)]
pub enum RequestError {
    /// The request has a kind that the function does not accept; the field names the required kind.
    Kind(&'static str),
    /// The engine has no group of this name.
    NoGroup {
        /// The name.
        group: String,
        /// The names of the engine's groups.
        known: Vec<String>,
    },
    /// The group exists.
    GroupExists {
        /// The name.
        group: String,
        /// The interfaces of the existing group.
        interfaces: Vec<String>,
    },
    /// The engine has [`GROUPS`] groups.
    TooManyGroups,
    /// A text is not a valid name of a group.
    GroupName(String),
    /// Another group of the same name has replaced the group during the request.
    Replaced,
    /// The engine has no interface of this name.
    NoInterface {
        /// The name.
        interface: String,
        /// The names of the engine's interfaces.
        known: Vec<String>,
    },
    /// The request has an empty list of interfaces.
    NoInterfaces,
    /// No interface of the request has this queue.
    NoQueue {
        /// The number of the queue.
        queue: u16,
        /// The interfaces of the request.
        interfaces: Vec<String>,
        /// The queues of these interfaces.
        known: Vec<u16>,
    },
    /// Two interfaces of a group have different link types.
    LinkTypes([(String, u32); 2]),
    /// The client may not do what it requests.
    Permission(PermissionError),
    /// A resource of the engine is used up.
    Limit(LimitError),
    /// The properties of a member are not valid.
    Member(MemberError),
    /// A member slot has no member.
    NoMember {
        /// The group.
        group: String,
        /// The member slot.
        slot: u8,
    },
    /// The member to detach is a process.
    Process {
        /// The group.
        group: String,
        /// The member slot.
        slot: u8,
    },
    /// All member slots of this group are occupied.
    Full(String),
    /// The request to attach a sink names neither an interface nor a file, or both.
    Sink,
    /// The program has this many bytes in JSON.
    ProgramLength(usize),
    /// The compiler of the program panicked.
    CompilerPanic,
    /// There is no memory for a branch of a member.
    Branch {
        /// The number of descriptors.
        descs: u64,
        /// The error of the system.
        error: io::Error,
    },
    /// There is no memory for a branch to an egress interface.
    EgressBranch {
        /// The interface.
        interface: String,
        /// The error of the system.
        error: io::Error,
    },
    /// A service of the engine failed.
    Service(ServiceError),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "the request is not {kind} request"),
            Self::NoGroup { group, known } if known.is_empty() => {
                write!(f, "no group {group:?}: the engine has no groups; `netgrain group create` creates one")
            }
            Self::NoGroup { group, known } => write!(f, "no group {group:?}: the engine has {}", known.join(", ")),
            Self::GroupExists { group, interfaces } => {
                let interfaces = interfaces.join(", ");
                write!(f, "group {group:?} already exists on {interfaces}; swap its program, or delete the group first")
            }
            Self::TooManyGroups => {
                write!(f, "the engine has {GROUPS} groups, which is the limit; delete a group first")
            }
            Self::GroupName(name) => {
                write!(f, "{name:?} is not a valid group name: write letters, digits, - _ . (at most {NAME_MAX} bytes)")
            }
            Self::Replaced => f.write_str(
                "the group was replaced by another group of the same name during the request; repeat the request",
            ),
            Self::NoInterface { interface, known } => write!(
                f,
                "this engine has no interface {interface:?}, but {}; one `netgrain run` can capture several interfaces",
                known.join(", ")
            ),
            Self::NoInterfaces => f.write_str("the request names no interface; name at least one"),
            Self::NoQueue { queue, interfaces, known } => {
                let word = if known.len() == 1 { "queue" } else { "queues" };
                let known: Vec<String> = known.iter().map(u16::to_string).collect();
                let (interfaces, known) = (interfaces.join(", "), known.join(", "));
                write!(f, "no queue {queue}; {interfaces} has {word} {known} in this engine")
            }
            Self::LinkTypes([(first, link_type), (other, differs)]) => write!(
                f,
                "interface {first} has link type {link_type} and interface {other} has link type {differs}; create a \
                 group for each link type"
            ),
            Self::Permission(e) => e.fmt(f),
            Self::Limit(e) => e.fmt(f),
            Self::Member(e) => e.fmt(f),
            Self::NoMember { group, slot } => write!(f, "slot {slot} of group {group:?} has no member"),
            Self::Process { group, slot } => {
                write!(f, "the member in slot {slot} of group {group:?} is a process, which leaves when it ends")
            }
            Self::Full(group) => write!(f, "group {group:?} has {MEMBERS} members, which is the limit"),
            Self::Sink => f.write_str("the request must name either an interface or a file"),
            Self::ProgramLength(bytes) => {
                write!(f, "the program has {bytes} bytes in JSON; the limit is {PROGRAM_MAX}")
            }
            Self::CompilerPanic => f.write_str("the compiler of the program panicked; please report this"),
            Self::Branch { descs, error } => write!(f, "no memory for a branch with {descs} descriptors: {error}"),
            Self::EgressBranch { interface, error } => {
                write!(f, "no memory for the branch of egress interface {interface}: {error}")
            }
            Self::Service(e) => e.fmt(f),
        }
    }
}

impl Error for RequestError {}

impl From<PermissionError> for RequestError {
    fn from(e: PermissionError) -> Self {
        Self::Permission(e)
    }
}

impl From<LimitError> for RequestError {
    fn from(e: LimitError) -> Self {
        Self::Limit(e)
    }
}

impl From<MemberError> for RequestError {
    fn from(e: MemberError) -> Self {
        Self::Member(e)
    }
}

impl From<ServiceError> for RequestError {
    fn from(e: ServiceError) -> Self {
        Self::Service(e)
    }
}

/// The reason why a client may not do what it requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionError {
    /// The group is private to the process with this PID.
    PrivateGroup(u32),
    /// The group is restricted to the user with this user id.
    RestrictedGroup(u32),
    /// Only root and the engine's user may make the engine write a file. The field is the number of the engine's user.
    File(u32),
    /// Only root and the engine's user may pass packets of a dedicated interface to the host. The field is the number
    /// of the engine's user.
    Host(u32),
    /// Programs of this user may not send packets through this interface.
    Forward {
        /// The user.
        uid: u32,
        /// The interface.
        interface: String,
    },
}

impl fmt::Display for PermissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateGroup(pid) => write!(f, "the group is private to process {pid}; create your own group"),
            Self::RestrictedGroup(uid) => {
                write!(f, "the group is restricted to user {uid}; its owner can create it as shared")
            }
            Self::File(uid) => write!(
                f,
                "only root and user {uid} may make the engine write a file; join the group as a member and write the \
                 file yourself"
            ),
            Self::Host(uid) => write!(
                f,
                "only root and user {uid} may pass packets of a dedicated interface to the host; remove `kernel` from \
                 the program"
            ),
            Self::Forward { uid, interface } => write!(
                f,
                "user {uid} may not send through interface {interface}, because the engine would send with its own \
                 privileges; the user who starts the engine can permit it (`--allow-forward {interface}`)"
            ),
        }
    }
}

impl Error for PermissionError {}

/// The reason why the properties of a new member are not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberError {
    /// The weight in steering is out of range.
    Weight(u8),
    /// A text is not the name or number of a class.
    Class(String),
    /// The class `management` has no members.
    ManagementClass,
    /// The filter has this many bytes in JSON.
    FilterLength(usize),
    /// A branch cannot have this many descriptors.
    Descriptors(u64),
    /// The name has this many bytes.
    NameLength(usize),
    /// The name contains control characters.
    NameCharacters,
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weight(weight) => write!(f, "weight {weight} is out of range; write 1 to {WEIGHT_MAX}"),
            Self::Class(text) => {
                write!(f, "{text:?} is not a class: write default, user, control or a number from 0 to 62")
            }
            Self::ManagementClass => f.write_str(
                "members of class management receive no packets, and a connection can manage groups without joining a \
                 group; choose another class",
            ),
            Self::FilterLength(bytes) => write!(f, "the filter has {bytes} bytes in JSON; the limit is {FILTER_MAX}"),
            Self::Descriptors(descs) => {
                write!(f, "{descs} descriptors requested; a branch can have {BRANCH_DESCS_MIN} to {BRANCH_DESCS_MAX}")
            }
            Self::NameLength(bytes) => write!(f, "the name has {bytes} bytes; the limit is {NAME_MAX}"),
            Self::NameCharacters => f.write_str("the name contains control characters; write letters and digits"),
        }
    }
}

impl Error for MemberError {}
