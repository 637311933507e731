//! A request for an inspection: the interfaces, the store and the checks, and those properties of the planned capture
//! that some checks need (sizes of its rings and packet files, dedicated interfaces).

use crate::Check;
use std::path::PathBuf;

/// A request for an inspection: the interfaces, the store and the checks, and those properties of the planned capture
/// that some checks need (sizes of its rings and packet files, dedicated interfaces).
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Names of the interfaces to inspect. If the list is empty, all physical interfaces are inspected, and no finding
    /// about an interface offers a change.
    pub ports: Vec<String>,
    /// The directory of a store; the inspection writes a test file to it.
    pub store: Option<PathBuf>,
    /// Names of the checks to make. If the list is empty, all checks are made.
    pub only: Vec<String>,
    /// The total size of all rings in bytes, as the recorder would allocate them.
    pub ring: u64,
    /// The size of a packet file in bytes, as the recorder would allocate it.
    pub segment: u64,
    /// True if the interfaces are dedicated to capture although the host uses them.
    pub dedicated: bool,
    /// True if the inspection also makes a trial capture of test frames on a private veth pair.
    pub trial: bool,
}

impl Request {
    /// True if the request includes at least one of these checks.
    pub(crate) fn includes(&self, checks: &[&Check]) -> bool {
        self.only.is_empty() || checks.iter().any(|c| self.only.iter().any(|o| o == c.name))
    }
}
