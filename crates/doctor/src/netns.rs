//! Which network namespace (network_namespaces(7)) a setting was changed in. Ports are of one, and their names mean others
//! in another: what was changed there can only be put back there.

use crate::setting::Setting;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use sys::sysfs::Tree;

/// Where `ip netns` keeps namespaces by name.
const NAMED: &str = "run/netns";

/// The namespace of the thread that asks.
const HERE: &str = "proc/thread-self/ns/net";

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netns {
    /// The number that the kernel gives it, as in `net:[4026531840]`.
    pub inode: u64,
    /// What `ip netns` calls it, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Netns {
    /// The one in which this thread is.
    pub fn here(tree: &Tree) -> Option<Self> {
        let inode = inode(tree, HERE)?;
        Some(Self { inode, name: name_of(tree, inode) })
    }

    /// That of a setting, where it has one: ports do, and what lies below the kernel's folders of the network.
    pub fn of(setting: &Setting, tree: &Tree) -> Option<Self> {
        let has_one = match setting {
            Setting::File { path } => path.starts_with("proc/sys/net/") || path.starts_with("sys/class/net/"),
            _ => true,
        };
        has_one.then(|| Self::here(tree)).flatten()
    }

    /// What to put before a command so that it runs there; `None` if nobody is in it and it has no name.
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
