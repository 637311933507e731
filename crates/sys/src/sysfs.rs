//! The kernel's text files below `/proc` and `/sys` (proc(5), sysfs(5)), read below a configurable root directory, so
//! that a test can present a directory as a machine with four NUMA nodes.
//!
//! Paths have no leading slash: `proc/meminfo`, `sys/devices/system/cpu/isolated`. A file that cannot be read gives
//! `None`: the kernel omits the files of features that a machine lacks.

use crate::cpu;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A directory tree that holds `proc` and `sys`.
#[derive(Clone, Debug)]
pub struct Tree(PathBuf);

impl Default for Tree {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Tree {
    /// The tree below this directory; `/` for this machine.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The full path of a file of the tree.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name.trim_start_matches('/'))
    }

    /// The content of a file, without trailing white space.
    pub fn text(&self, name: &str) -> Option<String> {
        // Some files of sysfs fail on read if the driver has no value; the result is then `None` too.
        std::fs::read(self.path(name)).ok().map(|b| String::from_utf8_lossy(&b).trim_end().to_owned())
    }

    /// The content of a file, parsed as a number or another type.
    pub fn value<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.trim().parse().ok()
    }

    /// A list of CPUs such as `0-3,8`; an empty file is an empty list.
    pub fn cpus(&self, name: &str) -> Option<Vec<usize>> {
        self.text(name).map(|t| cpu::parse_list(t.trim()))
    }

    /// The sorted names in a directory; empty if the directory does not exist.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// True if the file or directory exists.
    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Writes to an existing file.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` without the privilege; `InvalidInput` for a value that the kernel rejects.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        use std::io::Write;
        // The kernel interprets each write as one complete value.
        std::fs::OpenOptions::new().write(true).truncate(true).open(self.path(name))?.write_all(text.as_bytes())
    }

    /// The directory of a device on any bus: `virtio2`, `0000:01:00.0`.
    pub fn device(&self, name: &str) -> Option<String> {
        // The path is below `sys/bus`, because `/sys/class/net` shows only interfaces of the namespace in which sysfs
        // was mounted.
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
    fn a_directory_serves_as_the_tree_of_a_machine() {
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
        assert!(!tree.has("sys/nothing"), "a missing setting is not created");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
