//! Requests and responses at the groups' control socket: one JSON object per message, in both directions.
//!
//! ```text
//! -> {"do":"create","group":"web","program":"main = tcp >-> steer_flow"}
//! <- {"ok":true,"generation":1,"items":0}
//! -> {"do":"join","group":"web"}
//! <- {"ok":true,"slot":0,"generation":1,"items":0,"branches":2}   then one message for each branch
//! <- {"ok":false,"error":"no group \"wbe\": the engine has web"}
//! ```
//! The message for a branch transfers five file descriptors. `items` is the number of messages that follow a response;
//! each contains one object (a group, a member). A membership lasts as long as its connection. The engine ends the
//! membership when the connection closes, for any reason. A client that sends `leave` before it closes the connection
//! loses no delivered packet. The engine refuses a request with an unknown field, so that a misspelt field is not
//! silently ignored.

use crate::steering::Steering;
use crate::unresponsive::{DispatcherState, UnresponsiveQueue};
use crate::verdict::ProgramInfo;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The maximum number of bytes of a message; a long program fits into a message.
pub const MESSAGE_MAX: usize = 128 << 10;

/// The maximum number of bytes of an encoded program ([`encoded_bytes`]): the response to `Program` must fit into one
/// message.
pub(crate) const PROGRAM_MAX: usize = MESSAGE_MAX - (1 << 10);

/// The maximum number of bytes of an encoded member filter.
pub(crate) const FILTER_MAX: usize = 32 << 10;

/// Returns the number of bytes of a text in a JSON message, where a quote or a line end takes two bytes.
pub(crate) fn encoded_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |reported| reported.len())
}

/// The maximum number of bytes of the name of a group or a member.
pub const NAME_MAX: usize = 48;

/// Default size limit in bytes of a file that the engine writes for a group.
pub const FILE_BYTES_DEFAULT: u64 = 1 << 30;

/// The users that may join a group and change it. Root and the engine's own user always may; the permissions of the
/// socket apply first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Only the process that created the group may join and change it. The group ends with the connection that created
    /// it.
    Private,
    /// All processes of the user who created the group may join and change it.
    #[default]
    Restricted,
    /// All users who may use the control socket may join and change the group.
    Shared,
}

impl Policy {
    /// Returns the name of the policy in configuration and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Restricted => "restricted",
            Self::Shared => "shared",
        }
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Create a group.
    Create {
        /// The group's name.
        group: String,
        /// Source of the program; without it, every packet is copied to the default class.
        #[serde(default)]
        program: Option<String>,
        /// The users that may join.
        #[serde(default)]
        policy: Policy,
        /// Use PFQ's fold instead of rendezvous hashing.
        #[serde(default)]
        fold: bool,
        /// The interfaces whose packets the group gets; default: the interface of the socket.
        #[serde(default, rename = "interfaces", skip_serializing_if = "Option::is_none")]
        ports: Option<Vec<String>>,
        /// The queues of each interface whose packets the group gets; default: all queues.
        #[serde(default)]
        queues: Option<Vec<u16>>,
        /// True if the group ends when this connection to the control socket ends.
        #[serde(default)]
        ephemeral: bool,
    },
    /// Delete a group; its members see the end of the stream.
    Delete {
        /// The group's name.
        group: String,
    },
    /// Join a group as a member.
    Join {
        /// The group's name.
        group: String,
        /// Classes by name or number; default: the default class.
        #[serde(default)]
        classes: Vec<String>,
        /// Weight in steering.
        #[serde(default = "one")]
        weight: u8,
        /// Deliver only packets that match this capture filter.
        #[serde(default)]
        filter: Option<String>,
        /// Number of descriptors of the branch on each queue; 0 for the default.
        #[serde(default)]
        descs: u64,
        /// The member's name.
        #[serde(default)]
        name: String,
    },
    /// End this connection's memberships in good order: delivery stops, and the client can read its branches to their
    /// ends.
    Leave,
    /// Add a member whose packets the engine writes to an interface or a file.
    Attach {
        /// The group's name.
        group: String,
        /// The interface to which the engine sends the packets; either this field or `file` is required.
        #[serde(default, rename = "interface")]
        port: Option<String>,
        /// The file to which the engine writes the packets, instead of an interface; it must not exist yet.
        #[serde(default)]
        file: Option<PathBuf>,
        /// Size limit of the file in bytes.
        #[serde(default = "file_most")]
        max_bytes: u64,
        /// As for [`Request::Join`].
        #[serde(default)]
        classes: Vec<String>,
        /// As for [`Request::Join`].
        #[serde(default = "one")]
        weight: u8,
        /// As for [`Request::Join`].
        #[serde(default)]
        filter: Option<String>,
    },
    /// Remove a member that was added by `attach`.
    Detach {
        /// The group's name.
        group: String,
        /// The member slot.
        slot: u8,
    },
    /// Change the weight of a member.
    SetWeight {
        /// The group's name.
        group: String,
        /// The member slot.
        slot: u8,
        /// The new weight.
        weight: u8,
    },
    /// Return the source of a group's program.
    Program {
        /// The group's name.
        group: String,
    },
    /// Swap the program from the next batch on.
    Swap {
        /// The group's name.
        group: String,
        /// The new source; without it, every packet is copied to the default class.
        #[serde(default)]
        program: Option<String>,
    },
    /// List all groups.
    List,
    /// Return the accounting of one group, or of all.
    Stats {
        /// The group's name.
        #[serde(default)]
        group: Option<String>,
    },
}

fn one() -> u8 {
    1
}

fn file_most() -> u64 {
    FILE_BYTES_DEFAULT
}

impl Request {
    /// Returns the steering method: PFQ's fold if `fold` is true, otherwise rendezvous hashing.
    pub fn steering(fold: bool) -> Steering {
        if fold { Steering::Fold } else { Steering::Rendezvous }
    }
}

/// The first message of a response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// True if the request was carried out.
    pub ok: bool,
    /// The reason for a refusal, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The generation of the group's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The slot of the new member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u8>,
    /// The program's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// How the loaded program runs.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub about: Option<ProgramInfo>,
    /// Microseconds from the command until the last queue carried it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// Number of queues that have not carried the command out yet. A queue that is late will carry the command out, and
    /// loses no packet before that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: usize,
    /// The queues that have not carried the command out. These are late queues, and queues with a failed dispatcher,
    /// which never carry it out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresponsive: Vec<UnresponsiveQueue>,
    /// Number of objects that follow.
    #[serde(default)]
    pub items: usize,
    /// Number of branches that follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub branches: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Response {
    /// Makes the response to a successful request.
    pub fn done() -> Self {
        Self { ok: true, ..Self::default() }
    }

    /// Makes the response to a request that was accepted but that these queues have not carried out yet.
    pub(crate) fn done_but(unresponsive: Vec<UnresponsiveQueue>) -> Self {
        let late = unresponsive.iter().filter(|one| one.state == DispatcherState::Late).count();
        Self { late, unresponsive, ..Self::done() }
    }

    /// Makes the response to a refused request.
    pub fn refusal(why: impl Into<String>) -> Self {
        Self { error: Some(why.into()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_requests_are_parsed_and_a_misspelt_field_is_rejected() {
        let text = r#"{"do":"create","group":"web","program":"main = tcp >-> steer_flow"}"#;
        let Request::Create { group, program, policy, fold, ports: None, queues, ephemeral: brief } =
            serde_json::from_str(text).unwrap()
        else {
            panic!("not a create request")
        };
        assert_eq!((group.as_str(), program.as_deref()), ("web", Some("main = tcp >-> steer_flow")));
        assert_eq!((policy, fold, queues, brief), (Policy::Restricted, false, None, false));
        assert!(serde_json::from_str::<Request>(r#"{"do":"join","group":"web","wieght":2}"#).is_err());
        let join: Request = serde_json::from_str(r#"{"do":"join","group":"web"}"#).unwrap();
        assert!(matches!(join, Request::Join { weight: 1, descs: 0, .. }));
        assert_eq!(serde_json::to_string(&Request::List).unwrap(), r#"{"do":"list"}"#);
    }

    #[test]
    fn responses_omit_empty_fields() {
        assert_eq!(serde_json::to_string(&Response::done()).unwrap(), r#"{"ok":true,"items":0}"#);
        let no = Response::refusal("no");
        assert_eq!(serde_json::to_string(&no).unwrap(), r#"{"ok":false,"error":"no","items":0}"#);
    }
}
