//! The network namespace (network_namespaces(7)) of a change. An interface belongs to one namespace, and in another
//! namespace its name can denote another interface. So a change must be undone in the namespace in which it was made.

use crate::setting::Setting;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use sys::sysfs::Tree;

/// The directory of named namespaces (`ip netns`).
const NAMED: &str = "run/netns";

/// The namespace of the calling thread.
const HERE: &str = "proc/thread-self/ns/net";

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netns {
    /// The inode number of the namespace, as in `net:[4026531840]`.
    pub inode: u64,
    /// The name of the namespace in `ip netns`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Netns {
    /// Returns the namespace of the calling thread.
    pub fn here(tree: &Tree) -> Option<Self> {
        let inode = inode(tree, HERE)?;
        Some(Self { inode, name: name_of(tree, inode) })
    }

    /// Returns the network namespace that a setting belongs to: the namespace of the calling thread for settings of
    /// interfaces and for files below the kernel's network directories, otherwise `None`.
    pub fn of(setting: &Setting, tree: &Tree) -> Option<Self> {
        let has_one = match setting {
            Setting::File { path } => path.starts_with("proc/sys/net/") || path.starts_with("sys/class/net/"),
            _ => true,
        };
        has_one.then(|| Self::here(tree)).flatten()
    }

    /// Returns the command prefix that runs a command in this namespace; `None` if the namespace has neither a process
    /// nor a name.
    pub fn way_in(&self, tree: &Tree) -> Option<String> {
        if let Some(name) = name_of(tree, self.inode) {
            return Some(format!("ip netns exec {name}"));
        }
        let mut processes: Vec<u32> = tree.names("proc").iter().filter_map(|name| name.parse().ok()).collect();
        processes.sort_unstable();
        let inside = processes.into_iter().find(|pid| inode(tree, &format!("proc/{pid}/ns/net")) == Some(self.inode));
        inside.map(|pid| format!("nsenter --target {pid} --net"))
    }
}

impl fmt::Display for Netns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (net:[{}])", self.inode),
            None => write!(f, "net:[{}]", self.inode),
        }
    }
}

fn inode(tree: &Tree, path: &str) -> Option<u64> {
    std::fs::metadata(tree.path(path)).ok().map(|file| file.ino())
}

fn name_of(tree: &Tree, wanted: u64) -> Option<String> {
    tree.names(NAMED).into_iter().find(|name| inode(tree, &format!("{NAMED}/{name}")) == Some(wanted))
}
