//! The kernel's text files below `/proc` and `/sys` (proc(5), sysfs(5)), read through a root that can be another folder, so
//! that a machine with four NUMA nodes can be a folder of a test.
//!
//! Paths are given without the leading slash: `proc/meminfo`, `sys/devices/system/cpu/isolated`. What cannot be read is
//! `None`: the kernel leaves out files for things that a machine does not have.

use crate::cpu;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A tree that holds `proc` and `sys`.
#[derive(Clone, Debug)]
pub struct Tree(PathBuf);

impl Default for Tree {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Tree {
    /// The tree below this folder; `/` is this machine's.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Where a file of the tree is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name.trim_start_matches('/'))
    }

    /// What a file says, without the end of its last line.
    pub fn text(&self, name: &str) -> Option<String> {
        // Some files of sysfs fail on read where the driver has nothing to say; that is `None` too.
        std::fs::read(self.path(name)).ok().map(|b| String::from_utf8_lossy(&b).trim_end().to_owned())
    }

    /// What a file says, as a number or the like.
    pub fn value<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.trim().parse().ok()
    }

    /// A list of processors such as `0-3,8`; an empty file is an empty list.
    pub fn cpus(&self, name: &str) -> Option<Vec<usize>> {
        self.text(name).map(|t| cpu::parse_list(t.trim()))
    }

    /// The names in a folder, in order; none if there is no such folder.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether there is such a file or folder.
    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Writes a file that is there.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` without the privilege; `InvalidInput` for a value that the kernel does not take.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        use std::io::Write;
        // The kernel takes one write as one value.
        std::fs::OpenOptions::new().write(true).truncate(true).open(self.path(name))?.write_all(text.as_bytes())
    }

    /// The folder of a device on any bus: `virtio2`, `0000:01:00.0`.
    pub fn device(&self, name: &str) -> Option<String> {
        // Below the bus and not below the port: `/sys/class/net` shows the ports of the namespace in which it was mounted.
        self.names("sys/bus").into_iter().map(|bus| format!("sys/bus/{bus}/devices/{name}")).find(|d| self.has(d))
    }

    /// The root of the tree.
    pub fn root(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_can_stand_for_a_machine() {
        let root = std::env::temp_dir().join(format!("netgrain-sysfs-{}", std::process::id()));
        let tree = Tree::at(&root);
        std::fs::create_dir_all(tree.path("sys/bus/pci/devices/0000:01:00.0")).unwrap();
        std::fs::write(tree.path("sys/list"), "0-2,8\n").unwrap();
        std::fs::write(tree.path("/sys/number"), "  42\n").unwrap();
        assert_eq!(tree.cpus("sys/list"), Some(vec![0, 1, 2, 8]));
        assert_eq!(tree.value::<u64>("sys/number"), Some(42));
        assert_eq!(tree.value::<u64>("sys/list"), None);
        assert_eq!(tree.names("sys"), ["bus", "list", "number"]);
        assert_eq!(tree.device("0000:01:00.0").as_deref(), Some("sys/bus/pci/devices/0000:01:00.0"));
        assert_eq!(tree.device("0000:02:00.0"), None);
        tree.write("sys/number", "43").unwrap();
        assert_eq!(tree.text("sys/number").as_deref(), Some("43"));
        assert_eq!(tree.write("sys/nothing", "1").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!tree.has("sys/nothing"), "a setting that is not there is not made");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
