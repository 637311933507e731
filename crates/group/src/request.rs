//! What is asked at the groups' socket and what is answered: one JSON object in one message, both ways.
//!
//! ```text
//! -> {"do":"create","group":"web","program":"main = tcp >-> steer_flow"}
//! <- {"ok":true,"generation":1,"items":0}
//! -> {"do":"join","group":"web"}
//! <- {"ok":true,"place":0,"generation":1,"items":0,"branches":2}   then one message with five descriptors for each branch
//! <- {"ok":false,"error":"there is no group \"wbe\"; `netgrain group list` shows those there are"}
//! ```
//! An answer is followed by as many messages as its `items` says, each an object (a group, a member). A connection is a
//! member for as long as it stays open; its end is the farewell, whatever the reason. Who asks to leave before loses nothing. Unknown fields are refused, so that a
//! misspelt one is not silently without effect.

use crate::steering::Steering;
use crate::unresponsive::{DispatcherState, UnresponsiveQueue};
use crate::verdict::ProgramInfo;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Most bytes of a message: a long program fits.
pub const MESSAGE_MAX: usize = 128 << 10;

/// Most bytes of a program as it is sent ([`encoded_bytes`]): whoever asks for it gets it in one message, with what is around it.
pub(crate) const PROGRAM_MAX: usize = MESSAGE_MAX - (1 << 10);

/// Most bytes of a member's filter as it is sent.
pub(crate) const FILTER_MAX: usize = 32 << 10;

/// Bytes that a text has in a message, where quotes and line ends are two.
pub(crate) fn encoded_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |told| told.len())
}

/// Most bytes of the name of a group or a member.
pub const NAME_MAX: usize = 48;

/// Most bytes of a file that the engine writes for a group, when nobody said.
pub const FILE_BYTES_DEFAULT: u64 = 1 << 30;

/// Who may join a group and change it. Root and the user that the engine runs as always may; the socket's own permissions
/// come before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Only the process that created it, and it ends with the connection that created it.
    Private,
    /// Processes of the user who created it.
    #[default]
    Restricted,
    /// Everybody who may use the socket.
    Shared,
}

impl Policy {
    /// As it is written.
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
    /// A new group.
    Create {
        /// Its name.
        group: String,
        /// Source of its program; without, everything is copied to the default class.
        #[serde(default)]
        program: Option<String>,
        /// Who may join.
        #[serde(default)]
        policy: Policy,
        /// PFQ's fold instead of rendezvous hashing.
        #[serde(default)]
        fold: bool,
        /// The interfaces that its packets come from; without, the one that the socket belongs to.
        #[serde(default, rename = "interfaces", skip_serializing_if = "Option::is_none")]
        ports: Option<Vec<String>>,
        /// Only these queues of each interface; without, all.
        #[serde(default)]
        queues: Option<Vec<u16>>,
        /// It ends with this connection.
        #[serde(default)]
        ephemeral: bool,
    },
    /// A group less; its members are told the end of the stream.
    Delete {
        /// Which.
        group: String,
    },
    /// Become a member.
    Join {
        /// Of which.
        group: String,
        /// Classes by name or number; without, the default one.
        #[serde(default)]
        classes: Vec<String>,
        /// Part of what is steered.
        #[serde(default = "one")]
        weight: u8,
        /// Only packets that match this capture filter.
        #[serde(default)]
        filter: Option<String>,
        /// Descriptors of the branch on each queue; 0 for the usual number.
        #[serde(default)]
        descs: u64,
        /// What to call it.
        #[serde(default)]
        name: String,
    },
    /// Give up this connection's seats in good order: nothing more is delivered, and what is in the branches can be read to their
    /// ends.
    Leave,
    /// Let the engine itself put a member's part into an interface or a file.
    Attach {
        /// Of which.
        group: String,
        /// Into this interface …
        #[serde(default, rename = "interface")]
        port: Option<String>,
        /// … or into this file, which must not be there yet.
        #[serde(default)]
        file: Option<PathBuf>,
        /// Most bytes of the file.
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
    /// Take such a member out again.
    Detach {
        /// Of which.
        group: String,
        /// Where.
        slot: u8,
    },
    /// Change the weight of a member, in this place.
    SetWeight {
        /// Of which.
        group: String,
        /// Where.
        slot: u8,
        /// From now on.
        weight: u8,
    },
    /// The source of a group's program.
    Program {
        /// Of which.
        group: String,
    },
    /// Another program, from the next batch on.
    Swap {
        /// Of which.
        group: String,
        /// Its source; without, everything is copied to the default class.
        #[serde(default)]
        program: Option<String>,
    },
    /// All groups.
    List,
    /// The books of one group, or of all.
    Stats {
        /// Which.
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
    /// The rule of a group that is created like this.
    pub fn steering(fold: bool) -> Steering {
        if fold { Steering::Fold } else { Steering::Rendezvous }
    }
}

/// The first message of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Whether it was done.
    pub ok: bool,
    /// Why not, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The generation of the group's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The place of the new member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u8>,
    /// The program's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// How the program runs that was loaded.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub about: Option<ProgramInfo>,
    /// Microseconds from the order to the last queue that has carried it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// How many queues have not carried it out yet; they will, and nothing is lost meanwhile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: usize,
    /// The queues that have not carried it out: those that are late, and those whose dispatchers have failed and never will.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresponsive: Vec<UnresponsiveQueue>,
    /// Objects that follow.
    #[serde(default)]
    pub items: usize,
    /// Branches that follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub branches: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Response {
    /// Done.
    pub fn done() -> Self {
        Self { ok: true, ..Self::default() }
    }

    /// Done, but for these queues.
    pub(crate) fn done_but(silent: Vec<UnresponsiveQueue>) -> Self {
        let late = silent.iter().filter(|one| one.state == DispatcherState::Late).count();
        Self { late, unresponsive: silent, ..Self::done() }
    }

    /// Not done.
    pub fn refusal(why: impl Into<String>) -> Self {
        Self { error: Some(why.into()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_page_says_and_a_misspelt_field_is_refused() {
        let text = r#"{"do":"create","group":"web","program":"main = tcp >-> steer_flow"}"#;
        let Request::Create { group, program, policy, fold, ports: None, queues, ephemeral: brief } =
            serde_json::from_str(text).unwrap()
        else {
            panic!("not a create")
        };
        assert_eq!((group.as_str(), program.as_deref()), ("web", Some("main = tcp >-> steer_flow")));
        assert_eq!((policy, fold, queues, brief), (Policy::Restricted, false, None, false));
        assert!(serde_json::from_str::<Request>(r#"{"do":"join","group":"web","wieght":2}"#).is_err());
        let join: Request = serde_json::from_str(r#"{"do":"join","group":"web"}"#).unwrap();
        assert!(matches!(join, Request::Join { weight: 1, descs: 0, .. }));
        assert_eq!(serde_json::to_string(&Request::List).unwrap(), r#"{"do":"list"}"#);
    }

    #[test]
    fn answers_say_only_what_there_is_to_say() {
        assert_eq!(serde_json::to_string(&Response::done()).unwrap(), r#"{"ok":true,"items":0}"#);
        let no = Response::refusal("no");
        assert_eq!(serde_json::to_string(&no).unwrap(), r#"{"ok":false,"error":"no","items":0}"#);
    }
}
